"""Routes of the protocol beside inference: health, metadata, configuration, statistics and the repository."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Request
from starlette.concurrency import run_in_threadpool

from service.errors import NotReadyError
from service.rest.dependencies import Caller, ModelDep, RuntimeDep, model_in_path
from service.rest.v2 import fields, metadata, openapi, repository
from service.rest.v2.versions import served_version, version_of

Version = Annotated[str, Path(description="A revision's number, such as 7; only loaded ones answer.")]


async def server_live() -> dict[str, bool]:
    """Say that the server runs."""
    return {"live": True}


async def server_ready(runtime: RuntimeDep) -> dict[str, bool]:
    """Say whether every model serves what it should; 503 where one does not."""
    problems = runtime.models.problems()
    if problems:
        raise NotReadyError("Not every model serves what it should.", found=problems)
    return {"ready": True}


async def server_metadata() -> dict[str, Any]:
    """Say what server this is, and which extensions of the protocol it speaks."""
    return metadata.server()


async def model_ready(model: ModelDep) -> dict[str, Any]:
    """Say whether a model answers; 503 where it does not."""
    return {"name": model.name, "version": version_of(model.served.revision), "ready": True}


async def version_ready(model: ModelDep, version: Version) -> dict[str, Any]:
    """Say whether a version of a model answers; 404 where it is not loaded."""
    return {"name": model.name, "version": version_of(served_version(model, version).revision), "ready": True}


async def model_metadata(model: ModelDep) -> dict[str, Any]:
    """Return names, datatypes and shapes of a model's tensors, and the versions that answer."""
    return metadata.of_model(model, None)


async def version_metadata(model: ModelDep, version: Version) -> dict[str, Any]:
    """Return names, datatypes and shapes of the tensors of a model's version."""
    return metadata.of_model(model, version)


async def model_configuration(runtime: RuntimeDep, model: ModelDep) -> dict[str, Any]:
    """Return a model's configuration in Triton's words, with the names of its classes."""
    return metadata.configuration(model, None, runtime.settings)


async def version_configuration(runtime: RuntimeDep, model: ModelDep, version: Version) -> dict[str, Any]:
    """Return the configuration of a model's version in Triton's words, with the names of its classes."""
    return metadata.configuration(model, version, runtime.settings)


async def all_statistics(runtime: RuntimeDep) -> dict[str, Any]:
    """Return counts and times of all models."""
    return {"model_stats": [entry for model in runtime.models.all() for entry in metadata.statistics(model, None)]}


async def model_statistics(model: ModelDep) -> dict[str, Any]:
    """Return counts and times of a model's versions."""
    return {"model_stats": metadata.statistics(model, None)}


async def version_statistics(model: ModelDep, version: Version) -> dict[str, Any]:
    """Return counts and times of a model's version."""
    return {"model_stats": metadata.statistics(model, version)}


async def repository_index(runtime: RuntimeDep, request: Request) -> list[dict[str, str]]:
    """List the models, those too that lie in the folder of bundles and are not loaded."""
    document = repository.body_of(await request.body())
    never_loaded = await run_in_threadpool(runtime.models.never_loaded)
    return repository.index(runtime.models.all(), never_loaded, ready=fields.flag(document, "ready", ""))


async def repository_load(runtime: RuntimeDep, by: Caller, request: Request, model: str) -> dict[str, Any]:
    """Serve a model, on every replica; the same as `POST /v1/models/{model}/load`."""
    repository.check_load(repository.body_of(await request.body()))
    await run_in_threadpool(runtime.models.load, model, by=by.name)
    return {}


async def repository_unload(runtime: RuntimeDep, by: Caller, request: Request, model: str) -> dict[str, Any]:
    """Serve a model no longer, on any replica; the same as `POST /v1/models/{model}/unload`."""
    repository.body_of(await request.body())
    await run_in_threadpool(runtime.models.unload, model, by=by.name)
    return {}


_Route = tuple[str, Callable[..., Any], openapi.Described, str]

_READ: Final[tuple[_Route, ...]] = (
    ("", server_metadata, openapi.SERVER, "The server."),
    ("/health/live", server_live, openapi.ALIVE, "It runs."),
    ("/health/ready", server_ready, openapi.READY, "It is ready."),
    ("/models/stats", all_statistics, openapi.STATISTICS, "One entry for each version that answers."),
)
_READ_OF_MODEL: Final[tuple[_Route, ...]] = (
    ("", model_metadata, openapi.MODEL, "The model."),
    ("/ready", model_ready, openapi.MODEL_READY, "It answers."),
    ("/config", model_configuration, openapi.CONFIGURATION, "Its configuration."),
    ("/stats", model_statistics, openapi.STATISTICS, "One entry for each version that answers."),
    ("/versions/{version}", version_metadata, openapi.MODEL, "The version."),
    ("/versions/{version}/ready", version_ready, openapi.MODEL_READY, "It answers."),
    ("/versions/{version}/config", version_configuration, openapi.CONFIGURATION, "Its configuration."),
    ("/versions/{version}/stats", version_statistics, openapi.STATISTICS, "One entry."),
)
_REPOSITORY = (
    ("/index", repository_index, openapi.INDEX_REQUEST, openapi.INDEX, "The models."),
    ("/models/{model}/load", repository_load, openapi.LOAD_REQUEST, openapi.DONE, "It is served."),
    ("/models/{model}/unload", repository_unload, openapi.UNLOAD_REQUEST, openapi.DONE, "It is served no longer."),
)


def router() -> APIRouter:
    """Return the routes below /v2 that are not inference."""
    routes = APIRouter(tags=["v2"])
    for path, handler, answer, description in _READ:
        routes.add_api_route(f"/v2{path}", handler, methods=["GET"], responses=openapi.answering(answer, description))
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
    return routes
