"""Places in a request, which errors name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a request. Clients read it as text.

    Attributes:
        kind: Part of the request. `tensor` is a row of a tensor in the body of a /v2 request.
        parts: Path to the place, outermost part first; the name alone of a query parameter or header.

    Example:
        >>> str(in_body("inputs", 3)), str(in_query("top")), str(in_header("If-Match"))
        ('/inputs/3', '?top', 'If-Match')
        >>> str(in_body("a/b"))
        '/a~1b'
        >>> str(in_body("inputs", 0).tensor_row(3))
        'row 3 of /inputs/0'
    """

    kind: Literal["body", "tensor", "query", "header"]
    parts: tuple[str | int, ...]

    def __truediv__(self, part: str | int) -> Place:
        """Return the place `part` inside this one."""
        return Place(self.kind, (*self.parts, part))

    def __str__(self) -> str:
        """Return the place as clients read it; in a body, a JSON pointer (RFC 6901)."""
        match self.kind:
            case "body":
                return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in self.parts) or "/"
            case "tensor":
                return f"row {self.parts[-1]} of {Place('body', self.parts[:-1])}"
            case "query":
                return f"?{self.parts[0]}"
            case "header":
                return str(self.parts[0])

    @property
    def row(self) -> int | None:
        """Row of `inputs` in which the place lies, None if it lies elsewhere.

        >>> in_body("inputs", 3, "age").row, in_body("inputs").row, in_body("segments", 3).row
        (3, None, None)
        """
        match self.kind, self.parts:
            case "body", ("inputs", int(row), *_):
                return row
        return None

    def tensor_row(self, row: int) -> Place:
        """Return a row of the tensor at this place."""
        return Place("tensor", (*self.parts, row))


@lru_cache(maxsize=256, typed=True)
def in_body(*parts: str | int) -> Place:
    """Return a place in the body, by keys and indices."""
    return Place("body", parts)


def in_query(name: str) -> Place:
    """Return a query parameter."""
    return Place("query", (name,))


def in_header(name: str) -> Place:
    """Return a header."""
    return Place("header", (name,))
