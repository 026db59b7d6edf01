"""The refit: labelled feedback → split → fit → gate → solve → report.

`refit` is a pure computation apart from one question: before it looks at rows that must stay honest, it asks `show` how
often they have been looked at, and whoever answers writes that down first. Run as `python -m service.refit` it is the
child process of a job: one JSON document a line on standard input and output, low priority, a database that it only
reads.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import orjson

import bundle as bundles
from bundle import Bundle
from calibrators import CALIBRATORS, CalibrationError, Calibrator, Temperature, metrics
from calibrators import from_dict as calibrator_from_dict
from service.decisions.certify import labels_needed, solve
from service.decisions.decide import SolvedPolicy, decide, score_rows
from service.decisions.gate import GateResult, compare
from service.decisions.split import CERTIFY, FIT, GATE, roles
from service.errors import CandorError, InputValueError, TooFewLabelsError, error_document
from service.revision import Basis, Revision
from service.solve import scored, solve_on_reference
from service.state.database import Database
from service.state.feedback import FeedbackStore
from service.state.labelled import LabelledRows
from service.state.revisions import RevisionStore
from service.times import iso

# Below this many errors among the fit rows a temperature says little; it is drawn towards the one in service.
ENOUGH_ERRORS = 25
# Inverse-propensity weights above this are cut: a single row must not decide a fit.
LARGEST_WEIGHT = 20.0
_NICE = 10


@dataclass(frozen=True, slots=True)
class RefitRequest:
    """What a caller asks of /recalibrate.

    Attributes:
        mode: "dry_run" keeps nothing, "propose" keeps a proposal, "activate" also activates it if the gate passes.
        calibrator: Registered name; None keeps the method in service.
        since_us: Earliest prediction time (microseconds, UTC), or None.
        until_us: Time before which predictions count, or None.
        unknown_propensity: "exclude", or "fit" to let labels that nobody sought into the fit (never into tests).
        gate: "superior" or "non_inferior".
    """

    mode: Literal["dry_run", "propose", "activate"] = "dry_run"
    calibrator: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    unknown_propensity: Literal["exclude", "fit"] = "exclude"
    gate: Literal["superior", "non_inferior"] = "superior"


@dataclass(frozen=True, slots=True)
class RefitTask:
    """Everything the child process needs to know."""

    database_url: str
    bundle: str
    model: str
    revision: str
    min_rows: int
    alpha: float
    margin: float
    request: RefitRequest


Show = Callable[[dict[str, Any]], dict[str, Any]]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The labelled rows of one role."""

    logits: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    cluster: npt.NDArray[np.int64]
    propensity: npt.NDArray[np.float64]
    predicted_at: npt.NDArray[np.int64]
    labelled_at: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(cls, rows: LabelledRows, which: npt.NDArray[np.bool_]) -> _Part:
        """Take the rows that `which` marks."""
        return cls(
            rows.logits[which],
            rows.labels[which],
            rows.cluster[which],
            rows.propensity[which],
            rows.predicted_at[which],
            rows.first_labelled_at[which],
        )


