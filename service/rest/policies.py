"""Policies over HTTP: read, propose, simulate."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from candor.contract.certificates import SolvedPolicy
from candor.contract.revisions import PolicyProposal
from candor.contract.simulation import Simulation, SimulationRequest
from service.operations import policies, simulation
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.responses import sent


def get_policy(model: ModelDep, policy: str) -> Response:
    """Return a policy as it is in force, with its thresholds and certificates."""
    return sent(policies.get_policy(model, policy))


def put_policy(
    runtime: RuntimeDep, model: ModelDep, by: Caller, policy: str, document: Annotated[dict[str, Any], Body()]
) -> Response:
    """Propose a new or changed policy. It is solved on the reference rows and takes force when it is activated.

    `warnings` say where nothing is certified, what the rows get then, and how many labels are missing. Segments are
    never certified here, since reference rows have none: a recalibration on labelled traffic certifies them.
    """
    proposal = policies.put_policy(runtime, model, policy, document, by=by)
    status = 200 if proposal.state == "active" else 201  # in force already: nothing was made
    return sent(proposal, status, location=f"/v1/models/{model.name}/revisions/{proposal.id}")


def simulate_policy(
    runtime: RuntimeDep, model: ModelDep, by: Caller, policy: str, body: SimulationRequest | None = None
) -> Response:
    """Tell what a policy would have done: decisions that change, volumes by action, forecasts, rows that flip.

    A document is solved as PUT solves it: it is kept as a proposal, so that the look at labelled rows that it costs is
    used once. The answer names the revision that puts it into force.
    """
    return sent(simulation.simulate_policy(runtime, model, policy, body or SimulationRequest(), by=by))


def add_to(router: APIRouter) -> None:
    """Mount the endpoints below a model."""
    one, tags = "/policies/{policy}", ["policies"]
    proposed: dict[int | str, dict[str, Any]] = {200: {"model": PolicyProposal, "description": "In force already."}}
    router.add_api_route(one, get_policy, methods=["GET"], tags=[*tags], response_model=SolvedPolicy)
    router.add_api_route(
        one,
        put_policy,
        methods=["PUT"],
        status_code=201,
        tags=[*tags],
        response_model=PolicyProposal,
        responses=proposed,
    )
    router.add_api_route(f"{one}/simulate", simulate_policy, methods=["POST"], tags=[*tags], response_model=Simulation)
