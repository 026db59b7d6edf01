"""POST …/policies/{policy}/simulate: what a policy would have done on recent traffic."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import AwareDatetime, ConfigDict, Field
from pydantic.config import JsonDict
from starlette.concurrency import run_in_threadpool

from service.decisions.certificates import certificates, warnings
from service.decisions.policy import Policy
from service.decisions.solved import SolvedPolicy
from service.errors import InputValueError, UnknownPolicyError
from service.models import Model
from service.plane import Served
from service.rest import answers
from service.rest.access import Principal
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.schema import Body, Text
from service.runtime import Runtime
from service.simulation import simulate_on
from service.state.recent import load_recent_rows, rows_at_once
from service.state.window import Window
from service.times import iso, microseconds

MOST_ROWS = 50_000
_EXAMPLE: JsonDict = {
    "document": {
        "positive": "7",
        "bands": [{"action": "flag", "when": {"min_precision": 0.9}}, {"action": "allow"}],
    },
    "rows": 20000,
}


class SimulateBody(Body):
    """What is tried, on which rows, and what it is compared with."""

    document: dict[str, Any] | None = Field(
        None, description="The policy, as PUT takes it. Left out: the one that is in force under this name."
    )
    against: Text | None = Field(
        None,
        description="Policy in force that it is compared with. Left out: the one of the same name, if there is one.",
    )
    since: AwareDatetime | None = Field(None, description="Predictions made at or after this time.")
    until: AwareDatetime | None = Field(None, description="Predictions made before this time.")
    rows: int = Field(
        20_000,
        ge=1,
        le=MOST_ROWS,
        description="Newest predictions that are tried, at most; fewer where their logits are above 64 MiB.",
    )
    flips: int = Field(100, ge=0, le=MOST_ROWS, description="Changed rows that are named, at most.")
    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLE})


async def simulate(
    runtime: RuntimeDep, model: ModelDep, by: Caller, policy: str, body: SimulateBody | None = None
) -> dict[str, Any]:
    """Say what a policy would have done: decisions that change, volumes by action, what to expect, which rows flip.

    A document is solved as PUT solves it: it is kept as a proposal, so that the look at the labelled rows that it costs
    is spent once. The answer names the revision that puts it into force.
    """
    return await run_in_threadpool(_simulate, runtime, model, by, policy, body or SimulateBody())


def _simulate(runtime: Runtime, model: Model, by: Principal, name: str, body: SimulateBody) -> dict[str, Any]:
    served = model.served
    since, until = (None if time is None else microseconds(time) for time in (body.since, body.until))
    if since is not None and until is not None and since >= until:
        raise InputValueError(
            "The window is empty.", where="/since", found=f"{iso(since)} to {iso(until)}", expected="since < until"
        )
    # Before anything is solved: a look that nobody gets to see would be wasted.
    before = in_force(served, body.against or name) if body.against or name in served.policies else None
    if body.document is None:
        revision_id, after = served.revision.id, in_force(served, name)
    else:
        wanted = Policy.from_dict({"id": name, **body.document})
        if wanted.id != name:
            raise InputValueError(
                "The policy's id is not that of the path.", where="/document/id", found=wanted.id, expected=name
            )
        revision = runtime.models.propose_policy(model.name, wanted, by=by.name, by_key=by.prefix)
        revision_id, after = revision.id, SolvedPolicy.from_dict(revision.policies[name])
    most = rows_at_once(len(served.labels), body.rows)
    window = Window(model.name, served.revision.model_digest, since, until)
    with runtime.database.connect() as connection:
        rows = load_recent_rows(connection, window, label_names=served.labels, at_most=most)
    seed = int.from_bytes(runtime.database.secret[:8], "little")
    found = simulate_on(rows, served, after, before, most_flips=body.flips, seed=seed)
    return {
        "model": model.name,
        "revision": revision_id,
        "policy": f"{name}@{after.version}",
        "against": None if before is None else f"{before.policy.id}@{before.version}",
        "window": [iso(int(rows.predicted_at[0])), iso(int(rows.predicted_at[-1]))] if len(rows) else None,
        **certificates(after),
        "warnings": warnings(after),
        **found.to_dict(),
    }


def in_force(served: Served, name: str) -> SolvedPolicy:
    """Return a policy of the revision in service.

    Raises:
        UnknownPolicyError: It has none of that name.
    """
    try:
        return served.policies[name]
    except KeyError:
        raise UnknownPolicyError(
            f"Revision {served.revision.id} has no policy {name!r}.",
            where="policy",
            found=name,
            expected=sorted(served.policies),
            remedy="Name one of these, or send a `document`.",
        ) from None


def add_to(router: APIRouter) -> None:
    """Mount the endpoint."""
    found = answers.documented(answers.Simulation)
    router.add_api_route("/policies/{policy}/simulate", simulate, methods=["POST"], tags=["policies"], responses=found)
