"""Policies over HTTP: read, propose, simulate, backtest."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from candor.contract.backtests import Backtest, BacktestRequest
from candor.contract.certificates import SolvedPolicy
from candor.contract.revisions import PolicyProposal
from candor.contract.simulation import Simulation, SimulationRequest
from service.errors import UnsupportedMediaTypeError
from service.operations import backtests, policies, simulation
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.documents import load_document
from service.rest.payloads import JSON_TYPE, media_type_of
from service.rest.responses import sent
from service.serving.policy_files import policy_document

_YAML_TYPES: Final = ("application/yaml", "application/x-yaml", "text/yaml")
_BODY: Final = {
    "required": True,
    "content": {kind: {"schema": {"type": "object"}} for kind in (JSON_TYPE, _YAML_TYPES[0])},
}


def get_policy(model: ModelDep, policy: str) -> Response:
    """Return a policy as it is in force, with its thresholds and certificates."""
    return sent(policies.get_policy(model, policy))


async def _document(request: Request) -> dict[str, Any]:
    content_type = request.headers.get("content-type")
    kind = media_type_of(content_type)
    if kind != JSON_TYPE and kind not in _YAML_TYPES:
        raise UnsupportedMediaTypeError(
            "A policy must be JSON or YAML.", found=content_type, expected=[JSON_TYPE, *_YAML_TYPES]
        )
    body = await request.body()
    return load_document(body) if kind == JSON_TYPE else await run_in_threadpool(policy_document, body)


def put_policy(
    runtime: RuntimeDep,
    model: ModelDep,
    by: Caller,
    policy: str,
    document: Annotated[dict[str, Any], Depends(_document)],
) -> Response:
    """Propose a new or changed policy, in JSON or YAML.

    It is solved on the reference rows and takes force when it is activated.

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


def backtest_policy(runtime: RuntimeDep, model: ModelDep, policy: str, body: BacktestRequest | None = None) -> Response:
    """Replay a policy on logged predictions, out of time: solved on the earlier half, judged on the later half.

    Estimates from sought labels, weighted by inverse propensity, beside what was decided at the time. Only fit rows are
    read, so no look is used, and nothing is kept or certified. Where a label could never come, nothing is known, and
    the answer says of how many rows.
    """
    return sent(backtests.backtest_policy(runtime, model, policy, body or BacktestRequest()))


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
        openapi_extra={"requestBody": _BODY},
    )
    router.add_api_route(f"{one}/simulate", simulate_policy, methods=["POST"], tags=[*tags], response_model=Simulation)
    router.add_api_route(f"{one}/backtest", backtest_policy, methods=["POST"], tags=[*tags], response_model=Backtest)
