"""Counts of predictions and labels by revision and bin, for reliability curves over any window in Prometheus.

Bins have equal width and are closed on the right, as in Guo et al. 2017; a bin's name is its upper edge. Each revision
has a curve for the top label ("top") and one for the positive class of each policy.
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

from candor.contract.policies import TOP

if TYPE_CHECKING:
    from service.serving.plane import Answer, Served

BINS = 20
NAMES = tuple(f"{number / BINS:.2f}" for number in range(1, BINS + 1))
# float32, as probabilities are; the last bin has no upper edge, so a probability rounded above 1 falls into it.
_EDGES = tuple(float(np.float32(number / BINS)) for number in range(1, BINS))
# Maximum revisions of a model shown at a time: room for two that alternate and two earlier ones.
SHOWN_REVISIONS = 4
OLDER = "older"

_LABELLED = (
    ("rows", "Labelled rows"),
    ("confidence", "Sum of the probability of labelled rows"),
    ("right", "Labelled rows whose label is the predicted or the positive class"),
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
    """Counts of one revision."""

    def __init__(self) -> None:
        self.curves: list[_Curve] = []
        self.actions: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.sets: defaultdict[tuple[str, str], int] = defaultdict(int)
        # Keys: positive class, whether sought. Values: (7, BINS), in the order of `_LABELLED`.
        self.labelled: dict[tuple[str, bool], npt.NDArray[np.float64]] = {}


class CalibrationCounts(Collector):
    """Counts for the latest revisions of each model; labels of earlier revisions count as "older"."""

    def __init__(self) -> None:
        self._revisions: dict[tuple[str, str], _OfRevision] = {}
        self._placing = threading.Lock()

    def predicted(self, answer: Answer) -> None:
        """Count a request's rows. Runs on the event loop; plain Python beats numpy for few rows."""
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
        if answer.sets is not None:
            classes = answer.sets.shape[1]
            for size in answer.sets.sum(axis=1).tolist():
                kind = "full" if size == classes else ("empty", "one")[size] if size < 2 else "several"
                counts.sets[policy, kind] += 1

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
        """Count labelled rows of one revision; call from one thread only.

        Args:
            model: Its model.
            revision: Its id.
            positive: "top", or the class of `confidence`.
            confidence: float32 (N,) in [0, 1].
            right: bool (N,): whether the label is the predicted class ("top") or the positive class.
            propensity: float64 (N,): probability that the label is sought, nan if unknown.
            sought: bool (N,): whether the label was sought.
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
            # Replaced, not changed in place: a reader on another thread sees all of a batch or none.
            counts.labelled[key] = counts.labelled[key] + added if key in counts.labelled else added

    def collect(self) -> Iterable[CounterMetricFamily]:
        """Return the metric families."""
        predictions = CounterMetricFamily(
            "candor_predictions",
            "Predicted rows by model, revision, policy and action.",
            labels=("model", "revision", "policy", "action"),
        )
        sets = CounterMetricFamily(
            "candor_prediction_sets",
            "Prediction sets by model, revision, policy and size: empty, one, several or full.",
            labels=("model", "revision", "policy", "size"),
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
            for size, count in list(counts.sets.items()):
                sets.add_metric((*revision, *size), count)
            for curve in counts.curves:
                for name, count, total in zip(NAMES, curve.rows, curve.confidence, strict=True):
                    rows.add_metric((*revision, curve.positive, name), count)
                    confidence.add_metric((*revision, curve.positive, name), total)
            for (positive, sought), sums in list(counts.labelled.items()):
                # Labels that were not sought have no weights.
                for family, of_bins in zip(labelled[: None if sought else 3], sums.tolist(), strict=False):
                    for name, value in zip(NAMES, of_bins, strict=True):
                        family.add_metric((*revision, positive, name, "yes" if sought else "no"), value)
        return [predictions, sets, rows, confidence, *labelled]

    def _begin(self, served: Served) -> _OfRevision:
        """Start the counts of a revision at its first request; drop the oldest if necessary."""
        revision = served.revision
        with self._placing:
            shown = [key for key in self._revisions if key[0] == revision.model and key[1] not in (OLDER, revision.id)]
            for key in shown[: max(len(shown) - SHOWN_REVISIONS + 1, 0)]:
                del self._revisions[key]
            counts = self._revisions.pop((revision.model, revision.id), None) or _OfRevision()
            counts.curves = [_Curve(TOP, None)]
            for positive in positives(solved.policy.positive for solved in served.policies.values()):
                counts.curves.append(_Curve(positive, served.labels.index(positive)))
            for curve in counts.curves:  # from 0: PromQL sees no increase in a series that begins at 5
                for sought in (True, False):
                    counts.labelled.setdefault((curve.positive, sought), np.zeros((len(_LABELLED), BINS)))
            self._revisions[revision.model, revision.id] = counts
        return counts

    def _of_labels(self, model: str, revision: str) -> _OfRevision:
        """Return the counts for a revision's labels: its own, or those of "older" if the maximum is reached."""
        with self._placing:
            shown = sum(key[0] == model and key[1] != OLDER for key in self._revisions)
            if (model, revision) not in self._revisions and shown >= SHOWN_REVISIONS:
                revision = OLDER
            return self._revisions.setdefault((model, revision), _OfRevision())


def positives(named: Iterable[str]) -> list[str]:
    """Return the policies' positive classes, sorted and without duplicates.

    >>> positives(["fraud", "top", "fraud"])
    ['fraud']
    """
    return sorted({*named} - {TOP})
