"""Predictions and labels by revision and bin, for Prometheus: what a reliability curve over any window is drawn from.

Bins are of equal width and closed on the right, as in Guo et al. 2017; a bin's name is its upper edge. There is a curve
for the top label ("top") and one for the positive class of each of the revision's policies.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from service.decisions.policy import TOP

if TYPE_CHECKING:
    from service.plane import Answer, Served

BINS = 20
NAMES = tuple(f"{number / BINS:.2f}" for number in range(1, BINS + 1))
# As float32, which is what probabilities are compared in; the last bin has no upper end, so that rounding finds it.
_EDGES = tuple(float(np.float32(number / BINS)) for number in range(1, BINS))
# Revisions of a model that are shown at a time: an alternation of two, and what came before, to compare with.
SHOWN_REVISIONS = 4
OLDER = "older"

_LABELLED = (
    ("rows", "Labelled rows"),
    ("confidence", "Sum of the probability of labelled rows"),
    ("right", "Labelled rows whose label is the predicted one, or the positive class"),
    ("weight", "Sum of the inverse propensities of rows whose label was sought"),
    ("weighted_confidence", "Sum of the probability over the propensity"),
    ("weighted_right", "Sum of the inverse propensities of right rows"),
    ("squared_weight", "Sum of the squares of the inverse propensities"),
)
_CURVE = ("model", "revision", "positive", "bin")


class _Curve:
    """Predictions of one score by bin."""

    __slots__ = ("column", "confidence", "positive", "rows")

    def __init__(self, positive: str, column: int | None) -> None:
        self.positive = positive
        self.column = column
        self.rows = [0] * BINS
        self.confidence = [0.0] * BINS


class _OfRevision:
    """What is counted of one revision."""

    def __init__(self) -> None:
        self.curves: list[_Curve] = []
        self.actions: defaultdict[tuple[str, str], int] = defaultdict(int)
        # By positive class and whether the label was sought: (7, BINS), in the order of `_LABELLED`.
        self.labelled: dict[tuple[str, bool], npt.NDArray[np.float64]] = {}


class CalibrationCounts(Collector):
    """Counts by revision. Of each model the last few revisions are shown; labels of others count as of "older"."""

    def __init__(self) -> None:
        self._revisions: dict[tuple[str, str], _OfRevision] = {}
        self._placing = threading.Lock()

    def predicted(self, answer: Answer) -> None:
        """Count a request's rows; on the event loop, for every request: plain Python beats numpy for few rows."""
        revision = answer.served.revision
        counts = self._revisions.get((revision.model, revision.id))
        if counts is None or not counts.curves:
            counts = self._begin(answer.served)
        for curve in counts.curves:
            values = answer.confidence if curve.column is None else answer.probabilities[:, curve.column]
            rows, confidence = curve.rows, curve.confidence
            for value in values.tolist():
                place = bisect_left(_EDGES, value)
                rows[place] += 1
                confidence[place] += value
        policy = "" if answer.policy is None else answer.policy.policy.id
        actions = counts.actions
        for action in answer.actions:
            actions[policy, action or ""] += 1

    def labelled(
        self,
        model: str,
        revision: str,
        positive: str,
        confidence: npt.NDArray[np.float32],
        right: npt.NDArray[np.bool_],
        propensity: npt.NDArray[np.float64],
        sought: npt.NDArray[np.bool_],
    ) -> None:
        """Count labelled rows of one revision; always on the same thread.

        Args:
            model: Its model.
            revision: Its id.
            positive: "top", or the class whose probability `confidence` is.
            confidence: float32 (N,) in [0, 1].
            right: bool (N,): whether the label is the predicted one, or the positive class.
            propensity: float64 (N,): probability with which the label was sought, nan where unknown.
            sought: bool (N,): whether it was.
        """
        counts = self._of_labels(model, revision)
        place = np.searchsorted(np.array(_EDGES, np.float32), confidence, side="left")
        score = confidence.astype(np.float64)
        for asked in (True, False):
            rows = sought == asked
            if not rows.any():
                continue
            known = rows & (propensity > 0) if asked else np.zeros_like(rows)
            weight = np.where(known, 1 / np.where(known, propensity, 1.0), 0.0)
            one = rows.astype(np.float64)
            sums = (one, one * score, one * right, weight, weight * score, weight * right, weight**2)
            added: npt.NDArray[np.float64] = np.stack(
                [np.bincount(place, values, BINS).astype(np.float64) for values in sums]
            )
            key = positive, asked
            # Replaced, not changed: who reads it on another thread sees all of a batch or nothing.
            counts.labelled[key] = counts.labelled[key] + added if key in counts.labelled else added

    def rows_by_action(self, model: str) -> dict[tuple[str, str], int]:
        """Return how many rows of the revisions shown each policy and action got; "" stands for no policy."""
        found: defaultdict[tuple[str, str], int] = defaultdict(int)
        for (name, _), counts in list(self._revisions.items()):
            if name == model:
                for action, rows in list(counts.actions.items()):
                    found[action] += rows
        return dict(sorted(found.items()))

    def collect(self) -> Iterable[CounterMetricFamily]:
        """Give the families."""
        predictions = CounterMetricFamily(
            "candor_predictions",
            "Predicted rows by model, revision, policy and action.",
            labels=("model", "revision", "policy", "action"),
        )
        rows = CounterMetricFamily("candor_calibration_bin_predictions", "Predicted rows by bin.", labels=_CURVE)
        confidence = CounterMetricFamily(
            "candor_calibration_bin_confidence", "Sum of the probability of predicted rows by bin.", labels=_CURVE
        )
        labelled = [
            CounterMetricFamily(f"candor_labelled_bin_{name}", f"{text}, by bin.", labels=(*_CURVE, "sought"))
            for name, text in _LABELLED
        ]
        for revision, counts in list(self._revisions.items()):
            for action, count in list(counts.actions.items()):
                predictions.add_metric((*revision, *action), count)
            for curve in counts.curves:
                for name, count, total in zip(NAMES, curve.rows, curve.confidence, strict=True):
                    rows.add_metric((*revision, curve.positive, name), count)
                    confidence.add_metric((*revision, curve.positive, name), total)
            for (positive, sought), sums in list(counts.labelled.items()):
                # Labels that nobody sought have no weights.
                for family, of_bins in zip(labelled[: None if sought else 3], sums.tolist(), strict=False):
                    for name, value in zip(NAMES, of_bins, strict=True):
                        family.add_metric((*revision, positive, name, "yes" if sought else "no"), value)
        return [predictions, rows, confidence, *labelled]

    def _begin(self, served: Served) -> _OfRevision:
        """Make room for a revision that answers its first request."""
        revision = served.revision
        with self._placing:
            shown = [key for key in self._revisions if key[0] == revision.model and key[1] not in (OLDER, revision.id)]
            for key in shown[: max(len(shown) - SHOWN_REVISIONS + 1, 0)]:
                del self._revisions[key]
            counts = self._revisions.pop((revision.model, revision.id), None) or _OfRevision()
            counts.curves = [_Curve(TOP, None)]
            for positive in positives(solved.policy.positive for solved in served.policies.values()):
                counts.curves.append(_Curve(positive, served.labels.index(positive)))
            for curve in counts.curves:  # shown at 0 before the first label: a series that begins at 5 has not risen
                for sought in (True, False):
                    counts.labelled.setdefault((curve.positive, sought), np.zeros((len(_LABELLED), BINS)))
            self._revisions[revision.model, revision.id] = counts
        return counts

    def _of_labels(self, model: str, revision: str) -> _OfRevision:
        """Return where labels of a revision count: its own place, or, where there is no room, that of older ones."""
        with self._placing:
            shown = sum(key[0] == model and key[1] != OLDER for key in self._revisions)
            if (model, revision) not in self._revisions and shown >= SHOWN_REVISIONS:
                revision = OLDER
            return self._revisions.setdefault((model, revision), _OfRevision())


def positives(named: Iterable[str]) -> list[str]:
    """Return the classes that policies call positive, each once, by name.

    >>> positives(["fraud", "top", "fraud"])
    ['fraud']
    """
    return sorted({*named} - {TOP})
