"""Challengers: score a revision beside the active one, compare both, remove it."""

from __future__ import annotations

from typing import Any, Final

from bundle import Columns
from candor.contract.challengers import Challenger as Shown
from candor.contract.challengers import (
    ChallengerComparison,
    ChallengerPage,
    ChallengerRequest,
    ChangedAction,
    OutcomeQuestion,
    Question,
)
from service.decisions.multicalibrated import Multicalibrated
from service.decisions.solved import SolvedPolicy
from service.errors import RevisionStateError, UnknownRevisionError
from service.monitoring.comparison import LOG_LOSS, Comparison, prices
from service.monitoring.paired import Paired
from service.operations.principal import Principal
from service.places import in_body
from service.runtime import Runtime
from service.serving.model import Model
from service.serving.plane import Served
from service.state.challengers import Challenger
from service.times import iso

_NEWEST: Final = 1_000  # revisions among which that of a bundle is looked for


def list_challengers(runtime: Runtime, model: Model) -> ChallengerPage:
    """Return a model's challengers."""
    found = runtime.challengers.of(model.name)
    return ChallengerPage(items=tuple(Shown(**_described(runtime, model, one)) for one in found))


def put_challenger(
    runtime: Runtime, model: Model, name: str, request: ChallengerRequest, *, by: Principal
) -> tuple[Shown, bool]:
    """Score a revision beside the active one, on every replica; return it, and whether that is new.

    The comparison begins with the predictions from now on. A change of the revision or the share begins a new one.

    Raises:
        UnknownRevisionError: The model has no such revision, or none of that bundle.
        RevisionStateError: It is active, its labels differ, the model has too many challengers, or nothing is logged.
        BundleRefusedError: Its bundle cannot be loaded; nothing has changed.
        NotReadyError: The model serves no revision.
    """
    if runtime.settings.log_mode == "off":
        raise RevisionStateError(
            "A challenger is compared on logged predictions, and this service logs none.",
            where="CANDOR_LOG_MODE",
            found="off",
            expected="background or sync",
        )
    revision = request.revision or _newest_of(runtime, model, request.bundle)
    chosen = runtime.revisions.get(model.name, revision)
    if chosen.id == model.served.revision.id:
        raise RevisionStateError(
            f"Revision {chosen.id} is active: it cannot challenge itself.",
            where=in_body("revision"),
            found=chosen.id,
            expected="another revision",
        )
    if isinstance(chosen.calibrator, Multicalibrated):
        raise RevisionStateError(
            f"Revision {chosen.id} reads columns of each row, which comparisons with a challenger do not read.",
            where=in_body("revision"),
            found=chosen.calibrator.name,
            expected="a revision with another calibrator",
        )
    with runtime.models.check_challenger(chosen) as served:
        columns = [one.name for one in served.encoder.columns] if isinstance(served.encoder, Columns) else []
        found, new = runtime.challengers.put(
            model.name, name, revision=chosen.id, share=request.share, by=by.name, columns=columns
        )
        runtime.models.challengers_changed(model.name)
    return Shown(**_described(runtime, model, found)), new


def remove_challenger(runtime: Runtime, model: Model, name: str, *, by: Principal) -> Shown:
    """Stop scoring a challenger; its comparison ends, and its scores are deleted.

    Raises:
        UnknownChallengerError: The model has no challenger of that name.
    """
    shown = Shown(**_described(runtime, model, runtime.challengers.get(model.name, name)))
    runtime.challengers.delete(model.name, name, by=by.name)
    runtime.models.challengers_changed(model.name)
    return shown


def comparisons(runtime: Runtime, model: Model) -> tuple[ChallengerComparison, ...]:
    """Return the comparisons of all challengers of a model that serves a revision; see `compare_challenger`."""
    return tuple(compare_challenger(runtime, model, one.name) for one in runtime.challengers.of(model.name))


