"""The prediction log: appended without waiting, written in groups by one thread."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select

from service.decisions.split import cluster_hash
from service.errors import StateUnavailableError
from service.state.database import Database
from service.state.insertion import insert_for, insert_new
from service.state.tables import origins, predictions

ROWS_PER_COMMIT = 5_000
CAPACITY_BYTES = 256 << 20
RETRY_S = 0.2
DIGEST_BYTES = 16
_COLUMNS = (
    "id",
    "origin",
    "created_at",
    "reference",
    "cluster",
    "logits",
    "label",
    "confidence",
    "action",
    "propensity",
    "sought",
    "segment",
)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PredictionBatch:
    """Predictions that were made together; the arrays are kept, not copied, so nobody may write to them afterwards.

    Attributes:
        model: Model name.
        model_digest: sha256 of the bundle's model.onnx.
        revision: Revision id, such as "r7".
        policy: "id@version" of the policy that decided, None without one.
        created_at: Microseconds since the epoch, UTC.
        ids: N prediction ids (ULIDs).
        references: N references of the client, None where it gave none.
        groups: N entity keys of the client, None where it gave none.
        inputs: (N, …), any dtype: digested for rows without a group.
        logits: float32 (N, K).
        labels: Integer (N,): the top label, in 0 … K − 1.
        confidence: Float (N,) in [0, 1].
        actions: N actions, None without a policy.
        propensities: N probabilities in [0, 1] that a label is sought, None where unknown.
        sought: N answers to: is a label for this row sought?
        segments: N segments of the client, None where it gave none; None where it gave none at all.
    """

    model: str
    model_digest: str
    revision: str
    policy: str | None
    created_at: int
    ids: Sequence[str]
    references: Sequence[str | None]
    groups: Sequence[str | None]
    inputs: NDArray[Any]
    logits: NDArray[np.float32]
    labels: NDArray[np.integer]
    confidence: NDArray[np.floating]
    actions: Sequence[str | None]
    propensities: Sequence[float | None]
    sought: Sequence[bool]
    segments: Sequence[str | None] | None = None


class PredictionLog:
    """Takes batches without blocking and writes them in grouped commits.

    While the database does not answer, batches wait; what no longer fits is dropped and counted. A batch that the
    database refuses for its content is dropped alone and counted.

    Args:
        database: The state.
        capacity: Largest number of rows that wait.
        commit_interval_s: How long the first waiting row waits for company.
        capacity_bytes: Largest size of the waiting inputs and logits.

    Attributes:
        written: Rows that are durable.
        dropped: Rows that were not written and never will be.
    """

    def __init__(
        self,
        database: Database,
        capacity: int = 100_000,
        commit_interval_s: float = 0.05,
        *,
        capacity_bytes: int = CAPACITY_BYTES,
    ) -> None:
        self._database = database
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._interval = commit_interval_s
        self._waiting: deque[PredictionBatch] = deque()
        self._accepted = 0
        self._settled = 0
        self._bytes = 0
        self._flushing = 0
        self._closing = False
        self._abandoned = False
        self._changed = threading.Condition()
        self._origins: dict[tuple[str, str, str, str], int] = {}
        self.written = 0
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="prediction-log", daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        """Rows that wait to be written."""
        return self._accepted - self._settled

    def append(self, batch: PredictionBatch) -> bool:
        """Queue a batch and return at once; False says that it was dropped: the queue is full, or closed."""
        rows, size = len(batch.ids), _size(batch)
        with self._changed:
            full = self.depth + rows > self._capacity or self._bytes + size > self._capacity_bytes
            if full or self._closing:
                self.dropped += rows
                return False
            idle = not self._waiting
            self._waiting.append(batch)
            self._accepted += rows
            self._bytes += size
            if idle or self.depth >= ROWS_PER_COMMIT:
                self._changed.notify_all()
        return True

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until all rows that were taken before are written or dropped; False when that takes longer.

        Args:
            timeout: Seconds.
        """
        with self._changed:
            goal = self._accepted
            self._flushing += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: self._settled >= goal, timeout)
            finally:
                self._flushing -= 1

    def close(self, timeout: float = 10.0) -> None:
        """Take nothing more, write what waits, and stop.

        Args:
            timeout: Seconds after which what the database has not taken is dropped and counted.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout)
        with self._changed:
            if self._thread.is_alive():
                self._abandoned = True
                self.dropped += self.depth
                self._settled = self._accepted
                self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting or self._abandoned:
                    return
                self._changed.wait_for(self._due, self._interval)
                group = self._take()
            self._write(group)

    def _due(self) -> bool:
        return self._closing or self._flushing > 0 or self.depth >= ROWS_PER_COMMIT

    def _take(self) -> list[PredictionBatch]:
        group: list[PredictionBatch] = []
        rows = 0
        while self._waiting and rows < ROWS_PER_COMMIT:
            group.append(self._waiting.popleft())
            rows += len(group[-1].ids)
        return group

    def _write(self, group: list[PredictionBatch]) -> None:
        reported = False
        while not self._abandoned:
            try:
                self._insert(group)
            except StateUnavailableError as error:
                if not reported:
                    _logger.warning("predictions wait to be logged: %s", error)
                    reported = True
                with self._changed:
                    self._changed.wait_for(lambda: self._abandoned, RETRY_S)
            except Exception:
                if len(group) == 1:
                    _logger.exception("%d predictions cannot be logged", len(group[0].ids))
                    self._settle(group, written=False)
                else:
                    for batch in group:
                        self._write([batch])
                return
            else:
                self._settle(group, written=True)
                return

    def _insert(self, group: list[PredictionBatch]) -> None:
        rows = [row for batch in group for row in self._rows(batch)]
        with self._database.begin() as connection:
            insert_new(connection, predictions, _COLUMNS, rows)

    def _settle(self, group: list[PredictionBatch], *, written: bool) -> None:
        rows = sum(len(batch.ids) for batch in group)
        with self._changed:
            if self._abandoned:
                return
            if written:
                self.written += rows
            else:
                self.dropped += rows
            self._settled += rows
            self._bytes -= sum(_size(batch) for batch in group)
            self._changed.notify_all()

    def _rows(self, batch: PredictionBatch) -> Iterable[tuple[Any, ...]]:
        """Return a value for each of `_COLUMNS`, row by row."""
        origin = self._origin((batch.model, batch.model_digest, batch.revision, batch.policy or ""))
        logits = np.ascontiguousarray(batch.logits, dtype="<f4")
        width = logits.itemsize * logits.shape[1]
        content = logits.tobytes()
        rows = len(batch.ids)
        return zip(
            batch.ids,
            repeat(origin, rows),
            repeat(batch.created_at, rows),
            batch.references,
            self._clusters(batch),
            [content[start : start + width] for start in range(0, len(content), width)],
            batch.labels.tolist(),
            batch.confidence.tolist(),
            batch.actions,
            batch.propensities,
            batch.sought,
            repeat(None, rows) if batch.segments is None else batch.segments,
            strict=True,
        )

    def _clusters(self, batch: PredictionBatch) -> list[int]:
        secret = self._database.secret
        inputs = np.ascontiguousarray(batch.inputs)
        return [
            cluster_hash(secret, input_digest(secret, inputs[row]) if group is None else group)
            for row, group in enumerate(batch.groups)
        ]

    def _origin(self, key: tuple[str, str, str, str]) -> int:
        if key not in self._origins:
            names = ("model", "model_digest", "revision", "policy")
            with self._database.begin() as connection:
                insert = insert_for(connection, origins).values(dict(zip(names, key, strict=True)))
                connection.execute(insert.on_conflict_do_nothing())
                same = (origins.c[name] == value for name, value in zip(names, key, strict=True))
                self._origins[key] = connection.execute(select(origins.c.id).where(*same)).scalar_one()
        return self._origins[key]


def input_digest(secret: bytes, example: NDArray[Any]) -> bytes:
    """Return the keyed BLAKE2b-128 digest of one input: equal inputs share it, and without the secret it says nothing.

    Args:
        secret: The database's 32 secret bytes.
        example: One input, C-contiguous, of any shape and dtype.
    """
    return hashlib.blake2b(example.tobytes(), digest_size=DIGEST_BYTES, key=secret).digest()


def _size(batch: PredictionBatch) -> int:
    return batch.inputs.nbytes + batch.logits.nbytes
