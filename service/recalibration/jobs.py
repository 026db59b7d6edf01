"""Recalibration jobs: each runs in a child process of low priority, one per model at a time, and survives a restart.

The child only computes; this process records the looks, keeps the result as a proposal, and activates it if requested
and allowed by the gate. So an interrupted job can run again on any replica; a lock in the state admits one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from functools import partial
from typing import Any

import structlog

from service.decisions.revision import Revision
from service.errors import CandorError, OverloadedError, StateUnavailableError
from service.others import ANSWERED_WITHIN_S, JOBS, Others
from service.recalibration.execution import Execution, failed
from service.recalibration.task import RefitRequest
from service.serving.models import Models
from service.settings import Settings
from service.state.database import Database
from service.state.jobs import UNFINISHED, Job, JobStore
from service.telemetry.metrics import Metrics
from service.telemetry.tracing import Tracing

logger = structlog.get_logger(__name__)

# Maximum concurrent recalibrations of a process: each needs hundreds of megabytes.
_AT_ONCE = 2
_MOST_WAITING = 200
# Pause before the next attempt to write a job's end.
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.1, 30.0


class Jobs:
    """Starts, follows and finishes recalibration jobs.

    Args:
        settings: Settings of the service.
        database: Open state.
        models: The models to recalibrate.
        metrics: Counts the outcomes.
        others: Processes of the service, of which the leader runs the jobs.
        tracing: Makes spans; None without traces.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        models: Models,
        metrics: Metrics,
        others: Others,
        tracing: Tracing | None = None,
    ) -> None:
        self._settings = settings
        self._database = database
        self._store = JobStore(database)
        self._execution = Execution(settings, database, models)
        self._models = models
        self._metrics = metrics
        self._others = others
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tracing = tracing
        self._running: dict[str, asyncio.Task[None]] = {}
        self._one_at_a_time: dict[str, asyncio.Lock] = {}
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._watch: asyncio.Task[None] | None = None

    async def resume(self) -> None:
        """Resume interrupted jobs, now and whenever another replica leaves one; only the leader runs jobs."""
        if not self._others.leader:
            return
        self._loop = asyncio.get_running_loop()
        await self._take_up()
        self._watch = asyncio.create_task(self._take_up_for_ever(), name="unfinished jobs")

    async def submit(self, model: str, request: RefitRequest, *, by: str, by_key: str | None = None) -> Job:
        """Queue a recalibration of `model` and return its job; `by_key` is the prefix of the caller's API key.

        Raises:
            OverloadedError: Too many jobs are queued.
        """
        unfinished = await asyncio.to_thread(self._store.unfinished)
        if len(unfinished) >= _MOST_WAITING:
            raise OverloadedError(
                "Too many recalibrations are queued.",
                found=f"{len(unfinished)} unfinished jobs",
                expected=f"fewer than {_MOST_WAITING}",
                remedy="Wait for them, or cancel some: DELETE /v1/jobs/{job}.",
            )
        job = await asyncio.to_thread(self._store.create, model, "recalibrate", asdict(request), by, by_key)
        await self._begin(job)
        return job

    async def get(self, job_id: str) -> Job:
        """Return a job.

        Raises:
            UnknownJobError: The job does not exist.
        """
        return await asyncio.to_thread(self._store.get, job_id)

    async def page(self, **wanted: Any) -> tuple[Job, ...]:
        """Return jobs, newest first; the arguments are those of `JobStore.page`."""
        return await asyncio.to_thread(partial(self._store.page, **wanted))

    async def cancel(self, job_id: str, *, by: str) -> Job:
        """Cancel a queued or running job: at once in this process, within a poll interval on another replica.

        Raises:
            UnknownJobError: The job does not exist.
            JobStateError: It has ended, or its result is already being kept.
        """
        job = await asyncio.to_thread(self._store.cancel, job_id, by=by)
        self._stop(job_id)
        if not self._others.leader:
            await asyncio.to_thread(self._others.tell, JOBS)
        self._metrics.recalibrations.add(job.model, "cancelled")
        return job

    async def propose(self, job_id: str, *, by: str, by_key: str | None = None) -> Revision:
        """Keep a dry run's result as a proposal; see `Execution.propose`."""
        return await self._execution.propose(job_id, by=by, by_key=by_key)

    async def wait(self, job_id: str, seconds: float) -> Job:
        """Return a job once it is finished, or its current state after `seconds`."""
        task = self._running.get(job_id)
        if task is not None:
            await asyncio.wait((task,), timeout=seconds)
        until = time.monotonic() + seconds
        while (job := await self.get(job_id)).state in UNFINISHED and not self._others.leader:
            left_s = until - time.monotonic()
            if left_s <= 0:
                break
            await asyncio.sleep(min(left_s, self._settings.poll_interval_s))
        return job

    def look(self) -> None:
        """Start new jobs and stop cancelled ones, if this process runs jobs; call from any thread but the loop's."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._look(), self._loop).result(ANSWERED_WITHIN_S)

    async def close(self) -> None:
        """Stop running jobs and put them back into the queue."""
        tasks = [*self._running.values(), *([self._watch] if self._watch else [])]
        for task in tasks:
            if not task.cancelling():
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _begin(self, job: Job) -> None:
        """Start a job here, or have the leader start it."""
        if self._others.leader:
            self._start(job)
        else:
            await asyncio.to_thread(self._others.tell, JOBS)

    async def _look(self) -> None:
        await self._take_up()
        await self._stop_cancelled()

    async def _take_up_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.poll_interval_s)
            try:
                await self._look()
            except StateUnavailableError as error:
                logger.warning("state unavailable", error=str(error))
            except Exception:
                logger.exception("looking for unfinished jobs failed")

    async def _take_up(self) -> None:
        """Start every unfinished job of a model loaded here; a lock admits one replica."""
        served = {model.name for model in self._models.all() if model.plane.served is not None}
        for job in await asyncio.to_thread(self._store.unfinished):
            if job.model in served:
                self._start(job)

    async def _stop_cancelled(self) -> None:
        """Stop jobs that were cancelled on another replica."""
        if self._running:
            for job_id in await asyncio.to_thread(self._store.cancelled, list(self._running)):
                self._stop(job_id)

    def _stop(self, job_id: str) -> None:
        """Stop a job of this process, once: a second cancellation would interrupt its clean-up."""
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
            logger.error("job left unfinished, to be resumed", job=job_id, error=repr(error))

    async def _execute(self, job: Job) -> None:
        """Run a job when its turn comes, unless it has ended by then."""
        structlog.contextvars.bind_contextvars(job=job.id)
        async with self._one_at_a_time.setdefault(job.model, asyncio.Lock()), self._turn(job.model):
            job = await asyncio.to_thread(self._store.start, job.id)
            if job.state not in UNFINISHED:
                return
            began = time.monotonic()
            try:
                with self._traced(job):
                    change = await self._execution.outcome(job)
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
        """Wait for and hold the lock on the model's jobs, and room; a job that another replica runs takes none here."""
        while True:
            stack = contextlib.ExitStack()
            lock = self._database.try_lock(f"jobs/{model}")
            async with self._room:
                entering = asyncio.create_task(asyncio.to_thread(stack.enter_context, lock))
                try:
                    if await asyncio.shield(entering):
                        yield
                        return
                finally:
                    await asyncio.wait((entering,))  # a taken lock must be released, even after a cancellation
                    await asyncio.to_thread(stack.close)
            await asyncio.sleep(self._settings.poll_interval_s)

    async def _end(self, job: Job, change: dict[str, Any]) -> None:
        """Write a job's outcome; retry until the database responds."""
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
                change = failed(CandorError(f"The recalibration's result cannot be stored: {error}"))
            else:
                return
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _LONGEST_RETRY_S)
