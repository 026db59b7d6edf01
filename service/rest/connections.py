"""HTTP connections: their maximum number, and time limits for clients."""

from __future__ import annotations

import asyncio
import contextlib
import operator
import resource
import socket
import struct
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from service.rest.bodies import Headers, Scope
from service.rest.paths import Target, target_of
from service.settings import Settings

_MOST_LOOSE_BYTES = 64 * 1024  # of a head, and of trailers
_BYTES_PER_S = 16 * 1024  # minimum average rate of a body beyond the time for every request
_LINGER_S = 0.25  # of idle connections at a stop: a request may be on its way
_SPARE_S = 5.0  # after which an idle connection may be closed for a new one, where there are too many
_LOOK_S = 5.0  # longest time between two looks at a connection
_GRACE_S = 2.0  # of incomplete requests at a stop

KEEP_ALIVE_S: Final = 75
"""Seconds after which an idle connection is closed: longer than clients and load balancers keep one by default (60 s at
most), so that none sends a request just then. Such a request would get no answer."""

_MOST_DIRECT_BYTES: Final = 256 * 1024  # of a body that is kept here until it is complete
_MOST_KNOWN_BYTES: Final = 4 * 1024  # of a head that a connection remembers
_MOST_KNOWN_HEADERS: Final = 64
_UNUSUAL: Final = frozenset((b"transfer-encoding", b"content-encoding", b"expect", b"upgrade"))

_CLOSE: Final = b"connection", b"close"

_TIMED_OUT = "408 Request Timeout", "timeout", "The request did not arrive in time."
_HEAD_TOO_LARGE = "431 Request Header Fields Too Large", "head-too-large", "The request's head is too large."
_NO_HTTP = "400 Bad Request", "malformed-request", "The request is not valid HTTP."
_NO_HOST = "400 Bad Request", "malformed-request", "The request requires one Host header."
_TOO_MANY_OF_ONE = "503 Service Unavailable", "overloaded", "Too many connections from this address."
_TOO_MANY = "503 Service Unavailable", "overloaded", "Too many connections."
_STOPPED = "503 Service Unavailable", "unavailable", "The service stopped before the request had arrived."


class _Joined(asyncio.Transport):
    """A transport that sends the head of an answer together with the start of its body: one system call, not two.

    Args:
        transport: The connection's.
        loop: Its event loop, which sends a head that no body follows at once.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep `data` for the next part, or send both."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        else:
            self._head = bytes(data)
            self._loop.call_soon(self.flush)

    def is_closing(self) -> bool:
        """Whether the connection is closing."""
        return self._transport.is_closing()

    def flush(self) -> None:
        """Send what is kept."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        """Send what is kept, and close."""
        self.flush()
        self._transport.close()


class _Nobody:
    """Stands for uvicorn's event of a request that no task waits for."""

    def set(self) -> None:
        """Do nothing."""


class Cycle(ABC):
    """A request that is answered without ASGI. It stands where uvicorn has its `RequestResponseCycle`.

    Attributes:
        more_body: Whether the body is not complete yet.
        keep_alive: Whether the connection stays open after the answer.
        response_started: Whether the answer was begun.
        response_complete: Whether it was answered or given up.
        disconnected: Whether the client was gone before.
        message_event: uvicorn sets it when the connection is lost.
        pieces: Parts of the body so far.
        connection: The connection that it came on.
    """

    __slots__ = (
        "connection", "disconnected", "keep_alive", "more_body", "pieces", "response_complete", "response_started",
    )  # fmt: skip

    connection: Connection
    message_event: ClassVar = _Nobody()

    def __init__(self) -> None:
        self.more_body = self.keep_alive = True
        self.response_started = self.response_complete = self.disconnected = False
        self.pieces: list[bytes] = []

    @abstractmethod
    def begin(self) -> None:
        """Refuse what needs no body to be refused, by a call of `reply`, or wait for the body; nothing is raised."""

    @abstractmethod
    def answer(self, body: bytes, *, alone: bool) -> None:
        """Answer, now or later, by one call of `reply`; nothing is raised.

        Args:
            body: The body.
            alone: Whether no other request can arrive together with this one.
        """

    @abstractmethod
    def gone(self) -> None:
        """Give up: the connection is closed."""

    def reply(self, status: int, headers: Headers, lines: bytes, content: bytes) -> None:
        """Send the answer; `lines` are further headers."""
        self.connection.reply(self, status, headers, lines, content)


