"""The refit: labelled feedback → split → fit → gate → solve → report.

`refit` is a pure computation apart from one question: before it looks at rows that must stay honest, it asks `show` how
often they have been looked at, and whoever answers writes that down first. Run as `python -m service.refit` it is the
child process of a job: one JSON document a line on standard input and output, low priority, a database that it only
reads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import orjson

import bundle as bundles
from bundle import Bundle
from calibrators import CALIBRATORS, CalibrationError, Calibrator, Temperature
from calibrators import from_dict as calibrator_from_dict
from service.decisions.certificates import lost
from service.decisions.gate import compare
from service.decisions.solved import SolvedPolicy
from service.decisions.split import one_per_group
from service.decisions.unattended import Limits, judge
from service.errors import CandorError, InputValueError, TooFewLabelsError, error_document
from service.refit_policies import basis_of, first_shown, refit_policies
from service.refit_report import Side, change_caps, changed_decisions, compared_metrics, summary
from service.refit_rows import Rows, divide, effective_rows, fit_weights
from service.revision import Revision
from service.state.database import Database
from service.state.feedback import FeedbackStore
from service.state.labelled import LabelledRows
from service.state.revisions import RevisionStore
from service.state.unlabelled import UnlabelledRows
from service.state.window import Window
from service.times import iso

# Below this many errors among the fit rows a temperature says little; it is drawn towards the one in service.
ENOUGH_ERRORS = 25
UNCHANGED: Final = "unchanged"
"""In place of a method: the calibrator stays, and only the policies are solved on labelled traffic."""
_NICE = 10


@dataclass(frozen=True, slots=True)
class RefitRequest:
    """What a caller asks of /recalibrate.

    Attributes:
        mode: "dry_run" keeps nothing, "propose" keeps a proposal, "activate" also activates it if the gate passes.
        calibrator: Registered name, or `UNCHANGED`; None keeps the method in service.
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
    """Everything the child process needs to know; `limits` say what may be activated unattended."""

    database_url: str
    bundle: str
    model: str
    revision: str
    min_rows: int
    alpha: float
    margin: float
    request: RefitRequest
    limits: Limits = field(default_factory=Limits)


Show = Callable[[dict[str, Any]], dict[str, Any]]
Progress = Callable[[str], None]


