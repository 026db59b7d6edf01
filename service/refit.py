"""The refit: labelled feedback → split → fit → gate → solve → report.

`refit` is a pure computation apart from one question: before it looks at rows that must stay honest, it asks `show` how
often they have been looked at, and whoever answers writes that down first. Run as `python -m service.refit` it is the
child process of a job: one JSON document a line on standard input and output, low priority, a database that it only
reads.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import orjson

from bundle import Bundle
from calibrators import CALIBRATORS, CalibrationError, Calibrator, Temperature
from calibrators import from_dict as calibrator_from_dict
from service.decisions.certificates import lost
from service.decisions.gate import compare, even_sample
from service.decisions.solved import SolvedPolicy
from service.decisions.split import one_per_group
from service.decisions.unattended import Limits, judge
from service.decisions.voided import overlaid_documents
from service.errors import CandorError, InputValueError, TooFewLabelsError, error_document
from service.inference.inputs import specification
from service.inference.offline import Scorer
from service.refit_metrics import compared_metrics, confidence_histogram, decompositions, reliability
from service.refit_policies import basis_of, first_shown, refit_policies
from service.refit_report import Side, change_caps, changed_decisions, shown_calibrator, summary
from service.refit_rows import Rows, Silence, divide, effective_rows, fit_weights
from service.refit_uploaded import Uploaded, load_uploaded
from service.revision import Basis, Revision
from service.state.database import Database, now_us
from service.state.inputs import unpacked
from service.state.labelled import LabelledRows, load_labelled_rows
from service.state.monitors import MonitorStore
from service.state.refit_rows import load_window_rows
from service.state.rescoring import Rescoring
from service.state.revisions import RevisionStore
from service.state.unlabelled import UnlabelledRows, load_unlabelled_rows
from service.state.window import Window
from service.times import iso
from service.verified import verified

# Below this many errors among the fit rows a temperature says little; it is drawn towards the one in service.
ENOUGH_ERRORS = 25
UNCHANGED: Final = "unchanged"
"""In place of a method: the calibrator stays, and only the policies are solved on labelled traffic."""
_DAY_US = 86_400_000_000
# Unlabelled rows of earlier models; scoring one can take a millisecond and more.
MOST_SCORED_AGAIN: Final = 100_000


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
        implicit_negative: What a source's silence means, `{"label", "source", "maturity_days", "actions"}`, or None.
        rescore: Whether rows of earlier models whose inputs were kept are scored again, and join.
        labelled_set: Id of the uploaded set that the rows come from; None takes labelled traffic.
        limits: Fields of `Limits` that are stricter than the operator's.
    """

    mode: Literal["dry_run", "propose", "activate"] = "dry_run"
    calibrator: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    unknown_propensity: Literal["exclude", "fit"] = "exclude"
    gate: Literal["superior", "non_inferior"] = "superior"
    implicit_negative: dict[str, Any] | None = None
    rescore: bool = False
    labelled_set: str | None = None
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RefitTask:
    """Everything the child process needs to know.

    `limits` say what may be activated unattended; of more than `max_labels` labels those of the newest predictions are
    read.
    """

    database_url: str
    bundle: str
    model: str
    revision: str
    min_rows: int
    alpha: float
    margin: float
    max_labels: int
    request: RefitRequest
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredAgain:
    """Predictions of earlier models, in the scores of the bundle's.

    Attributes:
        labelled: Those with a label.
        unlabelled: The others, as far back as they are all there.
        whole_since_us: Time from which on all of them are there; None for the window's start.
    """

    labelled: LabelledRows
    unlabelled: UnlabelledRows
    whole_since_us: int | None


Show = Callable[[dict[str, Any]], dict[str, Any]]
Progress = Callable[[str, int], None]
STEPS: Final = 6
"""Steps of a refit: reading, fitting, certifying, comparing, measuring, and keeping what came of it."""


