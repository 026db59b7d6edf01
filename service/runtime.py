"""The parts of the service that live as long as the process."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise, product
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

import numpy.typing as npt

from service.cases.counts import CaseCounts
from service.cases.webhooks import OUTCOMES, Webhooks
from service.inference.statistics import Statistics
from service.monitoring.audit_export import OUTCOMES as EXPORT_OUTCOMES
from service.monitoring.audit_export import AuditExport
from service.monitoring.drift import Drift, DriftTests
from service.monitoring.thread import Monitors, Status
from service.monitoring.upstreams import UpstreamChecks
from service.others import CONDITION, FLUSH, JOBS, METRICS, STATISTICS, Handlers, Others
from service.recalibration.jobs import Jobs
from service.serving.challengers import RESULTS, Challengers
from service.serving.labels import LabelsPlane
from service.serving.logged import logged_rows
from service.serving.model import Model
from service.serving.models import Models
from service.serving.plane import Answer, Log, Plane, Served
from service.settings import Settings
from service.state.access_record import AccessRecord
from service.state.cases import CaseStore, Counts
from service.state.challengers import ChallengerStore
from service.state.database import Database, now_us
from service.state.feedback import FeedbackStore
from service.state.labelled_sets import LabelledSetStore
from service.state.log_sink import LogSink
from service.state.monitors import CALIBRATIONS
from service.state.notices import Notices
from service.state.predictions import PredictionLog
from service.state.quotas import Quota
from service.state.retention import Retention
from service.state.revisions import RevisionStore
from service.sums import Snapshot, together
from service.telemetry.inference_counts import inference_counts, statistics_in
from service.telemetry.label_counts import LabelCounts
from service.telemetry.metrics import Gauge, Metrics
from service.telemetry.run_metrics import RunMetrics
from service.telemetry.tracing import Tracing
from service.telemetry.triton_metrics import TritonMetrics
from service.version import VERSION

if TYPE_CHECKING:
    from service.inference.remote import Remote

_FLUSH_S = 10.0
_FREE: Final = "Free disk space of the state."
LOG_INTERVAL_S, LONGEST_LOG_INTERVAL_S = 0.05, 0.5  # longest wait of a prediction for others to share its commit


@dataclass(frozen=True, slots=True, eq=False)
class Runtime:
    """The parts of a running service."""

    settings: Settings
    database: Database
    notices: Notices
    log: PredictionLog
    models: Models
    challengers: ChallengerStore
    beside: Challengers
    jobs: Jobs
    monitors: Monitors
    drift: DriftTests
    upstreams: UpstreamChecks
    revisions: RevisionStore
    feedback: FeedbackStore
    changes: Quota
    retention: Retention
    log_sink: LogSink
    labels: LabelCounts
    cases: CaseStore
    case_counts: CaseCounts
    webhooks: Webhooks
    audit_export: AuditExport
    access_record: AccessRecord
    labelled_sets: LabelledSetStore
    metrics: Metrics
    tracing: Tracing | None
    others: Others

    @classmethod
    def open(cls, settings: Settings, others: Others) -> Self:
        """Open the state and load every model.

        Args:
            settings: Settings of the process.
            others: The processes of the service.

        Raises:
            CandorError: The service cannot start; nothing stays open.
        """
        settings.check_folders()
        tracing = Tracing(settings.otlp_endpoint, settings.trace_share) if settings.otlp_endpoint else None
        database = Database.open(
            settings.state_url, lock_is_held=others.supervised, schema_of_another=not settings.background
        )
        try:
            notices = Notices(database, settings.direct_url, others)
            log = PredictionLog(
                database,
                capacity=settings.log_capacity,
                # In sync mode a request waits for its commit, so it starts at once; later ones share the next commit.
                commit_interval_s=0.0 if settings.log_mode == "sync" else _log_interval_s(others.processes),
                sample=settings.log_sample,
                keep_inputs=settings.keep_inputs,
            )
            metrics = Metrics()
            models = Models(settings, database, _LOGS[settings.log_mode](log), others)
            cases = CaseStore(database)
            challengers = ChallengerStore(database)
            beside = Challengers(
                models, challengers, max_batch_size=settings.max_batch_size, deadline_s=settings.deadline_s
            )
            log.then(beside.offer)
            runtime = cls(
                settings=settings,
                database=database,
                notices=notices,
                log=log,
                models=models,
                challengers=challengers,
                beside=beside,
                jobs=Jobs(settings, database, models, metrics, others, tracing),
                monitors=Monitors(settings, database, models),
                drift=DriftTests(settings, database, models),
                upstreams=UpstreamChecks(settings, database, models),
                revisions=RevisionStore(database),
                feedback=FeedbackStore(
                    database, Quota("labels", settings.key_labels_per_day, "CANDOR_KEY_LABELS_PER_DAY")
                ),
                changes=Quota("changes", settings.key_changes_per_day, "CANDOR_KEY_CHANGES_PER_DAY"),
                retention=Retention(database, days=settings.retention_days, inputs_days=settings.inputs_days),
                log_sink=LogSink(database, settings.log_sink, settings.uploads),
                labels=LabelCounts(database, models, metrics),
                cases=cases,
                case_counts=CaseCounts(cases),
                webhooks=Webhooks(settings, database, cases, models),
                audit_export=AuditExport(settings, database),
                access_record=AccessRecord(database),
                labelled_sets=LabelledSetStore(
                    database,
                    max_sets=settings.max_labelled_sets_per_key,
                    max_bytes=settings.max_labelled_bytes_per_key,
                ),
                metrics=metrics,
                tracing=tracing,
                others=others,
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
        if settings.triton_metrics:
            metrics.registry.register(TritonMetrics(runtime.planes))
        return runtime

    def close(self) -> None:
        """Finish and write waiting work, then close the state."""
        self.webhooks.close()
        self.audit_export.close()
        self.monitors.close()
        self.drift.close()
        self.upstreams.close()
        self.labels.close()
        self.models.close()
        self.retention.close()
        self.log_sink.close()
        self.log.close()
        self.beside.close()
        self.access_record.close()  # after what writes more important things
        self.database.close()
        if self.tracing is not None:
            self.tracing.close()

    def all_metrics(self) -> Snapshot:
        """Return the metrics of all processes of the service; not on the event loop, since it takes milliseconds."""
        return together(self.others.ask(METRICS))

    async def statistics(self) -> dict[tuple[str, str], Statistics]:
        """Return the statistics of all processes of the service by model and revision."""
        return statistics_in(together(await self.others.gather(STATISTICS)))

    def answers(self) -> Handlers:
        """Return what this process answers to the others of its service."""
        return {
            JOBS: self.jobs.look,
            FLUSH: lambda: self.log.flush(_FLUSH_S),
            METRICS: self.metrics.snapshot,
            STATISTICS: lambda: inference_counts(self.planes()),
            CONDITION: self.models.condition,
        }

    def planes(self) -> Iterable[tuple[str, Plane | LabelsPlane]]:
        """Return the names and planes of all models, multi-label models last."""
        yield from ((model.name, model.plane) for model in self.models.all())
        yield from ((several.name, several.plane) for several in self.models.multilabels.all())

    def gauges(self) -> Iterable[Gauge]:
        """Yield the live values of /metrics as (name, help, labels, value)."""
        settings = self.settings
        yield "candor_build_info", "The running version.", {"version": VERSION}, 1
        text = "Whether it runs recalibrations, monitors and retention: 1, else 0."
        yield "candor_background", text, {}, self.others.leader
        yield "candor_ready", "Whether every model serves its active revision.", {}, not self.models.problems()
        yield "candor_deadline_seconds", "Queueing deadline of a prediction.", {}, settings.deadline_s
        yield "candor_queue_capacity_rows", "Maximum queued rows of a model.", {}, settings.max_queued_rows
        yield "candor_log_capacity_rows", "Maximum predictions queued for the log.", {}, settings.log_capacity
        if settings.bundle_reference.is_url:
            listed = self.models.bundles_problem is None
            yield (
                "candor_bundles_listed",
                "Whether the remote folder of bundles could be listed: 1, else 0.",
                {},
                listed,
            )
        if (disk := self.database.disk()) is not None:
            yield "candor_state_bytes", "Size of the state's files (SQLite).", {}, disk.used
            yield "candor_state_free_bytes", _FREE, {}, disk.free
        elif settings.state_disk is not None:
            yield "candor_state_free_bytes", _FREE, {}, shutil.disk_usage(settings.state_disk).free
        for url, outcome in product(self.audit_export.targets, EXPORT_OUTCOMES):
            target = {"target": urlsplit(url).scheme, "outcome": outcome}
            text = "Exports of the audit log's head by this process, by outcome."
            yield "candor_audit_exports_total", text, target, self.audit_export.counts[url, outcome]
        yield "candor_log_depth", "Predictions queued for the log.", {}, self.log.depth
        yield "candor_log_written_total", "Predictions written to the log since the start.", {}, self.log.written
        yield "candor_log_dropped_total", "Predictions dropped by a full queue since the start.", {}, self.log.dropped
        yield "candor_log_left_out_total", "Predictions left out by sampling since the start.", {}, self.log.left_out
        for kind, rows in asdict(self.retention.deleted).items():
            yield "candor_pruned_rows_total", "Rows deleted by retention since the start.", {"kind": kind}, rows
        if self.log_sink.through_us is not None:
            yield (
                "candor_log_sink_written_total",
                "Rows written to the log sink since the start.",
                {},
                self.log_sink.written,
            )
            text = "End of the last hour that is in the log sink, in seconds since the epoch."
            yield "candor_log_sink_through_seconds", text, {}, self.log_sink.through_us / 1e6
        if self.notices.arrive is not None and self.others.first:
            text = "Whether changes of the state arrive by notice (PostgreSQL): 1, else 0 and by polling only."
            yield "candor_state_notices", text, {}, self.notices.arrive
        yield "candor_state_stale_seconds", "Seconds since the last database contact.", {}, self.models.stale_for_s
        yield "candor_challenger_queue_rows", "Rows queued for challengers.", {}, self.beside.depth
        for model in self.models.all():
            yield from self._of_model(model)

    def _of_model(self, model: Model) -> Iterable[Gauge]:
        """Yield the live values of one model."""
        for one in model.beside:
            for result in RESULTS:
                named = {"model": model.name, "challenger": one.challenger.name, "result": result}
                text = "Sampled rows for a challenger of another bundle since the start."
                rows = self.beside.counts[model.name, one.challenger.name, result]
                yield "candor_challenger_rows_total", text, named, rows
        if model.desired.loaded:
            ready = model.plane.served is not None and model.problem is None
            yield "candor_model_ready", "Whether a model serves its active revision.", {"model": model.name}, ready
        refused = model.refused_bundles
        yield "candor_bundles_refused", "Bundles refused at the last attempt.", {"model": model.name}, refused
        yield "candor_queue_rows", "Rows queued for the session.", {"model": model.name}, model.plane.queued_rows
        yield "candor_epoch", "Epoch of the active pointer.", {"model": model.name}, model.pointer.epoch
        if (remote := model.remote) is not None:
            yield from _upstream(model.name, remote)
        if model.plane.served is not None:
            active = {"model": model.name, "revision": model.plane.served.revision.id}
            yield "candor_revision_info", "The active revision.", active, 1
            yield from _certificates(model.name, model.plane.served)
            yield from _cases(model.name, self.case_counts.of(model.name))
            for outcome in OUTCOMES if self.settings.webhook_url is not None else ():
                of_outcome = {"model": model.name, "outcome": outcome}
                text = "Deliveries of cases to the webhook by this process, by outcome."
                yield "candor_webhook_deliveries_total", text, of_outcome, self.webhooks.counts[model.name, outcome]
            if (status := self.monitors.seen(model.name)) is not None:
                yield from _monitoring(model.name, status)
            if (drift := self.drift.seen(model.name)) is not None:
                yield from _drift(model.name, drift)


def _log_interval_s(processes: int) -> float:
    """Return the interval at which all processes together commit as often as one: commits cost more than rows."""
    return min(LOG_INTERVAL_S * processes, LONGEST_LOG_INTERVAL_S)


def _upstream(model: str, remote: Remote) -> Iterable[Gauge]:
    """Yield whether a model on another server has changed, and its requests without a usable answer."""
    changed = remote.changed is not None
    text = "Whether a model on another server differs from its bundle: 1, else 0."
    yield "candor_upstream_changed", text, {"model": model}, changed
    for reason, count in remote.failures.items():
        text = "Requests to a model's server without a usable answer since the start."
        yield "candor_upstream_failures_total", text, {"model": model, "reason": reason}, count


def _certificates(model: str, served: Served) -> Iterable[Gauge]:
    """Yield whether each certificate of the active policies is valid."""
    for policy, solved in served.policies.items():
        for value, part in [*solved.parts.items()] or [("", solved)]:
            for band in part.bands:
                if band.certificate is not None:
                    labels = {"model": model, "policy": policy, "action": band.action, "segment": value}
                    text = "Whether a certificate of the active revision is valid: 1, else 0."
                    yield "candor_certificate_valid", text, labels, band.certificate.valid


def _cases(model: str, counts: Counts) -> Iterable[Gauge]:
    """Yield the review queue."""
    of_model = {"model": model}
    yield "candor_cases_waiting", "Cases that are neither labelled nor skipped.", of_model, counts.waiting
    yield "candor_cases_claimed", "Waiting cases that someone has claimed.", of_model, counts.claimed
    yield "candor_cases_overdue", "Waiting cases past their due time.", of_model, counts.overdue
    age_s = 0.0 if counts.oldest_at is None else max(0.0, (now_us() - counts.oldest_at) / 1e6)
    yield "candor_cases_oldest_seconds", "Age of the oldest waiting case; 0 without one.", of_model, age_s


def _monitoring(model: str, status: Status) -> Iterable[Gauge]:
    """Yield the monitors' evidence, the calibration alarm and the latest estimates."""
    of_model = {"model": model}
    for monitor in status.monitors:
        if monitor.ended_at is not None or monitor.kind == "challenger":
            continue
        named, fired = {"model": model, "monitor": monitor.name}, monitor.fired_at is not None
        yield "candor_monitor_evidence", "Evidence of a monitor, natural logarithm.", named, monitor.evidence
        if monitor.kind == "calibration":
            yield "candor_calibration_alarm", "Whether the calibration alarm has fired: 1, else 0.", of_model, fired
        elif monitor.kind in CALIBRATIONS:
            yield "candor_class_calibration_alarm", "The same of a class, or of a segment.", named, fired
    if status.estimates is None:
        return
    labelled, recent = status.estimates.document["labelled"], status.estimates.document["recent"]
    for label, rate in labelled["base_rate"].items():
        yield "candor_base_rate", "Estimated frequency of a label.", {"model": model, "label": label}, rate["value"]
    if labelled["accuracy"] is not None:
        yield "candor_labelled_accuracy", "Accuracy on labelled rows.", of_model, labelled["accuracy"]["value"]
        value = labelled["mean_confidence"]["value"]
        yield "candor_mean_confidence", "Mean confidence on the same labelled rows.", of_model, value
    if recent["estimated_accuracy"] is not None:
        value = recent["estimated_accuracy"]["value"]
        text = "Mean confidence of all recent rows; equals the accuracy of a calibrated model."
        yield "candor_estimated_accuracy", text, of_model, value


