"""Conditions whose threshold differs from row to row: by cost, or by expected loss, with the amount of the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from candor.contract.conditions import REVIEW, Band
from candor.contract.expressions import Expression


@dataclass(frozen=True, slots=True)
class TakenByCost:
    """Takes a row if the band's action has the lowest expected cost; a tie goes to the band.

    Acting on a row costs (1 − p) · false_positive, not acting p · false_negative, a review the same for every p.

    Attributes:
        false_positive: Cost of acting on a row that is not positive.
        false_negative: Cost of not acting on a positive row.
        review: Cost of a review; None where the policy weighs none.
        reviews: Whether the action is the review.
    """

    false_positive: Expression
    false_negative: Expression
    review: Expression | None
    reviews: bool

    def takes(self, probability: NDArray[np.float64], amount: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether rows are taken; never one whose amount is NaN."""
        known: NDArray[np.bool_] = ~np.isnan(amount)
        passing = probability * values(self.false_negative, amount)
        if self.reviews and self.review is not None:
            return known & (values(self.review, amount) <= passing)
        acting = (1.0 - probability) * values(self.false_positive, amount)
        # Where nothing is at stake, as at an amount of 0, both costs may be 0: no reason to act.
        cheaper: NDArray[np.bool_] = known & (acting <= passing) & (passing > 0.0)
        return cheaper if self.review is None else cheaper & (acting <= values(self.review, amount))


@dataclass(frozen=True, slots=True)
class TakenByLoss:
    """Takes a row if leaving it to later bands would risk more than a limit: p · amount above it."""

    limit: float

    def takes(self, probability: NDArray[np.float64], amount: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether rows are taken; never one whose amount is NaN."""
        risky: NDArray[np.bool_] = probability * amount > self.limit
        return risky


def rule_of(band: Band) -> TakenByCost | TakenByLoss | None:
    """Return the rule of a band whose condition depends on amounts; None for any other."""
    condition = band.condition
    if condition is None or not condition.by_amount:
        return None
    if condition.costs is None:
        return TakenByLoss(condition.value)
    return TakenByCost(*condition.costs.expressions, reviews=band.action == REVIEW)


def values(expression: Expression, amount: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an expression's value at each amount; NaN, or any number, at NaN."""
    if len(expression.lines) == 1:
        (line,) = expression.lines
        return line.constant + line.slope * amount
    starts, constants, slopes = (np.array(column) for column in zip(*expression.lines, strict=True))
    at = np.searchsorted(starts, amount, side="right") - 1
    found: NDArray[np.float64] = constants[at] + slopes[at] * amount
    return found


def amounts_of(
    amounts: Sequence[float | None] | NDArray[np.float64] | None, rows: int, missing: float | None
) -> NDArray[np.float64]:
    """Return amounts as an array, NaN for an unknown amount without a substitute.

    Args:
        amounts: Amounts of the rows; None for none.
        rows: Number of rows.
        missing: The policy's `amount_when_missing`.
    """
    given = np.full(rows, np.nan) if amounts is None else np.array(amounts, dtype=np.float64)
    return given if missing is None else np.where(np.isnan(given), missing, given)
