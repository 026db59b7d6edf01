"""Routes of /v2 except inference: health, metadata, configuration, statistics, repository."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Request
from starlette.concurrency import run_in_threadpool

from service.errors import NotReadyError
from service.open_inference import fields, metadata, repository
from service.open_inference.versions import served_version, version_of
from service.operations import models
from service.operations.readiness import readiness
from service.rest.dependencies import Caller, ModelDep, ModelOrLabelsDep, RuntimeDep, known_query, model_in_path
from service.rest.documents import load_document
from service.rest.v2 import openapi
from service.serving.labels import MultiLabel

Version = Annotated[str, Path(description="A revision's number, such as 7; only loaded ones answer.")]


async def server_live() -> dict[str, bool]:
    """Report that the server is running."""
    return {"live": True}


async def server_ready(runtime: RuntimeDep) -> dict[str, bool]:
    """Report whether all models serve their active revision; 503 if one does not."""
    if problems := (await readiness(runtime)).problems:
        raise NotReadyError("Some models are not serving their active revision.", found=problems)
    return {"ready": True}


async def server_metadata() -> dict[str, Any]:
    """Return the name, version and protocol extensions of the server."""
    return metadata.server()


async def model_ready(model: ModelOrLabelsDep) -> dict[str, Any]:
    """Report whether a model, or each label of a multi-label model, is ready; 503 if it is not."""
    if isinstance(model, MultiLabel):
        return {"name": model.name, "version": model.served.revision.id.replace("r", ""), "ready": True}
    if model.remote is not None:
        model.remote.check_ready()
    return {"name": model.name, "version": version_of(model.served), "ready": True}


async def version_ready(model: ModelDep, version: Version) -> dict[str, Any]:
    """Report whether a version of a model is ready; 404 if it is not loaded."""
    return {"name": model.name, "version": version_of(served_version(model, version)), "ready": True}


async def model_metadata(model: ModelOrLabelsDep) -> dict[str, Any]:
    """Return the loaded versions of a model and the names, datatypes and shapes of its tensors."""
    if isinstance(model, MultiLabel):
        return metadata.of_labels(model)
    return metadata.of_model(model, None)


async def version_metadata(model: ModelDep, version: Version) -> dict[str, Any]:
    """Return the names, datatypes and shapes of the tensors of one version of a model."""
    return metadata.of_model(model, version)


async def model_configuration(runtime: RuntimeDep, model: ModelDep) -> dict[str, Any]:
    """Return the configuration of a model in Triton's format, with its labels."""
    return metadata.configuration(model, None, runtime.settings)


async def version_configuration(runtime: RuntimeDep, model: ModelDep, version: Version) -> dict[str, Any]:
    """Return the configuration of one version of a model in Triton's format, with its labels."""
    return metadata.configuration(model, version, runtime.settings)


async def all_statistics(runtime: RuntimeDep) -> dict[str, Any]:
    """Return inference counts and times of all models."""
    counts = await runtime.statistics()
    return {
        "model_stats": [entry for model in runtime.models.all() for entry in metadata.statistics(model, None, counts)]
    }


async def model_statistics(runtime: RuntimeDep, model: ModelDep) -> dict[str, Any]:
    """Return inference counts and times of all versions of a model."""
    return {"model_stats": metadata.statistics(model, None, await runtime.statistics())}


async def version_statistics(runtime: RuntimeDep, model: ModelDep, version: Version) -> dict[str, Any]:
    """Return inference counts and times of one version of a model."""
    return {"model_stats": metadata.statistics(model, version, await runtime.statistics())}


async def repository_index(runtime: RuntimeDep, request: Request) -> list[dict[str, str]]:
    """List all models, including models in the bundle folder that are not loaded."""
    document = _document(await request.body())
    never_loaded = await run_in_threadpool(runtime.models.never_loaded)
    return repository.index(runtime.models.all(), never_loaded, ready=fields.flag(document, "ready"))


async def repository_load(runtime: RuntimeDep, by: Caller, request: Request, model: str) -> dict[str, Any]:
    """Load a model on all replicas, as `POST /v1/models/{model}/load` does."""
    repository.check_load(_document(await request.body()))
    await run_in_threadpool(models.load, runtime, model, by=by)
    return {}


async def repository_unload(runtime: RuntimeDep, by: Caller, request: Request, model: str) -> dict[str, Any]:
    """Unload a model on all replicas, as `POST /v1/models/{model}/unload` does."""
    _document(await request.body())
    await run_in_threadpool(models.unload, runtime, model, by=by)
    return {}


_Route = tuple[str, Callable[..., Any], openapi.Described, str]

_READ: Final[tuple[_Route, ...]] = (
    ("", server_metadata, openapi.SERVER, "The server."),
    ("/health/live", server_live, openapi.ALIVE, "The server is running."),
    ("/health/ready", server_ready, openapi.READY, "The server is ready."),
    ("/models/stats", all_statistics, openapi.STATISTICS, "One entry per loaded version."),
)
_READ_OF_MODEL: Final[tuple[_Route, ...]] = (
    ("", model_metadata, openapi.MODEL, "The model."),
    ("/ready", model_ready, openapi.MODEL_READY, "The model is ready."),
    ("/config", model_configuration, openapi.CONFIGURATION, "The configuration."),
    ("/stats", model_statistics, openapi.STATISTICS, "One entry per loaded version."),
    ("/versions/{version}", version_metadata, openapi.MODEL, "The version."),
    ("/versions/{version}/ready", version_ready, openapi.MODEL_READY, "The model is ready."),
    ("/versions/{version}/config", version_configuration, openapi.CONFIGURATION, "The configuration."),
    ("/versions/{version}/stats", version_statistics, openapi.STATISTICS, "One entry."),
)
_REPOSITORY = (
    ("/index", repository_index, openapi.INDEX_REQUEST, openapi.INDEX, "The models."),
    ("/models/{model}/load", repository_load, openapi.LOAD_REQUEST, openapi.DONE, "The model is loaded."),
    ("/models/{model}/unload", repository_unload, openapi.UNLOAD_REQUEST, openapi.DONE, "The model is unloaded."),
)


def _document(content: bytes) -> dict[str, Any]:
    """Return the JSON object in a body; empty for an empty body."""
    return load_document(content) if content.strip() else {}


def router() -> APIRouter:
    """Return the routes below /v2 that are not inference."""
    health = APIRouter(tags=["v2"])  # probes may add parameters as they like
    routes = APIRouter(tags=["v2"], dependencies=[Depends(known_query)])
    for path, handler, answer, description in _READ:
        to = health if path.startswith("/health/") else routes
        to.add_api_route(f"/v2{path}", handler, methods=["GET"], responses=openapi.answering(answer, description))
    routes.add_api_route("/v2/", server_metadata, methods=["GET"], include_in_schema=False)
    of_model = APIRouter(prefix="/v2/models/{model}", dependencies=[Depends(model_in_path)])
    for path, handler, answer, description in _READ_OF_MODEL:
        of_model.add_api_route(path, handler, methods=["GET"], responses=openapi.answering(answer, description))
    routes.include_router(of_model)
    for path, handler, body, answer, description in _REPOSITORY:
        routes.add_api_route(
            f"/v2/repository{path}",
            handler,
            methods=["POST"],
            responses=openapi.answering(answer, description),
            openapi_extra=openapi.reading(body),
        )
    whole = APIRouter()
    whole.include_router(health)
    whole.include_router(routes)
    return whole
