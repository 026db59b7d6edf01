"""The classes of the label column in the order of the model's scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from importing.errors import AmbiguousModelError, UnsupportedModelError
from importing.rows import Rows

SHOWN: Final = 20
"""Classes in a message, at most."""


def class_order(
    rows: Rows, option: str | None, known: Sequence[str] | None, *, allow_reversed: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the classes as the label column has them, in the order of the model's scores, and their names.

    Args:
        rows: The rows.
        option: `0=genuine,1=fraud`, which gives order and names; None for the model's order, else the sorted one.
        known: Classes in the order of the scores, as the model knows them; the label column has these or their numbers.
        allow_reversed: Whether the option may give the model's own names in another order.

    Raises:
        AmbiguousModelError: The option gives the model's own names in another order.
        UnsupportedModelError: The option or the model has other classes than the rows.
    """
    if option is None:
        names = tuple(known or rows.classes)
        numbers = tuple(map(str, range(len(names))))
        keys = names if set(rows.classes) <= set(names) or not set(rows.classes) <= set(numbers) else numbers
    else:
        pairs = [part.partition("=") for part in option.split(",")]
        keys = tuple(key.strip() for key, _, _ in pairs)
        names = tuple(name.strip() or key.strip() for key, _, name in pairs)
    if len(set(keys)) != len(keys) or len(set(names)) != len(names) or "" in keys:
        raise UnsupportedModelError(
            "--labels names a class twice, or not at all", found=option, expected="distinct classes and names"
        )
    if set(rows.classes) - set(keys) or len(keys) < 2:
        raise UnsupportedModelError(
            f"the label column has other classes than {'the model' if option is None else '--labels'}",
            where=str(rows.path),
            found=", ".join(rows.classes[:SHOWN]),
            expected=", ".join(keys[:SHOWN]),
            remedy="Name the classes in the order of the model's scores: --labels 0=genuine,1=fraud.",
        )
    own = tuple(known or names)
    if names != own and set(names) == set(own) and not allow_reversed:
        raise AmbiguousModelError(
            "--labels gives the model's own classes in another order",
            found=", ".join(names[:SHOWN]),
            expected=f"{', '.join(own[:SHOWN])}, as the scores are",
            remedy="Leave --labels out, or correct it; --allow-reversed accepts it as it is.",
        )
    return keys, names
