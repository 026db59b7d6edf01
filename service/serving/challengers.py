"""Challengers of other bundles: score a sample of the logged rows again, off the answer's path.

A batch comes here once its answers are sent and its rows are durable. One thread scores what waits and writes it; a
challenger that falls behind loses rows, which are counted. Nothing here can touch an answer.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import structlog
from numpy.typing import NDArray

from bundle import Columns, InputSpec, RowError
from bundle.table import Cell
from service.errors import InputError, StateUnavailableError
from service.inference.inputs import conform
from service.serving.model import Beside
from service.serving.models import Models
from service.serving.plane import Served
from service.state.challengers import ChallengerStore
from service.state.prediction_rows import CHALLENGERS, PredictionBatch, bytes_of, in_sample

logger = structlog.get_logger(__name__)

CAPACITY_ROWS: Final = 8_192
CAPACITY_BYTES: Final = 64 << 20
_WARN_S: Final = 60.0

Result = Literal["scored", "dropped", "inputs", "failed"]
RESULTS: Final[tuple[Result, ...]] = ("scored", "dropped", "inputs", "failed")
"""What becomes of a sampled row: scored and stored, dropped by a full queue, its inputs do not fit, or it failed."""


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Sampled rows of a batch for one challenger."""

    beside: Beside
    served: Served
    champion: Served | None
    ids: list[str]
    created_at: int
    inputs: NDArray[Any]
    fits: bool
    carried: Sequence[Mapping[str, Cell] | None] | None = None

    @property
    def nbytes(self) -> int:
        return self.inputs.nbytes + bytes_of(self.carried)


class Challengers:
    """Scores sampled rows with each challenger of another bundle.

    Args:
        models: The models of the process.
        store: Gets the scores.
        max_batch_size: Rows after which a run takes no further batch.
        deadline_s: Time for a run of a model on another server.

    Attributes:
        counts: Rows by model, challenger and result.
    """

    def __init__(self, models: Models, store: ChallengerStore, *, max_batch_size: int, deadline_s: float) -> None:
        self.counts: Counter[tuple[str, str, Result]] = Counter()
        self._models = models
        self._store = store
        self._max_batch_size = max_batch_size
        self._deadline_ns = int(deadline_s * 1e9)
        self._waiting: deque[_Part] = deque()
        self._rows = self._bytes = 0
        self._busy = self._closing = False
        self._warned_at = -_WARN_S
        self._changed = threading.Condition(threading.RLock())
        self._thread: threading.Thread | None = None

    @property
    def depth(self) -> int:
        """Number of waiting rows."""
        return self._rows

    def offer(self, batch: PredictionBatch, which: Sequence[int], groups: Sequence[int]) -> None:
        """Take the sampled rows of a durable batch; neither blocks nor raises.

        Args:
            batch: The batch.
            which: Its rows that were logged.
            groups: Groups' numbers of all its rows.
        """
        beside = self._models.beside(batch.model)
        if not beside:
            return
        rows = np.asarray(which, np.intp)
        group = np.array(groups, np.int64)[rows]
        for one in beside:
            served = one.served
            if served is None or served.revision.model_digest == batch.model_digest:
                continue
            chosen = rows[in_sample(group, one.challenger.share, salt=CHALLENGERS)]
            if not len(chosen):
                continue
            fits = batch.input_spec == served.specification
            champion = None if fits else self._models.loaded(batch.model, batch.revision)
            ids = [batch.ids[row] for row in chosen]
            carried = None if fits or batch.carried is None else [batch.carried[row] for row in chosen]
            self._queue(_Part(one, served, champion, ids, batch.created_at, batch.inputs[chosen], fits, carried))

    def flush(self, timeout: float = 60.0) -> bool:
        """Wait until nothing waits any more; return False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, timeout)

    def close(self) -> None:
        """Stop after the current run; what still waits is not scored."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _queue(self, part: _Part) -> None:
        rows, size = len(part.ids), part.nbytes
        with self._changed:
            if self._closing:
                return
            if self._rows + rows > CAPACITY_ROWS or self._bytes + size > CAPACITY_BYTES:
                self._count(part, "dropped", rows)
                return
            self._waiting.append(part)
            self._rows += rows
            self._bytes += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="challengers", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if self._closing:
                    return
                parts = self._take()
                self._busy = True
            rows = sum(len(part.ids) for part in parts)
            try:
                results = self._score(parts)
            except StateUnavailableError as error:
                results = {"dropped": rows}
                self._warn(parts[0], error)
            except Exception as error:  # noqa: BLE001 — a graph may fail in any way, and no answer waits for it
                results = {"failed": rows}
                self._warn(parts[0], error)
            for result, count in results.items():
                self._count(parts[0], result, count)
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _take(self) -> list[_Part]:
        """Return what waits for the challenger whose turn it is, up to a batch."""
        first = self._waiting[0]
        taken: list[_Part] = []
        rows = 0
        while self._waiting and self._waiting[0].beside is first.beside and self._waiting[0].fits == first.fits:
            if taken and rows + len(self._waiting[0].ids) > self._max_batch_size:
                break
            taken.append(self._waiting.popleft())
            rows += len(taken[-1].ids)
            self._bytes -= taken[-1].nbytes
        self._rows -= rows
        return taken

    def _score(self, parts: Sequence[_Part]) -> dict[Result, int]:
        """Score rows and store the scores; return the number of rows by result."""
        ready = [fitted for part in parts if (fitted := _fitted(part)) is not None]
        unfit = sum(len(part.ids) for part in parts) - sum(len(part.ids) for part in ready)
        if not ready:
            return {"inputs": unfit}
        served, challenger = parts[0].served, parts[0].beside.challenger
        ids = [id_ for part in ready for id_ in part.ids]
        times = [part.created_at for part in ready for _ in part.ids]
        logits = served.session.run(
            np.concatenate([part.inputs for part in ready]), until_ns=time.perf_counter_ns() + self._deadline_ns
        )
        if logits.shape != (len(ids), len(served.labels)):
            raise ValueError(f"scores of shape {logits.shape}, expected {(len(ids), len(served.labels))}")
        good = np.flatnonzero((logits < np.inf).all(axis=1) & (logits > -np.inf).any(axis=1))  # NaN is neither
        written = self._store.add_scores(
            challenger.number, [ids[row] for row in good], [times[row] for row in good], logits[good]
        )
        return {"inputs": unfit, "failed": len(ids) - len(good), "scored": written}

    def _count(self, part: _Part, result: Result, rows: int) -> None:
        with self._changed:
            self.counts[part.beside.challenger.model, part.beside.challenger.name, result] += rows

    def _warn(self, part: _Part, error: Exception) -> None:
        if time.monotonic() - self._warned_at > _WARN_S:
            self._warned_at = time.monotonic()
            one = part.beside.challenger
            logger.warning("challenger failed", model=one.model, challenger=one.name, error=repr(error))


