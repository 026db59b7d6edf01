"""Candor's HTTP client: `Client` blocks, `AsyncClient` awaits, and both have the same methods.

`import_model` brings a model of this process to a bundle, where the application is installed too.

Example:
    with Client("http://127.0.0.1:8000") as candor:
        answer = candor.predict_file("examples/seven.png", policy="auto-read")
        candor.feedback([{"prediction_id": answer.predictions[0].prediction_id, "label": "7"}])

Answers are frozen types of `candor.contract`; refusals and failures are exceptions (`candor.errors`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from candor.async_client import DEFAULT_URL, AsyncClient
    from candor.blocking import Client
    from candor.errors import (
        ApiError,
        ClientError,
        ConflictError,
        ForbiddenError,
        InvalidRequestError,
        JobFailedError,
        JobTimeoutError,
        NotFoundError,
        UnauthenticatedError,
        UnavailableError,
        UnexpectedAnswerError,
        UnreachableError,
    )
    from candor.own_model import import_model

__all__ = [
    "DEFAULT_URL",
    "ApiError",
    "AsyncClient",
    "Client",
    "ClientError",
    "ConflictError",
    "ForbiddenError",
    "InvalidRequestError",
    "JobFailedError",
    "JobTimeoutError",
    "NotFoundError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnexpectedAnswerError",
    "UnreachableError",
    "import_model",
]

_HOMES = {
    "Client": "blocking",
    "AsyncClient": "async_client",
    "DEFAULT_URL": "async_client",
    "import_model": "own_model",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: the service's processes import the contract only, and httpx takes longer than all of it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"candor.{_HOMES.get(name, 'errors')}"), name)
