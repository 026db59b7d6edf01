"""From labelled logits to solved policies: score the rows with a calibrator, then find and certify the thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from bundle import Bundle
from calibrators import Calibrator, PriorShift
from service.decisions.certify import solve
from service.decisions.conditions import Metric
from service.decisions.decide import score_rows
from service.decisions.policy import Policy
from service.decisions.rows import ScoredRows
from service.decisions.solved import SolvedPolicy


def scored(
    policy: Policy,
    label_names: Sequence[str],
    calibrator: Calibrator,
    logits: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    *,
    weight: npt.NDArray[np.float64] | None = None,
    group: npt.NDArray[np.int64] | None = None,
    propensity: npt.NDArray[np.float64] | None = None,
    labelled: npt.NDArray[np.bool_] | None = None,
    sought: npt.NDArray[np.bool_] | None = None,
    segment: npt.NDArray[np.object_] | None = None,
) -> ScoredRows:
    """Return what a policy sees of labelled rows: (probability, raw score) pairs and whether each row is a positive.

    Args:
        policy: Names the positive class, or "top" for "the predicted label is right".
        label_names: The model's labels, K of them.
        calibrator: Fitted calibrator.
        logits: float32 (N, K).
        labels: int64 (N,).
        weight: Importance of each row in estimates from fit rows.
        group: Cluster of each row.
        propensity: Probability with which each row's label is sought; NaN where unknown.
        labelled: Whether the row's label was sought and has come; None when all are. Labels of others are not read.
        sought: Whether the row's label was sought; None when all that were have come.
        segment: The request's segment of each row, None where it named none; None when no row has one.
    """
    probabilities = calibrator.predict_proba(logits)
    top_labels, confidence = calibrator.top_label(logits, probabilities)
    probability, score = score_rows(policy, label_names, logits, probabilities, top_labels, confidence)
    positive = top_labels == labels if policy.positive == "top" else labels == list(label_names).index(policy.positive)
    return ScoredRows(
        probability,
        score,
        positive,
        weight=weight,
        group=group,
        propensity=propensity,
        labelled=labelled,
        sought=sought,
        segment=segment,
    )


def solve_on_reference(
    policy: Policy,
    *,
    version: int,
    bundle: Bundle,
    calibrator: Calibrator,
    look: int,
    keep: SolvedPolicy | None = None,
    broken: Mapping[Metric, str] = MappingProxyType({}),
) -> SolvedPolicy:
    """Solve `policy` on the bundle's reference rows: grid from its fit rows, certificates from its certify rows.

    Reference rows are of no segment: a policy with segments has nothing certified then, and all its rows get the
    fallback until a refit solves it on traffic.

    Args:
        policy: What must hold.
        version: Version of the policy that the answer carries.
        bundle: Its reference rows are used.
        calibrator: Fitted calibrator.
        look: How often the certify rows have been looked at for this policy, this time included.
        keep: The policy with thresholds that stay; None to solve it anew.
        broken: Metrics of which the traffic has shown that these rows do not speak for it, and how.

    Raises:
        PolicyError: A label is unknown, or it fails when it cannot be certified and it cannot.
    """
    names = bundle.manifest.labels
    policy.check_labels(names)
    fit, certify = (
        scored(policy, names, calibrator, rows.logits, rows.labels)
        for rows in (bundle.reference.fit, bundle.reference.certify)
    )
    return solve(
        policy,
        version=version,
        fit=fit,
        certify=certify,
        look=look,
        basis="reference",
        keep=keep,
        void={**_void(calibrator), **broken},
    )


def _void(calibrator: Calibrator) -> dict[Metric, str]:
    """Return what reference rows cannot certify of probabilities for other shares of the classes than theirs.

    Recall and false-positive rate are about rows of one class, which a shift of the shares leaves as they are.
    """
    if not (isinstance(calibrator, PriorShift) and calibrator.adapted_):
        return {}
    why = (
        "prior_shift: the calibrator is adapted to other shares of the classes than those of the bundle's reference "
        "rows; only labelled traffic can certify it"
    )
    return dict.fromkeys(("precision", "selective_risk", "flag_rate"), why)