def refit(
    task: RefitTask,
    revision: Revision,
    bundle: Bundle,
    labelled: LabelledRows,
    unlabelled: UnlabelledRows,
    *,
    again: ScoredAgain | None = None,
    seed: int,
    at: int,
    show: Show,
    progress: Progress = lambda _text, _step: None,
    uploaded: Uploaded | None = None,
) -> dict[str, Any]:
    """Fit a candidate on one part of the rows, gate it on another, and solve its thresholds on a third.

    Args:
        task: What was asked for.
        revision: The one in service, which the candidate is compared with.
        bundle: Its bundle; the reference rows certify where the traffic has too few.
        labelled: Labelled predictions of the bundle's model in the window.
        unlabelled: All its other predictions there.
        again: Predictions of earlier models that join them.
        seed: Of every draw; fixed before any label is seen.
        at: When the rows were read, in microseconds since the epoch.
        show: Told, before results are seen, which rows are about to be looked at; answers with the look numbers.
        progress: Told what is being done, and which of the `STEPS` it is.
        uploaded: Where the rows come from when they are no traffic. They certify only where they were declared to be a
            sample of it, and the reference rows do otherwise.

    Returns:
        `{"calibrator", "policies", "report"}`: documents for a revision, and the answer to the caller.

    Raises:
        TooFewLabelsError: There are too few usable rows.
    """
    request = task.request
    names = bundle.manifest.labels
    active = calibrator_from_dict(revision.calibrator)
    solved = {key: SolvedPolicy.from_dict(document) for key, document in revision.policies.items()}
    all_rows = Rows.of(labelled, unlabelled)
    if again is not None:
        earlier = Rows.of(again.labelled, again.unlabelled, whole_since_us=again.whole_since_us)
        all_rows = all_rows.with_others(earlier)
    rows = divide(
        all_rows,
        unsought_may_fit=uploaded is not None or request.unknown_propensity == "fit",
        min_rows=task.min_rows,
        silence=_silence(request, names, at),
        where="/source/feedback" if uploaded is None else "/source/labelled_set",
    )
    certifying = rows.certify.take(rows.certify.tested)
    judged, gate = rows.judged, rows.gate

    unchanged = request.calibrator == UNCHANGED
    if unchanged:
        candidate = active
    else:
        progress(f"fitting {len(rows.fitting)} rows", 2)
        candidate = _fit(request.calibrator or revision.calibrator["method"], rows.fitting, active)

    own: Basis = "traffic" if uploaded is None else "uploaded" if uploaded.represents else "reference"
    bases = {key: basis_of(policy.policy, names, certifying, own) for key, policy in solved.items()}
    shown = show(
        {
            "rows": "traffic" if uploaded is None else "uploaded",
            # Gate rows tell nothing of two sides that are equal: that is no attempt.
            "gate": None if unchanged else int(gate.labelled_at.min()),
            "certify": {
                key: {"basis": basis, "earliest": first_shown(solved[key].policy, rows.certify)}
                for key, basis in bases.items()
            },
        }
    )

    progress(f"certifying on {len(certifying)} rows", 3)
    window = None
    if uploaded is None or uploaded.timed:
        window = iso(int(certifying.predicted_at.min())), iso(int(certifying.predicted_at.max()))
    refitted = refit_policies(
        solved, bundle, active, candidate, rows, bases=bases, looks=shown["looks"], window=window, seed=seed
    )
    resolved = {key: policy.solved for key, policy in refitted.items()}

    progress(f"comparing on {len(gate)} gate rows", 4)
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
        represents_traffic=uploaded is None or uploaded.represents,
    )

    progress("measuring", 5)
    compared = even_sample(gate.propensity, seed)  # the very rows of the verdict
    sides = before.take(compared), after.take(compared)
    truth, cluster = gate.labels[compared], gate.cluster[compared]
    report = {
        "source": {"feedback": _asked(request)} if uploaded is None else uploaded.to_dict(),
        "calibrator": {
            "before": shown_calibrator(revision.calibrator),
            "after": shown_calibrator(candidate.to_dict()),
        },
        "rows": {
            "fit": len(rows.fitting),
            "certify": len(certifying),
            "gate": len(gate),
            "implicit": rows.silent,  # of `fit`
            "pending": labelled.pending,
            "rescored": 0 if again is None else len(again.labelled),
            "conflicts": labelled.conflicts + (0 if again is None else again.labelled.conflicts),
            "unknown_labels": labelled.unknown_labels,
            "effective_fit": round(effective_rows(fit_weights(rows.fitting.propensity)), 1),
        },
        "implicit_negative": request.implicit_negative,
        "gate": verdict.to_dict(),
        "metrics": compared_metrics(verdict, *sides, truth, cluster, seed),
        "decomposition": decompositions(*sides, truth),
        "reliability": reliability(*sides, truth, cluster),
        "confidence": confidence_histogram(*sides, truth),
        "decisions": changed_decisions(names, before, after, gate.logits, gate.segment),
        "policies": {key: policy.report(solved[key]) for key, policy in refitted.items()},
        "summary": summary(verdict),
    }
    return {
        "calibrator": candidate.to_dict(),
        "policies": {key: policy.to_dict() for key, policy in resolved.items()},
        "report": report,
    }


