"""The simulator: what a policy would have done with recent predictions, had its thresholds lain elsewhere."""

from __future__ import annotations

import re
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from service.dashboard.charts.scores import scores
from service.dashboard.pages import page
from service.decisions.solved import SolvedPolicy
from service.errors import InputValueError
from service.models import Model
from service.rest import simulate
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.runtime import Runtime
from service.simulation import moved, simulate_on, spread
from service.state.recent import load_recent_rows, rows_at_once
from service.state.window import Window
from service.times import iso

ROWS = 5_000
_BINS = 40
_BAND = re.compile(r"band-([0-9]{1,3})")


async def simulator(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, policy: str) -> Response:
    """Show what moved thresholds would have done; `band-0`, `band-1`, … say where they lie."""
    by.require("calibrate")
    wanted = {
        int(match[1]): _share(name, text)
        for name, text in request.query_params.items()
        if (match := _BAND.fullmatch(name))
    }
    content = await run_in_threadpool(_simulated, runtime, model, policy, wanted)
    return page(request.scope, "simulator.html", model=model.name, policies=sorted(model.served.policies), **content)


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


def _simulated(runtime: Runtime, model: Model, name: str, wanted: dict[int, float]) -> dict[str, Any]:
    served = model.served
    before = simulate.in_force(served, name)
    after = moved(before, wanted)
    window = Window(model.name, served.revision.model_digest)
    most = rows_at_once(len(served.labels), ROWS)
    with runtime.database.connect() as connection:
        rows = load_recent_rows(connection, window, label_names=served.labels, at_most=most)
    seed = int.from_bytes(runtime.database.secret[:8], "little")
    found = simulate_on(rows, served, after, before, most_flips=0, seed=seed).to_dict()
    return {
        "policy": before.policy,
        "policy_version": before.version,
        "revision": served.revision.id,
        "sliders": _sliders(before, after),
        "segments": sorted(before.segments),
        "found": found,
        "window": [iso(int(rows.predicted_at[0])), iso(int(rows.predicted_at[-1]))] if len(rows) else None,
        "kinds": _kinds(before),
        "chart": None if not len(rows) else _chart(after, spread(rows, served, after, bins=_BINS)),
    }


def _sliders(before: SolvedPolicy, after: SolvedPolicy) -> list[dict[str, Any]]:
    """Return a slider for each band with a threshold, where it lies now and where it lies in the simulation."""
    found = []
    for index, (old, new) in enumerate(zip(before.bands[:-1], after.bands[:-1], strict=True)):
        found.append(
            {
                "name": f"band-{index}",
                "action": new.action,
                "condition": before.policy.bands[index].when,
                "present": None if old.threshold is None else old.threshold.probability,
                "value": 1.0 if new.threshold is None else new.threshold.probability,
            }
        )
    return found


def _kinds(solved: SolvedPolicy) -> tuple[str, str, str]:
    """Return what the policy calls rows that are positive, that are not, and that have no label."""
    if solved.policy.positive == "top":
        return "right", "wrong", "no label"
    return "positive", "negative", "no label"


def _chart(after: SolvedPolicy, counts: dict[str, list[int]]) -> Any:
    columns = ("right", counts["positive"]), ("wrong", counts["negative"]), ("rows", counts["unknown"])
    kinds = [(class_, said, column) for (class_, column), said in zip(columns, _kinds(after), strict=True)]
    cuts = [(band.action, band.threshold.probability) for band in after.bands[:-1] if band.threshold is not None]
    return scores("scores", "Recent predictions by probability", kinds, cuts)


def add_to(router: APIRouter) -> None:
    """Mount the page."""
    router.add_api_route("/policies/{policy}/simulate", simulator, methods=["GET"])
