"""Whether the classes are in the order of the model's scores, as far as labelled rows can tell."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.special import log_softmax
from scipy.stats import rankdata

from calibrators import metrics, softmax
from importing.class_order import SHOWN, written
from importing.errors import AmbiguousModelError

_DOUBTFUL: Final = 2  # standard errors, for a warning
_SURE: Final = 3  # for a refusal
_MOST: Final = 2_000  # rows of a class that are looked at


def check_order(
    logits: NDArray[np.float32],
    codes: NDArray[np.int64],
    keys: Sequence[str],
    labels: Sequence[str],
    *,
    groups: NDArray[Any] | None,
    allow_reversed: bool,
    fixed: bool = False,
    in_python: bool = False,
) -> str | None:
    """Return a warning where the rows fit another order of the classes better than the given one.

    Half of the rows choose the order that gives their classes the largest mean log probability; the other half test it
    by ranks, against scores that say nothing. Two classes have one other order, which all rows test.

    Args:
        logits: Scores of the rows, (N, K).
        codes: Class of each row as a column of the scores, (N,).
        keys: The K classes as the label column has them.
        labels: Names of the K classes.
        groups: Number of each row's group, (N,): of a group, one row of each class counts. None without groups.
        allow_reversed: Whether a difference that is not chance is a warning, too.
        fixed: Whether the model gives the names of the scores, so that only keys can be in another order.
        in_python: Whether messages name arguments of `candor.import_model` in place of options.

    Raises:
        AmbiguousModelError: The difference is not chance.
    """
    if groups is not None:
        _, place = np.unique(groups, return_inverse=True)
        _, first = np.unique(place * len(labels) + codes, return_index=True)
        logits, codes = logits[first], codes[first]
    if len(np.unique(codes)) < 2:
        return None
    two = len(labels) == 2
    choosing, testing = (np.arange(len(codes)),) * 2 if two else _halves(codes)
    order = np.array([1, 0]) if two else _best(logits[choosing], codes[choosing])
    better = _standard_errors(logits[testing], codes[testing], order)
    if better < _DOUBTFUL:
        return None
    if two:
        area = metrics.refinement_auroc(softmax(logits.astype(np.float64)), codes, positive=1)
        told = f"the scores rank `{labels[1]}` below `{labels[0]}` (area under the ROC curve {area:.2f})"
    else:
        order = _best(logits[both := np.concatenate([choosing, testing])], codes[both])
        now, then = (np.mean(logits.argmax(axis=1) == each[codes]) for each in (np.arange(len(order)), order))
        told = f"the scores fit another order of the classes better (accuracy {now:.3f}; in that order {then:.3f})"
    option = _option(order, keys, labels, fixed=fixed).removeprefix("--labels " * in_python)
    if not allow_reversed and better >= _SURE:
        raise AmbiguousModelError(
            told,
            expected=f"classes in the order of the scores, probably {option}",
            remedy=("Give y with the estimator's classes, or name these with labels=. " if in_python else "")
            + "If the order is right and the model ranks so badly, confirm it with "
            + ("allow_reversed=True." if in_python else "--allow-reversed."),
        )
    how = "give y with the estimator's classes, or name these with labels=" if in_python else "give it with --labels"
    return f"{told}. If the order of the classes is wrong, {how}, probably {option}."


def _halves(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return two halves of the rows of each class, drawn at random, at most `_MOST` rows of a class together."""
    drawn = np.random.default_rng(0).permutation(len(codes))
    sorted_ = drawn[np.argsort(codes[drawn], kind="stable")]
    _, starts, counts = np.unique(codes[sorted_], return_index=True, return_counts=True)
    place = np.arange(len(codes)) - np.repeat(starts, counts)
    return sorted_[(place % 2 == 0) & (place < _MOST)], sorted_[(place % 2 == 1) & (place < _MOST)]


def _best(logits: NDArray[np.float32], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the column of each class that fits it best, (K,): the assignment with the largest mean log probability.

    Each class weighs the same, so that no other base rate of the classes than the model knows, which adds a number to
    a column, changes the assignment. Classes without rows keep their column if it is free.
    """
    classes = logits.shape[1]
    present, place, counts = np.unique(codes, return_inverse=True, return_counts=True)
    each = csr_array((1 / counts[place], (place, np.arange(len(codes)))), shape=(len(present), len(codes)))
    means = each @ log_softmax(logits, axis=1)
    _, columns = linear_sum_assignment(means - means.mean(axis=0), maximize=True)
    order = np.full(classes, -1)
    order[present] = columns
    free = set(range(classes)) - set(columns.tolist())
    lacking = np.flatnonzero(order < 0)
    kept = [code for code in lacking.tolist() if code in free]
    order[kept] = kept
    order[order < 0] = sorted(free - set(kept))
    return order


def _standard_errors(logits: NDArray[np.float32], codes: NDArray[np.int64], order: NDArray[np.int64]) -> float:
    """Return by how many standard errors the classes that `order` moves rank higher in the columns that it gives them.

    The score of a row and column is the row's rank in the column among rows of moved classes. If probabilities are
    calibrated, no other scores of a class are higher on average than those in its own column. If they say nothing of
    these classes, labels are exchangeable among the rows, which gives the standard error (Hoeffding 1951, Theorem 2).
    For two classes this is the test of Mann and Whitney.
    """
    rows = order[codes] != codes
    moved, place, counts = np.unique(codes[rows], return_inverse=True, return_counts=True)
    if len(moved) < 2:
        return 0.0
    used, columns = np.unique(np.stack([moved, order[moved]]), return_inverse=True)
    scores = logits[rows][:, used]
    own, other = columns.reshape(2, -1)
    scores = scores - np.logaddexp.reduce(scores[:, own], axis=1, keepdims=True)
    ranks = rankdata(scores, axis=0)
    gains = (ranks[:, other] - ranks[:, own]) / counts
    gain = gains[np.arange(len(place)), place].sum()
    gains -= (gains @ counts / len(place))[:, None]
    variance = (gains**2 @ counts).sum() / (len(place) - 1)
    return float(gain / sqrt(variance)) if variance > 0 else 0.0


def _option(order: NDArray[np.int64], keys: Sequence[str], labels: Sequence[str], *, fixed: bool) -> str:
    """Return the option that gives the classes in another order; `fixed` names stay with their scores."""
    codes = np.argsort(order)[:SHOWN].tolist()
    names = [labels[column if fixed else code] for column, code in enumerate(codes)]
    return written([keys[code] for code in codes], names) + ",…" * (len(order) > SHOWN)
