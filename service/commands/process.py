"""What every process that answers requests does before it listens."""

from __future__ import annotations

import gc
import math
import socket
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import structlog
import uvicorn

from service.app import create_app
from service.commands.memory import give_back_large_blocks
from service.rest.connections import KEEP_ALIVE_S, allow_open_files, protocol
from service.settings import Settings
from service.workers.listening import address_of, cannot_listen

if TYPE_CHECKING:
    from service.app import Candor
    from service.others import Others

logger = structlog.get_logger(__name__)

# A busy thread, such as one that sends refusals, may keep Python's lock for this time before another thread gets it.
SWITCH_S: Final = 0.0002
# libuv accepts one connection of each listener in a turn of the event loop. A turn may run a batch, so that with a
# single listener the last of 64 clients that connect at once would wait for 64 batches.
_LISTENERS: Final = 16


def application_of(settings: Settings, others: Others | None = None) -> Candor:
    """Return the application, in a process that is prepared to serve it.

    Raises:
        CandorError: The service cannot start.
    """
    allow_open_files()
    give_back_large_blocks()
    gc.freeze()  # modules stay: one pass of the collector over them takes a tenth of the start
    application = create_app(settings, others)
    # What exists now stays. Passing over all of it again would stop the service for 0.1 s, several times a second.
    gc.collect()
    gc.freeze()
    gc.enable()
    sys.setswitchinterval(SWITCH_S)
    return application


class Server(uvicorn.Server):
    """A server that stops in two steps where the settings say so: first unready, then no more connections.

    Args:
        settings: Settings of the process.
        application: The application.
    """

    def __init__(self, settings: Settings, application: Candor) -> None:
        super().__init__(uvicorn.Config(application, **uvicorn_options(settings, application)))
        self._delay_s = settings.stop_delay_s
        self._others = application.runtime.others
        self._models = application.runtime.models
        self._stop: tuple[float, int, FrameType | None] | None = None  # when, and the signal

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after the delay; at the second signal at once. No stop waits for a bundle that is being proven."""
        self._models.stop_loading()
        if self._others.stopping or not self._delay_s:
            super().handle_exit(sig, frame)
        else:
            self._others.stopping = True
            self._stop = time.monotonic() + self._delay_s, sig, frame

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and listen on sockets that are bound.

        Raises:
            OSError: Another process that had bound the same port listens on it now.
        """
        listeners = sockets or []
        try:
            await super().startup([*listeners, *(each.dup() for each in listeners * (_LISTENERS - 1))])
        except OSError:
            await self.lifespan.shutdown()
            raise
        for each in listeners:
            scheme = "https" if self.config.ssl is not None else "http"
            logger.info(f"Candor running on {address_of(each, scheme)} (Press CTRL+C to quit)")

    async def on_tick(self, counter: int) -> bool:
        """Stop once the delay is over."""
        if self._stop is not None and time.monotonic() >= self._stop[0]:
            super().handle_exit(*self._stop[1:])
            self._stop = None
        return await super().on_tick(counter)


def uvicorn_options(settings: Settings, application: Candor) -> dict[str, Any]:
    """Return the options of uvicorn."""
    certificates = application.certificates
    return {
        "ssl_context_factory": None if certificates is None else lambda *_: certificates.context,
        "host": settings.host,
        "port": settings.port,
        "workers": 1,  # ours have a supervisor of their own
        "loop": "uvloop",
        "http": protocol(settings, application.direct),
        "access_log": False,
        "log_config": None,
        "server_header": False,
        "proxy_headers": False,  # nothing asks for a client's address
        "timeout_keep_alive": KEEP_ALIVE_S,
        "timeout_graceful_shutdown": math.ceil(settings.drain_timeout_s),
    }


def run(server: uvicorn.Server, application: Candor, sockets: list[socket.socket] | None = None) -> None:
    """Run a server to its end.

    Args:
        server: The server.
        application: What it serves.
        sockets: Bound sockets to listen on; None where connections come by another way.

    Raises:
        ConfigurationError: It could not listen.
    """
    try:
        server.run(sockets)
    except SystemExit as stop:  # uvicorn's way to say that the application did not start
        if stop.code and application.grpc is not None and application.grpc.refused is not None:
            raise application.grpc.refused from None
        raise
    except OSError as error:
        raise cannot_listen(server.config.host, server.config.port, error.strerror or str(error)) from error
    except KeyboardInterrupt:
        return
