"""What the audit log says of requests: which keys predicted, who sent tokens, what was refused; written once a minute.

Entries of keys that predict much come sooner: memory holds a few megabytes of their prediction ids.

A flood of refused requests writes little: further entries in a row come after twice as long each, up to an hour, and
each names the most frequent senders only.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from service.errors import StateUnavailableError
from service.state import answered_ids, audit
from service.state.database import Database, now_us
from service.times import iso

logger = structlog.get_logger(__name__)

EVERY_S: Final = 60.0
REFUSED: Final = "refuse_requests"
PREDICTED: Final = answered_ids.ACTION
IDENTIFIED: Final = "identify"
_LONGEST_S: Final = 3_600.0
_MOST_COUNTED: Final = 1_000  # kinds of refused requests in memory; the rest is one number
_MOST_IDENTIFIED: Final = 10_000  # people in memory; beyond, they are written again
_MOST_WRITTEN: Final = 20
_MOST_WAITING: Final = 1_000  # entries, while the database does not answer
_LONGEST_PATH: Final = 100
_MANY_BYTES: Final = 4 << 20  # of prediction ids: an entry before the minute ends
_MOST_KEPT: Final = 64 << 20  # while the database does not answer; further entries say "sha256": null


class AccessRecord:
    """Counts requests of this process for the audit log. Counting is for one thread, that of the event loop.

    `write` may be called by several threads.

    Args:
        database: Open state.
        clock: Seconds, never going back.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._since = now_us()
        self._predicted: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        self._id_bytes, self._waiting_id_bytes = 0, 0  # since the last `take`, and in `_waiting` then
        self._refused: dict[tuple[int, str, str, str | None], int] = {}
        self._identified: set[tuple[str, str]] = set()
        self._others = 0
        self._refused_since: int | None = None
        self._pause_s, self._due = EVERY_S, clock()
        self._waiting: deque[dict[str, Any]] = deque(maxlen=_MOST_WAITING)
        self._writing = threading.Lock()

    def predicted(self, prefix: str, name: str, model: str, ids: Sequence[str]) -> None:
        """Count an answered request.

        Args:
            prefix: Prefix of its key.
            name: Name of the key's holder.
            model: Name of the model.
            ids: Ids of its predictions, at least one.
        """
        models = self._predicted.get((prefix, name))
        if models is None:
            models = self._predicted[prefix, name] = {}
        counts = models.get(model)
        if counts is None:
            counts = models[model] = {"requests": 0, "rows": 0, "first": ids[0], "ids": bytearray()}
        counts["requests"] += 1
        counts["rows"] += len(ids)
        counts["last"] = ids[-1]
        if self._id_bytes + self._waiting_id_bytes < _MOST_KEPT and counts["ids"] is not None:
            text = "".join(ids).encode()
            counts["ids"] += text
            self._id_bytes += len(text)
        else:
            counts["ids"] = None

    def identified(self, prefix: str, name: str, *, issuer: str, subject: str) -> None:
        """Note a person who sent a token, once for each name: other entries have the name alone.

        Args:
            prefix: Id of the person.
            name: Name in the audit log.
            issuer: The provider.
            subject: Its own id of the person.
        """
        if (prefix, name) in self._identified:
            return
        if len(self._identified) >= _MOST_IDENTIFIED:
            self._identified.clear()
        self._identified.add((prefix, name))
        detail = {"issuer": issuer, "subject": subject}
        self._waiting.append({"by": name, "action": IDENTIFIED, "subject": prefix, "detail": detail})

    def refused(self, status: int, address: str, path: str, prefix: str | None) -> None:
        """Count a refused request.

        Args:
            status: 401 or 403.
            address: Address of the sender, as this process sees it.
            path: Path without the query, or the gRPC method.
            prefix: Prefix of its key, None if it had none that is valid.
        """
        if self._refused_since is None:
            self._refused_since = now_us()
        shown = path[:_LONGEST_PATH]
        if not shown.isprintable():
            shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in shown)
        kind = status, address, shown, prefix
        if kind in self._refused or len(self._refused) < _MOST_COUNTED:
            self._refused[kind] = self._refused.get(kind, 0) + 1
        else:
            self._others += 1

    @property
    def full(self) -> bool:
        """Whether to take what is due now, since it needs much memory."""
        return self._id_bytes > _MANY_BYTES

    def take(self, *, last: bool = False) -> None:
        """Turn what is due into entries, which `write` writes. `last` takes everything."""
        until = now_us()
        for (prefix, name), models in self._predicted.items():
            detail = {"since": iso(self._since), "until": iso(until), "models": models}
            self._waiting.append({"by": name, "action": PREDICTED, "subject": prefix, "detail": detail})
        waiting = [entry["detail"] for entry in list(self._waiting) if entry["action"] == PREDICTED]  # others write
        kept = [counts["ids"] or () for detail in waiting for counts in detail["models"].values()]
        self._id_bytes, self._waiting_id_bytes = 0, sum(map(len, kept))
        self._predicted, self._since = {}, until
        now = self._clock()
        if self._refused_since is None:
            if now >= self._due:
                self._pause_s = EVERY_S
        elif last or now >= self._due:
            self._waiting.append(self._refusals(until))
            self._refused, self._others, self._refused_since = {}, 0, None
            self._due = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_S)

    def write(self) -> None:
        """Write the entries that were taken; those that cannot be written wait for the next time."""
        with self._writing:
            try:
                while self._waiting:
                    self._write(self._waiting.popleft())
            except StateUnavailableError as error:
                waiting = len(self._waiting)
                logger.warning("accesses not written to the audit log yet", entries=waiting, error=str(error))

    def close(self) -> None:
        """Write everything; nothing is raised, since other parts of the service are still to be closed."""
        try:
            self.take(last=True)
            self.write()
        except Exception:
            logger.exception("writing accesses failed")

    def _write(self, entry: dict[str, Any]) -> None:
        values, ids = _sealed(entry) if entry["action"] == PREDICTED else (entry, {})
        try:
            with self._database.begin() as connection:
                number, at = audit.append(connection, model=None, **values)
                for model, own in ids.items():
                    answered_ids.keep(connection, number, at, model, own)
        except BaseException:
            if len(self._waiting) < _MOST_WAITING:  # else newer entries have taken its place
                self._waiting.appendleft(entry)
            raise

    def _refusals(self, until: int) -> dict[str, Any]:
        assert self._refused_since is not None  # noqa: S101 — the caller has looked
        ranked = sorted(self._refused.items(), key=lambda one: (-one[1], str(one[0])))
        named = [
            {"status": status, "address": address, "path": path, "key": prefix, "requests": count}
            for (status, address, path, prefix), count in ranked[:_MOST_WRITTEN]
        ]
        others = self._others + sum(count for _, count in ranked[_MOST_WRITTEN:])
        total = sum(self._refused.values()) + self._others
        times = {"since": iso(self._refused_since), "until": iso(until)}
        detail = {**times, "requests": named, "others": others}
        return {"by": "access", "action": REFUSED, "subject": f"{total} requests", "detail": detail}


def _sealed(entry: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bytearray]]:
    """Return an entry with digests in place of ids, and the ids by model."""
    models, ids = {}, {}
    for model, counts in entry["detail"]["models"].items():
        own = counts["ids"]
        digest = None if own is None else answered_ids.digest_of(own)
        models[model] = {name: count for name, count in counts.items() if name != "ids"} | {answered_ids.DIGEST: digest}
        if own is not None:
            ids[model] = own
    return entry | {"detail": entry["detail"] | {"models": models}}, ids