def refit(
    task: RefitTask,
    revision: Revision,
    bundle: Bundle,
    labelled: LabelledRows,
    unlabelled: UnlabelledRows,
    *,
    seed: int,
    show: Show,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Fit a candidate on one part of the rows, gate it on another, and solve its thresholds on a third.

    Args:
        task: What was asked for.
        revision: The one in service, which the candidate is compared with.
        bundle: Its bundle; the reference rows certify where the traffic has too few.
        labelled: Labelled predictions of the bundle's model in the window.
        unlabelled: All its other predictions there.
        seed: Of every draw; fixed before any label is seen.
        show: Told, before results are seen, which rows are about to be looked at; answers with the look numbers.
        progress: Told what is being done.

    Returns:
        `{"calibrator", "policies", "report"}`: documents for a revision, and the answer to the caller.

    Raises:
        TooFewLabelsError: There are too few usable rows.
    """
    request = task.request
    names = bundle.manifest.labels
    active = calibrator_from_dict(revision.calibrator)
    solved = {key: SolvedPolicy.from_dict(document) for key, document in revision.policies.items()}
    rows = divide(
        Rows.of(labelled, unlabelled),
        unsought_may_fit=request.unknown_propensity == "fit",
        min_rows=task.min_rows,
    )
    certifying = rows.certify.take(rows.certify.tested)
    judged, gate = rows.judged, rows.gate

    unchanged = request.calibrator == UNCHANGED
    if unchanged:
        candidate = active
    else:
        progress(f"fitting {len(rows.fitting)} rows")
        candidate = _fit(request.calibrator or revision.calibrator["method"], rows.fitting, active)

    bases = {key: basis_of(policy.policy, names, certifying) for key, policy in solved.items()}
    shown = show(
        {
            # Gate rows tell nothing of two sides that are equal: that is no attempt.
            "gate": None if unchanged else int(gate.labelled_at.min()),
            "certify": {
                key: {"basis": basis, "earliest": first_shown(solved[key].policy, rows.certify)}
                for key, basis in bases.items()
            },
        }
    )

    progress(f"certifying on {len(certifying)} rows")
    window = iso(int(certifying.predicted_at.min())), iso(int(certifying.predicted_at.max()))
    refitted = refit_policies(
        solved, bundle, active, candidate, rows, bases=bases, looks=shown["looks"], window=window, seed=seed
    )
    resolved = {key: policy.solved for key, policy in refitted.items()}

    progress(f"comparing on {len(gate)} gate rows")
    before_all, after_all = Side.of(active, solved, judged.logits), Side.of(candidate, resolved, judged.logits)
    before, after = before_all.take(judged.tested), after_all.take(judged.tested)
    others = ~judged.tested
    verdict = compare(
        after.probabilities,
        before.probabilities,
        gate.labels,
        gate.cluster,
        mode=request.gate,
        attempt=shown["attempt"],
        alpha=task.alpha,
        margin=task.margin,
        propensity=gate.propensity,
        traffic=(after_all.probabilities[others], before_all.probabilities[others]) if others.any() else None,
        seed=seed,
    )
    if unchanged:
        reason = "The calibrator is unchanged: the policies are solved anew on labelled traffic."
        verdict = replace(verdict, mode="non_inferior", passed=True, reason=reason)
    verdict = judge(
        verdict,
        limits=task.limits,
        unidentified_share=rows.unidentified_share,
        missing_share=rows.missing_share,
        caps=change_caps(
            names,
            before_all,
            after_all,
            judged.logits,
            judged.segment,
            which=one_per_group(judged.cluster, seed),
            limits=task.limits,
            level=verdict.alpha,
        ),
        uncertified=[(key, part) for key, old in solved.items() for part in lost(old, resolved[key])],
        at_bound=isinstance(candidate, Temperature) and candidate.at_bound_,
    )

    progress("measuring")
    report = {
        "calibrator": {"before": revision.calibrator, "after": candidate.to_dict()},
        "rows": {
            "fit": len(rows.fitting),
            "certify": len(certifying),
            "gate": len(gate),
            "pending": labelled.pending,
            "conflicts": labelled.conflicts,
            "effective_fit": round(effective_rows(fit_weights(rows.fitting.propensity)), 1),
        },
        "gate": verdict.to_dict(),
        "metrics": compared_metrics(verdict, before, after, gate.labels, seed),
        "decisions": changed_decisions(names, before, after, gate.logits, gate.segment),
        "policies": {key: policy.report() for key, policy in refitted.items()},
        "summary": summary(verdict),
    }
    return {
        "calibrator": candidate.to_dict(),
        "policies": {key: policy.to_dict() for key, policy in resolved.items()},
        "report": report,
    }


def _fit(method: str, rows: Rows, active: Calibrator) -> Calibrator:
    try:
        candidate = CALIBRATORS[method]().fit(rows.logits, rows.labels, fit_weights(rows.propensity))
    except CalibrationError as error:
        raise InputValueError(f"The calibrator {method!r} cannot be fitted: {error}", where="/calibrator") from error
    top_labels, _ = active.top_label(rows.logits, active.predict_proba(rows.logits))
    errors = int((top_labels != rows.labels).sum())
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
        found=f"{errors} wrong predictions among {len(rows)} fit rows",
        expected=f"at least {ENOUGH_ERRORS}",
        remedy="Collect more labels, or refit `temperature`, which is drawn towards the one in service.",
    )


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
    parts = {"request": RefitRequest(**document["request"]), "limits": Limits(**document.get("limits", {}))}
    task = RefitTask(**{**document, **parts})
    try:
        database = Database.open(task.database_url, readonly=True)
        try:
            say({"progress": "reading rows"})
            bundle = bundles.verify(Path(task.bundle))
            revision = RevisionStore(database).get(task.model, task.revision)
            names = bundle.manifest.labels
            window = Window(task.model, revision.model_digest, task.request.since_us, task.request.until_us)
            store = FeedbackStore(database)
            unlabelled = store.unlabelled_rows(window, classes=len(names))
            if unlabelled.since_us is not None:  # where some are left out, labelled rows would speak for them
                window = replace(window, since_us=unlabelled.since_us)
            labelled = store.labelled_rows(window, label_names=names)
            seed = int.from_bytes(database.secret[:8], "little")
        finally:
            database.close()
        outcome = refit(
            task,
            revision,
            bundle,
            labelled,
            unlabelled,
            seed=seed,
            show=show,
            progress=lambda text: say({"progress": text}),
        )
        say({"outcome": outcome})
    except CandorError as error:
        say({"error": error_document(error)})


if __name__ == "__main__":
    main()
