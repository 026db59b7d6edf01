"""Candor's HTTP client (needs httpx only): `Client` blocks, `AsyncClient` awaits, and both have the same methods.

Example:
    with Client("http://127.0.0.1:8000") as candor:
        answer = candor.predict_file("examples/seven.png", policy="auto-read")
        candor.feedback([{"prediction_id": answer.predictions[0].prediction_id, "label": "7"}])

Answers are frozen (`service.client.answers`); refusals and failures are exceptions (`service.client.errors`).
"""

from service.client.async_client import DEFAULT_URL, AsyncClient
from service.client.blocking import Client
from service.client.errors import (
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
]
