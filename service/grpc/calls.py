"""Every gRPC call: its request id, its key, its errors, its count, its log line and its trace."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import structlog
from google.protobuf.message import DecodeError
from grpc import StatusCode

from service.errors import CandorError, MalformedBodyError
from service.grpc.errors import code_of
from service.grpc.wire import count_parts, not_a
from service.ids import new_ids
from service.operations.access import Access, check_forwarded
from service.operations.predicting import LARGE
from service.operations.principal import Principal
from service.runtime import Runtime
from service.telemetry.request_log import RequestLog, describe

logger = structlog.get_logger(__name__)

_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")
OPEN: Final = "open"
"""In place of a scope: the method requires no key."""
_REFUSED: Final = {StatusCode.UNAUTHENTICATED: 401, StatusCode.PERMISSION_DENIED: 403}
FEW_PARTS: Final = 1000
"""Number of parts of a message that are counted and parsed on the event loop."""
_FAILED: Final = (StatusCode.INTERNAL, StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED)


@dataclass(slots=True, eq=False)
class Call:
    """A call, or one request of a stream.

    Attributes:
        metadata: Metadata of the client; of repeated keys, the last.
        request_id: Name of the request in the log.
        remaining_s: Time until the deadline of the client, None without one.
        facts: What its log line and its trace say, see `RequestLog`.
        peer: Address of the client.
        code: Status of its end; CANCELLED until then.
        times: Seconds of `time.perf_counter` of an answered prediction, see `Tracing.stages`.
    """

    metadata: dict[str, Any]
    request_id: str
    remaining_s: float | None
    peer: str
    facts: dict[str, Any] = field(default_factory=lambda: {"method": "gRPC"})
    code: StatusCode = StatusCode.CANCELLED
    times: tuple[float, float, float, float] | None = None

    @property
    def principal(self) -> Principal:
        """The sender, once it was admitted."""
        principal: Principal = self.facts["principal"]
        return principal


Handler = Callable[[bytes, Call], Awaitable[bytes]]
"""Answers a serialized request with a serialized answer."""


class Calls:
    """What all calls pass.

    Args:
        runtime: Parts of the service.
        access: Access control.
    """

    def __init__(self, runtime: Runtime, access: Access) -> None:
        self._access = access
        self._metrics = runtime.metrics
        self._tracing = runtime.tracing
        self._record = runtime.access_record
        self._log = RequestLog(runtime.settings.access_log)
        self._start, self._numbers = new_ids(1)[0], itertools.count(1)

    def call(self, context: Any) -> Call:
        """Return a new call, or the next request of a stream."""
        metadata = dict(context.invocation_metadata())
        given = metadata.get("x-request-id")
        if not isinstance(given, str) or not _REQUEST_ID.fullmatch(given):
            given = f"{self._start}-{next(self._numbers)}"
        context.set_trailing_metadata((("x-request-id", given),))
        return Call(metadata, given, context.time_remaining(), _address(context.peer()))

    async def answer(self, method: str, scope: str | None, handler: Handler, data: bytes, call: Call) -> bytes:
        """Answer a request.

        Args:
            method: Name of the method.
            scope: Scope that it requires; None for any scope but "metrics", `OPEN` for no key.
            handler: Answers the request.
            data: Serialized request.
            call: The call.

        Raises:
            CandorError: The request cannot be answered.
        """
        structlog.contextvars.bind_contextvars(request_id=call.request_id)
        if self._tracing is None:
            return await self._counted(method, scope, handler, data, call)
        with self._tracing.request(method, call.metadata.get("traceparent")) as span:
            try:
                return await self._counted(method, scope, handler, data, call)
            finally:
                code = call.code.value[0]
                rpc = {"rpc.system": "grpc", "rpc.method": method, "rpc.grpc.status_code": code}
                self._tracing.ended(span, method, rpc | describe(call.facts), failed=call.code in _FAILED)
                if call.times is not None:
                    self._tracing.stages(call.times, call.facts["answer"].timing)

    async def _counted(self, method: str, scope: str | None, handler: Handler, data: bytes, call: Call) -> bytes:
        """Answer, count and log a request; turn an unexpected exception into an error without details."""
        began = time.perf_counter()
        try:
            if scope != OPEN:
                if self._access.local_only:
                    check_forwarded(call.metadata)
                call.facts["principal"] = await self._access.principal(call.metadata.get("authorization"))
                call.principal.require(scope)
            content: bytes = await handler(data, call)
            call.code = StatusCode.OK
        except CandorError as error:
            call.code = code_of(error)
            raise
        except Exception:
            call.code = StatusCode.INTERNAL
            logger.exception("unexpected error", method=method)
            raise CandorError("Unexpected error. The log has the details under the request id.") from None
        finally:
            seconds = time.perf_counter() - began
            self._note(method, call)
            self._metrics.called(method, call.code.name, seconds)
            if self._log.wants(method):
                self._log.ended(call.facts, method, call.code.name, seconds, quiet=scope == OPEN)
        return content

    def _note(self, method: str, call: Call) -> None:
        """Tell the audit log of a key that has predicted, and of a refused call."""
        principal: Principal | None = call.facts.get("principal")
        prefix = None if principal is None else principal.prefix
        if call.code in _REFUSED:
            self._record.refused(_REFUSED[call.code], call.peer, method, prefix)
        elif principal is not None and prefix is not None and (answer := call.facts.get("answer")) is not None:
            self._record.predicted(prefix, principal.name, answer.served.revision.model, answer.ids)
            self._access.charge(principal, len(answer.ids))


def _address(peer: str) -> str:
    """Return the host in gRPC's name of a peer.

    >>> _address("ipv4:127.0.0.1:5000"), _address("ipv6:%5B::1%5D:5000")
    ('127.0.0.1', '::1')
    """
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]") or "a Unix socket"


def parsed(kind: Any, data: bytes, most: int = FEW_PARTS) -> Any:
    """Return a serialized message of a kind.

    Args:
        kind: Class of the message.
        data: The serialized message.
        most: Maximum number of its parts, if it is large.

    Raises:
        MalformedBodyError: The bytes are not such a message, or it has too many parts.
    """
    if len(data) > LARGE and count_parts(kind, data, most) > most:
        raise MalformedBodyError(
            "The message has too many parts.",
            found=f"more than {most} fields in {len(data)} bytes",
            expected=f"at most {most}",
            remedy="Send tensors in `raw_input_contents`, or fewer rows per request.",
        )
    try:
        return kind.FromString(data)
    except DecodeError:
        raise not_a(kind, data) from None
