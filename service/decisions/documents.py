"""Reading the parts of a policy document; what cannot be used is refused with a pointer to the field."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, cast

from service.errors import PolicyError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def fields_of(value: Any, where: str, known: set[str], kind: str = "field") -> Mapping[str, Any]:
    """Return an object with known fields only."""
    if not isinstance(value, Mapping):
        raise PolicyError(
            f"Expected an object here, found {type(value).__name__}.",
            where=where,
            found=value,
            expected=sorted(known),
            remedy="Write it as names with values.",
        )
    for name in value:
        if name not in known:
            raise PolicyError(
                f"Unknown {kind} {name!r}; known are {', '.join(sorted(known))}.",
                where=f"{where}/{name}",
                found=name,
                expected=sorted(known),
                remedy="Correct the name, or leave it out.",
            )
    return value


def required(fields: Mapping[str, Any], name: str, where: str = "") -> Any:
    """Return a field that must be there."""
    if name not in fields:
        raise PolicyError(
            f"The field {name!r} is missing.",
            where=f"{where}/{name}",
            found=sorted(fields),
            expected=name,
            remedy=f"Add {name!r}.",
        )
    return fields[name]


def text(value: Any, where: str) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise PolicyError(
            "Expected a text that is not empty.",
            where=where,
            found=value,
            expected="a text",
            remedy='Put it in quotes: YAML reads 7, yes and no as something else than "7", "yes" and "no".',
        )
    return value


def name(value: Any, where: str) -> str:
    """Return a name of the kind that ids and actions have."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise PolicyError(
            "A name has 1 to 64 letters, digits, '.', '_' or '-', and starts with a letter or digit.",
            where=where,
            found=value,
            expected=NAME.pattern,
            remedy="Choose such a name.",
        )
    return value


def choice(value: Any, where: str, known: tuple[str, ...]) -> str:
    """Return one of a few words."""
    if value not in known:
        raise PolicyError(
            f"Unknown value {value!r}; known are {', '.join(known)}.",
            where=where,
            found=value,
            expected=list(known),
            remedy="Use one of these.",
        )
    return cast("str", value)


def share(
    value: Any, where: str, *, closed_below: bool = False, closed_above: bool = False, remedy: str | None = None
) -> float:
    """Return a number between 0 and 1, the ends only where they are allowed."""
    span = f"{'[' if closed_below else '('}0, 1{']' if closed_above else ')'}"
    # Compared before it is converted: an integer may be larger than any float.
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    number = float(value) if fits else math.nan
    if not fits or (number == 0 and not closed_below) or (number == 1 and not closed_above):
        raise PolicyError(
            f"Expected a number in {span}.",
            where=where,
            found=value,
            expected=f"a number in {span}",
            remedy=remedy or "Write a share, such as 0.02 for two in a hundred.",
        )
    return number


def positive(value: Any, where: str) -> float:
    """Return a finite number above 0."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not 0 < value <= 1e300:
        raise PolicyError(
            "Expected a number above 0.",
            where=where,
            found=value,
            expected="a finite number above 0",
            remedy="Give what it costs, in any unit that all costs of the band share.",
        )
    return float(value)
