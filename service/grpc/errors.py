"""Errors to gRPC: status codes and messages. No other module chooses a code."""

from __future__ import annotations

import math
from typing import Final

from grpc import StatusCode

from service import errors
from service.errors import CandorError

_CODES: Final[dict[type[CandorError], StatusCode]] = {
    CandorError: StatusCode.INTERNAL,
    errors.InputError: StatusCode.INVALID_ARGUMENT,
    errors.BodyTooLargeError: StatusCode.RESOURCE_EXHAUSTED,
    errors.PolicyError: StatusCode.INVALID_ARGUMENT,
    errors.NotFoundError: StatusCode.NOT_FOUND,
    errors.RevisionStateError: StatusCode.FAILED_PRECONDITION,
    errors.UnauthenticatedError: StatusCode.UNAUTHENTICATED,
    errors.ForbiddenError: StatusCode.PERMISSION_DENIED,
    errors.RateLimitedError: StatusCode.RESOURCE_EXHAUSTED,
    errors.BundleRefusedError: StatusCode.FAILED_PRECONDITION,
    errors.UnavailableError: StatusCode.UNAVAILABLE,
    errors.DeadlineExceededError: StatusCode.DEADLINE_EXCEEDED,
    errors.UpstreamRejectedError: StatusCode.FAILED_PRECONDITION,
    errors.UpstreamSlowError: StatusCode.DEADLINE_EXCEEDED,
}
_MOST_BYTES: Final = 1500  # of a message: a client refuses trailers of more than 8 KiB, percent-encoded


def code_of(error: CandorError) -> StatusCode:
    """Return the status code of an error."""
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)


def details_of(error: CandorError) -> str:
    """Return an error as one text, short enough for a trailer."""
    return errors.for_clients(error).as_one_text().encode()[:_MOST_BYTES].decode(errors="ignore")


def trailers_of(error: CandorError) -> tuple[tuple[str, str], ...]:
    """Return the kind of an error, as in the `type` of a problem document, and when to retry."""
    kind = ("candor-error", error.kind)
    if isinstance(error, errors.RateLimitedError):
        return kind, ("retry-after", str(math.ceil(error.retry_after_s)))
    return (kind, ("retry-after", "1")) if code_of(error) is StatusCode.UNAVAILABLE else (kind,)
