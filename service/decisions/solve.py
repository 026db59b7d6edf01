"""A policy solved on the reference rows of a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import get_args

import numpy as np

from bundle import Bundle, LabelledLogits
from calibrators import Calibrator, PriorShift
from candor.contract.conditions import Metric
from candor.contract.policies import Policy
from service.decisions.calibrated import Calibrated
from service.decisions.certify import solve
from service.decisions.policy import check_labels
from service.decisions.rows import Rows
from service.decisions.solved import SolvedPolicy


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

    Reference rows without segments certify no segment: all rows of a policy with segments then get the fallback, until
    a recalibration solves it on traffic. Weighted rows do not represent traffic one by one: they certify nothing.

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
    check_labels(policy, names)
    fit, certify = (
        Calibrated.of(calibrator, names, Rows.of_reference(rows)).scored(policy)
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
        void={**_void(calibrator), **_void_weights(bundle.reference.certify), **broken},
    )


def _void_weights(certify: LabelledLogits) -> dict[Metric, str]:
    if certify.weight is None or np.ptp(certify.weight) == 0:
        return {}
    return dict.fromkeys(get_args(Metric), "weight: the reference rows are weighted; only labelled traffic can certify")


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
