"""Refit jobs: each runs in a child process of low priority, one at a time for each model, and survives a restart.

The child computes and writes nothing; this process records what the child is about to look at, keeps its result as a
proposal, and activates it where that was asked for and the gate lets it through. A job that a stop or a crash
interrupted is therefore simply run again.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import asdict
from typing import Any

import orjson
import structlog

from service.errors import CandorError, EpochStaleError, error_document, error_from_document
from service.metrics import Metrics
from service.models import EVERY_ROW_SEEN, Models
from service.refit import RefitRequest, RefitTask
from service.revision import Revision
from service.settings import Settings
from service.state.database import Database, now_us
from service.state.jobs import Job, JobStore
from service.state.revisions import RevisionStore

logger = structlog.get_logger(__name__)

# One line of the child's may hold a whole report with its diagrams.
_LINE_LIMIT = 64 * 1024 * 1024
# Where the proposal of an interrupted job is looked for, newest first.
_RECENT = 50


class Jobs:
    """Starts, follows and finishes refit jobs.

    Args:
        settings: Settings of the service.
        database: Open state.
        models: The models that are refitted.
        metrics: Where outcomes are counted.
    """

    def __init__(self, settings: Settings, database: Database, models: Models, metrics: Metrics) -> None:
        self._settings = settings
        self._store = JobStore(database)
        self._revisions = RevisionStore(database)
        self._models = models
        self._metrics = metrics
        self._running: dict[str, asyncio.Task[None]] = {}
        self._one_at_a_time: dict[str, asyncio.Lock] = {}

    async def resume(self) -> None:
        """Start again what a stop interrupted."""
        for job in await asyncio.to_thread(self._store.unfinished):
            self._start(job)

    async def submit(self, model: str, request: RefitRequest, *, by: str) -> Job:
        """Queue a refit of `model` and return its job."""
        job = await asyncio.to_thread(self._store.create, model, "recalibrate", asdict(request), by)
        self._start(job)
        return job

    async def get(self, job_id: str) -> Job:
        """Return a job.

        Raises:
            UnknownJobError: There is none of that id.
        """
        return await asyncio.to_thread(self._store.get, job_id)

    async def wait(self, job_id: str, seconds: float) -> Job:
        """Return a job when it is finished, or as it is after `seconds`."""
        task = self._running.get(job_id)
        if task is not None:
            await asyncio.wait((task,), timeout=seconds)
        return await self.get(job_id)

    async def close(self) -> None:
        """Stop what runs; it starts again with the next start."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _start(self, job: Job) -> None:
        task = asyncio.create_task(self._execute(job), name=f"refit {job.id}")
        self._running[job.id] = task
        task.add_done_callback(lambda _: self._running.pop(job.id, None))

    async def _execute(self, job: Job) -> None:
        async with self._one_at_a_time.setdefault(job.model, asyncio.Lock()):
            await asyncio.to_thread(self._store.update, job.id, state="running")
            request = RefitRequest(**job.request)
            try:
                result = await self._refit(job, request)
                outcome = str(result["state"])
                change: dict[str, Any] = {"state": "done", "result": result}
            except CandorError as error:
                outcome = "failed"
                change = {"state": "failed", "error": error_document(error)}
            except Exception as error:
                outcome = "failed"
                logger.exception("refit failed", job=job.id, model=job.model)
                change = {"state": "failed", "error": error_document(CandorError(f"The refit failed: {error}"))}
            await asyncio.to_thread(self._store.update, job.id, **change)
            self._metrics.recalibrations.labels(job.model, outcome).inc()

    async def _refit(self, job: Job, request: RefitRequest) -> dict[str, Any]:
        model = self._models.get(job.model)
        # In this order: a swap in between then makes the epoch stale, never the base.
        epoch = model.pointer.epoch
        served = model.served
        if job.state == "running" and (kept := await asyncio.to_thread(self._kept_of, job)):
            # A stop came between the proposal and its job's end.
            return await self._settle(job, request, kept, kept.report)
        task = RefitTask(
            database_url=self._settings.database_url,
            bundle=str(self._models.bundle(served).path),
            model=job.model,
            revision=served.revision.id,
            min_rows=self._settings.refit_min_rows,
            alpha=self._settings.gate_alpha,
            margin=self._settings.gate_margin,
            request=request,
        )
        outcome = await self._in_child(job, task)
        result: dict[str, Any] = {
            "job": job.id,
            "model": job.model,
            "base": served.revision.id,
            "epoch": epoch,
            "mode": request.mode,
            "revision": None,
            **outcome["report"],
        }
        if request.mode == "dry_run":
            return {**result, "state": "dry_run"}
        revision = await asyncio.to_thread(
            self._revisions.propose,
            model=job.model,
            bundle_id=served.revision.bundle_id,
            bundle_version=served.revision.bundle_version,
            model_digest=served.revision.model_digest,
            calibrator=outcome["calibrator"],
            policies=outcome["policies"],
            parent=served.revision.id,
            cause="recalibrate",
            by=job.by,
            gate="passed" if result["gate"]["passed"] else "refused",
            created_at=now_us(),
            report=result,
        )
        return await self._settle(job, request, revision, result)

    def _kept_of(self, job: Job) -> Revision | None:
        """Return the proposal that an interrupted run of this job has kept already."""
        recent = self._revisions.list(job.model, limit=_RECENT)
        return next((revision for revision in recent if revision.report.get("job") == job.id), None)

    async def _settle(
        self, job: Job, request: RefitRequest, revision: Revision, report: dict[str, Any]
    ) -> dict[str, Any]:
        """Activate a proposal where that was asked for and the gate let it through; return the job's result."""
        result = {**report, "revision": revision.id}
        if not result["gate"]["passed"]:
            return {**result, "state": "refused"}
        if request.mode == "propose":
            return {**result, "state": "proposed"}
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
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "service.refit",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT,
            start_new_session=True,  # Ctrl-C is for the service, which starts an interrupted refit again
        )
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None  # noqa: S101, PT018 — pipes were asked for
        complaints = asyncio.create_task(child.stderr.read())
        try:
            async with asyncio.timeout(self._settings.refit_timeout_s):
                child.stdin.write(orjson.dumps(asdict(task)) + b"\n")
                while line := await child.stdout.readline():
                    message = orjson.loads(line)
                    if "progress" in message:
                        await asyncio.to_thread(self._store.update, job.id, progress=message["progress"])
                    elif "show" in message:
                        shown = await asyncio.to_thread(self._record_looks, task, message["show"])
                        child.stdin.write(orjson.dumps(shown) + b"\n")
                    elif "error" in message:
                        raise error_from_document(message["error"])
                    else:
                        outcome: dict[str, Any] = message["outcome"]
                        return outcome
                await child.wait()
                text = (await complaints).decode(errors="replace").strip().splitlines()
                raise CandorError(
                    "The refit's process ended without a result.",
                    found=f"exit status {child.returncode}: {text[-1] if text else 'no message'}",
                )
        except TimeoutError:
            raise CandorError(
                "The refit took too long and was stopped.",
                found=f"more than {self._settings.refit_timeout_s:g} s",
                remedy="Narrow the feedback window, or raise CANDOR_REFIT_TIMEOUT_S.",
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
            complaints.cancel()

    def _record_looks(self, task: RefitTask, show: dict[str, Any]) -> dict[str, Any]:
        """Record, before any result is seen, which rows are about to be looked at; return the look numbers."""
        digest = self._revisions.get(task.model, task.revision).model_digest
        at = now_us()
        attempt = self._revisions.expose(
            task.model, digest, rows="gate", basis="traffic", scope="", earliest_row_us=show["gate"], at=at
        )
        looks = {
            policy: self._revisions.expose(
                task.model,
                digest,
                rows="certify",
                basis=look["basis"],
                scope=policy,
                earliest_row_us=look["earliest"] if look["basis"] == "traffic" else EVERY_ROW_SEEN,
                at=at,
            )
            for policy, look in show["certify"].items()
        }
        return {"attempt": attempt, "looks": looks}
