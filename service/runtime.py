"""Everything that lives as long as the service: opened in one place, closed in one place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from service.jobs import Jobs
from service.metrics import Metrics
from service.models import Models
from service.plane import Answer, Log, Plane
from service.run_metrics import RunMetrics
from service.settings import Settings
from service.state.database import Database, now_us
from service.state.feedback import FeedbackStore
from service.state.predictions import PredictionBatch, PredictionLog
from service.state.revisions import RevisionStore


@dataclass(frozen=True, slots=True, eq=False)
class Runtime:
    """The parts of a running service."""

    settings: Settings
    database: Database
    log: PredictionLog
    models: Models
    jobs: Jobs
    revisions: RevisionStore
    feedback: FeedbackStore
    metrics: Metrics

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Open the state and load every model.

        Raises:
            CandorError: The service cannot start like this; nothing is left open.
        """
        database = Database.open(settings.database_url)
        try:
            log = PredictionLog(database, capacity=settings.log_capacity)
            metrics = Metrics()
            models = Models(settings, database, _logging_to(log))
            runtime = cls(
                settings=settings,
                database=database,
                log=log,
                models=models,
                jobs=Jobs(settings, database, models, metrics),
                revisions=RevisionStore(database),
                feedback=FeedbackStore(database),
                metrics=metrics,
            )
            try:
                models.start()
            except BaseException:
                models.close()
                log.close()
                raise
        except BaseException:
            database.close()
            raise
        metrics.watch(runtime.gauges)
        metrics.registry.register(RunMetrics(runtime.planes))
        return runtime

    def close(self) -> None:
        """Finish what waits, write it down, let go of the state."""
        self.models.close()
        self.log.close()
        self.database.close()

    def planes(self) -> Iterable[tuple[str, Plane]]:
        """Give the models' names and planes."""
        return [(model.name, model.plane) for model in self.models.all()]

    def gauges(self) -> Iterable[tuple[str, str, dict[str, str], float]]:
        """Yield what /metrics reads live: (name, help, labels, value)."""
        yield "candor_log_depth", "Predictions that wait for the log writer.", {}, self.log.depth
        yield "candor_log_written_total", "Predictions written to the log since the start.", {}, self.log.written
        yield (
            "candor_log_dropped_total",
            "Predictions that found no room in the log since the start.",
            {},
            self.log.dropped,
        )
        yield "candor_state_stale_seconds", "Seconds since the state was last heard of.", {}, self.models.stale_for_s
        for model in self.models.all():
            yield "candor_queue_rows", "Rows that wait for the session.", {"model": model.name}, model.plane.queued_rows
            yield "candor_epoch", "Epoch of the pointer in force.", {"model": model.name}, model.pointer.epoch
            if model.plane.served is not None:
                active = {"model": model.name, "revision": model.plane.served.revision.id}
                yield "candor_revision_info", "The revision in service.", active, 1


def _logging_to(predictions: PredictionLog) -> Log:
    """Return the hot path's log: it hands a batch over and never waits."""

    def log(answer: Answer, inputs: npt.NDArray[Any]) -> None:
        revision = answer.served.revision
        predictions.append(
            PredictionBatch(
                model=revision.model,
                model_digest=revision.model_digest,
                revision=revision.id,
                policy=None if answer.policy is None else f"{answer.policy.policy.id}@{answer.policy.version}",
                created_at=now_us(),
                ids=answer.ids,
                references=list(answer.references),
                groups=list(answer.groups),
                inputs=inputs,
                logits=answer.logits,
                labels=answer.labels.astype(np.int64, copy=False),
                confidence=answer.confidence,
                actions=answer.actions,
                propensities=answer.propensities,
                sought=answer.label_sought,
                segments=answer.segments,
            )
        )

    return log
