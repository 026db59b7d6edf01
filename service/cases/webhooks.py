"""Deliver cases to the operator's receiver: signed, at least once, one delivery at a time over all replicas.

A thread with its own event loop delivers, so a receiver that hangs delays only its deliveries. The state has what is
still to be delivered: a process that dies between a delivery and its note delivers again.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

import httpx
import structlog

from candor.contract.cases import Case
from candor.contract.webhooks import SIGNATURE_HEADER, CaseEvent, sign
from service.cases.described import described
from service.errors import StateUnavailableError, UnknownCaseError
from service.serving.models import Models
from service.settings import Settings
from service.state.cases import CaseStore
from service.state.database import Database, now_us
from service.state.password import secrets_of
from service.state.untold import Untold, tell, untold
from service.times import iso
from service.version import VERSION

logger = structlog.get_logger(__name__)

OUTCOMES: Final = ("delivered", "refused", "failed")
_LOCK: Final = "webhooks"
_AT_ONCE: Final = 100
_MOST_FAILING: Final = 1_000
_LONGEST_S: Final = 300.0
_LONGEST_OF_CASE_S: Final = 3_600.0
_REFUSED: Final = (400, 409, 413, 422)  # about this case; any other status but 2xx is about the receiver


def client_of(timeout_s: float) -> httpx.AsyncClient:
    """Return a client that asks nothing but the operator's URL: no redirects, no proxy of the environment."""
    headers = {"content-type": "application/json", "user-agent": f"candor/{VERSION}"}
    limits = httpx.Limits(max_connections=1)
    return httpx.AsyncClient(timeout=timeout_s, limits=limits, headers=headers, trust_env=False, follow_redirects=False)


async def post(client: httpx.AsyncClient, url: str, body: bytes, secrets: Sequence[str], timeout_s: float) -> int:
    """Send a signed body; return the status of the answer, whose body is not read.

    Raises:
        httpx.HTTPError: The receiver does not answer.
        TimeoutError: It takes too long.
    """
    headers = {SIGNATURE_HEADER: sign(body, secrets, at=int(time.time()))}
    async with asyncio.timeout(timeout_s):  # of all of it: bytes that trickle extend the client's own
        async with client.stream("POST", url, content=body, headers=headers) as answer:
            return answer.status_code


class Webhooks:
    """Delivers the state of cases to the URL of the settings, if there is one.

    Args:
        settings: Settings of the service.
        database: Open state.
        cases: The cases.
        models: The models of this process.

    Attributes:
        counts: Deliveries of this process by model and outcome (`OUTCOMES`).

    Raises:
        ConfigurationError: There is a URL without a usable secret.
    """

    def __init__(self, settings: Settings, database: Database, cases: CaseStore, models: Models) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._url = settings.webhook_url
        self._secrets = () if self._url is None else secrets_of(settings.webhook_secret_file)
        self._timeout_s = settings.webhook_timeout_s
        self._interval_s = settings.poll_interval_s
        self._database = database
        self._cases = cases
        self._models = models
        self._failures = 0
        self._failing: dict[str, tuple[int, float]] = {}
        self._closing = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)

    def start(self) -> None:
        """Start delivering, if there is a URL."""
        if self._url is not None:
            self._thread.start()

    def close(self) -> None:
        """Stop at once; a delivery that is under way is repeated after the next start."""
        self._closing.set()
        if self._thread.is_alive():
            if self._loop is not None and self._task is not None:
                self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._task = self._loop.create_task(self._rounds())
            try:
                if not self._closing.is_set():
                    self._loop.run_until_complete(self._task)
            except asyncio.CancelledError:
                pass

    async def _rounds(self) -> None:
        async with client_of(self._timeout_s) as client:
            while not self._closing.is_set():
                pause_s = self._interval_s
                try:
                    with self._database.try_lock(_LOCK) as mine:
                        if mine:
                            pause_s = await self._turn(client)
                except StateUnavailableError as error:
                    logger.warning("waiting for the database", thread="webhooks", error=str(error))
                except Exception:
                    logger.exception("step failed", thread="webhooks")
                await asyncio.sleep(pause_s)

    async def _turn(self, client: httpx.AsyncClient) -> float:
        """Deliver what is due until the receiver fails; return the seconds until the next turn."""
        now = time.monotonic()
        self._failing = {key: held for key, held in self._failing.items() if held[1] > now - _LONGEST_OF_CASE_S}
        found = untold(self._database, _AT_ONCE + len(self._failing))
        due = [one for one in found if self._failing.get(one.id, (0, 0.0))[1] <= now]
        for one in due[:_AT_ONCE]:
            try:
                status = await self._deliver(client, one)
            except UnknownCaseError:  # erased meanwhile
                continue
            if status == "delivered":
                self._failures = 0
                self._failing.pop(one.id, None)
                continue
            tries = self._failing.get(one.id, (0, 0.0))[0] + 1
            self._failing[one.id] = tries, time.monotonic() + _pause_s(tries, _LONGEST_OF_CASE_S)
            if status == "failed" or len(self._failing) >= _MOST_FAILING:
                self._failures += 1
                return _pause_s(self._failures, _LONGEST_S)
        return 0.0 if len(due) > _AT_ONCE else self._interval_s

    async def _deliver(self, client: httpx.AsyncClient, wanted: Untold) -> str:
        """Send a case; return "delivered", "refused" (this case alone), or "failed" (the receiver is in trouble)."""
        assert self._url is not None  # noqa: S101 — else nothing has started
        model, id_, told = wanted
        case = self._cases.get(model, id_)
        read_at = now_us()
        loaded = next((each.loaded for each in self._models.all() if each.name == model), {})
        document = Case(**described(model, loaded, case))
        event = CaseEvent(
            id=f"{id_}-{told or 0}-{case.done_at or 0}",
            type="case.waiting" if case.outcome is None else f"case.{case.outcome}",
            at=iso(read_at),
            case=document,
        )
        body = event.model_dump_json().encode()
        try:
            status = await post(client, self._url, body, self._secrets, self._timeout_s)
        except (httpx.TimeoutException, TimeoutError):
            return self._told(model, id_, "failed", f"no answer within {self._timeout_s:g} s")
        except httpx.HTTPError as error:
            return self._told(model, id_, "failed", type(error).__name__)
        if 200 <= status < 300:
            tell(self._database, case)
            return self._told(model, id_, "delivered")
        return self._told(model, id_, "refused" if status in _REFUSED else "failed", f"status {status}")

    def _told(self, model: str, id_: str, outcome: str, reason: str | None = None) -> str:
        self.counts[model, outcome] += 1
        if reason is not None:
            logger.warning("webhook not delivered", model=model, case=id_, outcome=outcome, reason=reason)
        return outcome


def _pause_s(tries: int, longest_s: float) -> float:
    """Return the pause after a number of failures in a row: doubled each time, and spread at random."""
    return float(min(2.0 ** min(tries - 1, 20), longest_s) * random.uniform(0.5, 1.0))  # noqa: S311 — spreads load
