"""Models over HTTP: list, load, unload, watch, erase."""

from __future__ import annotations

from fastapi import APIRouter, Response

from candor.contract.erasure import Erasure, ErasureRequest
from candor.contract.models import Model, ModelPage
from candor.contract.monitoring import Monitoring
from service.operations import erasure, models
from service.operations import monitoring as watching
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.responses import sent


def list_models(runtime: RuntimeDep, by: Caller) -> Response:
    """List the models that the key may reach: what each serves, and why one does not serve its active revision."""
    return sent(models.list_models(runtime, by=by))


def load_model(runtime: RuntimeDep, by: Caller, model: str) -> Response:
    """Serve a model on every replica. Newer bundles in its folder become proposals; `refused` names the others."""
    return sent(models.load(runtime, model, by=by))


def unload_model(runtime: RuntimeDep, by: Caller, model: str) -> Response:
    """Stop serving a model on every replica. Accepted predictions are answered, and its state stays as it is."""
    return sent(models.unload(runtime, model, by=by))


def get_monitoring(runtime: RuntimeDep, model: ModelDep) -> Response:
    """Return the certificates in force with their monitors, the calibration alarm, and estimates of the traffic.

    `evidence` is the natural logarithm of a monitor's capital; its alarm fires when that reaches `fires_at`. A false
    alarm has probability `level` at most, however often the monitor is read.
    """
    return sent(watching.monitoring(runtime, model))


def erase_subject(runtime: RuntimeDep, model: ModelDep, by: Caller, body: ErasureRequest) -> Response:
    """Erase what is stored about one subject: predictions, kept inputs, labels, and receipts of their requests.

    Predictions that this replica made before the call are erased, written or not. Another replica may still have to
    write some: ask again when `candor_log_depth` has been 0 on each. The audit log keeps the counts and a keyed hash,
    not the name. Fitted calibrators stay, and so do uploaded labelled sets: `labelled_sets` names those with rows of
    the group, to be deleted whole.
    """
    return sent(erasure.erase(runtime, model, body, by=by))


def add_to(of_model: APIRouter) -> None:
    """Mount the endpoints below a model."""
    of_model.add_api_route("/load", load_model, methods=["POST"], tags=["models"], response_model=Model)
    of_model.add_api_route("/unload", unload_model, methods=["POST"], tags=["models"], response_model=Model)
    of_model.add_api_route("/erase", erase_subject, methods=["POST"], tags=["models"], response_model=Erasure)
    of_model.add_api_route(
        "/monitoring", get_monitoring, methods=["GET"], tags=["monitoring"], response_model=Monitoring
    )


def add_list_to(router: APIRouter) -> None:
    """Mount the list of all models."""
    router.add_api_route("/v1/models", list_models, methods=["GET"], tags=["models"], response_model=ModelPage)
