"""Everything that lives as long as the service: opened in one place, closed in one place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from service.jobs import Jobs
from service.label_counts import LabelCounts
from service.metrics import Gauge, Metrics
from service.models import Models
from service.monitors import Monitors, Status
from service.plane import Answer, Log, Plane, Served
from service.run_metrics import RunMetrics
from service.settings import Settings
from service.state.database import Database, now_us
from service.state.feedback import FeedbackStore
from service.state.labelled_sets import LabelledSetStore
from service.state.predictions import PredictionBatch, PredictionLog
from service.state.retention import Retention
from service.state.revisions import RevisionStore
from service.tracing import Tracing
from service.version import VERSION

LOG_INTERVAL_S = 0.05  # how long the first prediction in the log's queue waits for company


@dataclass(frozen=True, slots=True, eq=False)
class Runtime:
    """The parts of a running service."""

    settings: Settings
    database: Database
    log: PredictionLog
    models: Models
    jobs: Jobs
    monitors: Monitors
    revisions: RevisionStore
    feedback: FeedbackStore
    retention: Retention
    labels: LabelCounts
    labelled_sets: LabelledSetStore
    metrics: Metrics
    tracing: Tracing | None

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Open the state and load every model.

        Raises:
            CandorError: The service cannot start like this; nothing is left open.
        """
        tracing = Tracing(settings.otlp_endpoint, settings.trace_share) if settings.otlp_endpoint else None
        database = Database.open(settings.state_url)
        try:
            log = PredictionLog(
                database,
                capacity=settings.log_capacity,
                # Whoever waits for the commit waits for no company: those who come meanwhile share the next one.
                commit_interval_s=0.0 if settings.log_mode == "sync" else LOG_INTERVAL_S,
                sample=settings.log_sample,
                keep_inputs=settings.keep_inputs,
            )
            metrics = Metrics()
            models = Models(settings, database, _LOGS[settings.log_mode](log))
            runtime = cls(
                settings=settings,
                database=database,
                log=log,
                models=models,
                jobs=Jobs(settings, database, models, metrics, tracing),
                monitors=Monitors(settings, database, models),
                revisions=RevisionStore(database),
                feedback=FeedbackStore(database),
                retention=Retention(database, days=settings.retention_days, inputs_days=settings.inputs_days),
                labels=LabelCounts(database, models, metrics),
                labelled_sets=LabelledSetStore(database),
                metrics=metrics,
                tracing=tracing,
            )
            try:
                models.start()
            except BaseException:
                runtime.labels.close()
                models.close()
                log.close()
                raise
        except BaseException:
            database.close()
            raise
        metrics.watch(runtime.gauges, lambda: [model.name for model in models.all()])
        metrics.registry.register(RunMetrics(runtime.planes))
        return runtime

    def close(self) -> None:
        """Finish what waits, write it down, let go of the state."""
        self.monitors.close()
        self.labels.close()
        self.models.close()
        self.retention.close()
        self.log.close()
        self.database.close()
        if self.tracing is not None:
            self.tracing.close()

    def planes(self) -> Iterable[tuple[str, Plane]]:
        """Give the models' names and planes."""
        return [(model.name, model.plane) for model in self.models.all()]

    def gauges(self) -> Iterable[Gauge]:
        """Yield what /metrics reads live: (name, help, labels, value)."""
        settings = self.settings
        yield "candor_build_info", "The version that runs.", {"version": VERSION}, 1
        yield "candor_ready", "Whether every model serves what the state names.", {}, not self.models.problems()
        yield "candor_deadline_seconds", "Time in which a prediction must begin.", {}, settings.deadline_s
        yield "candor_queue_capacity_rows", "Rows that may wait for a model.", {}, settings.max_queued_rows
        yield "candor_log_capacity_rows", "Predictions that may wait for the log writer.", {}, settings.log_capacity
        if (disk := self.database.disk()) is not None:
            yield "candor_state_bytes", "Size of the state's files (SQLite).", {}, disk.used
            yield "candor_state_free_bytes", "Room on the disk of the state (SQLite).", {}, disk.free
        yield "candor_log_depth", "Predictions that wait for the log writer.", {}, self.log.depth
        yield "candor_log_written_total", "Predictions written to the log since the start.", {}, self.log.written
        yield (
            "candor_log_dropped_total",
            "Predictions that found no room in the log since the start.",
            {},
            self.log.dropped,
        )
        yield (
            "candor_log_left_out_total",
            "Predictions that are not of the log's sample since the start.",
            {},
            self.log.left_out,
        )
        for kind, rows in asdict(self.retention.deleted).items():
            yield "candor_pruned_rows_total", "Rows deleted for their age since the start.", {"kind": kind}, rows
        yield "candor_state_stale_seconds", "Seconds since the state was last heard of.", {}, self.models.stale_for_s
        for model in self.models.all():
            if model.desired.loaded:
                ready = model.plane.served is not None and model.problem is None
                yield "candor_model_ready", "Whether a model serves what the state names.", {"model": model.name}, ready
            refused = model.refused_bundles
            yield "candor_bundles_refused", "Bundles that were refused when last tried.", {"model": model.name}, refused
            yield "candor_queue_rows", "Rows that wait for the session.", {"model": model.name}, model.plane.queued_rows
            yield "candor_epoch", "Epoch of the pointer in force.", {"model": model.name}, model.pointer.epoch
            if model.plane.served is not None:
                active = {"model": model.name, "revision": model.plane.served.revision.id}
                yield "candor_revision_info", "The revision in service.", active, 1
                yield from _certificates(model.name, model.plane.served)
                if (status := self.monitors.seen(model.name)) is not None:
                    yield from _monitoring(model.name, status)


