"""The classes of the label column in the order of the model's scores."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibrators import metrics, softmax
from importing.errors import AmbiguousModelError, UnsupportedModelError
from importing.rows import Rows

SHOWN: Final = 20
"""Classes in a message, at most."""

_DOUBTFUL: Final = 2  # standard errors, for a warning
_SURE: Final = 3  # for a refusal


def class_order(rows: Rows, option: str | None, known: Sequence[str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the classes as the label column has them, in the order of the model's scores, and their names.

    Args:
        rows: The rows.
        option: `0=genuine,1=fraud`, which gives order and names; None for the model's order, else the sorted one.
        known: Classes in the order of the scores, as the model knows them; the label column has these or their numbers.

    Raises:
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
    return keys, names


def check_order(
    logits: NDArray[np.float32], codes: NDArray[np.int64], labels: Sequence[str], *, allow_reversed: bool
) -> str | None:
    """Return a warning where two classes look swapped: the scores of the second rank it below the first.

    Args:
        logits: Scores of the rows, (N, K).
        codes: Class of each row as a column of the scores, (N,).
        labels: Names of the K classes.
        allow_reversed: Whether a difference that is not chance is a warning, too.

    Raises:
        AmbiguousModelError: The difference is not chance.
    """
    if len(labels) != 2 or len(np.unique(codes)) < 2:
        return None
    area = metrics.refinement_auroc(softmax(logits.astype(np.float64)), codes, positive=1)
    positives = int(codes.sum())
    # Mann–Whitney: the standard error of the area of scores that say nothing.
    noise = sqrt((len(codes) + 1) / (12 * positives * (len(codes) - positives)))
    if area >= 0.5 - _DOUBTFUL * noise:
        return None
    told = f"the scores rank `{labels[1]}` below `{labels[0]}` (area under the ROC curve {area:.2f})"
    if not allow_reversed and area < 0.5 - _SURE * noise:
        raise AmbiguousModelError(
            told,
            expected="classes in the order of the scores, given by --labels",
            remedy="If the order is right and the model ranks so badly, confirm it with --allow-reversed.",
        )
    return f"{told}. If the order of the classes is wrong, give it with --labels."