def refit(
    task: RefitTask,
    revision: Revision,
    bundle: Bundle,
    rows: LabelledRows,
    *,
    seed: int,
    show: Show,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Fit a candidate on one part of the labelled rows, solve its thresholds on another, and gate it on a third.

    Args:
        task: What was asked for.
        revision: The one in service, which the candidate is compared with.
        bundle: Its bundle; the reference rows certify where the traffic has too few.
        rows: Labelled predictions of the bundle's model.
        seed: Of every draw; fixed before any label is seen.
        show: Told, before results are seen, which rows are about to be looked at; answers with the look numbers.
        progress: Told what is being done.

    Returns:
        `{"calibrator", "policies", "report"}`: documents for a revision, and the answer to the caller.

    Raises:
        TooFewLabelsError: There are too few usable rows.
    """
    request = task.request
    active = calibrator_from_dict(revision.calibrator)
    fit, certify, gate = _split(rows, task)
    progress(f"fitting {len(fit)} rows")
    candidate = _fit(request.calibrator or revision.calibrator["method"], fit, active)

    solved_before = {key: SolvedPolicy.from_dict(document) for key, document in revision.policies.items()}
    bases = {key: _basis(solved, certify) for key, solved in solved_before.items()}
    shown = show(
        {
            "gate": int(gate.labelled_at.min()),
            "certify": {
                key: {"basis": basis, "earliest": int(certify.labelled_at.min())} for key, basis in bases.items()
            },
        }
    )

    progress(f"comparing on {len(gate)} gate rows")
    before, after = active.predict_proba(gate.logits), candidate.predict_proba(gate.logits)
    verdict = compare(
        after,
        before,
        gate.labels,
        gate.cluster,
        mode=request.gate,
        attempt=shown["attempt"],
        alpha=task.alpha,
        margin=task.margin,
        propensity=gate.propensity,
        seed=seed,
    )

    progress(f"certifying on {len(certify)} rows")
    unlabelled = rows.sought_unlabelled / rows.sought if rows.sought else 0.0
    names = bundle.manifest.labels
    solved_after = {}
    for key, solved in solved_before.items():
        policy, look = solved.policy, shown["looks"][key]
        if bases[key] == "reference":
            solved_after[key] = solve_on_reference(
                policy, version=solved.version, bundle=bundle, calibrator=candidate, look=look
            )
            continue
        columns = {"group": "cluster", "propensity": "propensity"}
        fit_rows, certify_rows = (
            scored(
                policy,
                names,
                candidate,
                part.logits,
                part.labels,
                weight=_weights(part.propensity) if part is fit else None,
                **{name: getattr(part, column) for name, column in columns.items()},
            )
            for part in (fit, certify)
        )
        solved_after[key] = solve(
            policy,
            version=solved.version,
            fit=fit_rows,
            certify=certify_rows,
            look=look,
            basis="traffic",
            window=(iso(int(certify.predicted_at.min())), iso(int(certify.predicted_at.max()))),
            unlabelled_share=unlabelled,
            seed=seed,
        )

    progress("measuring")
    policies = {key: solved.to_dict() for key, solved in solved_after.items()}
    report = {
        "calibrator": {"before": revision.calibrator, "after": candidate.to_dict()},
        "rows": {"fit": len(fit), "certify": len(certify), "gate": len(gate), "pending": rows.pending},
        "effective_fit_rows": round(_kish(_weights(fit.propensity)), 1),
        "conflicts": rows.conflicts,
        "gate": verdict.to_dict(),
        "metrics": _metrics(verdict, active, candidate, gate, before, after, seed),
        "decisions": _decisions(names, active, candidate, gate, before, after, solved_before, solved_after),
        "policies": {
            key: {
                "review_all": solved.review_all,
                "certified": {
                    band.action: band.certificate.to_dict() for band in solved.bands if band.certificate is not None
                },
            }
            for key, solved in solved_after.items()
        },
        "summary": _summary(verdict),
    }
    return {"calibrator": candidate.to_dict(), "policies": policies, "report": report}


def _split(rows: LabelledRows, task: RefitTask) -> tuple[_Part, _Part, _Part]:
    """Divide the rows by the keyed hash of their groups; only rows whose label was sought may test anything."""
    sought = rows.propensity > 0  # False for NaN: nobody knows how such a label came to be
    role = roles(rows.cluster)
    fitting = (role == FIT) & (sought | (task.request.unknown_propensity == "fit"))
    parts = _Part.of(rows, fitting), _Part.of(rows, (role == CERTIFY) & sought), _Part.of(rows, (role == GATE) & sought)
    usable = sum(len(part) for part in parts)
    if usable < task.min_rows or min(len(part) for part in parts) == 0:
        raise TooFewLabelsError(
            "There is too little usable feedback to refit.",
            where="/source/feedback",
            found=f"{usable} usable of {len(rows)} labelled rows: "
            f"{len(parts[0])} to fit, {len(parts[1])} to certify, {len(parts[2])} to gate",
            expected=f"at least {task.min_rows}, some of each",
            remedy="Labels test a refit only where the policy seeks them (action `review`, or `explore`). "
            "Widen `explore`, or let labels that nobody sought into the fit with unknown_propensity=fit.",
        )
    return parts


def _weights(propensity: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return capped inverse propensities; 1 where the propensity is unknown and was let in all the same."""
    return np.where(propensity > 0, np.minimum(1 / np.where(propensity > 0, propensity, 1.0), LARGEST_WEIGHT), 1.0)


def _kish(weights: npt.NDArray[np.float64]) -> float:
    """Return how many equal rows the weighted ones are worth."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def _fit(method: str, fit: _Part, active: Calibrator) -> Calibrator:
    try:
        candidate = CALIBRATORS[method]().fit(fit.logits, fit.labels, _weights(fit.propensity))
    except CalibrationError as error:
        raise InputValueError(f"The calibrator {method!r} cannot be fitted: {error}", where="/calibrator") from error
    top_labels, _ = active.top_label(fit.logits, active.predict_proba(fit.logits))
    errors = int((top_labels != fit.labels).sum())
    if errors >= ENOUGH_ERRORS or method == "identity":
        return candidate
    if isinstance(candidate, Temperature):
        before = active.temperature_ if isinstance(active, Temperature) else 1.0
        share = errors / ENOUGH_ERRORS
        shrunk = candidate.temperature_**share * before ** (1 - share)
        return Temperature.from_dict({**candidate.to_dict(), "temperature": shrunk, "at_bound": False})
    raise TooFewLabelsError(
        f"The calibrator {method!r} needs more errors to learn from.",
        where="/calibrator",
        found=f"{errors} wrong predictions among {len(fit)} fit rows",
        expected=f"at least {ENOUGH_ERRORS}",
        remedy="Collect more labels, or refit `temperature`, which is drawn towards the one in service.",
    )


def _basis(solved: SolvedPolicy, certify: _Part) -> Basis:
    """Return which rows certify: traffic once it could certify the policy's promises, the reference rows before."""
    promises = [band.when.value for band in solved.policy.bands if band.when is not None and band.when.certified]
    if not promises:
        return "traffic"
    level = solved.policy.certify.delta / len(promises) / 2
    needed = max(labels_needed(0, 0, 1 - promise, level) for promise in promises)
    return "traffic" if len(certify) >= needed else "reference"


def _metrics(
    verdict: GateResult,
    active: Calibrator,
    candidate: Calibrator,
    gate: _Part,
    before: npt.NDArray[np.float32],
    after: npt.NDArray[np.float32],
    seed: int,
) -> dict[str, Any]:
    """Return metrics of both sides on all gate rows. An ECE never stands without its null value."""
    sides: dict[str, dict[str, Any]] = {}
    for side, calibrator, probabilities in (("before", active, before), ("after", candidate, after)):
        top_labels, _ = calibrator.top_label(gate.logits, probabilities)
        curve = metrics.reliability_curve(probabilities, gate.labels, predicted=top_labels)
        test = metrics.calibration_test(probabilities, gate.labels, predicted=top_labels, seed=seed)
        sides[side] = {
            "accuracy": float((top_labels == gate.labels).mean()),
            "refinement_auroc": _refinement(probabilities, gate.labels, top_labels),
            "ece": test.error,
            "null": {"mean": test.null_mean, "q95": test.null_quantile},
            "reliability": {name: getattr(curve, name).tolist() for name in ("confidence", "accuracy", "count")},
        }
    paired = {
        name: {"before": loss.before, "after": loss.after, "interval": list(loss.interval)}
        for name, loss in (("nll", verdict.nll), ("brier", verdict.brier))
    }
    plain = {
        name: {"before": sides["before"][name], "after": sides["after"][name]}
        for name in ("accuracy", "refinement_auroc", "reliability")
    }
    ece = {
        "before": sides["before"]["ece"],
        "after": sides["after"]["ece"],
        "null": sides["after"]["null"],
        "null_before": sides["before"]["null"],
    }
    return {**paired, "ece": ece, **plain}


def _decisions(
    names: tuple[str, ...],
    active: Calibrator,
    candidate: Calibrator,
    gate: _Part,
    before: npt.NDArray[np.float32],
    after: npt.NDArray[np.float32],
    solved_before: dict[str, SolvedPolicy],
    solved_after: dict[str, SolvedPolicy],
) -> dict[str, Any]:
    """Count the gate rows whose action would change, for each policy and under any of them."""
    any_flip = np.zeros(len(gate), dtype=bool)
    policies = {}
    for key, old in solved_before.items():
        actions: list[npt.NDArray[np.str_]] = []
        for solved, calibrator, probabilities in ((old, active, before), (solved_after[key], candidate, after)):
            top = calibrator.top_label(gate.logits, probabilities)
            scores = score_rows(solved.policy, names, gate.logits, probabilities, *top)
            actions.append(np.array(solved.actions)[decide(solved, *scores)])
        flipped = actions[0] != actions[1]
        any_flip |= flipped
        counts = [Counter(side.tolist()) for side in actions]
        policies[key] = {
            "flipped": int(flipped.sum()),
            "actions": {action: {"before": counts[0][action], "after": counts[1][action]} for action in old.actions},
        }
    return {"flipped": int(any_flip.sum()), "of": len(gate), "policies": policies}


def _refinement(
    probabilities: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], top_labels: npt.NDArray[np.int64]
) -> float | None:
    """Return the refinement AUROC, None where all answers are right or all wrong."""
    if len(np.unique(top_labels == labels)) < 2:
        return None
    return metrics.refinement_auroc(probabilities, labels, predicted=top_labels)


