"""The thread that exports signed heads of the audit log, so that its end cannot be cut off or rewritten unnoticed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import httpx
import structlog

from service.cases.webhooks import client_of, post
from service.errors import StateUnavailableError
from service.settings import Settings
from service.state import audit_chain
from service.state.audit_heads import key_of, signed
from service.state.database import Database
from service.state.password import secrets_of

logger = structlog.get_logger(__name__)

OUTCOMES: Final = ("exported", "failed")
_AGAIN_S: Final = 60.0
_NOTICE_OF_AUDIT: Final = 13 * 8 + 5  # facility and severity, RFC 5424
_SYSLOG_PORT: Final = 514


class AuditExport:
    """Exports the head at the start and at each interval, whether or not it has moved; what failed is tried again.

    Args:
        settings: Settings of the service.
        database: Open state.

    Attributes:
        counts: Exports of this process by target and outcome (`OUTCOMES`).

    Raises:
        ConfigurationError: There is a target without a usable key, or a webhook without a usable secret.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.targets = settings.audit_export or ()
        self._key = key_of(settings.audit_key_file) if self.targets else None
        webhooks = any(url.startswith("http") for url in self.targets)
        self._secrets = secrets_of(settings.webhook_secret_file, "CANDOR_AUDIT_EXPORT") if webhooks else ()
        self._interval_s = settings.audit_export_s
        self._timeout_s = settings.webhook_timeout_s
        self._database = database
        self._closing = threading.Event()
        self._sending: tuple[asyncio.AbstractEventLoop, asyncio.Task[int]] | None = None
        self._thread = threading.Thread(target=self._run, name="audit export", daemon=True)

    def start(self) -> None:
        """Start exporting, if there are targets."""
        if self.targets:
            self._thread.start()

    def close(self) -> None:
        """Stop at once; the next start sends the head that a receiver has not answered."""
        self._closing.set()
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # its loop has just ended
                if (sending := self._sending) is not None:
                    loop, task = sending
                    loop.call_soon_threadsafe(task.cancel)
            self._thread.join()

    def export(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        """Export the head now; return the targets that failed.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        assert self._key is not None  # noqa: S101 — there are targets
        with self._database.connect() as connection:
            head = signed(audit_chain.end_of(connection), self._key)
        failed = []
        for url in targets:
            try:
                self._send(url, head.model_dump_json().encode())
            except (OSError, httpx.HTTPError) as error:
                failed.append(url)
                logger.error("head of the audit log not exported", target=url, error=str(error) or repr(error))
            self.counts[url, "failed" if url in failed else "exported"] += 1
        return tuple(failed)

    def _run(self) -> None:
        due = self.targets
        while not self._closing.is_set():
            try:
                due = self.export(due)
            except StateUnavailableError as error:
                logger.warning("waiting for the database", thread="audit export", error=str(error))
            except Exception:
                logger.exception("step failed", thread="audit export")
            self._closing.wait(min(_AGAIN_S, self._interval_s) if due else self._interval_s)
            due = due or self.targets

    def _send(self, url: str, line: bytes) -> None:
        """Send a head.

        Raises:
            OSError: It cannot be written, or the receiver answers an error or too late.
            httpx.HTTPError: The receiver does not answer.
        """
        target = urlsplit(url)
        if target.scheme == "file":
            _append(Path(target.path), line)
        elif target.scheme == "syslog":
            _log(target, line)
        else:
            try:
                status = asyncio.run(self._deliver(url, line))
            except asyncio.CancelledError:
                raise OSError("the service stops") from None
            if not 200 <= status < 300:
                raise OSError(f"status {status}")

    async def _deliver(self, url: str, body: bytes) -> int:
        async with client_of(self._timeout_s) as client:
            task = asyncio.create_task(post(client, url, body, self._secrets, self._timeout_s))
            self._sending = asyncio.get_running_loop(), task
            if self._closing.is_set():  # `close` may not have seen the task
                task.cancel()
            return await task


def _append(file: Path, line: bytes) -> None:
    rest = line + b"\n"
    with contextlib.suppress(OSError), file.open("rb") as written:  # one that is empty, or not there, has no end
        written.seek(-1, os.SEEK_END)
        if written.read(1) != b"\n":  # the disk was full in the middle of a line
            rest = b"\n" + rest
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _log(target: SplitResult, line: bytes) -> None:
    message = b"<%d>1 - %s candor %d audit-head - " % (_NOTICE_OF_AUDIT, socket.gethostname().encode(), os.getpid())
    address: Any = target.path
    family = socket.AF_UNIX
    if target.hostname is not None:
        port = target.port or _SYSLOG_PORT
        family, _, _, _, address = socket.getaddrinfo(target.hostname, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as out:
        out.sendto(message + line, address)
