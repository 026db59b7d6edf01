"""Run recalibrations and compare their outcomes; as a process, the tasks are JSON lines on standard input."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any, cast

import orjson

from service.decisions.unattended import Limits
from service.recalibration.refit_process import recalibrate
from service.recalibration.task import RefitRequest, RefitTask
from service.state.looks import Look


class Service:
    """Answers a recalibration's process as the service does, but records no look."""

    def __init__(self, task: RefitTask) -> None:
        self._answers = [orjson.dumps(asdict(task))]
        self.outcome: dict[str, Any] = {}

    def readline(self) -> bytes:
        return self._answers.pop(0)

    def write(self, line: bytes) -> None:
        message = orjson.loads(line)
        assert "error" not in message, message
        if "show" in message:
            looks = {policy: {**Look(1, 0)._asdict(), "fresh": True} for policy in message["show"]["certify"]}
            self._answers.append(orjson.dumps({"attempt": 1, "ordinal": 0, "looks": looks}))
        self.outcome = message.get("outcome", {})

    def flush(self) -> None:
        """Nothing is held back."""


def task_of(service: Any, request: RefitRequest) -> RefitTask:
    """Return a recalibration of the digits of a running service."""
    settings, served = service.runtime.settings, service.runtime.models.get("digits").served
    return RefitTask(
        database_url=settings.state_url,
        bundle=str(served.bundle.path),
        model="digits",
        revision=served.revision.id,
        min_rows=60,
        alpha=0.025,
        margin=0.002,
        max_labels=1_000_000,
        run_timeout_s=60.0,
        request=request,
    )


def outcome_of(task: RefitTask) -> dict[str, Any]:
    """Run a recalibration in this process; return its outcome without what depends on the time."""
    service = Service(task)
    recalibrate(cast("Any", service), cast("Any", service))
    for name in ("read_at", "took"):
        del service.outcome["report"][name]
    return service.outcome


if __name__ == "__main__":
    for line in sys.stdin.buffer:
        given = orjson.loads(line)
        given |= {"request": RefitRequest(**given["request"]), "limits": Limits(**given["limits"])}
        sys.stdout.buffer.write(orjson.dumps(outcome_of(RefitTask(**given)), option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
