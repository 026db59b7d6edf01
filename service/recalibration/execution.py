"""Carry out one recalibration job: the child process, the looks, the proposal, and its activation."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from dataclasses import asdict, fields, replace
from typing import Any

import orjson
import structlog

from candor.contract.certificates import Basis
from candor.contract.traffic import TrafficChange
from service.decisions.approval import doubt, needs_other_key
from service.decisions.multicalibrated import restored
from service.decisions.revision import Revision
from service.decisions.solved import SolvedPolicy
from service.decisions.unattended import Limits
from service.errors import CandorError, EpochStaleError, JobStateError, error_document, error_from_document
from service.recalibration.task import STEPS, RefitRequest, RefitTask, Started, unpacked
from service.serving.child import Child, child
from service.serving.models import Models
from service.serving.proposals import EVERY_ROW_SEEN
from service.serving.replay import replay
from service.settings import Settings
from service.state.database import Database, now_us
from service.state.jobs import Job, JobStore
from service.state.looks import Look, latest, record_look, scopes_of
from service.state.monitors import MonitorStore
from service.state.numbering import number_in
from service.state.pointers import Pointer
from service.state.revisions import RevisionStore

logger = structlog.get_logger(__name__)

# A job is given up after this many starts without an end.
_STARTS = 3
# A process that the service did not kill was most likely killed by the kernel.
_TOO_LITTLE_MEMORY = (
    "It probably ran out of memory: give the service more, recalibrate on a shorter window of feedback, or lower "
    "CANDOR_REFIT_MAX_LABELS."
)


class Execution:
    """Runs a job to its outcome.

    Args:
        settings: Settings of the service.
        database: Open state.
        models: The models to recalibrate.
    """

    def __init__(self, settings: Settings, database: Database, models: Models) -> None:
        self._settings = settings
        self._database = database
        self._store = JobStore(database)
        self._revisions = RevisionStore(database)
        self._models = models

    async def outcome(self, job: Job) -> dict[str, Any] | None:
        """Return a job's outcome as changes of its row; None if it has ended otherwise or must run again."""
        if job.starts > _STARTS:
            return failed(
                CandorError(
                    "The recalibration was given up: the service stopped during every attempt.",
                    found=f"{_STARTS} starts without an end",
                    remedy="Check the service's log and its memory, then start it again.",
                )
            )
        try:
            result = await self._refit(job, RefitRequest(**job.request))
        except JobStateError:  # cancelled, taken over by another replica, or interrupted
            return None
        except CandorError as error:
            return failed(error)
        except Exception as error:
            logger.exception("refit failed", job=job.id, model=job.model)
            return failed(CandorError(f"The recalibration failed: {error}"))
        return None if result is None else {"state": "done", "result": result}

    async def propose(self, job_id: str, *, by: str, by_key: str | None = None) -> Revision:
        """Keep a dry run's result as a proposal, without another look.

        Raises:
            UnknownJobError: The job does not exist.
            JobStateError: It is not a finished dry run, or its base is no longer the active revision.
        """
        job = await asyncio.to_thread(self._store.get, job_id)
        outcome = await asyncio.to_thread(self._store.outcome, job_id)
        if outcome is None or job.result is None:
            raise JobStateError(
                f"Job {job_id} has no result to propose.",
                found=job.state if job.state != "done" else job.request.get("mode"),
                expected="a finished dry run",
            )
        pointer = await asyncio.to_thread(self._revisions.pointer, job.model)
        if pointer is None or (pointer.active, pointer.epoch) != (job.result["base"], job.result["epoch"]):
            raise JobStateError(
                f"The base of job {job_id} is no longer the active revision.",
                found=pointer and f"{pointer.active} at epoch {pointer.epoch}",
                expected=f"{job.result['base']} at epoch {job.result['epoch']}",
                remedy="Recalibrate again; that uses another look.",
            )
        base = await asyncio.to_thread(self._revisions.get, job.model, pointer.active)  # this replica may lag behind
        return await asyncio.to_thread(self._propose_once, job, base, outcome, by, by_key)

    def _propose_once(self, job: Job, base: Revision, outcome: dict[str, Any], by: str, by_key: str | None) -> Revision:
        with self._database.locked(f"jobs/{job.id}/propose"):
            report = {**(job.result or {}), "mode": "propose"}
            kept = self._revisions.of_job(job.model, job.id)
            return kept or self._keep(base, outcome, report, by=by, by_key=by_key)

    def _keep(
        self, base: Revision, outcome: dict[str, Any], report: dict[str, Any], *, by: str, by_key: str | None
    ) -> Revision:
        return self._revisions.propose(
            base,
            calibrator=restored(outcome["calibrator"]),
            policies={key: SolvedPolicy.from_dict(document) for key, document in outcome["policies"].items()},
            cause="recalibrate",
            by=by,
            gate="passed" if report["gate"]["passed"] else "refused",
            report={key: value for key, value in report.items() if key not in ("revision", "state")},
            by_key=by_key,
        )

    async def _refit(self, job: Job, request: RefitRequest) -> dict[str, Any] | None:
        model = self._models.get(job.model)
        # Read in this order, so that a swap in between makes the epoch stale, never the base.
        epoch = model.pointer.epoch
        served = model.served
        if kept := await asyncio.to_thread(self._revisions.of_job, job.model, job.id):
            # The service stopped between the proposal and the end of its job.
            if not await asyncio.to_thread(self._store.begin_end, job):
                return None
            return await self._settle(job, request, kept, kept.report)
        task = RefitTask(
            database_url=self._settings.state_url,
            bundle=str(served.bundle.path),
            model=job.model,
            revision=served.revision.id,
            min_rows=self._settings.refit_min_rows,
            alpha=self._settings.gate_alpha,
            margin=self._settings.gate_margin,
            max_labels=self._settings.refit_max_labels,
            run_timeout_s=self._settings.run_timeout_s,
            request=request,
            limits=limits_of(self._settings).tightened(request.limits),
            read_url=self._settings.read_url,
            kept_us=None if self._settings.retention_days is None else self._settings.retention_days * 86_400e6,
            started=_start_of(job),
            log_sink=self._settings.log_sink if self._settings.refit_from_sink else None,
            ray=self._settings.refit_ray,
        )
        if any(one.policy.lacks_rows_per_day for one in served.policies.values()):
            measured = await asyncio.to_thread(self._models.traffic.rows_per_day, job.model, now_us())
            task = replace(task, rows_per_day=measured)
        outcome = await self._in_child(job, task)
        result: dict[str, Any] = {
            "job": job.id,
            "model": job.model,
            "base": served.revision.id,
            "epoch": epoch,
            "mode": request.mode,
            **outcome["report"],
        }
        if not await asyncio.to_thread(self._store.begin_end, job):
            # Cancelled; or the lock was lost with its connection, and another replica has restarted the job.
            logger.warning("job was cancelled or taken over", job=job.id, model=job.model)
            return None
        if request.mode == "dry_run":
            made = {"calibrator": outcome["calibrator"], "policies": outcome["policies"]}
            await asyncio.to_thread(self._store.update, job.id, outcome=made)
            return {**result, "revision": None, "state": "dry_run"}
        await asyncio.to_thread(self._store.update, job.id, progress="keeping the result", step=STEPS)
        revision = await asyncio.to_thread(self._keep, served.revision, outcome, result, by=job.by, by_key=job.by_key)
        return await self._settle(job, request, revision, result)

    async def _settle(
        self, job: Job, request: RefitRequest, revision: Revision, report: dict[str, Any]
    ) -> dict[str, Any]:
        """Activate a proposal if requested and allowed by the gate; return the job's result."""
        result = {**report, "revision": revision.id}
        if not result["gate"]["passed"]:
            return {**result, "state": "refused"}
        if request.mode == "propose":
            return {**result, "state": "proposed"}
        if not result["gate"]["unattended"]:
            summary = f"{result['summary']} Not activated automatically: {result['gate']['unattended_reason']}"
            return {**result, "state": "proposed", "summary": summary}
        if self._settings.four_eyes and needs_other_key(revision, name=job.by, prefix=job.by_key):
            return {**result, "state": "proposed", "summary": f"{result['summary']} Another key must activate it."}
        pointer = await asyncio.to_thread(self._revisions.pointer, job.model)
        if pointer is None or pointer.active != revision.id:  # else the service stopped after the activation
            try:
                why, change, pointer = await asyncio.to_thread(self._activate, job, revision, report["epoch"])
                if change is not None:
                    result["traffic"] = change.document
                if pointer is None:
                    summary = f"{result['summary']} Not activated automatically: {why}"
                    return {**result, "state": "proposed", "summary": summary}
            except EpochStaleError as error:  # the active revision has changed; a person must judge the proposal
                return {**result, "state": "proposed", "summary": f"{result['summary']} Not activated: {error}"}
        return {**result, "state": "active", "epoch": pointer.epoch}

    def _activate(
        self, job: Job, revision: Revision, epoch: int
    ) -> tuple[str | None, TrafficChange | None, Pointer | None]:
        """Activate a proposal unless a person must judge it; return why, the change of the traffic, and the pointer."""
        before = self._models.get(job.model).served
        alarm_us = MonitorStore(self._database).last_alarm(job.model)  # one may have come while the job ran
        if why := doubt(revision, before.revision, before.policies, rejected=False, alarm_us=alarm_us):
            return why, None, None
        with self._models.prepared(job.model, revision) as after:
            change = replay(self._database, before, after, self._settings.limit_action_change)
            if change.exceeds:
                return " ".join(change.exceeds), change, None
            reason = f"job {job.id}"
            moved = self._models.activate(job.model, revision.id, expected_epoch=epoch, by=job.by, reason=reason)
            return None, change, moved

    async def _in_child(self, job: Job, task: RefitTask) -> dict[str, Any]:
        """Run the recalibration in a child process; both sides send one JSON document per line."""
        try:
            async with (
                asyncio.timeout(self._settings.refit_timeout_s),
                child("service.recalibration.refit_process", self._settings.refit_cpu) as process,
            ):
                return await self._spoken(process, job, task)
        except TimeoutError:
            raise CandorError(
                "The recalibration took too long and was stopped.",
                found=f"more than {self._settings.refit_timeout_s:g} s",
                remedy="Narrow the feedback window, or raise CANDOR_REFIT_TIMEOUT_S. "
                "On a host that is always busy, set CANDOR_REFIT_CPU=low.",
            ) from None

    async def _spoken(self, process: Child, job: Job, task: RefitTask) -> dict[str, Any]:
        """Send a child its task, answer its requests, and return its outcome."""
        complaints = asyncio.create_task(process.stderr.read())
        try:
            await process.write(orjson.dumps(asdict(task)) + b"\n")
            while line := await process.stdout.readline():
                message = orjson.loads(line)
                if "progress" in message:
                    said = {"progress": message["progress"], "step": message.get("step")}
                    await asyncio.to_thread(self._store.update, job.id, **said)
                elif "show" in message:
                    shown = await asyncio.to_thread(self._record_looks, job, task, message["show"])
                    await process.write(orjson.dumps(shown) + b"\n")
                elif "log" in message:
                    getattr(logger, message["level"])(**message["log"])
                elif "error" in message:
                    raise error_from_document(message["error"])
                else:
                    outcome: dict[str, Any] = message["outcome"]
                    return outcome
            await process.wait()
            if process.returncode == -signal.SIGINT:  # Ctrl-C before the process had a group of its own
                raise JobStateError(f"The process of job {job.id} was interrupted.", remedy="It is started again.")
            text = (await complaints).decode(errors="replace").strip().splitlines()
            short = process.returncode == -signal.SIGKILL or any("MemoryError" in line for line in text[-1:])
            raise CandorError(
                "The recalibration's process ended without a result.",
                found=f"exit status {process.returncode}: {text[-1] if text else 'no message'}",
                remedy=_TOO_LITTLE_MEMORY if short else None,
            )
        finally:
            complaints.cancel()

    def _record_looks(self, job: Job, task: RefitTask, show: dict[str, Any]) -> dict[str, Any]:
        """Record the looks before any result is seen; return their numbers."""
        if not self._store.add_looks(job, gate=show["gate"] is not None, policies=show["certify"].keys()):
            raise JobStateError(f"Job {job.id} was cancelled or taken over.", remedy="No look was used.")
        revision = self._revisions.get(task.model, task.revision)
        digest = revision.model_digest
        at = now_us()
        groups = {name: unpacked(of_look) for name, of_look in show["groups"].items()}
        attempt = Look(1, 0)
        if show["gate"] is not None:
            rows: Basis = show["rows"]
            earliest = _earliest(rows, show["gate"])
            attempt = record_look(
                self._database,
                task.model,
                digest,
                rows="gate",
                basis=rows,
                scope="",
                earliest_row_us=earliest,
                at=at,
                groups=groups["gate"],
            )
        looks, together = {}, Counter[tuple[str, str]]()
        for policy, look in show["certify"].items():
            basis = look["basis"]
            found = {
                scope: record_look(
                    self._database,
                    task.model,
                    digest,
                    rows="certify",
                    basis=basis,
                    scope=scope,
                    earliest_row_us=_earliest(basis, look["earliest"]),
                    at=at,
                    groups=groups[look["groups"]],
                    reference=show["reference"] if basis == "reference" else None,
                )
                for scope in scopes_of(revision.policies[policy].policy)
            }
            # All policies are solved before any result is shown, so looks of this recalibration do not count.
            fresh = all(one.number <= 1 + together[basis, scope] for scope, one in found.items())
            looks[policy] = {**latest(found.values())._asdict(), "fresh": fresh}
            together.update((basis, scope) for scope in found)
        return {"attempt": attempt.number, "ordinal": attempt.ordinal, "looks": looks}


def _earliest(basis: Basis, labelled_us: int) -> int:
    """Return the earliest row time of a look; uploaded rows count as of any age, because their times are unproven."""
    return labelled_us if basis == "traffic" else EVERY_ROW_SEEN


def limits_of(settings: Settings) -> Limits:
    """Return the operator's limits on changes."""
    return Limits(**{entry.name: getattr(settings, f"limit_{entry.name}") for entry in fields(Limits)})


def failed(error: CandorError) -> dict[str, Any]:
    """Return the changes of a failed job's row."""
    return {"state": "failed", "error": error_document(error)}


def _start_of(job: Job) -> Started | None:
    number = number_in("j", job.id)
    if number is None or job.started_at is None:
        return None
    return Started(number, job.created_at, job.starts, job.started_at)