class _Head(NamedTuple):
    """The head of a request that is answered without ASGI; clients repeat it for as long as they keep the connection.

    Attributes:
        target: What it asks for.
        scope: Its scope.
        length: Bytes of the body.
        text: The head, up to the body; empty where it is not remembered.
    """

    target: Target
    scope: Scope
    length: int
    text: bytes = b""


class Direct(Protocol):
    """Answers predictions and labels without ASGI."""

    def __call__(self, target: Target, scope: Scope) -> Cycle | None:
        """Return what answers a request whose head has arrived, None if ASGI has to."""


class Connection(HttpToolsProtocol):
    """A connection, closed when its client is too slow.

    Only what costs nothing is done for each request: a timer that looks every so often is set once for a connection.

    Args:
        config: uvicorn's.
        server_state: uvicorn's.
        app_state: uvicorn's.
        _loop: uvicorn's.
    """

    timeout_s: float
    most: int
    most_of_one: int | None
    of_address: ClassVar[Counter[str]]
    direct: Direct | None
    largest_direct: int

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._since: float | None = self.loop.time()  # start of the incoming request; None between requests
        self._idle_since: float | None = None  # end of the last answer, if nothing came since
        self._received = 0  # bytes of it
        self._loose = 0  # bytes of it that neither ended its head nor were body
        self._chunk = self._head_at_most = 0  # bytes that came last; and those that may belong to the head in hand
        self._unread_since: float | None = None  # time at which the client stopped reading
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._address: str | None = None  # where connections are counted by address
        self._own: Cycle | None = None  # the last request that was answered without ASGI
        self._head: _Head | None = None  # of the request in hand, if it may be remembered
        self._known: _Head | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it if there are too many."""
        super().connection_made(transport)
        self._joined = _Joined(transport, self.loop)
        if self.most_of_one is not None and self.client is not None:
            self._address = self.client[0]
            self.of_address[self._address] += 1
            if self.of_address[self._address] > self.most_of_one:
                self._refuse(*_TOO_MANY_OF_ONE)
                return
        if len(self.connections) > self.most and not self._make_room():
            self._refuse(*_TOO_MANY)
            return
        self._look_after(self.timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        if self._timer is not None:
            self._timer.cancel()
        if self._address is not None:
            self.of_address[self._address] -= 1
            if not self.of_address[self._address]:
                del self.of_address[self._address]
        if self._own is not None and not self._own.response_complete:
            self._own.gone()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Continue a request, or begin the next."""
        self._idle_since = None
        if self._since is None and self._answer_repeated(data):
            return
        between = self._since is None or (self.cycle is None and not self._received)
        if self._since is None or not self._received:
            self._begin()
        self._received += len(data)
        self._loose += len(data)
        self._chunk = len(data)
        self._head_at_most += len(data)
        super().data_received(data)
        if self._head is not None:
            if between and self._since is None and self._received == len(data):
                self._remember(self._head, data)
            self._head = None
        if self._loose > _MOST_LOOSE_BYTES and self._since is not None:
            self._refuse(*_HEAD_TOO_LARGE)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's text is not a problem document
        """Refuse malformed HTTP with a problem document."""
        self._refuse(*_NO_HTTP)

    def on_message_begin(self) -> None:
        """Begin a request, possibly sent together with the end of the previous one."""
        if self._since is None:
            self._begin()
        self._head_at_most = self._chunk
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start to answer, or wait for the body of a request that is answered without ASGI."""
        self._loose = 0
        if self.transport.is_closing() or not self._head_is_valid():
            return
        own = self._own_cycle()
        if own is not None:
            self._begin_own(own, keep_alive=self.parser.should_keep_alive() and not self._stopping)
            self.headers = []
            return
        if self.parser.get_http_version() == "1.0":  # such a client takes 100 for the answer (RFC 9110, section 10.1.1)
            self.expect_100_continue = False
        super().on_headers_complete()
        self.headers = []  # the scope has those of the head; what comes now are trailers, which nobody reads
        self.cycle.transport = self._joined
        if self._stopping:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Hand a part of the body on."""
        self._loose = 0
        cycle: object = self.cycle
        if self.transport.is_closing():
            return
        if not isinstance(cycle, Cycle):
            super().on_body(body)
        elif not cycle.response_complete:
            cycle.pieces.append(body)

    def on_message_complete(self) -> None:
        """Note that a request has arrived completely, and answer it if nobody does yet."""
        self._since = None
        cycle: object = self.cycle
        if cycle is None:
            return  # its head was refused
        if not isinstance(cycle, Cycle):
            super().on_message_complete()
        else:
            pieces, cycle.pieces = cycle.pieces, []
            self._answer_own(cycle, pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def on_response_complete(self) -> None:
        """Go on with the next request, or note since when the connection is idle: uvicorn would set a timer for it."""
        if self.pipeline:
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        if self._since is None or self.cycle.more_body:  # nothing of the next request has come
            self._idle_since = self.loop.time()
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def reply(self, cycle: Cycle, status: int, headers: Headers, lines: bytes, content: bytes) -> None:
        """Send an answer, head and body in one piece."""
        head = [STATUS_LINE[status]]
        for name, value in (*self.server_state.default_headers, *headers):
            head += name, b": ", value, b"\r\n"
        head.append(lines)
        if _CLOSE in headers:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            head.append(b"connection: close\r\n")
        head += b"\r\n", content
        self._joined.flush()
        self.transport.write(b"".join(head))
        cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _head_is_valid(self) -> bool:
        """Return whether the head that has arrived has a size and a Host to be answered; refuse it if not."""
        if self._head_at_most > _MOST_LOOSE_BYTES and (
            len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > _MOST_LOOSE_BYTES
        ):
            self._refuse(*_HEAD_TOO_LARGE)
            return False
        hosts = 0
        for name, _ in self.headers:
            if name == b"host":
                hosts += 1
        if hosts != 1 and (hosts or self.parser.get_http_version() == "1.1"):  # RFC 9112, section 3.2
            self._refuse(*_NO_HOST)
            return False
        return True

    def _own_cycle(self) -> Cycle | None:
        """Return what answers the request whose head has arrived, None if ASGI has to.

        Everything unusual is ASGI's: so is a request whose answer has to wait for that of another, or for its client.
        """
        target = target_of(self.url)
        if target is None or self.direct is None or self.flow.write_paused or self.root_path:
            return None
        if self.cycle is not None and not self.cycle.response_complete:
            return None
        if self.parser.get_method() != b"POST" or self.parser.get_http_version() != "1.1":
            return None
        length = None
        for name, value in self.headers:
            if name == b"content-length":
                length = value
            elif name in _UNUSUAL:
                return None
        if length is None or not length.isdigit() or len(length) > 9 or int(length) > self.largest_direct:
            return None
        scope: Scope = self.scope  # type: ignore[assignment]  # uvicorn's type of a scope is a TypedDict
        scope["method"], scope["path"], scope["raw_path"] = "POST", target.path, target.raw_path
        scope["query_string"] = target.query
        before = dict(scope)  # what answers it adds to the scope
        own = self.direct(target, scope)
        if own is not None and self.parser.should_keep_alive() and len(self.headers) <= _MOST_KNOWN_HEADERS:
            self._head = _Head(target, before, int(length))
        return own

    def _remember(self, head: _Head, data: bytes) -> None:
        """Keep the head of a request, if `data` is this request and nothing else. The parser passes over line ends."""
        end = data.find(b"\r\n\r\n", 0, _MOST_KNOWN_BYTES) + 4
        if end + head.length == len(data):
            self._known = head._replace(text=data[:end])

    def _answer_repeated(self, data: bytes) -> bool:
        """Answer a request whose head is the remembered one, byte for byte; return False if it is another one.

        To parse the head again would find the same. The key, its rate and the model are checked again.
        """
        known = self._known
        if known is None or len(data) != len(known.text) + known.length or not data.startswith(known.text):
            return False
        if not self.cycle.response_complete or self.flow.write_paused or self._stopping or self.transport.is_closing():
            return False
        own = self.direct(known.target, dict(known.scope)) if self.direct is not None else None
        if own is None:
            return False
        self._begin_own(own, keep_alive=True)
        self._answer_own(own, data[len(known.text) :])
        return True

    def _begin_own(self, own: Cycle, *, keep_alive: bool) -> None:
        """Begin a request that is answered without ASGI: its head has arrived."""
        own.connection = self
        own.keep_alive = keep_alive
        self._own = self.cycle = own  # type: ignore[assignment]  # uvicorn reads the attributes that it has
        own.begin()

    def _answer_own(self, own: Cycle, body: bytes) -> None:
        """Answer such a request, if that is still to be done: its body has arrived."""
        if not own.response_complete and not self.transport.is_closing():
            own.more_body = False
            own.answer(body, alone=len(self.connections) == 1)

    def shutdown(self) -> None:
        """Answer the request in hand with `connection: close`; close in a moment if none has arrived completely."""
        self._stopping = True
        self.loop.call_later(_GRACE_S, self._close_if_incomplete)
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(_LINGER_S, self._close_if_idle)
        else:
            self.cycle.keep_alive = False

    def pause_writing(self) -> None:
        """Note that the client has stopped reading."""
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        self._unread_since = None
        super().resume_writing()

    @property
    def idle_since(self) -> float | None:
        """Time since which no request has come; None if one is in hand or the connection is closing."""
        return None if self.transport.is_closing() else self._idle_since

    @property
    def _answering(self) -> bool:
        """Whether a complete request is not answered yet; a client may send the next one meanwhile."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _close_if_idle(self) -> None:
        if not (self._answering or (self._since is not None and self._received)):
            self.transport.close()

    def _close_if_incomplete(self) -> None:
        if self.transport.is_closing() or self._answering or self._since is None:
            return
        if self.cycle is not None and self.cycle.more_body and self.cycle.response_complete:  # refused by its head
            self.transport.close()
        else:
            self._refuse(*_STOPPED)

    def _begin(self) -> None:
        self._since, self._received, self._loose = self.loop.time(), 0, 0

    def _make_room(self) -> bool:
        """Close the connection that has been idle longest; return False if none has been for a while."""
        others = [(each.idle_since, each) for each in self.connections if isinstance(each, Connection)]
        idle = [(since, each) for since, each in others if since is not None]
        since, longest = min(idle, key=operator.itemgetter(0), default=(self.loop.time(), self))
        if self.loop.time() - since < _SPARE_S or longest is self:
            return False
        longest.transport.close()
        return True

    def _look(self) -> None:
        """Close the connection if its client is too slow, else check again at the next possible time."""
        if self.transport.is_closing():
            return
        now = self.loop.time()
        left_s = self.timeout_s
        if self._unread_since is not None:
            left_s = self._unread_since + self.timeout_s - now
            if left_s <= 0:
                # With a reset: else the kernel keeps what was not read, megabytes, until the client comes back for it.
                raw = self.transport.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.transport.abort()
                return
        elif self._idle_since is not None:
            left_s = self._idle_since + self.timeout_keep_alive - now
            if left_s <= 0:
                self.transport.close()
                return
        elif self._since is not None:
            if self.flow.read_paused or self._answering:  # the service is the slow part
                self._since = now
            left_s = self._since + self.timeout_s + self._received / _BYTES_PER_S - now
            if left_s <= 0:
                self._refuse(*_TIMED_OUT)
                return
        self._look_after(left_s)

    def _look_after(self, left_s: float) -> None:
        self._timer = self.loop.call_later(min(left_s, self.timeout_keep_alive, _LOOK_S), self._look)

    def _refuse(self, status: str, kind: str, title: str) -> None:
        """Send the reason, unless an answer has started, and close."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = f'{{"type":"/errors/{kind}","title":"{title}","status":{status[:3]}}}'
            self.transport.write(
                f"HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
            )
        self.transport.close()


def protocol(settings: Settings, direct: Direct | None) -> type[Connection]:
    """Return the protocol for uvicorn with the limits of these settings.

    Args:
        settings: Settings of the service.
        direct: Answers predictions and labels without ASGI; None leaves all requests to ASGI.
    """

    class Configured(Connection):
        timeout_s = settings.client_timeout_s
        most = settings.max_connections
        most_of_one = settings.max_connections_per_address
        largest_direct = min(_MOST_DIRECT_BYTES, settings.max_body_bytes)

    Configured.direct = direct
    Configured.of_address = Counter()
    return Configured


def allow_open_files() -> None:
    """Raise the limit of open files to the allowed maximum: each connection needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
