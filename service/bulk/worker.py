"""Score one part at a time: read, run, decide, log, write."""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Self, cast

import numpy as np
import numpy.typing as npt
import orjson

from bundle import InputSpec, RowError
from service.bulk.blocks import Block, blocks_of
from service.bulk.columns import Reader, Refused, RowColumns, accepted
from service.bulk.inputs import Part
from service.bulk.manifest import Done
from service.bulk.output import Coded, Place, Written, place_of, rows_as_json, taking, write
from service.decisions.revision import Revision
from service.decisions.solved import SolvedPolicy
from service.errors import CandorError, InputValueError
from service.ids import ids_of
from service.inference.chain import Scores
from service.inference.statistics import Timing
from service.serving.loading import Loader
from service.serving.logged import logged_rows
from service.serving.plane import Answer, decided
from service.settings import Settings
from service.state.database import Database
from service.state.prediction_rows import RowWriter

_ID_BYTES: Final = 10
_ROWS_PER_COMMIT: Final = 10_000  # a running service writes in between
_RUN_BYTES: Final = 1 << 20
_FEWEST, _MOST = 16, 4096
_NO_TIME: Final = Timing(0, 0, 0, 1, 0)


def rows_per_run(spec: InputSpec) -> int:
    """Return how many rows one inference run takes: so much input that caches hold it."""
    row_bytes = max(1, spec.numpy.itemsize * math.prod(spec.shape))
    return min(_MOST, max(_FEWEST, _RUN_BYTES // row_bytes))


@dataclass(frozen=True)
class Task:
    """The instructions of every process of a run.

    Attributes:
        settings: Where bundles are, and how models run.
        revision: The revision that scores.
        policy: Name of the policy that decides; None for the revision's choice.
        output: Path or URL of the output.
        format: Format of the parts.
        scores: Columns of scores that others computed.
        columns: Columns with what is said of the rows.
        dropped: Columns that the output leaves out.
        prefix: Prefix of the added columns.
        skips: Whether refused rows go to a file; else they end the run.
        logs: Whether predictions go to the state.
        seed: Source of ids and draws.
        started_at: Time of the predictions, microseconds since the epoch.
    """

    settings: Settings
    revision: Revision
    policy: str | None
    output: str
    format: Written
    scores: tuple[str, ...]
    columns: RowColumns
    dropped: tuple[str, ...]
    prefix: str
    skips: bool
    logs: bool
    seed: str
    started_at: int


class Worker:
    """Scores parts. Equal parts of equal runs give equal bytes, whichever process scores them, and however often.

    Args:
        task: The run.
        found: Columns of the files.

    Attributes:
        task: The run.
        served: The revision, loaded.
        policy: What decides; None without a policy.
        rows_per_run: Maximum rows of an inference run.
        reader: Makes inputs of columns.
        added: Names of the added columns.
        log: Writes predictions to the state; None if they are not logged.

    Raises:
        CandorError: The model cannot be loaded, the state cannot be opened, or a column is missing.
    """

    def __init__(self, task: Task, found: Sequence[str]) -> None:
        self.task = task
        # Larger runs than a service's, and a person watches them: no limit on their time.
        log_mode = task.settings.log_mode if task.logs else "off"
        loader = Loader(task.settings.model_copy(update={"run_timeout_s": math.inf, "log_mode": log_mode}))
        loader.refresh()
        self.served = loader.serve(task.revision)
        self.policy = self.served.policy(task.policy)
        self.rows_per_run = rows_per_run(self.served.input)
        settings = task.settings
        self.reader = Reader.of(
            self.served, found, scores=task.scores, columns=task.columns, max_pixels=settings.max_pixels
        )
        self._read = {*self.reader.needed.columns, *filter(None, task.columns.named().values())}
        self.added = added_columns(self.served.labels, task.prefix, self.policy)
        self._place: Place = place_of(task.output)
        self._stack = ExitStack()
        self.log: RowWriter | None = None
        if task.logs:
            database = Database.open(settings.state_url, beside_server=True, existing=True)
            self._stack.callback(database.close)
            self.log = RowWriter(database, sample=settings.log_sample, keep_inputs=settings.keep_inputs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def score(self, part: Part, name: str) -> Done:
        """Score a part and write it.

        Args:
            part: The part.
            name: Name of its file below the input.

        Raises:
            InputError: The file is damaged, or a row is refused and the run does not skip it.
            UpstreamError: The server of a remote model gives no usable answer.
            StateUnavailableError: The database does not answer.
            ConfigurationError: The output cannot be written.
        """
        blocks = blocks_of(part, self._read, self.task.dropped)
        first = next(blocks, None)
        if first is None:  # blank lines
            return Done(part.number, name, 0, 0, {})
        scoring = _Scoring(self, part)
        names = [each for each in part.names if each not in self.task.dropped]
        kept = first.kept
        if isinstance(kept, dict):
            names = [*kept]
        schema = None if isinstance(kept, dict | list) else kept.schema
        with self._place.new(f"part-{part.number:05d}.{self.task.format}") as file:
            try:
                write(self.task.format, file, names, scoring.blocks(chain([first], blocks)), schema)
            except Exception:
                if scoring.error is not None:  # arro3 makes a text of what a batch raises
                    raise scoring.error from None
                raise
            if scoring.rejects:
                with self._place.new(f"rejects-{part.number:05d}.ndjson") as rejects:
                    rejects.write(b"".join(scoring.rejects))
        return Done(part.number, name, scoring.rows, len(scoring.rejects), dict(sorted(scoring.actions.items())))


class _Scoring:
    """The scoring of one part.

    Attributes:
        rows: Rows scored.
        rejects: A line of NDJSON for each refused row.
        actions: Rows by action.
        error: What ended it.
    """

    def __init__(self, worker: Worker, part: Part) -> None:
        self._worker = worker
        self._part = part
        task = worker.task
        key = bytes.fromhex(task.seed) + part.number.to_bytes(8)
        self._explore = random.Random(key)  # noqa: S311 — decides whose label is sought, keeps no secret
        self._key = key
        self._blocks = 0
        self.rows = 0
        self.rejects: list[bytes] = []
        self.actions: Counter[str] = Counter()
        self.error: Exception | None = None

    def blocks(self, blocks: Iterator[Block]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield what is kept of each block, and the columns to add."""
        try:
            for block in blocks:
                yield self._block(block)
        except Exception as error:
            self.error = error
            raise

    def _block(self, block: Block) -> tuple[Any, dict[str, Any]]:
        self._check_names(block)

        def read(rows: range) -> npt.NDArray[Any]:
            self._worker.reader.check_said(block.columns, rows)
            return self._worker.reader.inputs(block.columns, rows)

        readable, refused = accepted(range(block.rows), read)
        kept: list[int] = []
        inputs: list[npt.NDArray[Any]] = []
        scores: list[Scores] = []
        for rows, values in readable:
            for start in range(0, len(rows), self._worker.rows_per_run):
                found, more = self._run(values[start : start + self._worker.rows_per_run])
                refused += [(rows.start + start + row, error) for row, error in more]
                for part, scored in found:
                    kept += range(rows.start + start + part.start, rows.start + start + part.stop)
                    inputs.append(values[start + part.start : start + part.stop])
                    scores.append(scored)
        self._refuse(block, sorted(refused, key=lambda each: each[0]))
        answer = self._answer(block, kept, scores)
        if self._worker.log is not None and kept:
            self._write_log(self._worker.log, answer, np.concatenate(inputs))
        self.rows += len(kept)
        if self._worker.policy is not None:
            self.actions.update(cast("list[str]", answer.actions))
        whole = block.kept if len(kept) == block.rows else taking(block.kept, kept)
        return whole, self._columns(answer)

    def _run(self, inputs: npt.NDArray[Any]) -> tuple[list[tuple[range, Scores]], list[Refused]]:
        def run(rows: range) -> Scores:
            try:
                return self._worker.served.chain.run(inputs[rows.start : rows.stop])
            except (CandorError, MemoryError):
                raise
            except Exception as error:  # ONNX Runtime raises many types
                raise InputValueError(f"The model fails on an input: {error}") from error

        return accepted(range(len(inputs)), run)

    def _answer(self, block: Block, kept: Sequence[int], scores: Sequence[Scores]) -> Answer:
        worker = self._worker
        served = worker.served
        classes = len(served.labels)
        empty = np.empty((0, classes), np.float32)
        logits = np.concatenate([empty, *(each[0] for each in scores)])
        probabilities = np.concatenate([empty, *(each[1] for each in scores)]).astype(np.float32, copy=False)
        labels, confidence = (
            served.calibrator.top_label(logits, probabilities)
            if kept
            else (np.empty(0, np.int64), np.empty(0, np.float32))
        )
        randomness = hashlib.shake_256(self._key + self._blocks.to_bytes(8)).digest(_ID_BYTES * len(kept))
        self._blocks += 1
        return decided(
            served,
            worker.policy,
            ids_of(worker.task.started_at // 1000, randomness),
            logits,
            probabilities,
            labels,
            confidence,
            per_row=worker.reader.said(block.columns, kept),
            timing=_NO_TIME,
            explore=self._explore,
        )

    def _columns(self, answer: Answer) -> dict[str, Any]:
        served = answer.served
        first: dict[str, Any] = {
            "prediction_id": answer.ids,
            "label": Coded(served.labels, answer.labels),
            "confidence": answer.confidence,
        }
        columns = np.ascontiguousarray(answer.probabilities.T)
        each = {f"p_{label}": columns[place] for place, label in enumerate(served.labels)}
        last = {"action": answer.actions, "revision": Coded([served.revision.id], np.zeros(len(answer.ids), np.int64))}
        if answer.sets is not None:
            last["set"] = [
                orjson.dumps([served.labels[place] for place in row.nonzero()[0]]).decode() for row in answer.sets
            ]
        prefix = self._worker.task.prefix
        return {f"{prefix}{name}": cells for name, cells in (first | each | last).items()}

    def _write_log(self, log: RowWriter, answer: Answer, inputs: npt.NDArray[Any]) -> None:
        for start in range(0, len(answer.ids), _ROWS_PER_COMMIT):
            rows = slice(start, start + _ROWS_PER_COMMIT)
            log.write([logged_rows(answer.part(rows), inputs[rows], self._worker.task.started_at)])

    def _refuse(self, block: Block, refused: Sequence[Refused]) -> None:
        if not refused:
            return
        if not self._worker.task.skips:
            row, error = refused[0]
            raise InputValueError(
                _said(error),
                where=f"{self._part.file}, {block.place(row)}",
                found=error.found,
                expected=error.expected,
                remedy="Correct the row, or write refused rows to a file of their own with --on-error skip.",
            )
        values = rows_as_json(block.kept, [row for row, _ in refused])
        for (row, error), cells in zip(refused, values, strict=True):
            line = {
                "file": self._part.file,
                "place": block.place(row),
                "error": _said(error),
                "found": None if error.found is None else str(error.found),
                "expected": None if error.expected is None else str(error.expected),
                "row": cells,
            }
            self.rejects.append(orjson.dumps(line, default=str, option=orjson.OPT_APPEND_NEWLINE))

    def _check_names(self, block: Block) -> None:
        if not isinstance(block.kept, list):
            return  # checked in the header
        for row, record in enumerate(block.kept):
            if not self._worker.added.isdisjoint(record):
                raise clash(sorted(self._worker.added & record.keys())[0], f"{self._part.file}, {block.place(row)}")


def added_columns(labels: Sequence[str], prefix: str, policy: SolvedPolicy | None) -> frozenset[str]:
    """Return the names of the columns that a run adds."""
    sets = ["set"] if policy is not None and policy.sets else []
    names = ["prediction_id", "label", "confidence", *(f"p_{label}" for label in labels), "action", "revision", *sets]
    return frozenset(prefix + name for name in names)


def clash(name: str, where: str) -> InputValueError:
    """Return the error of a column that has the name of an added one."""
    return InputValueError(
        f"The input has a column `{name}`, as the output does.",
        where=where,
        found=name,
        expected="distinct names",
        remedy=f"Give the added columns a prefix (--prefix scored_), or leave the column out (--drop {name}).",
    )


def _said(error: CandorError | RowError) -> str:
    text = error.message if isinstance(error, RowError) else str(error)
    return f"{text[0].upper()}{text[1:].rstrip('.')}."