def _drift(model: str, drift: Drift) -> Iterable[Gauge]:
    """Yield the stability index and the alarm of the columns that are shown."""
    for column in drift.shown():
        named = {"model": model, "column": column.name}
        if column.psi is not None:
            yield "candor_column_psi", "Population stability index of a column.", named, column.psi
        yield "candor_column_drift_alarm", "Whether a column's drift alarm is on: 1, else 0.", named, column.alarm


def _in_background(predictions: PredictionLog) -> Log:
    """Return a log that queues a batch without waiting."""

    def log(answer: Answer, inputs: npt.NDArray[Any], _: Sequence[Answer]) -> None:
        predictions.append(logged_rows(answer, inputs, now_us()))

    return log


def _in_sync(predictions: PredictionLog) -> Log:
    """Return a log with one future per request, so that an abandoned request is withdrawn alone."""

    def log(_: Answer, inputs: npt.NDArray[Any], parts: Sequence[Answer]) -> Sequence[Future[None]]:
        ends = list(accumulate(len(part.ids) for part in parts))
        spans = pairwise([0, *ends])
        return [
            predictions.promise(logged_rows(part, inputs[start:end], now_us()))
            for part, (start, end) in zip(parts, spans, strict=True)
        ]

    return log


def _off(_: PredictionLog) -> Log:
    return lambda *_: None


_LOGS: Final = {"background": _in_background, "sync": _in_sync, "off": _off}
