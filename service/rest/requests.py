"""What every HTTP request gets: an id, an answer to its errors, a count, a log line."""

from __future__ import annotations

import itertools
import re
import time
from typing import Final

import structlog
from fastapi.responses import Response

from service.errors import CandorError
from service.ids import new_ids
from service.others import Others
from service.rest.bodies import Headers, Scope, header
from service.rest.problems import Problems
from service.rest.security import security_headers
from service.telemetry.metrics import Metrics
from service.telemetry.request_log import RequestLog

logger = structlog.get_logger(__name__)

_CLOSE: Final = ((b"connection", b"close"),)  # the client's next request then goes to another replica
_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")


class Requests:
    """Name, count and log requests, and answer their errors.

    Args:
        metrics: Counts requests.
        log: Writes their lines.
        problems: Answers errors.
        others: Knows whether the service is stopping.
    """

    def __init__(self, metrics: Metrics, log: RequestLog, problems: Problems, others: Others) -> None:
        self._metrics = metrics
        self._log = log
        self._problems = problems
        self._others = others
        self._start, self._numbers = new_ids(1)[0], itertools.count(1)  # a prefix unique to this process

    def name(self, scope: Scope) -> str:
        """Return the id of a request: the client's, or a new one."""
        given = header(scope, b"x-request-id")
        return given if given and _REQUEST_ID.fullmatch(given) else f"{self._start}-{next(self._numbers)}"

    def headers(self, scope: Scope, request_id: str) -> Headers:
        """Return the headers that end the head of every answer."""
        closing = _CLOSE if self._others.stopping else ()
        return (b"x-request-id", request_id.encode()), *closing, *security_headers(scope["path"])

    def refused(self, error: CandorError, scope: Scope) -> Response:
        """Return the answer to an error."""
        return self._problems.respond(error, scope)

    def failed(self, error: Exception, scope: Scope) -> Response:
        """Log an exception that nobody expected, and return its answer."""
        logger.error("unexpected error", path=scope["path"], exc_info=error)
        return self._problems.unexpected(scope)

    def ended(self, scope: Scope, request_id: str, route: str, status: int, began: float, *, quiet: bool) -> None:
        """Count a request and write its line.

        Args:
            scope: Its scope, with what is known of it by now.
            request_id: Its id.
            route: Template of its path.
            status: Status of the answer; 0 if none was begun.
            began: When its head had arrived, in seconds of `time.perf_counter`.
            quiet: Log at the level "debug".
        """
        seconds = time.perf_counter() - began
        self._metrics.requested(route, scope["method"], status, seconds)
        if self._log.wants(route):
            with structlog.contextvars.bound_contextvars(request_id=request_id):
                self._log.ended(scope, route, status, seconds, quiet=quiet)
