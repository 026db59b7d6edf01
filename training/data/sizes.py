"""How many rows to hold out, where a run does not say."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from training.data.dataset import Dataset

PROMISE = 0.95
"""Precision or recall that the certify rows of the rarest of two classes should be able to certify."""

CONFIDENCE = 0.95
SEVERAL_CLASSES = 2_000
"""Reference rows for more than two classes: 900 certify rows bound an error rate to within about 2 points."""

FEWEST = 1_000
LARGEST_SHARE = 0.3
VALIDATION_SHARE, MOST_VALIDATION = 0.15, 20_000


@dataclass(frozen=True)
class Sizes:
    """Rows of the parts.

    Attributes:
        train: Rows to learn from; None for all that the other parts leave.
        validation: Rows for early stopping and model selection.
        reference: Rows for the bundle.
        notes: What was chosen here and why, a sentence each.
    """

    train: int | None
    validation: int
    reference: int
    notes: tuple[str, ...] = ()


def sizes(
    data: Dataset,
    train: int | None,
    validation: int | None,
    reference: int | None,
    certify_share: float,
    *,
    stops: bool = False,
) -> Sizes:
    """Choose the sizes that a run leaves open (None).

    A data set with sizes of its own (`Dataset.sizes`) gives them. Otherwise reference rows are as many as a promise of
    95 % requires of the rarest of two classes (59 certify rows, all of them right, since 0.95⁵⁹ < 0.05), at least
    1,000, and 2,000 for more classes, but at most 30 % of the rows outside the test part. Early stopping gets 15 % of
    the rest.

    Args:
        data: The data set.
        train: Training rows; 0 for all that the other parts leave.
        validation: Validation rows.
        reference: Reference rows.
        certify_share: Share of the reference rows that certify.
        stops: Whether the validation rows decide when to stop.
    """
    own = data.sizes or {}
    train = own.get("train_rows", 0) if train is None else train
    validation = own.get("validation_rows") if validation is None else validation
    chosen = reference if reference is not None else own.get("reference_rows")
    rows = data.outside_test()
    notes: list[str] = []
    if chosen is None:
        chosen, note = _reference(data, len(rows), certify_share)
        notes.append(note)
    if validation is None:
        validation = 0
        if stops:
            left = train or max(0, len(rows) - chosen)
            validation = min(math.floor(VALIDATION_SHARE * left), MOST_VALIDATION, max(0, len(rows) - chosen - train))
            notes.append(f"{validation:,} rows are held out to decide when to stop.")
    return Sizes(train or None, validation, chosen, tuple(notes))


def _reference(data: Dataset, rows: int, certify_share: float) -> tuple[int, str]:
    most = math.floor(LARGEST_SHARE * rows)
    counts = np.bincount(data.labels[data.outside_test()], minlength=len(data.label_names))
    needed = math.ceil(math.log(1 - CONFIDENCE) / math.log(PROMISE))
    if len(counts) > 2:
        wanted = SEVERAL_CLASSES
    else:
        wanted = max(FEWEST, math.ceil(needed * rows / (certify_share * max(int(counts.min()), 1))))
    chosen = max(1, min(wanted, most))
    told = f"{chosen:,} of {rows:,} rows are held out for calibration and certificates: "
    if len(counts) > 2:
        return chosen, told + f"about {round(chosen * certify_share):,} of them certify."
    name = data.label_names[int(counts.argmin())]
    certify = round(chosen * certify_share * counts.min() / max(rows, 1))
    if not certify:
        return chosen, told + f"{name!r}, the rarer class, is too rare to certify a precision or recall."
    highest = (1 - CONFIDENCE) ** (1 / certify)
    told += (
        f"about {certify:,} certify rows of {name!r}, the rarer class, which can certify a precision or recall of "
        f"up to {highest:.3f} at {CONFIDENCE:.0%} confidence"
    )
    if chosen < wanted and certify < needed:
        return chosen, told + f". {PROMISE} would take {needed}: more than {LARGEST_SHARE:.0%} of all rows held out."
    return chosen, told + "."
