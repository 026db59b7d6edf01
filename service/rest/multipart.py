"""A multipart/form-data body to its parts (RFC 7578), in memory."""

from __future__ import annotations

import logging
from typing import NamedTuple

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.errors import MalformedBodyError
from service.places import Place, in_header

_MAX_BOUNDARY = 70  # RFC 2046, section 5.1.1
_MAX_HEADERS = 8  # of a part
_MAX_HEADER = 1024  # bytes

logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of every malformed body


class Part(NamedTuple):
    """A field of a form."""

    name: str
    data: bytes


def parts_of(body: bytes, content_type: str, *, max_parts: int) -> list[Part]:
    r"""Return the parts of a form in their order.

    Args:
        body: Body of the request.
        content_type: Its Content-Type, which names the boundary.
        max_parts: Maximum number of parts.

    Raises:
        MalformedBodyError: The boundary or the end is missing, there are too many parts, or a part has no name.

    Example:
        >>> body = b'--b\r\nContent-Disposition: form-data; name="inputs"\r\n\r\nhello\r\n--b--\r\n'
        >>> parts_of(body, "multipart/form-data; boundary=b", max_parts=2)
        [Part(name='inputs', data=b'hello')]
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    if not 0 < len(boundary) <= _MAX_BOUNDARY or not boundary.isascii():
        raise _malformed(
            "its Content-Type has no valid boundary",
            in_header("Content-Type"),
            content_type[:200],
            f"multipart/form-data; boundary=…, 1 to {_MAX_BOUNDARY} characters",
        )
    delimiter = b"--" + boundary
    delimiters = body.count(b"\r\n" + delimiter) + body.startswith(delimiter)
    if delimiters > max_parts + 1:  # before the parser looks at each
        raise _malformed("it has too many parts", f"part {max_parts}", f"more than {max_parts}", f"at most {max_parts}")
    form = _Form()
    parser = MultipartParser(boundary, max_header_count=_MAX_HEADERS, max_header_size=_MAX_HEADER)
    for event in ("part_begin", "header_field", "header_value", "headers_finished", "part_data", "part_end", "end"):
        parser.set_callback(event, getattr(form, event))
    try:
        parser.write(body)
    except MultipartParseError as error:
        raise _malformed(
            str(error), f"part {len(form.parts)}, byte {error.offset}", f"{len(body)} bytes", "parts between boundaries"
        ) from None
    if not form.ended:
        raise _malformed(
            "its end is missing",
            f"byte {len(body)}",
            f"{len(form.parts)} whole parts",
            "a last line of two hyphens, boundary, two hyphens",
        )
    return form.parts


class _Form:
    """Collects parts; the parser sees the whole body at once, so each field, value and content comes in one piece."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.ended = False

    def part_begin(self) -> None:
        self._field = self._disposition = self._data = b""

    def header_field(self, data: bytes, start: int, end: int) -> None:
        self._field = data[start:end].lower()

    def header_value(self, data: bytes, start: int, end: int) -> None:
        if self._field == b"content-disposition":
            self._disposition = data[start:end]

    def headers_finished(self) -> None:
        disposition, options = parse_options_header(self._disposition)
        if disposition != b"form-data" or b"name" not in options:
            raise _malformed(
                f"part {len(self.parts)} has no name",
                f"part {len(self.parts)}",
                self._disposition[:200].decode(errors="replace"),
                'Content-Disposition: form-data; name="…"',
            )
        self._name = options[b"name"].decode(errors="replace")

    def part_data(self, data: bytes, start: int, end: int) -> None:
        self._data = data[start:end]

    def part_end(self) -> None:
        self.parts.append(Part(self._name, self._data))

    def end(self) -> None:
        self.ended = True


def _malformed(what: str, where: Place | str, found: str, expected: str) -> MalformedBodyError:
    return MalformedBodyError(f"The body is not a valid form: {what}.", where=where, found=found, expected=expected)
