"""Costs as expressions of a row's amount, such as `4 + 0.02 * amount`: parsed, never evaluated as code.

An expression has numbers, `amount`, + − * /, min, max and parentheses. It must be piecewise linear in the amount, so it
compiles to a few straight lines: exact, quick, and easy to check over every amount.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple

LARGEST_AMOUNT: Final = 1e15
"""Largest amount: below it, sums over many rows stay exact to a cent in float64."""

LONGEST: Final = 200
"""Maximum characters of an expression."""

_DEEPEST: Final = 20
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<name>[A-Za-z_]+)|(?P<sign>\S))"
)


class ExpressionError(ValueError):
    """The text is not an expression; the message says why."""


class Line(NamedTuple):
    """One piece: from the amount `start` on, the value is `constant + slope · amount`."""

    start: float
    constant: float
    slope: float

    def at(self, amount: float) -> float:
        """Return the value at an amount."""
        return self.constant + self.slope * amount


@dataclass(frozen=True, slots=True)
class Expression:
    """A piecewise linear function of an amount from 0 to `LARGEST_AMOUNT`.

    Attributes:
        lines: Its pieces by ascending start, the first from 0.

    Example:
        >>> fee = Expression.of("4 + 0.02 * amount")
        >>> fee.at(100), fee.at(0), fee.lowest
        (6.0, 4.0, 4.0)
        >>> Expression.of("min(amount, 50)").lines
        (Line(start=0.0, constant=0.0, slope=1.0), Line(start=50.0, constant=50.0, slope=0.0))
    """

    lines: tuple[Line, ...]

    @classmethod
    def of(cls, text: str) -> Expression:
        """Parse an expression.

        Raises:
            ExpressionError: The text is not an expression, too long, too deep, or not linear in the amount.
        """
        if len(text) > LONGEST:
            raise ExpressionError(f"it has {len(text)} characters, more than {LONGEST}")
        return _Parser(text).parsed()

    @property
    def constant(self) -> bool:
        """Whether the value is the same for every amount."""
        return len(self.lines) == 1 and self.lines[0].slope == 0

    @property
    def lowest(self) -> float:
        """The lowest value over all amounts."""
        ends = [*(line.start for line in self.lines[1:]), LARGEST_AMOUNT]
        return min(line.at(at) for line, end in zip(self.lines, ends, strict=True) for at in (line.start, end))

    def highest(self, until: float) -> float:
        """Return the highest value over the amounts from 0 to `until`."""
        ends = [*(line.start for line in self.lines[1:]), LARGEST_AMOUNT]
        pieces = [(line, min(end, until)) for line, end in zip(self.lines, ends, strict=True) if line.start <= until]
        return max(line.at(at) for line, end in pieces for at in (line.start, end))

    def at(self, amount: float) -> float:
        """Return the value at an amount."""
        lines = self.lines
        if len(lines) == 1:
            return lines[0].at(amount)
        return lines[bisect_right(lines, amount, key=lambda line: line.start) - 1].at(amount)


def _constant(value: float) -> Expression:
    return Expression((Line(0.0, value, 0.0),))


def _line_by_line(one: Expression, other: Expression, join: Callable[[Line, Line], Line]) -> Expression:
    """Return what `join` makes of both lines on each interval on which both are straight."""
    starts = sorted({line.start for line in (*one.lines, *other.lines)})
    return _simplified([join(_on(one, start), _on(other, start)) for start in starts])


def _on(expression: Expression, start: float) -> Line:
    """Return the line of the interval that begins at `start`."""
    line = expression.lines[bisect_right(expression.lines, start, key=lambda line: line.start) - 1]
    return line._replace(start=start)


def _simplified(lines: list[Line]) -> Expression:
    kept = [line for index, line in enumerate(lines) if index == 0 or line[1:] != lines[index - 1][1:]]
    if not all(math.isfinite(value) for line in kept for value in (line.at(line.start), line.at(LARGEST_AMOUNT))):
        raise ExpressionError("a value is too large")
    return Expression(tuple(kept))


def _sum(one: Expression, other: Expression, sign: float = 1.0) -> Expression:
    return _line_by_line(
        one,
        other,
        lambda left, right: Line(left.start, left.constant + sign * right.constant, left.slope + sign * right.slope),
    )


def _product(one: Expression, other: Expression) -> Expression:
    if not one.constant and not other.constant:
        raise ExpressionError("it multiplies `amount` by `amount`; costs must be linear in the amount")
    factor, varying = (one, other) if one.constant else (other, one)
    by = factor.lines[0].constant
    return _simplified([Line(line.start, line.constant * by, line.slope * by) for line in varying.lines])


def _quotient(one: Expression, other: Expression) -> Expression:
    if not other.constant:
        raise ExpressionError("it divides by `amount`; costs must be linear in the amount")
    by = other.lines[0].constant
    if by == 0:
        raise ExpressionError("it divides by 0")
    return _simplified([Line(line.start, line.constant / by, line.slope / by) for line in one.lines])


def _smaller(one: Expression, other: Expression, sign: float) -> Expression:
    """Return the minimum of both with a sign of 1, the maximum with −1."""
    starts = {line.start for line in (*one.lines, *other.lines)}
    crossings = set()
    for start in starts:
        left, right = _on(one, start), _on(other, start)
        if left.slope != right.slope:
            crossings.add((right.constant - left.constant) / (left.slope - right.slope))
    ordered = sorted(starts | {at for at in crossings if 0 < at < LARGEST_AMOUNT})
    lines = []
    for start, end in zip(ordered, [*ordered[1:], LARGEST_AMOUNT], strict=True):
        left, right = _on(one, start), _on(other, start)
        # The difference first: at large amounts, both values may be equal in float64.
        apart = (left.constant - right.constant) + (left.slope - right.slope) * (start + end) / 2
        lines.append(left if sign * apart <= 0 else right)
    return _simplified(lines)


class _Parser:
    """Recursive descent: sums of products of signed values."""

    def __init__(self, text: str) -> None:
        stripped = text.strip()
        self._tokens = [(match.lastgroup or "", match[match.lastgroup or 0]) for match in _TOKEN.finditer(stripped)]
        self._next = 0
        self._depth = 0

    def parsed(self) -> Expression:
        found = self._sum()
        if self._next < len(self._tokens):
            raise self._unexpected()
        return found

    def _sum(self) -> Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ExpressionError(f"it is nested more than {_DEEPEST} deep")
        found = self._term()
        while (sign := self._taken("+", "-")) is not None:
            found = _sum(found, self._term(), 1.0 if sign == "+" else -1.0)
        self._depth -= 1
        return found

    def _term(self) -> Expression:
        found = self._signed()
        while (sign := self._taken("*", "/")) is not None:
            found = (_product if sign == "*" else _quotient)(found, self._signed())
        return found

    def _signed(self) -> Expression:
        minus = 0
        while (sign := self._taken("+", "-")) is not None:
            minus += sign == "-"
        found = self._value()
        return _product(_constant(-1.0), found) if minus % 2 else found

    def _value(self) -> Expression:
        if self._next == len(self._tokens):
            raise ExpressionError("it ends too early")
        kind, text = self._tokens[self._next]
        if kind == "number":
            self._next += 1
            return _simplified([Line(0.0, float(text), 0.0)])
        if text == "amount":
            self._next += 1
            return Expression((Line(0.0, 0.0, 1.0),))
        if text in ("min", "max"):
            self._next += 1
            self._need("(")
            values = [self._sum()]
            while self._taken(","):
                values.append(self._sum())
            self._need(")")
            sign = 1.0 if text == "min" else -1.0
            return reduce(lambda one, other: _smaller(one, other, sign), values)
        self._need("(")
        found = self._sum()
        self._need(")")
        return found

    def _taken(self, *signs: str) -> str | None:
        if self._next < len(self._tokens) and self._tokens[self._next] in [("sign", sign) for sign in signs]:
            self._next += 1
            return self._tokens[self._next - 1][1]
        return None

    def _need(self, sign: str) -> None:
        if self._taken(sign) is None:
            raise self._unexpected(sign)

    def _unexpected(self, wanted: str = "") -> ExpressionError:
        if self._next == len(self._tokens):
            return ExpressionError(f"{wanted!r} is missing at its end")
        found = self._tokens[self._next][1]
        return ExpressionError(f"{found!r} is unexpected" + (f"; expected {wanted!r}" if wanted else ""))
