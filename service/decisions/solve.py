"""A policy solved on the reference rows of a bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from bundle import Bundle, LabelledLogits
from calibrators import Calibrator, PriorShift
from candor.contract.conditions import Metric
from candor.contract.policies import Policy, PredictionSet
from service.decisions.calibrated import Calibrated
from service.decisions.certify import solve
from service.decisions.claims import Shown
from service.decisions.policy import check_labels, check_shared
from service.decisions.rows import Rows
from service.decisions.sets import solve_sets
from service.decisions.solved import SolvedPolicy
from service.decisions.standing import Standing


def solve_on_reference(
    policy: Policy,
    *,
    version: int,
    bundle: Bundle,
    calibrator: Calibrator,
    look: int,
    seed: int = 0,
    keep: SolvedPolicy | None = None,
    broken: Mapping[Metric, str] = MappingProxyType({}),
    stays: Standing | None = None,
    spent: int = 1,
    rows_per_day: int | None = None,
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
        seed: Seed of the draws; fixed before any label is seen.
        keep: The policy with thresholds that stay; None to solve it anew.
        broken: Metrics of which the traffic has shown that these rows do not speak for it, and how.
        stays: Bands that are certified already, from `standing.standing`; they are not tested.
        spent: Number of this look among those of its year, at any reference rows.
        rows_per_day: Rows of a busy day in the traffic, for a policy that needs and lacks them; None if unknown.

    Raises:
        PolicyError: A label is unknown, or it fails when it cannot be certified and it cannot, or it needs the rows of
            a day and they are unknown.
    """
    names = bundle.manifest.labels
    check_labels(policy, names)
    check_shared(policy, bundle.manifest.sharing)
    fit, certify = (
        Calibrated.of(calibrator, names, Rows.of_reference(rows))
        for rows in (bundle.reference.fit, bundle.reference.certify)
    )
    void = {**_void(calibrator), **_void_weights(bundle.reference.certify), **broken}
    solved = solve(
        policy,
        version=version,
        fit=fit.scored(policy),
        certify=certify.scored(policy),
        look=look,
        basis="reference",
        seed=seed,
        keep=keep,
        stays=stays,
        void=void,
        spent=spent,
        rows_per_day=rows_per_day,
    )
    of_sets = {} if policy.set is None else _void_sets(policy.set, void)
    shown = Shown(look, "reference", fresh=look == 1, void=of_sets, spent=spent)
    return replace(solved, sets=solve_sets(policy, certify, shown, seed))


def fingerprint(rows: LabelledLogits) -> str:
    """Return what identifies reference rows in the ledger of looks.

    It is made of the labels' frequencies and the shape of the logits' distribution to five digits: it stays the same if
    a model is exported again, and in another order or scale of the rows. Coarse rounding (float16) may change it, and a
    row more or less does; `row_digests` then tell.

    Example:
        >>> logits, labels = np.random.default_rng(0).normal(size=(99, 3)).astype(np.float32), np.arange(99) % 3
        >>> again = LabelledLogits(2 * logits[::-1] + np.float32(1e-6), labels[::-1])
        >>> fingerprint(again) == fingerprint(LabelledLogits(logits, labels))
        True
    """
    logits = rows.logits.astype(np.float64)
    lowest = logits.min(where=np.isfinite(logits), initial=0.0)
    logits = np.maximum(logits, lowest)  # −inf is a probability of zero
    size = np.abs(logits - logits.mean(axis=1, keepdims=True))
    largest = size.max(initial=1e-300)
    size /= largest
    shape = np.sqrt(np.mean(size**2)) / size.mean() if size.any() else 0.0
    content = f"{np.bincount(rows.labels).tolist()} {logits.shape} {shape:.4e}"
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def row_digests(rows: LabelledLogits) -> NDArray[np.int64]:
    """Return what identifies each reference row in the ledger of looks, shape (N,): a digest of its logits.

    Labels do not count, so that rows with corrected labels are the same rows.

    Example:
        >>> logits, labels = np.random.default_rng(0).normal(size=(99, 3)).astype(np.float32), np.arange(99) % 3
        >>> more = LabelledLogits(logits[::-1], labels)
        >>> sorted(row_digests(more)) == sorted(row_digests(LabelledLogits(logits, labels)))
        True
    """
    whole = np.ascontiguousarray(rows.logits, dtype="<f4")
    digests = b"".join(hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in whole)
    return np.frombuffer(digests, dtype="<i8").astype(np.int64)


def _void_sets(wanted: PredictionSet, void: Mapping[Metric, str]) -> dict[str, str]:
    """Return why reference rows cannot certify sets: for each class they can under other shares of the classes."""
    why = void.get("recall" if wanted.per_class else "precision")
    return {} if why is None else {"set": why}


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
