"""The classes of the label column in the order of the model's scores."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Sequence
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
        option: `0=genuine,1=fraud`, which gives order and names, see `_pairs`; None for the model's order, else the
            sorted one.
        known: Classes in the order of the scores, as the model knows them; the label column has these, with or without
            the spaces around them, or their numbers.
        allow_reversed: Whether the option may give the model's own names in another order.
        in_python: Whether messages name arguments of `candor.import_model` in place of options.

    Raises:
        AmbiguousModelError: The option gives the model's own names in another order.
        UnsupportedModelError: The option or the model has other classes than the rows, or the option cannot be read.
    """
    found = set(rows.classes)
    if known and not found <= set(known) and found <= {name.strip() for name in known}:
        known = tuple(name.strip() for name in known)  # as files give them
    if option is None:
        names = tuple(known or rows.classes)
        numbers = tuple(map(str, range(len(names))))
        keys = names if found <= set(names) or not found <= set(numbers) else numbers
    else:
        keys, names = _pairs(option, {*rows.classes, *(known or ())})
    if len(set(keys)) != len(keys) or len(set(names)) != len(names) or "" in keys:
        raise UnsupportedModelError(
            "--labels names a class twice, or not at all", found=option, expected="distinct classes and names"
        )
    strays = [name for name in rows.classes if name not in keys]
    if strays or len(keys) < 2:
        column = None if in_python else rows.label_name or None
        theirs = "the model" if option is None else "--labels"
        example = rows.classes if len(rows.classes) == 2 else ("0", "1")
        raise UnsupportedModelError(
            f"{'y' if in_python else 'the label column'} has other classes than {theirs}",
            where=rows.where(rows.label.tolist().index(strays[0]), column) if strays else str(rows.path),
            found=", ".join((strays or rows.classes)[:SHOWN]),
            expected=", ".join(keys[:SHOWN]),
            remedy="Give y with the estimator's classes; labels= renames them."
            if in_python
            else f"Name the classes in the order of the model's scores: {written(example, ('genuine', 'fraud'))}.",
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


def written(keys: Sequence[str], names: Sequence[str]) -> str:
    """Return the option that gives classes and their names, as a shell takes it: as JSON where a name requires it.

    Example:
        >>> print(written(("0", "1"), ("genuine", "fraud")), written(("a,b", "c"), ("a,b", "c")))
        --labels 0=genuine,1=fraud --labels '["a,b", "c"]'
    """
    text = ",".join(key if key == name else f"{key}={name}" for key, name in zip(keys, names, strict=True))
    if text.startswith(("[", "{")) or _pairs(text, set(keys)) != (tuple(keys), tuple(names)):
        same = list(keys) == list(names)
        text = json.dumps(list(keys) if same else dict(zip(keys, names, strict=True)), ensure_ascii=False)
    return f"--labels {shlex.quote(text)}"


def _pairs(option: str, classes: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys and names of an option: `0=genuine,1=fraud`, or JSON, such as `{"<=50K": "low", ">50K": "high"}`.

    Without JSON, a key ends at the first `=`, except a key among the `classes`, which may have one.

    Raises:
        UnsupportedModelError: The option is not valid JSON, nor an object or a list of texts.
    """
    if option.lstrip().startswith(("{", "[")):
        try:
            found = json.loads(option)
        except ValueError:
            found = None
        pairs = list(found.items()) if isinstance(found, dict) else [(name, name) for name in found or ()]
        if not pairs or not all(isinstance(text, str) for pair in pairs for text in pair):
            raise UnsupportedModelError(
                "--labels cannot be read",
                found=option[:300],
                expected='0=genuine,1=fraud, or JSON: {"0": "genuine", "1": "fraud"} or ["genuine", "fraud"]',
            )
        return tuple(key for key, _ in pairs), tuple(name for _, name in pairs)
    keys, names = [], []
    for part in option.split(","):
        own = [key for key in classes if _begins(part, key)] or [key for key in classes if _begins(part.lstrip(), key)]
        key = max(own, key=len) if own else part.partition("=")[0].strip()
        keys.append(key)
        names.append(part[part.index(key) + len(key) :].lstrip().removeprefix("=").strip() or key)
    return tuple(keys), tuple(names)


def _begins(part: str, key: str) -> bool:
    return part.startswith(key) and part[len(key) :].lstrip()[:1] in ("", "=")
