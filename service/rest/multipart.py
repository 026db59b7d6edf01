"""A multipart/form-data body to its parts (RFC 7578, RFC 2046)."""

from __future__ import annotations

from dataclasses import dataclass
from email.errors import MessageError
from email.message import Message
from email.parser import BytesHeaderParser

from service.errors import MalformedBodyError

_MAX_BOUNDARY = 70  # RFC 2046, section 5.1.1
_MAX_HEADERS = 4096


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a form.

    Attributes:
        name: Its name.
        data: Its bytes.
    """

    name: str
    data: bytes


def parts_of(body: bytes, content_type: str, *, max_parts: int) -> list[Part]:
    r"""Return the parts of a form in their order.

    Args:
        body: The request's body.
        content_type: Its Content-Type, which names the boundary.
        max_parts: Parts that it may have.

    Raises:
        MalformedBodyError: There is no boundary, no end, too many parts, or a part without a name.

    Example:
        >>> body = b'--b\r\nContent-Disposition: form-data; name="inputs"\r\n\r\nhello\r\n--b--\r\n'
        >>> parts_of(body, "multipart/form-data; boundary=b", max_parts=2)
        [Part(name='inputs', data=b'hello')]
    """
    delimiter = b"\r\n--" + _boundary(content_type)
    preamble, *rest = (b"\r\n" + body).split(delimiter, max_parts + 1)
    if not rest:
        raise _malformed("no part begins", f"{len(preamble) - 2} bytes without the boundary", "parts")
    parts: list[Part] = []
    for piece in rest:
        if piece.startswith(b"--"):
            return parts
        if len(parts) == max_parts:
            raise _malformed("there are too many parts", f"more than {max_parts}", f"at most {max_parts}")
        parts.append(_part(piece, len(parts)))
    raise _malformed("its end is missing", f"{len(parts)} parts", "a last line of two hyphens, boundary, two hyphens")


def _boundary(content_type: str) -> bytes:
    header = Message()
    header["content-type"] = content_type
    try:
        boundary = header.get_boundary()
    except (ValueError, MessageError):
        boundary = None
    if not boundary or len(boundary) > _MAX_BOUNDARY or not boundary.isascii():
        raise _malformed(
            "its Content-Type names no boundary",
            content_type[:200],
            f"multipart/form-data; boundary=…, 1 to {_MAX_BOUNDARY} characters",
        )
    return boundary.encode()


def _part(piece: bytes, index: int) -> Part:
    """Read what stands between two boundaries: the rest of the boundary's line, headers, an empty line, the data."""
    padding, newline, content = piece.partition(b"\r\n")
    if padding.strip(b" \t") or not newline:
        raise _malformed(f"the line of boundary {index} goes on", repr(padding[:40])[1:], "nothing behind the boundary")
    end = 0 if content.startswith(b"\r\n") else content.find(b"\r\n\r\n", 0, _MAX_HEADERS)
    if end < 0:
        raise _malformed(f"the headers of part {index} do not end", f"{len(content)} bytes", "headers, an empty line")
    headers = BytesHeaderParser().parsebytes(content[:end])
    name = headers.get_param("name", header="content-disposition")
    if not isinstance(name, str) or headers.get_content_disposition() != "form-data":
        raise _malformed(
            f"part {index} has no name",
            str(headers.get("content-disposition"))[:200],
            'Content-Disposition: form-data; name="…"',
        )
    return Part(name, content[end + 4 :] if end else content[2:])


def _malformed(what: str, found: str, expected: str) -> MalformedBodyError:
    return MalformedBodyError(f"The body is not a form that can be read: {what}.", found=found, expected=expected)
