"""The computation of a recalibration: rows → split → fit → gate → solve → report.

`refit` is pure except for `show`: before it uses certify or gate rows it calls `show`, which records the looks and
returns their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bundle import Bundle, LabelledLogits
from candor.contract.certificates import Basis
from candor.contract.conditions import Metric
from candor.contract.policies import Policy
from service.decisions.certificates import lost
from service.decisions.claims import Shown
from service.decisions.counting import seed_of
from service.decisions.double_labels import double_labels
from service.decisions.multicalibrated import Multicalibrated
from service.decisions.per_day import of_rows_per_day
from service.decisions.revision import Revision
from service.decisions.solve import fingerprint, row_digests
from service.decisions.windows import windows
from service.errors import TooFewLabelsError
from service.places import in_body
from service.recalibration.calibration_parts import largest_error
from service.recalibration.fit import fit
from service.recalibration.gating import Sides, gate_verdict
from service.recalibration.growth import Evidence, read_all
from service.recalibration.metrics import compared_metrics, confidence_histogram, decompositions, reliability
from service.recalibration.policies import basis_of, counts_every_row, first_shown, refit_policies
from service.recalibration.report import (
    calibration_warnings,
    changed_decisions,
    label_warnings,
    shown_calibrator,
    summary,
)
from service.recalibration.rows import Division, Silence, divide, effective_rows
from service.recalibration.task import UNCHANGED, Progress, RefitRequest, RefitTask, Show, columns_of, packed
from service.recalibration.uploaded import Uploaded
from service.state.window_rows import WindowRows
from service.times import DAY_US, iso


def refit(
    task: RefitTask,
    revision: Revision,
    bundle: Bundle,
    found: WindowRows,
    *,
    seed: int,
    at: int,
    show: Show,
    progress: Progress = lambda _text, _step: None,
    uploaded: Uploaded | None = None,
    evidence: Evidence | None = None,
    broken: Mapping[str, Mapping[Metric, str]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Fit a candidate on one part of the rows, gate it on another, and solve its thresholds on a third.

    Args:
        task: The task.
        revision: The active revision, to compare the candidate with.
        bundle: Its bundle; the reference rows certify if the traffic has too few.
        found: Predictions of the window: all labelled ones, and all others or those of a sample of the groups.
        seed: Seed of every draw; fixed before any label is seen.
        at: When the rows were read, in microseconds since the epoch.
        show: Records looks before results are seen, and returns their numbers.
        progress: Receives a description of the current step and its number of `STEPS`.
        uploaded: Source of uploaded rows; None for traffic. Uploaded rows certify only if declared to be a sample of
            the traffic; otherwise the reference rows do.
        evidence: Evidence of the certificates that grow, which reads it without a look; None without such ones.
        broken: Metrics that reference rows do not certify, since the traffic has broken a promise, by positive class.

    Returns:
        `{"calibrator", "policies", "report"}`: documents for a revision, and the answer to the caller.

    Raises:
        TooFewLabelsError: Too few rows are usable.
    """
    request = task.request
    names = bundle.manifest.labels
    active, solved = revision.calibrator, revision.policies
    rows = divide(
        found.rows,
        unsought_may_fit=uploaded is not None or request.unknown_propensity == "fit",
        min_rows=task.min_rows,
        silence=_silence(request, names, at),
        share=found.share,
        left_out_before=found.left_out_before,
        where=in_body("source", "feedback") if uploaded is None else in_body("source", "labelled_set"),
    )
    certifying = rows.certify.without("logits").take(rows.certify.known())

    candidate = active
    if request.calibrator != UNCHANGED:
        progress(f"fitting {len(rows.fitting)} rows", 2)
        candidate = fit(request.calibrator or active.name, rows.fitting, active, columns_of(request, active))

    own: Basis = "traffic" if uploaded is None else "uploaded" if uploaded.represents else "reference"
    read = {} if evidence is None else read_all(solved, bundle, active, candidate, evidence, seed=seed)
    bases: dict[str, Basis] = {
        key: "reference"
        if policy.policy.certify.planned
        else basis_of(of_rows_per_day(policy.policy, task.rows_per_day or policy.rows_per_day), names, certifying, own)
        for key, policy in solved.items()
        if key not in read
    }
    if isinstance(candidate, Multicalibrated):
        _check_own_rows_certify(bases, len(certifying))
    # Where the calibrator is unchanged, both sides are equal: the gate rows show nothing, and no look is used.
    looks = _looks(
        rows, {key: solved[key].policy for key in bases}, bases, bundle.reference.certify, gated=candidate is not active
    )
    shown = show({"rows": "traffic" if uploaded is None else "uploaded", **looks})

    progress(f"certifying on {len(certifying)} rows", 3)
    chosen = 1.0
    if uploaded is None and not request.window_by_rule:
        since = None if found.from_first else request.since_us
        chosen = windows(since, request.until_us, at_us=at, rows=len(rows.certify))
    window = certifying.window() if uploaded is None or uploaded.timed else None
    refitted = refit_policies(
        solved,
        bundle,
        active,
        candidate,
        rows,
        shown={
            key: Shown(look["number"], bases[key], window, fresh=look["fresh"], windows=chosen, spent=look["spent"])
            for key, look in shown["looks"].items()
        },
        seeds={key: seed_of(seed, look["ordinal"]) for key, look in shown["looks"].items()},
        read=read,
        rows_per_day=task.rows_per_day,
        broken=broken,
    )
    seed = seed_of(seed, shown["ordinal"])
    resolved = {key: policy.solved for key, policy in refitted.items()}

    progress(f"comparing on {int(rows.judged.known().sum())} gate rows", 4)
    sides = Sides.of(rows.judged, names, (active, solved), (candidate, resolved), seed)
    parts = sides.calibration(seed)
    verdict = gate_verdict(
        task,
        rows,
        sides,
        active,
        uploaded,
        attempt=shown["attempt"],
        seed=seed,
        uncertified=[(key, part) for key, old in solved.items() for part in lost(old, resolved[key])],
        calibration_error=largest_error(parts),
        window_by_rule=chosen == 1.0,
    )

    progress("measuring", 5)
    doubles = None if found.pairs is None else double_labels(found.pairs, seed)
    measured = compared_metrics(verdict, *sides.compared, seed)
    report = {
        "source": {"feedback": _asked(request)} if uploaded is None else uploaded.to_dict(),
        "calibrator": {
            "before": shown_calibrator(active.to_dict()),
            "after": shown_calibrator(candidate.to_dict()),
        },
        "rows": _counts(found, rows),
        "double_labels": None if doubles is None else doubles.document,
        "implicit_negative": request.implicit_negative,
        "gate": verdict.document,
        "metrics": measured,
        "calibration": parts,
        "decomposition": decompositions(*sides.compared),
        "reliability": reliability(*sides.compared),
        "confidence": confidence_histogram(*sides.compared),
        "decisions": changed_decisions(*sides.labelled),
        "policies": {key: policy.report(solved[key]) for key, policy in refitted.items()},
        "summary": summary(verdict),
        "warnings": [
            *calibration_warnings(measured["ece"], parts),
            *label_warnings(solved, doubles, found.unknown_labels),
        ],
    }
    return {
        "calibrator": candidate.to_dict(),
        "policies": {key: policy.to_dict() for key, policy in resolved.items()},
        "report": report,
    }


