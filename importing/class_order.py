"""The classes of the label column in the order of the model's scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from importing.errors import AmbiguousModelError, UnsupportedModelError
from importing.rows import Rows

SHOWN: Final = 20
"""Classes in a message, at most."""


def class_order(
    rows: Rows,
    option: str | None,
    known: Sequence[str] | None,
    *,
    allow_reversed: bool = False,
    in_python: bool = False,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the classes as the label column has them, in the order of the model's scores, and their names.

    Args:
        rows: The rows.
        option: `0=genuine,1=fraud`, which gives order and names; None for the model's order, else the sorted one.
        known: Classes in the order of the scores, as the model knows them; the label column has these or their numbers.
        allow_reversed: Whether the option may give the model's own names in another order.
        in_python: Whether messages name arguments of `candor.import_model` in place of options.

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
    strays = [name for name in rows.classes if name not in keys]
    if strays or len(keys) < 2:
        column = None if in_python else rows.label_name or None
        theirs = "the model" if option is None else "--labels"
        first, second = rows.classes if len(rows.classes) == 2 else ("0", "1")
        raise UnsupportedModelError(
            f"{'y' if in_python else 'the label column'} has other classes than {theirs}",
            where=rows.where(rows.label.tolist().index(strays[0]), column) if strays else str(rows.path),
            found=", ".join((strays or rows.classes)[:SHOWN]),
            expected=", ".join(keys[:SHOWN]),
            remedy="Give y with the estimator's classes; labels= renames them."
            if in_python
            else f"Name the classes in the order of the model's scores: --labels {first}=genuine,{second}=fraud.",
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