def _certificates(model: str, served: Served) -> Iterable[Gauge]:
    """Yield whether each certificate in force stands."""
    for policy, solved in served.policies.items():
        for value, part in [*solved.parts.items()] or [("", solved)]:
            for band in part.bands:
                if band.certificate is not None:
                    labels = {"model": model, "policy": policy, "action": band.action, "segment": value}
                    text = "Whether a certificate in force stands: 1, else 0."
                    yield "candor_certificate_valid", text, labels, band.certificate.valid


def _monitoring(model: str, status: Status) -> Iterable[Gauge]:
    """Yield the monitors' evidence and alarm, and what was estimated last."""
    of_model = {"model": model}
    for monitor in status.monitors:
        if monitor.ended_at is None:
            named = {"model": model, "monitor": monitor.name}
            yield "candor_monitor_evidence", "Evidence of a monitor, natural logarithm.", named, monitor.evidence
        if monitor.ended_at is None and monitor.kind == "calibration":
            fired = monitor.fired_at is not None
            yield "candor_calibration_alarm", "Whether the calibration alarm has gone off: 1, else 0.", of_model, fired
    if status.estimates is None:
        return
    labelled, recent = status.estimates.document["labelled"], status.estimates.document["recent"]
    for label, rate in labelled["base_rate"].items():
        yield "candor_base_rate", "Estimated share of a label.", {"model": model, "label": label}, rate["value"]
    if labelled["accuracy"] is not None:
        yield "candor_labelled_accuracy", "Accuracy on labelled rows.", of_model, labelled["accuracy"]["value"]
        value = labelled["mean_confidence"]["value"]
        yield "candor_mean_confidence", "Mean confidence on the same labelled rows.", of_model, value
    if recent["estimated_accuracy"] is not None:
        value = recent["estimated_accuracy"]["value"]
        text = "Mean confidence of all recent rows: the accuracy, if it is calibrated."
        yield "candor_estimated_accuracy", text, of_model, value


def _in_background(predictions: PredictionLog) -> Log:
    """Return a log that hands a batch over and never waits."""

    def log(answer: Answer, inputs: npt.NDArray[Any], _: Sequence[Answer]) -> None:
        predictions.append(_batch(answer, inputs))

    return log


def _in_sync(predictions: PredictionLog) -> Log:
    """Return a log that promises each request's rows on their own, so that one that is given up is withdrawn alone."""

    def log(_: Answer, inputs: npt.NDArray[Any], parts: Sequence[Answer]) -> Sequence[Future[None]]:
        ends = list(accumulate(len(part.ids) for part in parts))
        spans = pairwise([0, *ends])
        return [
            predictions.promise(_batch(part, inputs[start:end]))
            for part, (start, end) in zip(parts, spans, strict=True)
        ]

    return log


def _off(_: PredictionLog) -> Log:
    return lambda *_: None


_LOGS: Final = {"background": _in_background, "sync": _in_sync, "off": _off}


def _batch(answer: Answer, inputs: npt.NDArray[Any]) -> PredictionBatch:
    revision = answer.served.revision
    return PredictionBatch(
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
        input_spec=answer.served.specification,
    )
