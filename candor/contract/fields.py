"""What the parts of a policy document share: the types of its values, and refusals that say what to do."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, ValidationError, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from candor.contract.documents import Body
from candor.contract.expressions import LARGEST_AMOUNT, LONGEST, Expression, ExpressionError

LONGEST_SEGMENT: Final = 200  # characters; no request names a longer one
SMALLEST_DELTA: Final = 1e-12  # floats still tell its parts, for every promise, segment and look, from 0

_TEXT: Final = "Correct it. In YAML, 7, yes and no are strings only in quotes."
_SHARE: Final = "Write a proportion, such as 0.02 for 2 %."
_PROMISE: Final = f"{_SHARE} No finite number of labels can certify 0 or 1; 0.01 and 0.99 are strong promises."
_DELTA: Final = "Give the probability that a promise may be false; 0.05 is usual."


def refusal(message: str, remedy: str, *at: str | int, expected: Any, **found: Any) -> PydanticCustomError:
    """Return a validator's error: `at` is the path from the validated value to the field, `found` its value."""
    return PydanticCustomError("refused", message, {"at": at, "expected": expected, "remedy": remedy, **found})


def _explained(expected: str, remedy: str) -> WrapValidator:
    """Return a validator that replaces every error of a value by one explanation."""

    def validate(value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            for one in error.errors(include_url=False):
                if one["type"] == "refused":
                    raise PydanticCustomError("refused", one["msg"], one["ctx"]) from None
            raise refusal(f"Expected {expected}.", remedy, expected=expected) from None

    return WrapValidator(validate)


def _of_amounts(text: str) -> str:
    remedy = "Use numbers, amount, + - * /, min, max and parentheses, such as 4 + 0.02 * amount."
    expected = "an expression that is linear in `amount` between its corners"
    try:
        lowest = Expression.of(text).lowest
    except ExpressionError as error:
        raise refusal(f"Not a valid cost: {error}.", remedy, expected=expected, found=text[:LONGEST]) from None
    if lowest < 0:
        raise refusal(
            f"The cost is negative for some amount: it falls to {lowest:g}.",
            "Bound it from below, as max(0, …) does.",
            expected="a cost of 0 or more for every amount from 0 to 1e15",
            found=text,
        )
    return text


Name = Annotated[
    str,
    Field(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"),
    _explained("a name of 1 to 64 letters, digits, '.', '_' or '-' that starts with a letter or digit", _TEXT),
]
Label = Annotated[str, Field(strict=True, min_length=1), _explained("a string that is not empty", _TEXT)]
Segment = Annotated[
    str,
    Field(strict=True, min_length=1, max_length=LONGEST_SEGMENT, pattern=r"^[^\x00]*$"),
    _explained(f"a string of 1 to {LONGEST_SEGMENT} characters without NUL, as in a request", _TEXT),
]
Share = Annotated[float, Field(strict=True, ge=0, le=1), _explained("a number in [0, 1]", _SHARE)]
Probability = Annotated[float, Field(strict=True, gt=0, le=1), _explained("a number in (0, 1]", _SHARE)]
Promise = Annotated[float, Field(strict=True, gt=0, lt=1), _explained("a number in (0, 1)", _PROMISE)]
Delta = Annotated[float, Field(strict=True, ge=SMALLEST_DELTA, lt=1), _explained("a number in [1e-12, 1)", _DELTA)]
PerDay = Annotated[
    int, Field(strict=True, ge=1, le=10_000_000), _explained("an integer from 1 to 10,000,000", "Give rows per day.")
]
RowsPerDay = Annotated[
    int,
    Field(strict=True, ge=1, le=1_000_000_000_000),
    _explained("an integer from 1 to 10^12", "Give the rows that the model predicts in a busy day."),
]
Planned = Annotated[
    int,
    Field(strict=True, ge=1, le=10_000_000),
    _explained("an integer from 1 to 10,000,000", "Give the number of certify rows that you expect."),
]
Duration = Annotated[
    str,
    Field(strict=True, pattern=r"^[1-9][0-9]{0,4}[smhdw]$"),
    _explained("a duration such as 30m, 24h or 7d", "Write a number and a unit: s, m, h, d or w."),
]
Amount = Annotated[
    float,
    Field(strict=True, ge=0, le=LARGEST_AMOUNT),
    _explained("a number from 0 to 1e15", "Give an amount in the unit of the costs."),
]
Loss = Annotated[
    float,
    Field(strict=True, gt=0, le=LARGEST_AMOUNT),
    _explained("a number above 0, at most 1e15", "Give an amount in the unit of the amounts."),
]
Cost = Annotated[
    Annotated[float, Field(strict=True, gt=0, le=1e300)]
    | Annotated[str, Field(strict=True, min_length=1, max_length=LONGEST), AfterValidator(_of_amounts)],
    _explained(
        "a number above 0, or an expression of `amount`", "Give a cost in any unit, such as 5 or 4 + 0.02 * amount."
    ),
]


class Part(Body):
    """Part of a policy document; an unknown field is refused with the known ones."""

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, value: Any) -> Any:
        known = sorted(cls.model_fields)
        if not isinstance(value, Mapping | cls):
            raise refusal(
                f"Expected an object, found {type(value).__name__}.", "Write it as names with values.", expected=known
            )
        for name in value if isinstance(value, Mapping) else ():
            if name not in known:
                close = get_close_matches(str(name), known, n=1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                message = f"Unknown field {name!r}. Expected: {', '.join(known)}.{hint}"
                raise refusal(message, "Correct the name, or remove the field.", name, expected=known, found=name)
        return value
