"""The simulator: what a policy would have done with recent predictions under moved thresholds."""

from __future__ import annotations

import re
from typing import Any

from fastapi import APIRouter, Request, Response

from service.dashboard.charts.scores import scores
from service.dashboard.pages import page
from service.decisions.solved import SolvedPolicy
from service.errors import InputValueError
from service.operations.simulation import try_thresholds
from service.rest.dependencies import Caller, ModelDep, RuntimeDep

ROWS = 5_000
_BINS = 40
_BAND = re.compile(r"band-([0-9]{1,3})")


def simulator(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, policy: str) -> Response:
    """Show what moved thresholds would have done; the parameters `band-0`, `band-1` … set them."""
    by.require("calibrate")
    wanted = {
        int(match[1]): _share(name, text)
        for name, text in request.query_params.items()
        if (match := _BAND.fullmatch(name))
    }
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
        chart=None if tried.spread is None else _chart(after, tried.spread),
    )


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
    """Return a slider for each band with a threshold: its active and its simulated value."""
    found = []
    for index, (old, new) in enumerate(zip(before.bands[:-1], after.bands[:-1], strict=True)):
        found.append(
            {
                "name": f"band-{index}",
                "action": new.action,
                "condition": before.policy.bands[index].condition,
                "present": None if old.threshold is None else old.threshold.probability,
                "value": 1.0 if new.threshold is None else new.threshold.probability,
            }
        )
    return found


def _kinds(solved: SolvedPolicy) -> tuple[str, str, str]:
    """Return the policy's names of positive rows, other rows, and rows without a label."""
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
