"""Every error that the client raises, as one tree.

ClientError
├── UnreachableError           no service answers, or not in time
├── UnexpectedAnswerError      something answers that is no Candor service, or a much newer one
└── ApiError                   the service answered with a problem
    ├── InvalidRequestError    400, 413, 415, 422, 428: the request must be another one
    ├── UnauthenticatedError   401: no API key, or none that is valid
    ├── ForbiddenError         403: the key may not do this
    ├── NotFoundError          404: no such model, revision, policy or job
    ├── ConflictError          409, 412: the service's state does not allow it, or has moved on
    ├── UnavailableError       429, 502, 503, 504: still so after the last attempt
    ├── JobFailedError         a refit came to no result
    └── JobTimeoutError        a refit is not done yet
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
    """Root of the tree."""


class UnreachableError(ClientError):
    """No service answers at this URL, or it did not in time."""


class UnexpectedAnswerError(ClientError):
    """What answered does not speak like this client's service."""


class ApiError(ClientError):
    """The service refused a request, or failed.

    Attributes:
        status: HTTP status.
        problem: The problem document (RFC 9457), as it came.
        retry_after_s: Seconds after which the service wants to be asked again, if it said so.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], *, retry_after_s: float | None = None) -> None:
        super().__init__(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        self.status = status
        self.problem = problem
        self.retry_after_s = retry_after_s

    @property
    def kind(self) -> str | None:
        """The problem's type without its path, such as `input-shape`."""
        kind = self.problem.get("type")
        return kind.rpartition("/")[2] if isinstance(kind, str) else None

    @property
    def where(self) -> str | None:
        """JSON pointer or field name of the part that is at fault."""
        return self.problem.get("where")

    @property
    def found(self) -> Any:
        """What was found there."""
        return self.problem.get("found")

    @property
    def expected(self) -> Any:
        """What was expected there."""
        return self.problem.get("expected")

    @property
    def remedy(self) -> str | None:
        """What can be done about it."""
        return self.problem.get("remedy")


class InvalidRequestError(ApiError):
    """The request cannot be answered as it is."""


class UnauthenticatedError(ApiError):
    """No API key, or none that is valid."""


class ForbiddenError(ApiError):
    """The API key lacks the scope."""


class NotFoundError(ApiError):
    """Something was named that does not exist."""


class ConflictError(ApiError):
    """The service's state does not allow it, or has moved on since the caller looked."""


class UnavailableError(ApiError):
    """The request is fine; the service cannot serve it now."""


class JobFailedError(ApiError):
    """A refit came to no result; the problem says why."""


class JobTimeoutError(ApiError):
    """A refit is not done within the time that the caller would wait. It goes on."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    **dict.fromkeys((400, 413, 415, 422, 428), InvalidRequestError),
    **dict.fromkeys((409, 412), ConflictError),
    **dict.fromkeys((429, 502, 503, 504), UnavailableError),
}


def error_for(status: int, problem: Mapping[str, Any], *, retry_after_s: float | None = None) -> ApiError:
    """Return the error that belongs to a status.

    >>> error_for(404, {"detail": "There is no model."})
    NotFoundError('There is no model.')
    """
    return _BY_STATUS.get(status, ApiError)(status, problem, retry_after_s=retry_after_s)
