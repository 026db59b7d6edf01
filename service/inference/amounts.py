"""Amounts that clients give: what is at stake in a row, in any one unit of money."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from candor.contract.expressions import LARGEST_AMOUNT
from service.errors import InputTypeError, InputValueError, kind_of
from service.places import Place

AMOUNTS: Final = "amounts"
_NUMBERS: Final = (float, int)  # by type: true is not a number


def check_amounts(amounts: Sequence[Any], where: Place) -> list[float | None]:
    """Return the amounts of rows as floats; null means no amount.

    Args:
        amounts: A number or None per row.
        where: Place of the amounts in the request.

    Raises:
        InputTypeError: An amount is not a number.
        InputValueError: An amount is negative, above `LARGEST_AMOUNT`, or NaN.
    """
    return [None if one is None else check_amount(one, where / row) for row, one in enumerate(amounts)]


def check_amount(amount: Any, where: Place | str | None = None) -> float:
    """Return one amount as a float.

    Args:
        amount: The amount.
        where: Its place.

    Raises:
        InputTypeError: It is not a number.
        InputValueError: It is negative, above `LARGEST_AMOUNT`, or NaN.

    Example:
        >>> check_amount(12)
        12.0
    """
    if type(amount) not in _NUMBERS:
        raise InputTypeError(
            "An amount must be a number.", where=where, found=kind_of(amount), expected="a number or null"
        )
    if not 0 <= amount <= LARGEST_AMOUNT:  # false for NaN
        raise InputValueError(
            f"An amount is a number from 0 to {LARGEST_AMOUNT:g}.",
            where=where,
            found=amount if math.isfinite(amount) else str(amount),
            expected=f"0 to {LARGEST_AMOUNT:g}",
            remedy="Send the value at stake without a sign. Leave out an unknown amount, or send null.",
        )
    return float(amount)
