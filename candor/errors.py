"""Every error that the client raises, as one tree.

ClientError
├── UnreachableError           the service does not answer, or not in time
├── UnexpectedAnswerError      the answer is not one of this version of Candor
└── ApiError                   the service answered with a problem
    ├── InvalidRequestError    400, 413, 415, 422, 428: the request must change
    ├── UnauthenticatedError   401: the API key is missing or invalid
    ├── ForbiddenError         403: the key may not do this
    ├── NotFoundError          404: unknown model, revision, policy or job
    ├── ConflictError          409, 412: the service's state does not allow it, or has changed
    ├── UnavailableError       429, 502, 503, 504: still so after the last attempt
    ├── JobFailedError         a recalibration ended without a result
    └── JobTimeoutError        a recalibration is not finished yet
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
    """Root of the tree."""


class UnreachableError(ClientError):
    """The service does not answer at this URL, or not in time."""


class UnexpectedAnswerError(ClientError):
    """The answer is not one of this version of Candor."""


class ApiError(ClientError):
    """The service refused a request, or failed.

    Attributes:
        status: HTTP status.
        problem: The problem document (RFC 9457) as received.
        retry_after_s: Seconds that the service asks to wait before another attempt, if it does.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], *, retry_after_s: float | None = None) -> None:
        super().__init__(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        self.status = status
        self.problem = problem
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with all attributes: a pool of processes passes the error on."""
        return type(self), (self.status, self.problem), {"retry_after_s": self.retry_after_s}

    @property
    def kind(self) -> str | None:
        """The problem's type without its path, such as `input-shape`."""
        kind = self.problem.get("type")
        return kind.rpartition("/")[2] if isinstance(kind, str) else None

    @property
    def where(self) -> str | None:
        """JSON pointer or field name of the faulty part."""
        return self.problem.get("where")

    @property
    def path(self) -> tuple[str, ...]:
        """Parts of `where` if it is a JSON pointer into the body, else ()."""
        where = self.where or ""
        parts = where[1:].split("/") if where.startswith("/") else ()
        return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)

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
        """What to do about it."""
        return self.problem.get("remedy")


class InvalidRequestError(ApiError):
    """The request is invalid."""


class UnauthenticatedError(ApiError):
    """The API key is missing or invalid."""


class ForbiddenError(ApiError):
    """The API key lacks the scope."""


class NotFoundError(ApiError):
    """The request names something that does not exist."""


class ConflictError(ApiError):
    """The service's state does not allow it, or has changed since the caller looked."""


class UnavailableError(ApiError):
    """The service cannot answer this valid request now."""


class JobFailedError(ApiError):
    """A recalibration ended without a result; the problem says why."""


class JobTimeoutError(ApiError):
    """A recalibration did not finish in time. It continues."""


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

    >>> error_for(404, {"detail": "Unknown model."})
    NotFoundError('Unknown model.')
    """
    return _BY_STATUS.get(status, ApiError)(status, problem, retry_after_s=retry_after_s)
