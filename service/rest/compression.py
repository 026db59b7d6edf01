"""Content encodings, gzip and deflate: of every request's body, and of the answers that are worth it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, MutableMapping
from functools import partial
from typing import Any, Final

from service.errors import MalformedBodyError, UnsupportedEncodingError
from service.rest.bodies import Receive, Scope, read_body, too_large
from service.rest.decoding import Decoders

ENCODINGS: Final = ("gzip", "deflate")
_GZIP: Final = 16 + zlib.MAX_WBITS
_PIECE: Final = 1 << 20
_FASTEST: Final = 1  # float32 hardly compresses better at a higher level, and takes several times as long
_QUALITY: Final = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")


def content_encoding(scope: Scope) -> str:
    """Return how a request's body is encoded: one of `ENCODINGS`, or "identity".

    Raises:
        UnsupportedEncodingError: It is encoded otherwise, or more than once.
    """
    encoding = ", ".join([str(value, "latin-1") for name, value in scope["headers"] if name == b"content-encoding"])
    name = encoding.strip().lower()
    if name == "x-gzip":  # the same (RFC 9110, section 8.4.1.3)
        return "gzip"
    if name in ("", "identity"):
        return "identity"
    if name not in ENCODINGS:
        raise UnsupportedEncodingError(
            f"Bodies are not read in the content encoding {encoding[:40]!r}.",
            where="Content-Encoding",
            found=encoding,
            expected=[*ENCODINGS, "identity"],
            remedy="Send the body in one of these, or as it is and without the header.",
        )
    return name


class Unpacked:
    """Wraps `receive` so that whoever is behind it reads the body of a request as it was before it was encoded.

    The body is unpacked when it is asked for, and not on the event loop: a few bytes may unpack to many.

    Args:
        scope: The request's.
        receive: The ASGI callable.
        limit: Bytes that the body may have, as it comes and unpacked.
        decoders: Threads to unpack in.
    """

    def __init__(self, scope: Scope, receive: Receive, limit: int, decoders: Decoders) -> None:
        self._scope = scope
        self._receive = receive
        self._limit = limit
        self._decoders = decoders
        self._read = False

    async def __call__(self) -> MutableMapping[str, Any]:
        """Give the whole body first, then pass on whatever comes.

        Raises:
            UnsupportedEncodingError: The encoding is none of those that are read; nothing has been read yet.
            MalformedBodyError: The bytes are not what the header says.
            BodyTooLargeError: There are more than `limit` bytes, or they unpack to more.
            OverloadedError: Too many bodies wait to be decoded.
            ClientGoneError: The connection closed before the body was complete.
        """
        if self._read:
            return await self._receive()
        encoding = content_encoding(self._scope)
        body = await read_body(self._scope, self._receive, self._limit)
        if encoding != "identity":
            body = await self._decoders.run(partial(decompress, body, encoding, self._limit), len(body))
        self._read = True
        return {"type": "http.request", "body": body, "more_body": False}


def decompress(body: bytes, name: str, limit: int) -> bytes:
    """Return what a body unpacks to; it is given up as soon as it is known to be over the limit.

    Args:
        body: The bytes that came.
        name: One of `ENCODINGS`.
        limit: Bytes that it may unpack to.

    Raises:
        MalformedBodyError: The bytes are not what `name` says.
        BodyTooLargeError: They unpack to more than `limit` bytes.
    """
    unpacker = zlib.decompressobj(_GZIP if name == "gzip" else _deflate_window(body))
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise _malformed(name, str(error)) from error
    if len(unpacked) > limit:
        raise too_large(f"more than {limit}", limit)
    if not unpacker.eof:
        raise _malformed(name, "it ends too early")
    if unpacker.unused_data:
        raise _malformed(name, f"{len(unpacker.unused_data)} bytes follow its end")
    return unpacked


class Unpacking:
    """Unpacks a body of which the pieces come one after the other.

    Args:
        name: One of `ENCODINGS`.
        first: The first two bytes of the body, or more.
    """

    def __init__(self, name: str, first: bytes) -> None:
        self._name = name
        self._unpacker = zlib.decompressobj(_GZIP if name == "gzip" else _deflate_window(first))

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what a piece unpacks to, in parts of at most `_PIECE` bytes.

        Raises:
            MalformedBodyError: The bytes are not what the name says.
        """
        full = True
        while data or full:
            try:
                piece = self._unpacker.decompress(data, _PIECE)
            except zlib.error as error:
                raise _malformed(self._name, str(error)) from error
            data, full = self._unpacker.unconsumed_tail, len(piece) == _PIECE
            yield piece
        if unused := self._unpacker.unused_data:
            raise _malformed(self._name, f"{len(unused)} bytes follow its end")

    def end(self) -> None:
        """Raise MalformedBodyError where the body has ended too early."""
        if not self._unpacker.eof:
            raise _malformed(self._name, "it ends too early")


def compress(content: bytes, encoding: str) -> bytes:
    """Return `content` in one of `ENCODINGS`.

    >>> decompress(compress(b"abc", "gzip"), "gzip", 3), decompress(compress(b"abc", "deflate"), "deflate", 3)
    (b'abc', b'abc')
    """
    packer = zlib.compressobj(_FASTEST, zlib.DEFLATED, _GZIP if encoding == "gzip" else zlib.MAX_WBITS)
    return packer.compress(content) + packer.flush()


def wanted(accept_encoding: str) -> str | None:
    """Return the encoding that an Accept-Encoding header prefers among `ENCODINGS`, None where it wants none of them.

    >>> wanted("gzip, deflate, br"), wanted("deflate"), wanted("gzip;q=0.2, deflate;q=0.5"), wanted("gzip;q=0, br")
    ('gzip', 'deflate', 'deflate', None)
    """
    if accept_encoding in ENCODINGS:  # the usual case
        return accept_encoding
    weights: dict[str, float] = {}
    for part in accept_encoding.lower().split(","):
        name, _, parameter = (text.strip() for text in part.partition(";"))
        quality = _QUALITY.fullmatch(parameter)
        weights[name] = float(quality[1]) if quality else 1.0
    best = max(ENCODINGS, key=lambda name: weights.get(name, weights.get("*", 0.0)))
    return best if weights.get(best, weights.get("*", 0.0)) > 0 else None


def _deflate_window(body: bytes) -> int:
    """Return zlib's word for how a "deflate" body is framed: as RFC 9110 has it, or bare, as some clients send it."""
    framed = len(body) > 1 and body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:2]) % 31 == 0
    return zlib.MAX_WBITS if framed else -zlib.MAX_WBITS


def _malformed(encoding: str, reason: str) -> MalformedBodyError:
    return MalformedBodyError(
        f"The body is not {encoding} data: {reason}.", where="Content-Encoding", found=encoding, expected="whole data"
    )