def _looks(
    rows: Division,
    policies: Mapping[str, Policy],
    bases: Mapping[str, Basis],
    reference: LabelledLogits,
    *,
    gated: bool,
) -> dict[str, Any]:
    """Return which rows the gate, if it looks at any, and the policies' certificates are about to look at."""
    tested = rows.gate
    groups = {
        "gate": tested.group,
        "labelled": rows.certify.group[rows.certify.known()],
        "all": rows.certify.group,
        "reference": row_digests(reference),
    }
    of = {
        key: "reference" if bases[key] == "reference" else "all" if counts_every_row(policy) else "labelled"
        for key, policy in policies.items()
    }
    return {
        "reference": fingerprint(reference),
        "groups": {name: packed(groups[name]) for name in {"gate", *of.values()}},
        "gate": int(tested.labelled_at.min()) if gated else None,
        "certify": {
            key: {"basis": bases[key], "earliest": first_shown(policy, rows.certify), "groups": of[key]}
            for key, policy in policies.items()
        },
    }


def _counts(found: WindowRows, rows: Division) -> dict[str, Any]:
    return {
        "fit": len(rows.fitting),
        "certify": int(rows.certify.known().sum()),
        "gate": int(rows.judged.known().sum()),
        "implicit": rows.silent,  # of `fit`
        "pending": found.pending,
        "rescored": found.rescored,
        "conflicts": found.conflicts,
        "unknown_labels": found.unknown_labels,
        "effective_fit": round(effective_rows(rows.fitting.weight), 1),
        "unlabelled_share": found.share,
        "left_out_before": None if found.left_out_before is None else iso(found.left_out_before),
    }


def _asked(request: RefitRequest) -> dict[str, Any]:
    """Return the requested labelled traffic in the form of a request."""
    times = {"since": request.since_us, "until": request.until_us}
    asked: dict[str, Any] = {key: iso(us) for key, us in times.items() if us is not None}
    if request.unknown_propensity != "exclude":
        asked["unknown_propensity"] = request.unknown_propensity
    if request.rescore:
        asked["rescore"] = True
    return asked


def _silence(request: RefitRequest, names: Sequence[str], at: int) -> Silence | None:
    if (meant := request.implicit_negative) is None:
        return None
    maturity_us = round(meant["maturity_days"] * DAY_US)
    return Silence(list(names).index(meant["label"]), at - maturity_us, frozenset(meant["actions"]))


def _check_own_rows_certify(bases: Mapping[str, Basis], rows: int) -> None:
    """Refuse, before a look is used, policies that only reference rows could certify: these have no columns."""
    if short := [key for key, basis in bases.items() if basis == "reference"]:
        raise TooFewLabelsError(
            "Multicalibration requires that the labelled rows certify every policy: reference rows have no columns.",
            where=in_body("calibrator"),
            found=f"{rows} labelled rows that may certify, too few for {', '.join(short)}",
            expected="enough labelled rows of the traffic for each promise",
            remedy="Collect more labels, or declare a labelled set a sample of the traffic (`represents`). A promise "
            "with `planned` rows cannot be certified under multicalibration.",
        )
