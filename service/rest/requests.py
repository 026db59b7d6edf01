"""What every HTTP request gets: an id, an answer to its errors, a count, a log line."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from typing import Final

import structlog
from fastapi.responses import Response

from service.errors import CandorError
from service.ids import new_ids
from service.operations.principal import Principal
from service.others import Others
from service.rest.bodies import Headers, Scope, header
from service.rest.cors import Cors
from service.rest.problems import Problems
from service.rest.security import security_headers, security_lines
from service.state.access_record import AccessRecord
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
        cors: Answers pages of other origins.
        record: Tells the audit log of keys and refused requests.
        charge: Counts the rows that a key was answered.
    """

    def __init__(
        self,
        metrics: Metrics,
        log: RequestLog,
        problems: Problems,
        others: Others,
        cors: Cors,
        record: AccessRecord,
        charge: Callable[[Principal, int], None],
    ) -> None:
        self._charge = charge
        self._record = record
        self._metrics = metrics
        self._log = log
        self._problems = problems
        self._others = others
        self.cors = cors
        self._start, self._numbers = new_ids(1)[0], itertools.count(1)  # a prefix unique to this process

    def name(self, scope: Scope) -> str:
        """Return the id of a request: the client's, or a new one."""
        given = header(scope, b"x-request-id")
        return given if given and _REQUEST_ID.fullmatch(given) else f"{self._start}-{next(self._numbers)}"

    def headers(self, scope: Scope, request_id: str) -> Headers:
        """Return the headers that end the head of every answer."""
        return (*self._own(scope, request_id), *security_headers(scope["path"]))

    def ending(self, scope: Scope, request_id: str) -> tuple[Headers, bytes]:
        """Return the same headers, the last of them, which never change, as lines."""
        return self._own(scope, request_id), security_lines(scope["path"])

    def _own(self, scope: Scope, request_id: str) -> Headers:
        closing = _CLOSE if self._others.stopping else ()
        return ((b"x-request-id", request_id.encode()), *closing, *self.cors.headers(scope))

    def refused(self, error: CandorError, scope: Scope) -> Response:
        """Return the answer to an error."""
        # It has anyio's frame, whose future holds the error: a cycle that would keep the body until Python collects it.
        error.__traceback__ = None
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
        principal: Principal | None = scope.get("principal")
        prefix = None if principal is None else principal.prefix
        if status in (401, 403):
            address = (scope.get("client") or ("a Unix socket",))[0]
            self._record.refused(status, address, scope["path"], prefix)
        elif principal is not None and prefix is not None and (answer := scope.get("answer")) is not None:
            self._record.predicted(prefix, principal.name, answer.served.revision.model, answer.ids)
            self._charge(principal, len(answer.ids))
        if self._log.wants(route):
            with structlog.contextvars.bound_contextvars(request_id=request_id):
                self._log.ended(scope, route, status, seconds, quiet=quiet)
