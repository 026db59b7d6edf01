"""Content encodings gzip and deflate, of request bodies and large answers."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, MutableMapping
from functools import partial
from typing import Any, Final

from service.errors import MalformedBodyError, UnsupportedEncodingError
from service.operations.decoding import Decoders
from service.places import in_header
from service.rest.bodies import Receive, Scope, read_body, too_large

ENCODINGS: Final = ("gzip", "deflate")
_GZIP: Final = 16 + zlib.MAX_WBITS
_PIECE: Final = 1 << 20
_FASTEST: Final = 1  # higher levels take several times as long and hardly shrink float32
_QUALITY: Final = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")


def content_encoding(scope: Scope) -> str:
    """Return the encoding of a request body: one of `ENCODINGS`, or "identity".

    Raises:
        UnsupportedEncodingError: The encoding is another one, or there are several.
    """
    encoding = ", ".join([str(value, "latin-1") for name, value in scope["headers"] if name == b"content-encoding"])
    name = encoding.strip().lower()
    if name == "x-gzip":  # the same (RFC 9110, section 8.4.1.3)
        return "gzip"
    if name in ("", "identity"):
        return "identity"
    if name not in ENCODINGS:
        raise UnsupportedEncodingError(
            f"Unsupported content encoding {encoding[:40]!r}.",
            where=in_header("Content-Encoding"),
            found=encoding,
            expected=[*ENCODINGS, "identity"],
            remedy="Use one of these encodings, or send the body uncompressed without the header.",
        )
    return name


class Unpacked:
    """Wrap `receive` to unpack the body of a request.

    Unpacking starts with the first call and runs off the event loop, since a few bytes may unpack to many.

    Args:
        scope: Scope of the request.
        receive: ASGI callable.
        limit: Maximum bytes of the body, compressed and unpacked.
        decoders: Threads to unpack in.
    """

    def __init__(self, scope: Scope, receive: Receive, limit: int, decoders: Decoders) -> None:
        self._scope = scope
        self._receive = receive
        self._limit = limit
        self._decoders = decoders
        self._read = False

    async def __call__(self) -> MutableMapping[str, Any]:
        """Return the whole body first, then pass on later messages.

        Raises:
            UnsupportedEncodingError: The encoding is not supported. Nothing has been read yet.
            MalformedBodyError: The body does not match the header.
            BodyTooLargeError: The body exceeds `limit` bytes, compressed or unpacked.
            OverloadedError: Too many bodies are waiting to be decoded.
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
    """Unpack a body. Stop as soon as it is known to exceed the limit.

    Args:
        body: Compressed body.
        name: One of `ENCODINGS`.
        limit: Maximum unpacked bytes.

    Raises:
        MalformedBodyError: The body does not match `name`.
        BodyTooLargeError: The body unpacks to more than `limit` bytes.
    """
    unpacker = zlib.decompressobj(_GZIP if name == "gzip" else _deflate_window(body))
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise _malformed(name, str(error)) from error
    if len(unpacked) > limit:
        raise too_large(f"more than {limit}", limit)
    if not unpacker.eof:
        raise _malformed(name, "the data end too early")
    if unpacker.unused_data:
        raise _malformed(name, f"{len(unpacker.unused_data)} bytes follow the end")
    return unpacked


class Unpacking:
    """Unpack a body piece by piece.

    Args:
        name: One of `ENCODINGS`.
        first: The first two bytes of the body, or more.
    """

    def __init__(self, name: str, first: bytes) -> None:
        self._name = name
        self._unpacker = zlib.decompressobj(_GZIP if name == "gzip" else _deflate_window(first))

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Unpack a piece; yield parts of at most `_PIECE` bytes.

        Raises:
            MalformedBodyError: The bytes do not match the encoding.
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
            raise _malformed(self._name, f"{len(unused)} bytes follow the end")

    def end(self) -> None:
        """Raise MalformedBodyError if the body is incomplete."""
        if not self._unpacker.eof:
            raise _malformed(self._name, "the data end too early")


def compress(content: bytes, encoding: str) -> bytes:
    """Return `content` in one of `ENCODINGS`.

    >>> decompress(compress(b"abc", "gzip"), "gzip", 3), decompress(compress(b"abc", "deflate"), "deflate", 3)
    (b'abc', b'abc')
    """
    packer = zlib.compressobj(_FASTEST, zlib.DEFLATED, _GZIP if encoding == "gzip" else zlib.MAX_WBITS)
    return packer.compress(content) + packer.flush()


def wanted(accept_encoding: str) -> str | None:
    """Return the encoding among `ENCODINGS` that an Accept-Encoding header prefers, None if it accepts none.

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
    """Return the zlib window bits of a "deflate" body: framed as in RFC 9110, or bare, as some clients send it."""
    framed = len(body) > 1 and body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:2]) % 31 == 0
    return zlib.MAX_WBITS if framed else -zlib.MAX_WBITS


def _malformed(encoding: str, reason: str) -> MalformedBodyError:
    return MalformedBodyError(
        f"The body is not {encoding} data: {reason}.",
        where=in_header("Content-Encoding"),
        found=encoding,
        expected="whole data",
    )