def compare_challenger(runtime: Runtime, model: Model, name: str) -> ChallengerComparison:
    """Return the comparison of a challenger with the active revision, as far as mature labels tell.

    Raises:
        UnknownChallengerError: The model has no challenger of that name.
        NotReadyError: The model serves no revision.
    """
    challenger = runtime.challengers.get(model.name, name)
    served = model.served
    said: dict[str, Any] = {
        **_described(runtime, model, challenger),
        "model": model.name,
        "active": served.revision.id,
    }
    stored = runtime.monitors.comparison(served.revision.id, challenger)
    if stored is None:
        nothing = dict.fromkeys(("level", "compared_since", "through", "log_loss"))
        return ChallengerComparison(**said, **nothing, scored=0, rows=0, labelled=0, missing=0, returned=0, policies=())
    found = Comparison.from_dict(stored.document)
    paired = found.paired.get(LOG_LOSS)
    return ChallengerComparison(
        **said,
        level=found.level,
        compared_since=iso(stored.since),
        through=iso(stored.through),
        scored=found.scored,
        rows=found.rows,
        labelled=found.labelled,
        missing=found.missing,
        returned=found.returned,
        log_loss=None if paired is None else Question(**_question(paired, found.floor)),
        policies=tuple(
            _outcome(found, served.policies[policy])
            for policy in found.decisions
            if policy in served.policies and f"policy/{policy}" in found.paired
        ),
    )


def _outcome(found: Comparison, solved: SolvedPolicy) -> OutcomeQuestion:
    policy, limit = solved.policy.id, found.amount_limit or 0.0
    priced, costs = prices(solved, limit), solved.policy.costs
    by_amount = priced and costs is not None and costs.by_amount
    decisions = found.decisions[policy]
    changes = sorted(((counts, *pair) for pair, counts in decisions.items() if pair[0] != pair[1]), reverse=True)
    return OutcomeQuestion(
        **_question(found.paired[f"policy/{policy}"], found.floor),
        policy=policy,
        unit="cost" if priced else "errors",
        amount_limit=limit if by_amount else None,
        amount_cut=found.cut if by_amount else None,
        rows=sum(counts.rows for counts in decisions.values()),
        flipped=sum(counts.rows for counts, *_ in changes),
        changes=tuple(
            ChangedAction(
                active=now, challenger=then, rows=counts.rows, amount=counts.amount if counts.priced else None
            )
            for counts, now, then in changes
        ),
    )


def _question(paired: Paired, floor: float) -> dict[str, Any]:
    means = paired.means()
    return {
        "active": None if means is None else means[0],
        "challenger": None if means is None else means[1],
        "difference": None if means is None else means[1] - means[0],
        "interval": paired.interval(floor=floor),
        "better": paired.better,
        "decided_at": None if paired.decided_at is None else iso(paired.decided_at),
        "evidence": {"active": paired.evidence("active"), "challenger": paired.evidence("challenger")},
        "decides_at": paired.fires_at,
    }


def _described(runtime: Runtime, model: Model, challenger: Challenger) -> dict[str, Any]:
    revision = runtime.revisions.get(model.name, challenger.revision)
    active = model.plane.served
    beside = next((one for one in model.beside if one.challenger == challenger), None)
    problem = None if beside is None else beside.problem
    if active is None:
        problem = "The model serves no revision."
    elif active.revision.id == revision.id:
        problem = "It is active."
    same = active is not None and active.revision.model_digest == revision.model_digest
    return {
        "name": challenger.name,
        "revision": revision.id,
        "bundle": revision.bundle_version,
        "share": challenger.share,
        "scoring": "none" if problem is not None else "from the log" if same else "own session",
        "problem": problem or runtime.monitors.comparison_problem(challenger),
        "since": iso(challenger.since),
        "by": challenger.by,
        "more_columns": _more_columns(active, challenger),
    }


def _more_columns(active: Served | None, challenger: Challenger) -> tuple[str, ...]:
    known = active.encoder.kinds.keys() if active is not None and isinstance(active.encoder, Columns) else ()
    return tuple(name for name in challenger.columns if name not in known)


def _newest_of(runtime: Runtime, model: Model, bundle: int | None) -> str:
    """Return the newest revision of a bundle."""
    known = runtime.revisions.list(model.name, limit=_NEWEST)
    found = next((entry.id for entry in known if entry.bundle_version == bundle), None)
    if found is None:
        raise UnknownRevisionError(
            f"Model {model.name} has no revision of bundle {bundle}.",
            where=in_body("bundle"),
            found=bundle,
            expected=sorted({entry.bundle_version for entry in known}),
            remedy=f"Propose newer bundles: candor load {model.name}, or POST /v1/models/{model.name}/load",
        )
    return found
