"""The sockets that the supervisor listens on."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from service.errors import ConfigurationError

if TYPE_CHECKING:
    from service.settings import Settings

BACKLOG: Final = 2048


@contextlib.contextmanager
def listeners_of(settings: Settings) -> Iterator[list[socket.socket]]:
    """Give the sockets that the settings name, bound but not listening yet, and close them at the end.

    Raises:
        ConfigurationError: One cannot be bound.
    """
    with contextlib.ExitStack() as stack:
        if settings.uds is not None:
            yield [stack.enter_context(unix_socket(settings.uds))]
        else:
            yield [stack.enter_context(each) for each in bound(settings.host, settings.port)]


def address_of(listener: socket.socket, scheme: str) -> str:
    """Return the address of a bound socket as a client would write it."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def bound(host: str, port: int) -> list[socket.socket]:
    """Return sockets bound to all addresses of a host, which do not listen yet.

    Raises:
        ConfigurationError: An address cannot be bound.
    """
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            one = socket.socket(family, kind, protocol)
            sockets.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted connections inherit it
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.setblocking(False)
            one.bind(address)
    except OSError as error:
        for one in sockets:
            with contextlib.suppress(OSError):
                one.close()
        raise cannot_listen(host, port, error.strerror or str(error)) from error
    return sockets


@contextlib.contextmanager
def unix_socket(path: Path) -> Iterator[socket.socket]:
    """Give a Unix socket bound to a path, which does not listen yet, and remove the path at the end.

    A socket that nothing listens on is replaced: it is left over from a process that was killed.

    Raises:
        ConfigurationError: The path cannot be bound.
    """
    with socket.socket(socket.AF_UNIX) as one:
        one.setblocking(False)
        try:
            if path.is_socket() and not _listens(path):
                path.unlink()
            one.bind(str(path))
            own = path.stat().st_ino
        except OSError as error:
            why = error.strerror or str(error)
            raise ConfigurationError(
                f"The service could not listen on the Unix socket {path}: {why}.",
                where="CANDOR_UDS",
                found=why,
                expected="a short path in a folder that the service can write to, and that no other service listens on",
            ) from error
        try:
            yield one
        finally:
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == own:  # else the next service listens there by now
                    path.unlink()


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
    return True


def reserved(host: str, port: int) -> list[socket.socket]:
    """Return sockets that keep a port for processes of this user which share it by SO_REUSEPORT.

    They never listen. Bound without the option, they are refused where another server has the port; with it, they
    leave the port to the workers.

    Raises:
        ConfigurationError: An address cannot be bound.
    """
    sockets = bound(host, port)
    for one in sockets:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return sockets


def cannot_listen(host: str, port: int, why: str) -> ConfigurationError:
    """Return the error of an address that cannot be bound."""
    return ConfigurationError(
        f"The service could not listen on {host}:{port}: {why}.",
        where="CANDOR_HOST, CANDOR_PORT, CANDOR_GRPC_PORT",
        found=why,
        remedy="Correct --host, choose another port with --port or --grpc-port, or stop what uses this one.",
    )
