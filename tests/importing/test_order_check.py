"""Classes that are not in the order of the scores are noticed, and models that say little are not accused of it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from importing.errors import AmbiguousModelError
from importing.order_check import check_order

WORLDS = 400


def drawn(random: np.random.Generator, rows: int, classes: int, strength: float) -> tuple[NDArray[np.float32], NDArray]:
    """Return logits of a calibrated model and the classes of the rows."""
    codes = random.integers(classes, size=rows)
    seen = random.normal(size=(rows, classes)) + strength * np.eye(classes)[codes]
    return (strength * seen).astype(np.float32), codes


def check(logits: NDArray, codes: NDArray, *, sure: bool = False, groups: NDArray | None = None) -> str | None:
    names = [f"c{code}" for code in range(logits.shape[1])]
    return check_order(logits.astype(np.float32), codes, names, names, groups=groups, allow_reversed=sure)


def test_another_order_of_many_classes_is_refused_and_the_right_one_is_named() -> None:
    random = np.random.default_rng(0)
    logits, codes = drawn(random, 60, 3, 2.0)
    turned = logits[:, [1, 2, 0]]
    with pytest.raises(
        AmbiguousModelError, match=r"accuracy 0\.0.*; in that order 0\.8.*--labels c1,c2,c0.*--allow-rev"
    ):
        check(turned, codes)
    assert check(logits, codes) is None
    warning = check(turned, codes, sure=True)
    assert warning is not None
    assert warning.endswith("give it with --labels, probably --labels c1,c2,c0.")
    logits, codes = drawn(random, 150, 50, 6.0)  # two columns exchanged, of classes with some three rows each
    logits[:, [7, 9]] = logits[:, [9, 7]]
    assert check(logits[:, ::-1], codes, sure=True)
    logits, codes = drawn(random, 3000, 1000, 8.0)
    with pytest.raises(AmbiguousModelError, match=r"c1,c2,.*,c20,…"):
        check(np.roll(logits, -1, axis=1), codes)


@pytest.mark.parametrize(
    "world", ["noise", "rare", "one class known", "weak, other base rates", "classes without rows"]
)
def test_a_weak_model_is_refused_no_more_often_than_chance_allows(world: str) -> None:
    random = np.random.default_rng(1)
    refused = 0
    for _ in range(WORLDS):
        codes = random.integers(3, size=150)
        logits = random.normal(size=(150, 3))
        match world:
            case "rare":  # scores of a forest: many exact zeros
                codes = np.where(random.random(150) < 0.9, 0, codes)
                logits = np.log(np.maximum(random.dirichlet([0.02] * 3, size=150), 1e-7))
            case "one class known":
                logits[:, 0] += 6 * (codes == 0)
            case "other base rates":
                logits, codes = drawn(random, 150, 3, 0.2)
                logits += np.log([0.98, 0.01, 0.01])
            case "classes without rows":
                logits = random.normal([0, 0, 0, 0, 5, 9], size=(150, 6))
        try:
            check(logits, codes)
        except AmbiguousModelError:
            refused += 1
    assert refused <= 3  # 0.00135 a world are 0.5; 4 or more have a chance of 0.2 %


def test_rows_of_one_group_count_once() -> None:
    random = np.random.default_rng(2)
    logits, codes = np.repeat(random.normal(size=(30, 3)), 40, axis=0), np.repeat(np.arange(30) % 3, 40)
    groups = np.repeat(np.arange(30), 40)
    alone = [check(logits, codes, groups=groups, sure=True) for logits in (logits, logits[:, [1, 2, 0]])]
    with pytest.raises(AmbiguousModelError):
        [check(each, codes) for each in (logits, logits[:, [1, 2, 0]], logits[:, [2, 0, 1]])]
    assert alone == [None, None]
