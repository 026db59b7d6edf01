"""Methods except inference: health, metadata, configuration, statistics, repository."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from google.protobuf.json_format import ParseDict

from service.errors import InputError, NotFoundError, UnavailableError
from service.grpc.calls import OPEN, Call, Handler, parsed
from service.grpc.messages import SERVICE, message
from service.grpc.request import parameters_of
from service.open_inference import metadata, repository
from service.open_inference.versions import served_version
from service.operations import models
from service.operations.readiness import readiness
from service.runtime import Runtime

Answered = Callable[[Runtime, Any, Call], Awaitable[dict[str, Any]]]
"""Answers a message with the document of another."""


async def server_live(_: Runtime, __: Any, ___: Call) -> dict[str, Any]:
    """Report that the server is running."""
    return {"live": True}


async def server_ready(runtime: Runtime, _: Any, __: Call) -> dict[str, Any]:
    """Report whether all models serve their active revision."""
    return {"ready": not (await readiness(runtime)).problems}


async def model_ready(runtime: Runtime, request: Any, _: Call) -> dict[str, Any]:
    """Report whether a model, or a version of it, is ready."""
    return {"ready": is_ready(runtime, request.name, request.version or None)}


async def server_metadata(_: Runtime, __: Any, ___: Call) -> dict[str, Any]:
    """Return the name, version and protocol extensions of the server."""
    return metadata.server()


async def model_metadata(runtime: Runtime, request: Any, _: Call) -> dict[str, Any]:
    """Return the loaded versions of a model and the names, datatypes and shapes of its tensors."""
    return metadata.of_model(runtime.models.get(request.name), request.version or None)


async def model_config(runtime: Runtime, request: Any, _: Call) -> dict[str, Any]:
    """Return the configuration of a model in Triton's format, with its labels."""
    model = runtime.models.get(request.name)
    return {"config": metadata.configuration(model, request.version or None, runtime.settings)}


async def model_statistics(runtime: Runtime, request: Any, _: Call) -> dict[str, Any]:
    """Return inference counts and times of a model, or of all."""
    chosen = [runtime.models.get(request.name)] if request.name else runtime.models.all()
    counts, version = await runtime.statistics(), request.version or None
    return {"model_stats": [one for model in chosen for one in metadata.statistics(model, version, counts)]}


async def repository_index(runtime: Runtime, request: Any, _: Call) -> dict[str, Any]:
    """List all models, including models in the bundle folder that are not loaded."""
    never_loaded = await asyncio.to_thread(runtime.models.never_loaded)
    return {"models": repository.index(runtime.models.all(), never_loaded, ready=request.ready)}


async def model_load(runtime: Runtime, request: Any, call: Call) -> dict[str, Any]:
    """Load a model on all replicas."""
    repository.check_load({"parameters": parameters_of(request.parameters)})
    name = _of_repository(request)
    await asyncio.to_thread(models.load, runtime, name, by=call.principal)
    return {"model_name": name, "isLoaded": True}


async def model_unload(runtime: Runtime, request: Any, call: Call) -> dict[str, Any]:
    """Unload a model on all replicas."""
    name = _of_repository(request)
    await asyncio.to_thread(models.unload, runtime, name, by=call.principal)
    return {"model_name": name, "isUnloaded": True}


METHODS: Final[dict[str, tuple[str | None, Answered]]] = {
    "ServerLive": (OPEN, server_live),
    "ServerReady": (OPEN, server_ready),
    "ModelReady": (None, model_ready),
    "ServerMetadata": (None, server_metadata),
    "ModelMetadata": (None, model_metadata),
    "ModelConfig": (None, model_config),
    "ModelStatistics": (None, model_statistics),
    "RepositoryIndex": (None, repository_index),
    "RepositoryModelLoad": ("admin", model_load),
    "RepositoryModelUnload": ("admin", model_unload),
}
"""Required scope and function by method."""


_OF_NO_MODEL: Final = ("ServerMetadata",)


def handler(runtime: Runtime, method: str) -> Handler:
    """Return what answers the serialized requests of a method."""
    described = SERVICE.methods_by_name[method]
    request_kind, answer_kind = message(described.input_type.name), message(described.output_type.name)
    needed, function = METHODS[method]

    async def answer(data: bytes, call: Call) -> bytes:
        request = parsed(request_kind, data)
        if needed != OPEN and method not in _OF_NO_MODEL:
            call.principal.on(_named(request)).require(needed)
        document = await function(runtime, request, call)
        content: bytes = ParseDict(document, answer_kind()).SerializeToString()
        return content

    return answer


def is_ready(runtime: Runtime, name: str, version: str | None) -> bool:
    """Return whether a model answers; a model or version that does not exist is not ready."""
    try:
        model = runtime.models.get(name)
        served_version(model, version)
        if model.remote is not None:
            model.remote.check_ready()
    except (NotFoundError, UnavailableError):
        return False
    return True


def _named(request: Any) -> str | None:
    """Return the name of the model, None without one; KServe's clients load by the field of the repository."""
    fields = ("name",) if hasattr(request, "name") else ("model_name", "repository_name")
    if not hasattr(request, fields[0]):  # of the index, which is of all models
        return None
    return next((name for field in fields if (name := getattr(request, field, ""))), None)


def _of_repository(request: Any) -> str:
    """Return the name of the model to load or unload.

    Raises:
        InputError: The message has none. The default model must not be unloaded by a field that was left out.
    """
    name = _named(request)
    if name is None:
        raise InputError("The message names no model.", where="model_name", expected="the name of a model")
    return name
