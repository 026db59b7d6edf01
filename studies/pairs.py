"""Pairs of cells: two networks of one seed that differ in what a claim is about, and in nothing else.

Everything drawn at random depends on the seed and on what is drawn, never on the loss: which rows are held out, the
initial weights, the order of the rows, crops and mirrors, dropout masks. Two cells of one seed therefore differ less
than two cells of two seeds, and their difference shows what a setting does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from studies.statistics import Comparison, Spread, paired
from studies.study import Result
from studies.verdicts import Claim
from training.config import TrainConfig

Number = Callable[[Result], float | None]
SHARED: dict[str, tuple[str, ...]] = {
    "held-out rows": (
        *("dataset", "data_settings", "rows", "test_rows", "train_rows", "validation_rows", "reference_rows"),
        *("fit_share", "certify_share", "stratified"),
    ),
    "initial weights": ("dataset", "data_settings", "model", "model_settings", "pretrained", "image_size"),
    "the order of rows": ("batch_size", "sampling", "accumulation"),
    "augmentation": ("crop", "flip", "cutout", "rand_augment", "erasing"),
}
"""What two cells of one seed share, and the settings in which they must be alike for that; the last two also require
the same rows."""
_OF_THE_ROWS = ("the order of rows", "augmentation")


def shared(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what two configurations share if they have the same seed, of `SHARED`.

    Example:
        >>> one = {"model": "resnet20", "batch_size": 128, "loss": "focal"}
        >>> shared(one, one | {"model": "resnet32"})
        ('held-out rows', 'the order of rows', 'augmentation')
    """

    def alike(names: Sequence[str]) -> bool:
        plain = TrainConfig()
        return all(first.get(name, getattr(plain, name)) == second.get(name, getattr(plain, name)) for name in names)

    rows = alike(SHARED["held-out rows"])
    return tuple(what for what, names in SHARED.items() if alike(names) and (rows or what not in _OF_THE_ROWS))


def at(*path: str) -> Number:
    """Return what reads one number of a result, by its path."""

    def number(result: Result) -> float | None:
        found: Any = result
        for name in path:
            found = None if found is None else found.get(name)
        return None if found is None else float(found)

    return number


def compared(
    ours: Sequence[Result], theirs: Sequence[Result], number: Number, other: Number | None = None
) -> Comparison | None:
    """Compare a number of two groups of cells, in percent, by the seeds that both have.

    Args:
        ours: Results of one setting, one for each seed.
        theirs: Results of the other.
        number: What to compare.
        other: What to read from `theirs`; None for the same number.
    """
    sides = [
        {result["cell"]["config"]["seed"]: read(result) for result in group}
        for group, read in ((ours, number), (theirs, other or number))
    ]
    pairs = [
        (100 * first, 100 * second)
        for seed in sorted(sides[0].keys() & sides[1].keys())
        if (first := sides[0][seed]) is not None
        and (second := sides[1][seed]) is not None
        and math.isfinite(first)
        and math.isfinite(second)
    ]
    return paired(*(Spread(values) for values in zip(*pairs, strict=True))) if pairs else None


def claimed(
    about: str,
    text: str,
    ours: Sequence[Result],
    theirs: Sequence[Result],
    number: Number,
    *,
    baseline: str,
    higher: bool,
    other: Number | None = None,
    published: float | None = None,
) -> Claim:
    """Return a claim on the difference of two groups of cells, `ours` minus `theirs`.

    Args:
        about: Subject, in a few words.
        text: The claim, a clause.
        ours: Results that the claim is about.
        theirs: Results of the baseline.
        number: What to compare.
        baseline: Name of the baseline.
        higher: Whether the claim says that the difference is positive.
        other: What to read from the baseline; None for the same number.
        published: The source's difference, in points; None if it prints none.
    """
    configs = (side[0]["cell"]["config"] for side in (ours, theirs))
    return Claim(
        about,
        text,
        compared(ours, theirs, number, other),
        higher,
        baseline=baseline,
        published=published,
        shares=tuple(SHARED) if ours is theirs else shared(*configs),
        same=ours is theirs,
    )
