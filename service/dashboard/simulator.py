"""The simulator: what a policy would have done with recent predictions under moved thresholds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from candor.contract.certificates import SolvedBand
from service.dashboard import forms
from service.dashboard.charts.scores import scores
from service.dashboard.pages import page
from service.decisions.solved import SolvedPolicy
from service.errors import InputValueError
from service.operations.policies import in_force
from service.operations.simulation import Spread, propose_thresholds, try_thresholds
from service.rest.dependencies import Caller, ModelDep, RuntimeDep

ROWS = 5_000
_BINS = 40
_STEP = 0.001  # of a slider
_PLACES = "{:.3f}"  # what a slider shows and sends
_BAND = re.compile(r"band-([0-9]{1,3})")


def simulator(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, policy: str) -> Response:
    """Show what moved thresholds would have done; the parameters `band-0`, `band-1` … set them."""
    by.require("calibrate")
    wanted = _moved(in_force(model.served, policy), _wanted(request.query_params))
    tried = try_thresholds(runtime, model, policy, wanted, rows=ROWS, bins=_BINS)
    before, after = tried.before, tried.after
    return page(
        request.scope,
        "simulator.html",
        model=model.name,
        policies=sorted(model.served.policies),
        policy=before.policy,
        policy_version=before.version,
        revision=model.served.revision.id,
        sliders=_sliders(before, after),
        segments=sorted(before.segments),
        found=tried.found.document,
        window=tried.window,
        kinds=_kinds(before),
        step=_STEP,
        chart=None if tried.spread is None else _chart(after, tried.spread),
        outcomes=tried.outcomes,
        moved=wanted,
    )


async def propose(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, policy: str) -> Response:
    """Propose the policy with the thresholds of the form, through the operation behind `PUT …/policies/{policy}`."""
    by.require("calibrate")
    fields = await forms.read(request)
    wanted = _moved(in_force(model.served, policy), _wanted(fields))
    made = await run_in_threadpool(propose_thresholds, runtime, model, policy, wanted, by=by)
    return forms.see(f"/dashboard/models/{forms.part(model.name)}/revisions/{made.id}")


def _wanted(given: Mapping[str, str]) -> dict[int, float]:
    return {int(match[1]): _share(name, text) for name, text in given.items() if (match := _BAND.fullmatch(name))}


def _moved(before: SolvedPolicy, wanted: Mapping[int, float]) -> dict[int, float]:
    """Return the thresholds that are not where their slider shows those in force; a form sends every slider."""
    at_rest = {index: float(_PLACES.format(_place(band))) for index, band in enumerate(before.bands[:-1])}
    return {index: value for index, value in wanted.items() if at_rest.get(index) != value}


def _place(band: SolvedBand) -> float:
    """Return where a band's slider stands: at its end for a band that takes nothing."""
    return 1.0 if band.threshold is None else band.threshold.probability


def _share(name: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = float("nan")
    if not 0 <= share <= 1:
        raise InputValueError(
            "A threshold is a probability.", where=name, found=text[:100], expected="a number from 0 to 1"
        )
    return share


def _sliders(before: SolvedPolicy, after: SolvedPolicy) -> list[dict[str, Any]]:
    """Return a slider for each band with a threshold, its active and its simulated value; none where amounts decide."""
    found = []
    for index, (old, new) in enumerate(zip(before.bands[:-1], after.bands[:-1], strict=True)):
        if index in before.by_amount:
            continue
        found.append(
            {
                "name": f"band-{index}",
                "action": new.action,
                "condition": before.policy.bands[index].condition,
                "present": None if old.threshold is None else old.threshold.probability,
                "value": _PLACES.format(_place(new)),
            }
        )
    return found


def _kinds(solved: SolvedPolicy) -> tuple[str, str, str]:
    """Return the policy's names of positive rows, other rows, and rows without a label."""
    if solved.policy.positive == "top":
        return "right", "wrong", "no label"
    return "positive", "negative", "no label"


def _chart(after: SolvedPolicy, counts: Spread) -> Any:
    columns = ("right", counts.positive), ("wrong", counts.negative), ("rows", counts.unknown)
    kinds = [(class_, said, column) for (class_, column), said in zip(columns, _kinds(after), strict=True)]
    cuts = [(band.action, band.threshold.probability) for band in after.bands[:-1] if band.threshold is not None]
    return scores("scores", "Recent predictions by probability", counts.edges, kinds, cuts)


def add_to(router: APIRouter) -> None:
    """Mount the page."""
    router.add_api_route("/policies/{policy}/simulate", simulator, methods=["GET"])
    router.add_api_route("/policies/{policy}/simulate", propose, methods=["POST"])