def _summary(verdict: GateResult) -> str:
    if not verdict.passed:
        return f"Refused: {verdict.reason}"
    if verdict.mode == "superior":
        return f"Better: log loss falls by at least {-verdict.upper:.3f}."
    return f"Not worse: log loss rises by at most {max(verdict.upper, 0.0):.4f}."


def main() -> None:
    """Run one refit as a child process: the task comes on standard input, everything else goes line by line."""
    os.nice(_NICE)

    def say(message: dict[str, Any]) -> None:
        sys.stdout.buffer.write(orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
        sys.stdout.buffer.flush()

    def hear() -> dict[str, Any]:
        line = sys.stdin.buffer.readline()
        if not line:
            sys.exit("The service that asked for this refit has gone.")
        document: dict[str, Any] = orjson.loads(line)
        return document

    def show(looks: dict[str, Any]) -> dict[str, Any]:
        say({"show": looks})
        return hear()

    document = hear()
    task = RefitTask(**{**document, "request": RefitRequest(**document["request"])})
    try:
        database = Database.open(task.database_url, readonly=True)
        try:
            say({"progress": "reading labelled rows"})
            bundle = bundles.verify(Path(task.bundle))
            revision = RevisionStore(database).get(task.model, task.revision)
            rows = FeedbackStore(database).labelled_rows(
                task.model,
                revision.model_digest,
                since_us=task.request.since_us,
                until_us=task.request.until_us,
                label_names=bundle.manifest.labels,
            )
            seed = int.from_bytes(database.secret[:8], "little")
        finally:
            database.close()
        outcome = refit(
            task, revision, bundle, rows, seed=seed, show=show, progress=lambda text: say({"progress": text})
        )
        say({"outcome": outcome})
    except CandorError as error:
        say({"error": error_document(error)})


if __name__ == "__main__":
    main()
