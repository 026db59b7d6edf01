"""The process of a recalibration: reads the rows, computes, and reports.

`python -m service.recalibration.refit_process` reads one task from standard input and writes one JSON document per
line. It has a low priority and only reads the database.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import orjson

from bundle import Bundle
from service.decisions.unattended import Limits
from service.decisions.voided import overlaid
from service.errors import CandorError, error_document
from service.inference.inputs import specification
from service.inference.offline import Scorer
from service.recalibration.refit import refit
from service.recalibration.task import Progress, RefitRequest, RefitTask
from service.recalibration.uploaded import load_uploaded
from service.serving.verification import verified
from service.state.database import Database, now_us
from service.state.inputs import unpacked
from service.state.monitors import MonitorStore
from service.state.rescoring import Rescoring
from service.state.revisions import RevisionStore
from service.state.window import Window
from service.state.window_rows import WindowRows, load_window_rows, with_earlier_rows
from service.times import iso

# Maximum unlabelled rows of earlier models; scoring one can take a millisecond or more.
MOST_SCORED_AGAIN: Final = 100_000


def _logged(database: Database, task: RefitTask, bundle: Bundle, model_digest: str, progress: Progress) -> WindowRows:
    """Read labelled traffic, and that of earlier models if requested."""
    request, names = task.request, bundle.manifest.labels
    window = Window(task.model, model_digest, request.since_us, request.until_us)
    others = request.rescore or request.implicit_negative  # these add rows, so few labels are no error yet
    with database.connect() as connection:
        found = load_window_rows(
            connection,
            window,
            label_names=names,
            at_least=0 if others else task.min_rows,
            at_most=task.max_labels,
        )
    if not request.rescore:
        return found
    progress("scoring earlier rows again", 1)
    spec, scorer = bundle.manifest.input, Scorer(bundle, where="/source/feedback/rescore")

    def score(contents: Sequence[bytes]) -> npt.NDArray[np.float32]:
        return scorer(unpacked(contents, spec.numpy, spec.shape))

    with database.connect() as connection:
        return with_earlier_rows(
            found,
            connection,
            window,
            Rescoring(specification(bundle), score),
            label_names=names,
            labelled_at_most=task.max_labels,
            unlabelled_at_most=MOST_SCORED_AGAIN,
        )


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
    parts = {"request": RefitRequest(**document["request"]), "limits": Limits(**document.get("limits", {}))}
    task = RefitTask(**{**document, **parts})
    try:
        database = Database.open(task.database_url, readonly=True)
        try:
            progress("reading rows", 1)
            gc.disable()  # the collector would traverse millions of short-lived tuples for nothing
            bundle = verified(Path(task.bundle))
            revision = RevisionStore(database).get(task.model, task.revision)
            voided = MonitorStore(database).voided().get(task.model, frozenset())
            policies = overlaid(revision.policies, revision.model_digest, voided)
            revision = replace(revision, policies=policies)  # with voided certificates marked
            at = now_us()
            uploaded = None
            if task.request.labelled_set is None:
                found = _logged(database, task, bundle, revision.model_digest, progress)
            else:
                uploaded, rows = load_uploaded(database, task.model, task.request.labelled_set, revision, bundle)
                found = WindowRows(rows)
            seed = int.from_bytes(database.secret[:8], "little")
        finally:
            database.close()
            gc.enable()
        outcome = refit(
            task,
            revision,
            bundle,
            found,
            seed=seed,
            at=at,
            show=show,
            progress=progress,
            uploaded=uploaded,
        )
        outcome["report"]["read_at"] = iso(at)
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
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


if __name__ == "__main__":
    recalibrate(sys.stdin.buffer, sys.stdout.buffer)
