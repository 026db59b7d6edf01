"""Refit jobs: each runs in a child process of low priority, one at a time for each model, and survives a restart.

The child computes and writes nothing; this process records what the child is about to look at, keeps its result as a
proposal, and activates it where that was asked for and the gate lets it through. A job that a stop or a crash
interrupted is therefore simply run again, by whichever replica comes first; a lock in the state keeps the others off.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from dataclasses import asdict, fields
from functools import partial
from typing import Any

import orjson
import structlog

from service.child import child
from service.decisions.unattended import Limits
from service.errors import (
    CandorError,
    EpochStaleError,
    JobStateError,
    OverloadedError,
    StateUnavailableError,
    error_document,
    error_from_document,
)
from service.metrics import Metrics
from service.models import Models
from service.proposals import EVERY_ROW_SEEN
from service.refit import STEPS, RefitRequest, RefitTask
from service.revision import Basis, Revision
from service.settings import Settings
from service.state.database import Database, now_us
from service.state.jobs import UNFINISHED, Job, JobStore
from service.state.revisions import RevisionStore
from service.tracing import Tracing

logger = structlog.get_logger(__name__)

# A job that was started so often and never ended is not started again.
_STARTS = 3
# Refits of different models at once, in one process: each takes hundreds of megabytes.
_AT_ONCE = 2
_MOST_WAITING = 200
# What kills a process that its service did not kill is mostly the kernel.
_TOO_LITTLE_MEMORY = (
    "It probably had too little memory: give the service more, refit on a shorter window of feedback, or lower "
    "CANDOR_REFIT_MAX_LABELS."
)
# How long the database is given before a job's end is written once more.
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.1, 30.0


class Jobs:
    """Starts, follows and finishes refit jobs.

    Args:
        settings: Settings of the service.
        database: Open state.
        models: The models that are refitted.
        metrics: Where outcomes are counted.
        tracing: Where spans are made, None without.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        models: Models,
        metrics: Metrics,
        tracing: Tracing | None = None,
    ) -> None:
        self._settings = settings
        self._database = database
        self._store = JobStore(database)
        self._revisions = RevisionStore(database)
        self._models = models
        self._metrics = metrics
        self._tracing = tracing
        self._running: dict[str, asyncio.Task[None]] = {}
        self._one_at_a_time: dict[str, asyncio.Lock] = {}
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._watch: asyncio.Task[None] | None = None

    async def resume(self) -> None:
        """Start what a stop interrupted, and from now on also what another replica leaves behind."""
        await self._take_up()
        self._watch = asyncio.create_task(self._take_up_for_ever(), name="unfinished jobs")

    async def submit(self, model: str, request: RefitRequest, *, by: str, by_key: str | None = None) -> Job:
        """Queue a refit of `model` and return its job; `by_key` is the prefix of the API key that asks.

        Raises:
            OverloadedError: Too many jobs wait already.
        """
        if len(self._running) >= _MOST_WAITING:
            raise OverloadedError(
                "Too many refits wait.",
                found=f"{len(self._running)} jobs that have not ended",
                expected=f"fewer than {_MOST_WAITING}",
                remedy="Wait for them, or cancel some: DELETE /v1/jobs/{job}.",
            )
        job = await asyncio.to_thread(self._store.create, model, "recalibrate", asdict(request), by, by_key)
        self._start(job)
        return job

    async def get(self, job_id: str) -> Job:
        """Return a job.

        Raises:
            UnknownJobError: There is none of that id.
        """
        return await asyncio.to_thread(self._store.get, job_id)

    async def page(self, **wanted: Any) -> tuple[Job, ...]:
        """Return jobs, newest first; the arguments are those of `JobStore.page`."""
        return await asyncio.to_thread(partial(self._store.page, **wanted))

    async def cancel(self, job_id: str, *, by: str) -> Job:
        """End a job that is queued or running: at once where it runs here, within a poll where another replica does.

        Raises:
            UnknownJobError: There is none of that id.
            JobStateError: It has ended, or its result is being kept already.
        """
        job = await asyncio.to_thread(self._store.cancel, job_id, by=by)
        self._stop(job_id)
        self._metrics.recalibrations.add(job.model, "cancelled")
        return job

    async def propose(self, job_id: str, *, by: str, by_key: str | None = None) -> Revision:
        """Keep what a dry run has found as a proposal: it was tested, and a second test would cost another look.

        Raises:
            UnknownJobError: There is none of that id.
            JobStateError: It is no dry run that is done, or the revision that it started from is no longer in service.
        """
        job = await self.get(job_id)
        outcome = await asyncio.to_thread(self._store.outcome, job_id)
        if outcome is None or job.result is None:
            raise JobStateError(
                f"Job {job_id} has nothing that could be proposed.",
                found=job.state if job.state != "done" else job.request.get("mode"),
                expected="a dry run that is done",
            )
        pointer = await asyncio.to_thread(self._revisions.pointer, job.model)
        if pointer is None or (pointer.active, pointer.epoch) != (job.result["base"], job.result["epoch"]):
            raise JobStateError(
                f"What job {job_id} compared with is no longer in service.",
                found=pointer and f"{pointer.active} at epoch {pointer.epoch}",
                expected=f"{job.result['base']} at epoch {job.result['epoch']}",
                remedy="Refit again; that is another look.",
            )
        base = await asyncio.to_thread(self._revisions.get, job.model, pointer.active)  # this replica may lag behind
        return await asyncio.to_thread(self._propose_once, job, base, outcome, by, by_key)

    def _propose_once(self, job: Job, base: Revision, outcome: dict[str, Any], by: str, by_key: str | None) -> Revision:
        with self._database.locked(f"jobs/{job.id}/propose"):
            report = {**(job.result or {}), "mode": "propose"}
            kept = self._revisions.of_job(job.model, job.id)
            return kept or self._keep(job, base, outcome, report, by=by, by_key=by_key)

    def _keep(
        self,
        job: Job,
        base: Revision,
        outcome: dict[str, Any],
        report: dict[str, Any],
        *,
        by: str,
        by_key: str | None,
    ) -> Revision:
        return self._revisions.propose(
            model=job.model,
            bundle_id=base.bundle_id,
            bundle_version=base.bundle_version,
            model_digest=base.model_digest,
            calibrator=outcome["calibrator"],
            policies=outcome["policies"],
            parent=base.id,
            cause="recalibrate",
            by=by,
            gate="passed" if report["gate"]["passed"] else "refused",
            created_at=now_us(),
            report={key: value for key, value in report.items() if key not in ("revision", "state")},
            by_key=by_key,
        )

    async def wait(self, job_id: str, seconds: float) -> Job:
        """Return a job when it is finished, or as it is after `seconds`."""
        task = self._running.get(job_id)
        if task is not None:
            await asyncio.wait((task,), timeout=seconds)
        return await self.get(job_id)

    async def close(self) -> None:
        """Stop what runs and put it back into the queue."""
        tasks = [*self._running.values(), *([self._watch] if self._watch else [])]
        for task in tasks:
            if not task.cancelling():
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_up_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.poll_interval_s)
            try:
                await self._take_up()
                await self._stop_cancelled()
            except StateUnavailableError as error:
                logger.warning("state unavailable", error=str(error))
            except Exception:
                logger.exception("looking for unfinished jobs failed")

    async def _take_up(self) -> None:
        """Start every unfinished job whose model is in service here; its lock keeps all replicas but one off it."""
        served = {model.name for model in self._models.all() if model.plane.served is not None}
        for job in await asyncio.to_thread(self._store.unfinished):
            if job.model in served:
                self._start(job)

    async def _stop_cancelled(self) -> None:
        """Stop what somebody has cancelled on another replica."""
        if self._running:
            for job_id in await asyncio.to_thread(self._store.cancelled, list(self._running)):
                self._stop(job_id)

    def _stop(self, job_id: str) -> None:
        """Stop a job that runs here; once, since a second time would cut its clearing up short."""
        task = self._running.get(job_id)
        if task is not None and not task.cancelling():
            task.cancel()

    def _start(self, job: Job) -> None:
        if job.id in self._running:
            return
        task = asyncio.create_task(self._execute(job), name=f"refit {job.id}")
        self._running[job.id] = task
        task.add_done_callback(lambda ended: self._ended(job.id, ended))

    def _ended(self, job_id: str, task: asyncio.Task[None]) -> None:
        del self._running[job_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("job left unfinished, to be taken up again", job=job_id, error=repr(error))

    async def _execute(self, job: Job) -> None:
        """Run a job when its turn comes, unless somebody else has ended it by then."""
        structlog.contextvars.bind_contextvars(job=job.id)
        async with self._one_at_a_time.setdefault(job.model, asyncio.Lock()), self._room, self._turn(job.model):
            job = await asyncio.to_thread(self._store.start, job.id)
            if job.state not in UNFINISHED:
                return
            began = time.monotonic()
            try:
                with self._traced(job):
                    change = await self._outcome(job)
            except asyncio.CancelledError:
                await asyncio.to_thread(self._store.put_back, job)
                raise
            if change is None:
                return
            outcome = str(change["result"]["state"]) if "result" in change else "failed"
            await self._end(job, change)
            self._metrics.recalibrations.add(job.model, outcome)
            seconds = time.monotonic() - began
            self._metrics.refitted(job.model, seconds)
            logger.info("refit ended", job=job.id, model=job.model, outcome=outcome, duration_s=round(seconds, 3))
            if "result" in change:
                passed = change["result"]["gate"]["passed"]
                self._metrics.gate.add(job.model, "passed" if passed else "refused")

    def _traced(self, job: Job) -> contextlib.AbstractContextManager[object]:
        if self._tracing is None:
            return contextlib.nullcontext()
        return self._tracing.job("refit", {"job": job.id, "model": job.model})

    @contextlib.asynccontextmanager
    async def _turn(self, model: str) -> AsyncIterator[None]:
        """Wait until no replica runs a job of the model, and let none do so meanwhile."""
        while True:
            stack = contextlib.ExitStack()
            lock = self._database.try_lock(f"jobs/{model}")
            entering = asyncio.create_task(asyncio.to_thread(stack.enter_context, lock))
            try:
                if await asyncio.shield(entering):
                    yield
                    return
            finally:
                await asyncio.wait((entering,))  # whatever came in between, a lock that is taken is given back
                await asyncio.to_thread(stack.close)
            await asyncio.sleep(self._settings.poll_interval_s)

    async def _outcome(self, job: Job) -> dict[str, Any] | None:
        """Return how the job ended, as a change of its row; None when another replica has taken it over."""
        if job.starts > _STARTS:
            return _failed(
                CandorError(
                    "The refit was given up: each time that it ran, the service stopped before its end.",
                    found=f"{_STARTS} starts without an end",
                    remedy="Look into the service's log, and for a lack of memory, then ask for it again.",
                )
            )
        try:
            result = await self._refit(job, RefitRequest(**job.request))
        except JobStateError:  # it was cancelled, or another replica has taken it over
            return None
        except CandorError as error:
            return _failed(error)
        except Exception as error:
            logger.exception("refit failed", job=job.id, model=job.model)
            return _failed(CandorError(f"The refit failed: {error}"))
        return None if result is None else {"state": "done", "result": result}

    async def _end(self, job: Job, change: dict[str, Any]) -> None:
        """Write down how a job ended, however long the database takes to answer again."""
        delay_s = _FIRST_RETRY_S
        while True:
            try:
                await asyncio.to_thread(self._store.update, job.id, **change)
            except StateUnavailableError as error:
                logger.warning("end of job not written yet", job=job.id, state=change["state"], error=str(error))
            except Exception as error:
                if change["state"] == "failed":
                    raise
                logger.exception("result of job cannot be stored", job=job.id)
                change = _failed(CandorError(f"The refit's result cannot be stored: {error}"))
            else:
                return
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _LONGEST_RETRY_S)

    async def _refit(self, job: Job, request: RefitRequest) -> dict[str, Any] | None:
        model = self._models.get(job.model)
        # In this order: a swap in between then makes the epoch stale, never the base.
        epoch = model.pointer.epoch
        served = model.served
        if kept := await asyncio.to_thread(self._revisions.of_job, job.model, job.id):
            # A stop came between the proposal and its job's end.
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
            request=request,
            limits=limits_of(self._settings).tightened(request.limits),
        )
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
            # Cancelled; or the lock went with its connection, and another replica has started the job anew.
            logger.warning("job was cancelled or taken over", job=job.id, model=job.model)
            return None
        if request.mode == "dry_run":
            made = {"calibrator": outcome["calibrator"], "policies": outcome["policies"]}
            await asyncio.to_thread(self._store.update, job.id, outcome=made)
            return {**result, "revision": None, "state": "dry_run"}
        await asyncio.to_thread(self._store.update, job.id, progress="keeping the result", step=STEPS)
        revision = await asyncio.to_thread(
            self._keep, job, served.revision, outcome, result, by=job.by, by_key=job.by_key
        )
        return await self._settle(job, request, revision, result)

    async def _settle(
        self, job: Job, request: RefitRequest, revision: Revision, report: dict[str, Any]
    ) -> dict[str, Any]:
        """Activate a proposal where that was asked for and the gate let it through; return the job's result."""
        result = {**report, "revision": revision.id}
        if not result["gate"]["passed"]:
            return {**result, "state": "refused"}
        if request.mode == "propose":
            return {**result, "state": "proposed"}
        if not result["gate"]["unattended"]:
            summary = f"{result['summary']} Not activated unattended: {result['gate']['unattended_reason']}"
            return {**result, "state": "proposed", "summary": summary}
        if self._settings.four_eyes:
            return {**result, "state": "proposed", "summary": f"{result['summary']} Another key must activate it."}
        pointer = await asyncio.to_thread(self._revisions.pointer, job.model)
        if pointer is None or pointer.active != revision.id:  # else a stop came between activation and the job's end
            try:
                pointer = await asyncio.to_thread(
                    self._models.activate,
                    job.model,
                    revision.id,
                    expected_epoch=report["epoch"],
                    by=job.by,
                    reason=f"job {job.id}",
                )
            except EpochStaleError as error:  # somebody was faster; the refit is kept for a person to judge
                return {**result, "state": "proposed", "summary": f"{result['summary']} Not activated: {error}"}
        return {**result, "state": "active", "epoch": pointer.epoch}

    async def _in_child(self, job: Job, task: RefitTask) -> dict[str, Any]:
        """Run the refit in a child and speak with it, one JSON document a line each way."""
        try:
            async with (
                asyncio.timeout(self._settings.refit_timeout_s),
                child("service.refit", self._settings.child_priority) as process,
            ):
                return await self._spoken(process, job, task)
        except TimeoutError:
            raise CandorError(
                "The refit took too long and was stopped.",
                found=f"more than {self._settings.refit_timeout_s:g} s",
                remedy="Narrow the feedback window, or raise CANDOR_REFIT_TIMEOUT_S; on a host that is always busy, "
                "set CANDOR_CHILD_PRIORITY=low.",
            ) from None

    async def _spoken(self, process: Process, job: Job, task: RefitTask) -> dict[str, Any]:
        """Give a child its task, answer what it asks, and return its outcome."""
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin is not None and stdout is not None and stderr is not None  # noqa: S101, PT018 — there are pipes
        complaints = asyncio.create_task(stderr.read())
        try:
            stdin.write(orjson.dumps(asdict(task)) + b"\n")
            while line := await stdout.readline():
                message = orjson.loads(line)
                if "progress" in message:
                    said = {"progress": message["progress"], "step": message.get("step")}
                    await asyncio.to_thread(self._store.update, job.id, **said)
                elif "show" in message:
                    shown = await asyncio.to_thread(self._record_looks, job, task, message["show"])
                    stdin.write(orjson.dumps(shown) + b"\n")
                elif "error" in message:
                    raise error_from_document(message["error"])
                else:
                    outcome: dict[str, Any] = message["outcome"]
                    return outcome
            await process.wait()
            text = (await complaints).decode(errors="replace").strip().splitlines()
            short = process.returncode == -signal.SIGKILL or any("MemoryError" in line for line in text[-1:])
            raise CandorError(
                "The refit's process ended without a result.",
                found=f"exit status {process.returncode}: {text[-1] if text else 'no message'}",
                remedy=_TOO_LITTLE_MEMORY if short else None,
            )
        finally:
            complaints.cancel()

    def _record_looks(self, job: Job, task: RefitTask, show: dict[str, Any]) -> dict[str, Any]:
        """Record, before any result is seen, which rows are about to be looked at; return the look numbers."""
        if not self._store.add_looks(job, gate=show["gate"] is not None, policies=show["certify"].keys()):
            raise JobStateError(f"Job {job.id} was cancelled or taken over.", remedy="Nothing was looked at.")
        revision = self._revisions.get(task.model, task.revision)
        digest = revision.model_digest
        at = now_us()
        attempt = 1
        if show["gate"] is not None:
            rows: Basis = show["rows"]
            earliest = _earliest(rows, show["gate"])
            attempt = self._revisions.expose(
                task.model, digest, rows="gate", basis=rows, scope="", earliest_row_us=earliest, at=at
            )
        looks = {
            policy: self._revisions.expose(
                task.model,
                digest,
                rows="certify",
                basis=look["basis"],
                scope=revision.policies[policy]["policy"]["positive"],
                earliest_row_us=_earliest(look["basis"], look["earliest"]),
                at=at,
            )
            for policy, look in show["certify"].items()
        }
        return {"attempt": attempt, "looks": looks}


def _earliest(basis: Basis, labelled_us: int) -> int:
    """Return since when rows may have been shown; the age of uploaded ones is hearsay, and every look at any counts."""
    return labelled_us if basis == "traffic" else EVERY_ROW_SEEN


def limits_of(settings: Settings) -> Limits:
    """Return what the operator allows a refit to change."""
    return Limits(**{entry.name: getattr(settings, f"limit_{entry.name}") for entry in fields(Limits)})


def _failed(error: CandorError) -> dict[str, Any]:
    return {"state": "failed", "error": error_document(error)}
