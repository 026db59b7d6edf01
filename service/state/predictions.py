"""The prediction log: appended without waiting, written in groups by one thread."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import compress, repeat
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select

from service.decisions.split import cluster_hash
from service.errors import CandorError, OverloadedError, StateUnavailableError
from service.state.database import Database
from service.state.inputs import packed
from service.state.insertion import insert_for, insert_new
from service.state.tables import inputs, origins, predictions

ROWS_PER_COMMIT = 10_000
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

_INPUT_COLUMNS = ("id", "created_at", "content")

KeepInputs = Literal["off", "sought", "all"]

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
        input_spec: What the model takes, see `service.inference.specification`; None where nobody will ask.
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
    input_spec: str | None = None


class _Waiting(NamedTuple):
    batch: PredictionBatch
    written: Future[None] | None  # cancelled by whoever no longer wants the rows

    @property
    def withdrawn(self) -> bool:
        return self.written is not None and self.written.cancelled()


class PredictionLog:
    """Takes batches without blocking and writes them in grouped commits.

    While the database does not answer, batches wait; what no longer fits is dropped and counted. A batch that the
    database refuses for its content is dropped alone and counted. Whoever must know asks for a promise: it is kept when
    the rows are durable.

    Args:
        database: The state.
        capacity: Largest number of rows that wait.
        commit_interval_s: How long the first waiting row waits for company.
        capacity_bytes: Largest size of the waiting inputs and logits.
        sample: Share of the groups (and of the inputs without one) whose rows are written. A group is in the sample
            whole or not at all, so that shares among the rows stay what they are.
        keep_inputs: Whose inputs are kept beside: no row's, those whose label is sought, all.

    Attributes:
        written: Rows that are durable.
        dropped: Rows that were not written and never will be.
        left_out: Rows that are not of the sample.
    """

    def __init__(
        self,
        database: Database,
        capacity: int = 100_000,
        commit_interval_s: float = 0.05,
        *,
        capacity_bytes: int = CAPACITY_BYTES,
        sample: float = 1.0,
        keep_inputs: KeepInputs = "off",
    ) -> None:
        self._database = database
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._interval = commit_interval_s
        self._sample = sample
        self._keep_inputs = keep_inputs
        self._waiting: deque[_Waiting] = deque()
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
        self.left_out = 0
        self._thread = threading.Thread(target=self._run, name="prediction-log", daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        """Rows that wait to be written."""
        return self._accepted - self._settled

    def append(self, batch: PredictionBatch) -> bool:
        """Queue a batch and return at once; False says that it was dropped: the queue is full, or closed."""
        return self._queue(_Waiting(batch, None))

    def promise(self, batch: PredictionBatch) -> Future[None]:
        """Queue a batch and return at once what is done when its rows are durable.

        Cancelling it withdraws the rows, unless they are being written just then. It raises OverloadedError where there
        is no room, StateUnavailableError where the log closes before the state has taken the rows, and another
        CandorError where the state refuses them.
        """
        written: Future[None] = Future()
        if not self._queue(_Waiting(batch, written)):
            written.set_exception(
                OverloadedError(
                    "Too many predictions wait to be written down.",
                    found=f"{self.depth} waiting",
                    expected=f"at most {self._capacity}",
                    remedy="Try again later; if it stays so, look at the state database.",
                )
            )
        return written

    def _queue(self, waiting: _Waiting) -> bool:
        rows, size = len(waiting.batch.ids), _size(waiting.batch)
        with self._changed:
            full = self.depth + rows > self._capacity or self._bytes + size > self._capacity_bytes
            if full or self._closing:
                self.dropped += rows
                return False
            idle = not self._waiting
            self._waiting.append(waiting)
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

    def _take(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        rows = 0
        while self._waiting and rows < ROWS_PER_COMMIT:
            group.append(self._waiting.popleft())
            rows += len(group[-1].batch.ids)
        return group

    def _write(self, group: list[_Waiting]) -> None:
        reported = False
        while not self._abandoned:
            wanted = [waiting for waiting in group if not waiting.withdrawn]
            try:
                left_out = self._insert([waiting.batch for waiting in wanted])
            except StateUnavailableError as error:
                if not reported:
                    _logger.warning("predictions wait to be logged: %s", error)
                    reported = True
                with self._changed:
                    self._changed.wait_for(lambda: self._abandoned, RETRY_S)
            except Exception:
                if len(group) == 1:
                    _logger.exception("%d predictions cannot be logged", len(group[0].batch.ids))
                    self._settle(group, dropped=len(group[0].batch.ids))
                    _tell(group, CandorError("The prediction could not be written down, so it is not given."))
                else:
                    for waiting in group:
                        self._write([waiting])
                return
            else:
                rows = sum(len(waiting.batch.ids) for waiting in wanted)
                self._settle(group, written=rows - left_out, left_out=left_out)
                _tell(wanted, None)
                return
        _tell(group, StateUnavailableError("The service stopped before the prediction was written down."))

    def _insert(self, batches: list[PredictionBatch]) -> int:
        """Write what is of the sample in one transaction; return how many rows are not."""
        rows: list[tuple[Any, ...]] = []
        kept: list[tuple[str, int, bytes]] = []
        offered = 0
        for batch in batches:
            offered += len(batch.ids)
            chosen, which = self._rows(batch)
            rows += chosen
            if self._keep_inputs != "off":
                kept += [
                    (batch.ids[row], batch.created_at, packed(batch.inputs[row]))
                    for row in which
                    if batch.sought[row] or self._keep_inputs == "all"
                ]
        if rows:
            with self._database.begin() as connection:
                insert_new(connection, predictions, _COLUMNS, rows)
                if kept:
                    insert_new(connection, inputs, _INPUT_COLUMNS, kept)
        return offered - len(rows)

    def _settle(self, group: list[_Waiting], *, written: int = 0, dropped: int = 0, left_out: int = 0) -> None:
        with self._changed:
            if self._abandoned:
                return
            self.written += written
            self.dropped += dropped
            self.left_out += left_out
            self._settled += sum(len(waiting.batch.ids) for waiting in group)
            self._bytes -= sum(_size(waiting.batch) for waiting in group)
            self._changed.notify_all()

    def _rows(self, batch: PredictionBatch) -> tuple[list[tuple[Any, ...]], Sequence[int]]:
        """Return a value for each of `_COLUMNS`, row by row, and the places in the batch of these rows."""
        origin = self._origin((batch.model, batch.model_digest, batch.revision, batch.policy or ""), batch.input_spec)
        logits = np.ascontiguousarray(batch.logits, dtype="<f4")
        width = logits.itemsize * logits.shape[1]
        content = logits.tobytes()
        count = len(batch.ids)
        clusters = self._clusters(batch)
        rows = zip(
            batch.ids,
            repeat(origin, count),
            repeat(batch.created_at, count),
            batch.references,
            clusters,
            [content[start : start + width] for start in range(0, len(content), width)],
            batch.labels.tolist(),
            batch.confidence.tolist(),
            batch.actions,
            batch.propensities,
            batch.sought,
            repeat(None, count) if batch.segments is None else batch.segments,
            strict=True,
        )
        if self._sample >= 1:
            return list(rows), range(count)
        chosen = in_sample(np.array(clusters, dtype=np.int64), self._sample)
        return list(compress(rows, chosen.tolist())), np.flatnonzero(chosen).tolist()

    def _clusters(self, batch: PredictionBatch) -> list[int]:
        secret = self._database.secret
        inputs = np.ascontiguousarray(batch.inputs)
        return [
            cluster_hash(secret, input_digest(secret, inputs[row]) if group is None else group)
            for row, group in enumerate(batch.groups)
        ]

    def _origin(self, key: tuple[str, str, str, str], input_spec: str | None) -> int:
        if key not in self._origins:
            names = ("model", "model_digest", "revision", "policy")
            with self._database.begin() as connection:
                values = dict(zip(names, key, strict=True), input_spec=input_spec)
                insert = insert_for(connection, origins).values(values)
                insert = insert.on_conflict_do_update(index_elements=names, set_={"input_spec": input_spec})
                connection.execute(insert)
                same = (origins.c[name] == value for name, value in zip(names, key, strict=True))
                found = connection.execute(select(origins.c.id).where(*same)).scalar_one()
            self._origins[key] = found  # not before it is committed, which may fail
        return self._origins[key]


def _tell(group: list[_Waiting], error: CandorError | None) -> None:
    """Say to whoever waits for them that rows are durable, or why they are not."""
    for written in (waiting.written for waiting in group):
        # False says that it was given up while its rows were being written.
        if written is not None and written.set_running_or_notify_cancel():
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)


def in_sample(clusters: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """Say which groups are of the sample: always the same ones at one share, and those of a smaller share among them.

    The groups' numbers also say which role a row has in a refit, so they are mixed first (SplitMix64): the sample is
    independent of the role.

    Args:
        clusters: int64 (N,), what `cluster_hash` gave.
        share: Of the groups, in [0, 1].

    Returns:
        bool (N,).

    Example:
        >>> round(float(in_sample(np.arange(100_000), 0.25).mean()), 2)
        0.25
    """
    mixed = clusters.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)) * 2.0**-53 < share


def input_digest(secret: bytes, example: NDArray[Any]) -> bytes:
    """Return the keyed BLAKE2b-128 digest of one input: equal inputs share it, and without the secret it says nothing.

    Args:
        secret: The database's 32 secret bytes.
        example: One input, C-contiguous, of any shape and dtype.
    """
    return hashlib.blake2b(example.tobytes(), digest_size=DIGEST_BYTES, key=secret).digest()


def _size(batch: PredictionBatch) -> int:
    return batch.inputs.nbytes + batch.logits.nbytes
