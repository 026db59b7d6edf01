"""A model's page: the active revision, its calibration, and what its policies promise."""

from __future__ import annotations

from collections import Counter, defaultdict

from fastapi import APIRouter, Request, Response

from calibrators import PriorShift
from candor.contract.revisions import Revision
from service.dashboard.diagrams import Diagrams, drawn, on_reference
from service.dashboard.pages import page
from service.dashboard.promises import promises
from service.dashboard.watch import busier, columns, watched
from service.decisions.multicalibrated import METHOD
from service.operations.challengers import comparisons
from service.operations.models import get_model
from service.operations.monitoring import monitoring
from service.operations.revisions import get_revision, list_revisions
from service.rest.dependencies import ModelDep, RuntimeDep
from service.serving.model import Model
from service.sums import Snapshot, samples_of

_NEWEST = 50
_COLUMNS = 10


def model_page(request: Request, runtime: RuntimeDep, model: ModelDep, revision: str | None = None) -> Response:
    """Show a model; `revision` selects the revision whose calibration is drawn."""
    listed = list_revisions(runtime, model, limit=_NEWEST)
    active = get_revision(runtime, model, listed.active) if listed.active else None
    chosen = active if revision is None else get_revision(runtime, model, revision)
    basis, shown = ("", None) if chosen is None else diagrams_of(model, chosen)
    told = None if model.plane.served is None else monitoring(runtime, model)
    return page(
        request.scope,
        "model.html",
        watched=[] if told is None else watched(told),
        busier=[] if told is None else busier(told),
        estimates=None if told is None else told.estimates,
        guard=None if told is None else told.guard,
        drift=None if told is None else told.drift,
        no_drift=None if told is None else told.no_drift,
        challengers=() if told is None else comparisons(runtime, model),
        columns=[] if told is None else columns(told),
        values=_values(runtime.all_metrics(), model.name),
        model=get_model(model).document,
        listed=listed,
        active=active,
        chosen=chosen,
        basis=basis,
        shown=shown,
        promises=[] if active is None else promises(active.policies),
    )


def _values(metrics: Snapshot, model: str) -> list[tuple[str, Counter[str]]]:
    """Return how often each column lacked a value or had an odd one since the start, the most frequent first.

    Counts are by "accepted" or "refused", and reason.
    """
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for what, name in (("accepted", "candor_absent_values_total"), ("refused", "candor_refused_values_total")):
        for labels, count in samples_of(metrics, name):
            if labels["model"] == model:
                found[labels["column"]][f"{what} {labels['reason']}"] += int(count)
    return sorted(found.items(), key=lambda item: (-item[1].total(), item[0]))[:_COLUMNS]


def diagrams_of(model: Model, revision: Revision) -> tuple[str, Diagrams | None]:
    """Return the source of a revision's diagrams in words, and the diagrams; without any, the reason and None."""
    title = f"revision {revision.id}"
    shown = drawn(revision.document["report"], "after", title)
    if shown is not None:
        return "the gate rows of its recalibration: labelled traffic that did not fit it", shown
    if revision.calibrator["method"] == PriorShift.name:  # reference rows have the frequencies that it corrects
        return "it assumes class frequencies that its bundle's reference rows do not have", None
    if revision.calibrator["method"] == METHOD:
        return "it reads columns, which its bundle's reference rows do not have", None
    measured = on_reference(model, revision.bundle_id, revision.calibrator)
    if measured is None:
        return f"the bundle of revision {revision.id} is not loaded, and no recalibration has measured it", None
    return "the reference rows of its bundle that did not fit it", drawn(measured, "after", title)


def add_to(router: APIRouter) -> None:
    """Mount the page."""
    router.add_api_route("", model_page, methods=["GET"])