def _fitted(part: _Part) -> _Part | None:
    """Return the rows whose inputs fit the challenger; None if none do."""
    if part.fits:
        return part
    ours, theirs = part.served.encoder, part.champion and part.champion.encoder
    if not isinstance(ours, Columns) or not isinstance(theirs, Columns):
        return None
    which, inputs = _encoded(_cells(part, theirs, ours), ours, part.served.input)
    return replace(part, ids=[part.ids[row] for row in which], inputs=np.concatenate(inputs)) if which else None


def _cells(part: _Part, theirs: Columns, ours: Columns) -> list[dict[str, Cell] | None]:
    """Return the cells of each row for a challenger: as the request had them, else as the active revision read them.

    None stands for a row without one of them: it was not sent, or is a category that the active revision does not know.
    """
    told = theirs.decode(part.inputs, ours)
    rows: list[dict[str, Cell] | None] = []
    for at in range(len(part.ids)):
        own = part.carried[at] if part.carried is not None else None
        cells = {name: values[at] for name, (values, known) in told.items() if known[at]} | dict(own or {})
        rows.append(cells if ours.kinds.keys() <= cells.keys() else None)
    return rows


def _encoded(
    rows: Sequence[dict[str, Cell] | None], columns: Columns, spec: InputSpec
) -> tuple[list[int], list[NDArray[Any]]]:
    """Return which rows a challenger takes, and its inputs: one that its columns refuse harms no other."""

    def encode(which: Sequence[int]) -> NDArray[Any]:
        return conform(columns.encode([rows[at] or {} for at in which], spec), spec, columns)

    there = [at for at, cells in enumerate(rows) if cells is not None]
    try:
        return there, [encode(there)] if there else []
    except (RowError, InputError):
        taken: dict[int, NDArray[Any]] = {}
        for at in there:
            with suppress(RowError, InputError):
                taken[at] = encode([at])
        return [*taken], [*taken.values()]
