"""The process of a recalibration: reads the rows, computes, and reports.

`python -m service.recalibration.refit_process` reads one task from standard input and writes one JSON document per
line. It has a low priority and only reads the database.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, NoReturn

import numpy.typing as npt
import orjson
import structlog

from bundle import Bundle
from candor.contract.conditions import Metric
from service.decisions.revision import Revision
from service.decisions.unattended import Limits
from service.decisions.voided import broken_of_bundle, overlaid
from service.errors import CandorError, error_document
from service.inference.inputs import specification
from service.inference.offline import Scorer, Scoring
from service.places import Place, in_body
from service.recalibration.growth import Evidence, load_evidence
from service.recalibration.refit import refit
from service.recalibration.source import read_rows
from service.recalibration.task import Progress, RefitRequest, RefitTask, Started, columns_of
from service.recalibration.uploaded import Uploaded, load_uploaded
from service.serving.verification import check_is, verified
from service.state.database import Database, now_us
from service.state.inputs import unpacked
from service.state.maturing import settled
from service.state.monitors import MonitorStore
from service.state.rescoring import Rescoring, stored_since_us
from service.state.revisions import RevisionStore
from service.state.row_cells import RowCells
from service.state.window import Window
from service.state.window_rows import WindowRows, load_window_rows, with_earlier_rows
from service.times import iso

# Maximum unlabelled rows of earlier models; scoring one can take a millisecond or more.
MOST_SCORED_AGAIN: Final = 100_000


def _logged(
    database: Database,
    task: RefitTask,
    bundle: Bundle,
    model_digest: str,
    at: int,
    progress: Progress,
    cells: RowCells | None,
) -> WindowRows:
    """Read labelled traffic with mature labels, and that of earlier models if requested."""
    request, names, store = task.request, bundle.manifest.labels, MonitorStore(database)
    since = store.window_start(task.model, request.since_us, by_rule=request.start_by_rule)
    window = Window(task.model, model_digest, since, request.until_us, cells=cells)
    left_out = replace(window, since_us=store.window_start(task.model, None, by_rule=True), until_us=since)
    with database.connect() as connection:
        window = settled(connection, window, at, names)
        stored_since = None if cells is None else stored_since_us(connection, window, window.origins(connection))
        if stored_since is not None:
            window = replace(window, since_us=stored_since)
        found = load_window_rows(
            connection,
            window,
            label_names=names,
            at_most=task.max_labels,
            sink=task.log_sink if cells is None else None,  # its files have no inputs
        )
        from_first = not request.rescore and (left_out.since_us or 0) <= (since or 0) and left_out.is_empty(connection)
    starts = stored_since, found.left_out_before, None if since == request.since_us else since
    left_out_before = max((at for at in starts if at is not None), default=None)
    found = replace(found, left_out_before=left_out_before, from_first=from_first)
    if not request.rescore:
        return found
    progress("scoring earlier rows again", 1)
    spec = bundle.manifest.input
    where = in_body("source", "feedback", "rescore")
    with scoring(task, bundle, where) as score, database.connect() as connection:

        def add(contents: Sequence[bytes]) -> npt.NDArray[Any]:
            return score.add(unpacked(contents, spec.numpy, spec.shape))

        return with_earlier_rows(
            found,
            connection,
            window,
            Rescoring(specification(bundle), add, score.finish),
            label_names=names,
            labelled_at_most=task.max_labels,
            unlabelled_at_most=MOST_SCORED_AGAIN,
        )


@contextmanager
def scoring(task: RefitTask, bundle: Bundle, where: Place) -> Iterator[Scoring]:
    """Open what scores inputs for the length of a block: this process, or the Ray cluster of the task."""
    if task.ray is None:
        yield Scorer(bundle, where=where, run_timeout_s=task.run_timeout_s)
        return
    from service.recalibration.ray_scoring import cluster_scorer

    with cluster_scorer(task.ray, bundle, where=where, run_timeout_s=task.run_timeout_s) as score:
        yield score


class _Read(NamedTuple):
    bundle: Bundle
    revision: Revision
    found: WindowRows
    uploaded: Uploaded | None
    seed: int
    at: int
    evidence: Evidence | None
    broken: Mapping[str, Mapping[Metric, str]]


def _read(database: Database, until_us: int | None, task: RefitTask, progress: Progress) -> _Read:
    """Read what a recalibration needs; everything written before `until_us` is there, or until now."""
    progress("reading rows", 1)
    gc.disable()  # the collector would traverse millions of short-lived tuples for nothing
    try:
        bundle = verified(Path(task.bundle))
        store = RevisionStore(database)
        revision = store.get(task.model, task.revision)
        check_is(bundle, revision)
        voided = MonitorStore(database).voided().get(task.model, {})
        policies = overlaid(revision.policies, revision.model_digest, voided)
        revision = replace(revision, policies=policies)  # with voided certificates marked
        made = (solution.policies for solution in store.solutions(task.model, revision.bundle_id))
        broken = broken_of_bundle(made, revision.model_digest, voided)
        at = now_us() if until_us is None else until_us
        uploaded = None
        cells = RowCells.of(bundle, revision.calibrator, also=columns_of(task.request, revision.calibrator))
        if task.request.labelled_set is None:
            found = _logged(database, task, bundle, revision.model_digest, at, progress, cells)
        else:
            uploaded, rows = load_uploaded(
                database, task.model, task.request.labelled_set, revision, bundle, partial(scoring, task), cells
            )
            found = WindowRows(rows)
        evidence = load_evidence(database, revision, bundle.manifest.labels, at_us=at, kept_us=task.kept_us)
        seed = int.from_bytes(database.secret[:8], "little")
        return _Read(bundle, revision, found, uploaded, seed, at, evidence, broken)
    finally:
        gc.enable()


def recalibrate(asked: BinaryIO, told: BinaryIO) -> None:
    """Run one recalibration; each message is a line of JSON.

    Args:
        asked: The task, then the answers to looks.
        told: Progress, looks, and at the end the outcome or an error.
    """

    def say(message: dict[str, Any]) -> None:
        told.write(orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
        told.flush()

    def hear() -> dict[str, Any]:
        line = asked.readline()
        if not line:
            sys.exit("The service that asked for this recalibration is gone.")
        document: dict[str, Any] = orjson.loads(line)
        return document

    def show(looks: dict[str, Any]) -> dict[str, Any]:
        say({"show": looks})
        return hear()

    steps: list[tuple[str, float]] = []

    def progress(text: str, step: int) -> None:
        steps.append((text, time.perf_counter()))
        say({"progress": text, "step": step})

    document = hear()
    parts: dict[str, Any] = {
        "request": RefitRequest(**document["request"]),
        "limits": Limits(**document.get("limits", {})),
    }
    if (started := document.get("started")) is not None:
        parts["started"] = Started(**started)
    task = RefitTask(**{**document, **parts})
    try:
        read, read_from = read_rows(task, lambda database, until_us: _read(database, until_us, task, progress))
        outcome = refit(
            task,
            read.revision,
            read.bundle,
            read.found,
            seed=read.seed,
            at=read.at,
            show=show,
            progress=progress,
            uploaded=read.uploaded,
            evidence=read.evidence,
            broken=read.broken,
        )
        outcome["report"]["read_at"] = iso(read.at)
        outcome["report"]["read_from"] = read_from
        outcome["report"]["log_files"] = read.found.log_files
        outcome["report"]["log_files_passed_over"] = read.found.passed_over
        outcome["report"]["took"] = _took(steps)
        say({"outcome": outcome})
    except CandorError as error:
        say({"error": error_document(error)})


def _took(steps: list[tuple[str, float]]) -> dict[str, Any]:
    """Return the seconds of each step, the total CPU seconds, and the peak memory."""
    ends = [*(began for _, began in steps[1:]), time.perf_counter()]
    return {
        "seconds": {text: round(end - began, 3) for (text, began), end in zip(steps, ends, strict=True)},
        "processor_seconds": round(time.process_time(), 3),
        "peak_memory_mib": _peak_memory_kib() >> 10,
    }


def _peak_memory_kib() -> int:
    """Return the peak memory of this process; on Linux `ru_maxrss` starts at that of the service, which began it."""
    with suppress(FileNotFoundError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _tell_line(told: BinaryIO, _logger: object, level: str, line: Mapping[str, Any]) -> NoReturn:
    """Have the service write a line of the log: standard output is for messages."""
    told.write(orjson.dumps({"log": line, "level": level}, default=str) + b"\n")
    told.flush()
    raise structlog.DropEvent


if __name__ == "__main__":
    structlog.configure(processors=[structlog.processors.format_exc_info, partial(_tell_line, sys.stdout.buffer)])
    recalibrate(sys.stdin.buffer, sys.stdout.buffer)