def _asked(request: RefitRequest) -> dict[str, Any]:
    """Return which labelled traffic was asked for, as a request says it."""
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
    maturity_us = round(meant["maturity_days"] * _DAY_US)
    return Silence(list(names).index(meant["label"]), at - maturity_us, frozenset(meant["actions"]))


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


def _took(steps: list[tuple[str, float]]) -> dict[str, Any]:
    """Return the seconds of each step, those of the processor for all, and the most memory that the process had."""
    ends = [*(began for _, began in steps[1:]), time.perf_counter()]
    return {
        "seconds": {text: round(end - began, 3) for (text, began), end in zip(steps, ends, strict=True)},
        "processor_seconds": round(time.process_time(), 3),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


def _scored_again(database: Database, bundle: Bundle, window: Window, max_labels: int | None) -> ScoredAgain:
    """Score the window's predictions of earlier models with this bundle's model, as far as their inputs were kept."""
    spec, names = bundle.manifest.input, bundle.manifest.labels
    scorer = Scorer(bundle, where="/source/feedback/rescore")

    def score(contents: Sequence[bytes]) -> npt.NDArray[np.float32]:
        return scorer(unpacked(contents, spec.dtype, spec.shape))

    again = Rescoring(specification(bundle), score)
    with database.connect() as connection:
        whole_since = again.whole_since_us(connection, window)
        whole = window if whole_since is None else replace(window, since_us=whole_since)
        unlabelled = load_unlabelled_rows(connection, whole, classes=len(names), at_most=MOST_SCORED_AGAIN, again=again)
        labelled = load_labelled_rows(connection, window, label_names=names, at_most=max_labels, again=again)
    if labelled.since_us is not None:
        unlabelled = unlabelled.since(max(labelled.since_us, unlabelled.since_us or 0))
    since = [time for time in (whole_since, unlabelled.since_us) if time is not None]
    return ScoredAgain(labelled, unlabelled, max(since, default=None))


def main() -> None:
    """Run one refit as a child process: the task comes on standard input, everything else goes line by line."""

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

    steps: list[tuple[str, float]] = []

    def progress(text: str, step: int) -> None:
        steps.append((text, time.perf_counter()))
        say({"progress": text, "step": step})

    document = hear()
    parts = {"request": RefitRequest(**document["request"]), "limits": Limits(**document.get("limits", {}))}
    task = RefitTask(**{**document, **parts})
    try:
        database = Database.open(task.database_url, readonly=True)
        try:
            progress("reading rows", 1)
            gc.disable()  # millions of tuples come and go at once; the collector would look through them for nothing
            bundle = verified(Path(task.bundle))
            revision = RevisionStore(database).get(task.model, task.revision)
            voided = MonitorStore(database).voided().get(task.model, frozenset())
            policies = overlaid_documents(revision.policies, revision.model_digest, voided)
            revision = replace(revision, policies=policies)  # as it is in force
            at = now_us()
            uploaded, left_out_before, again = None, None, None
            if task.request.labelled_set is None:
                others = task.request.rescore or task.request.implicit_negative  # rows enough without these labels
                asked = Window(task.model, revision.model_digest, task.request.since_us, task.request.until_us)
                with database.connect() as connection:
                    found = load_window_rows(
                        connection,
                        asked,
                        label_names=bundle.manifest.labels,
                        at_least=0 if others else task.min_rows,
                        at_most=task.max_labels,
                    )
                labelled, unlabelled, left_out_before = found.labelled, found.unlabelled, found.left_out_before
                if task.request.rescore:
                    progress("scoring earlier rows again", 1)
                    again = _scored_again(database, bundle, asked, task.max_labels)
            else:
                uploaded, labelled, unlabelled = load_uploaded(
                    database, task.model, task.request.labelled_set, revision, bundle
                )
            seed = int.from_bytes(database.secret[:8], "little")
        finally:
            database.close()
            gc.enable()
        outcome = refit(
            task,
            revision,
            bundle,
            labelled,
            unlabelled,
            again=again,
            seed=seed,
            at=at,
            show=show,
            progress=progress,
            uploaded=uploaded,
        )
        outcome["report"]["read_at"] = iso(at)
        outcome["report"]["rows"]["left_out_before"] = None if left_out_before is None else iso(left_out_before)
        outcome["report"]["took"] = _took(steps)
        say({"outcome": outcome})
    except CandorError as error:
        say({"error": error_document(error)})


if __name__ == "__main__":
    main()
