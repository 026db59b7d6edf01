"""Challengers over HTTP: list, put, compare, remove."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from candor.contract.challengers import Challenger, ChallengerComparison, ChallengerPage, ChallengerRequest
from service.operations import challengers
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.responses import sent

Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Name of the challenger.")]


def list_challengers(runtime: RuntimeDep, model: ModelDep) -> Response:
    """List the challengers of a model: revisions that are scored beside the active one and never answer."""
    return sent(challengers.list_challengers(runtime, model))


def put_challenger(
    runtime: RuntimeDep, model: ModelDep, by: Caller, challenger: Name, body: ChallengerRequest
) -> Response:
    """Score a revision beside the active one, on every replica. Answers do not wait for it.

    A revision of the active model file is compared on logged scores, at no cost. Another bundle scores a sample of the
    groups in a session of its own. Predictions from now on are compared; a change begins a new comparison.
    """
    found, new = challengers.put_challenger(runtime, model, challenger, body, by=by)
    return sent(found, 201 if new else 200, location=f"/v1/models/{model.name}/challengers/{found.name}")


def compare_challenger(runtime: RuntimeDep, model: ModelDep, challenger: Name) -> Response:
    """Compare the challenger with the active revision so far: log loss, policy outcomes, changed decisions.

    Every look is valid. `better` is wrong with probability `level` at most, however often the comparison is read.
    """
    return sent(challengers.compare_challenger(runtime, model, challenger))


def remove_challenger(runtime: RuntimeDep, model: ModelDep, by: Caller, challenger: Name) -> Response:
    """Stop scoring a challenger. Its comparison ends, and its scores are deleted."""
    return sent(challengers.remove_challenger(runtime, model, challenger, by=by))


def add_to(router: APIRouter) -> None:
    """Mount the endpoints below a model."""
    one, tags = "/challengers/{challenger}", ["challengers"]
    router.add_api_route("/challengers", list_challengers, methods=["GET"], tags=[*tags], response_model=ChallengerPage)
    router.add_api_route(one, compare_challenger, methods=["GET"], tags=[*tags], response_model=ChallengerComparison)
    known: dict[int | str, dict[str, Any]] = {200: {"model": Challenger, "description": "It is there already."}}
    router.add_api_route(
        one,
        put_challenger,
        methods=["PUT"],
        status_code=201,
        tags=[*tags],
        response_model=Challenger,
        responses=known,
    )
    router.add_api_route(one, remove_challenger, methods=["DELETE"], tags=[*tags], response_model=Challenger)
