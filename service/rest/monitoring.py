"""GET …/monitoring: do certificates still hold, are probabilities still calibrated, what do labels say."""

from __future__ import annotations

import math
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool

from service.decisions.solved import SolvedPolicy
from service.decisions.voided import key_of
from service.monitors import Status
from service.plane import Served
from service.rest import answers
from service.rest.dependencies import ModelDep, RuntimeDep
from service.settings import Settings
from service.state.monitors import StoredMonitor
from service.times import iso
from service.watching import name_of


async def monitoring(runtime: RuntimeDep, model: ModelDep) -> dict[str, Any]:
    """Return the certificates in force with their monitors, the calibration alarm, and estimates of the traffic.

    `evidence` is the natural logarithm of a monitor's capital; its alarm goes off when that reaches `fires_at`, and
    falsely so with probability `level` at most, however often one looks.
    """
    served = model.served
    status = await run_in_threadpool(runtime.monitors.status, model.name)
    return document(served, status, runtime.settings)


def document(served: Served, status: Status, settings: Settings) -> dict[str, Any]:
    """Return what is known of a model as the endpoint answers it."""
    estimated = status.estimates
    return {
        "model": served.revision.model,
        "revision": served.revision.id,
        "maturity_s": settings.monitor_maturity_s,
        "window_s": settings.monitor_window_s,
        "alpha": settings.monitor_alpha,
        "certificates": [
            certificate
            for solved in served.policies.values()
            for certificate in _certificates(served.revision.model_digest, solved, status)
        ],
        "alarm": _alarm(status),
        "estimates": None
        if estimated is None
        else {"revision": estimated.revision, "at": iso(estimated.at), **estimated.document},
    }


def _certificates(digest: str, solved: SolvedPolicy, status: Status) -> list[dict[str, Any]]:
    found = []
    parts: list[tuple[str | None, SolvedPolicy]] = [*solved.parts.items()]
    for segment, part in parts or [(None, solved)]:
        for band in part.bands:
            certificate = band.certificate
            if certificate is None:
                continue
            key = key_of(solved, band.action, segment, certificate, model_digest=digest)
            monitor = next((one for one in reversed(status.monitors) if one.certificate == key), None)
            found.append(
                {
                    "name": name_of(solved.policy.id, band.action, segment),
                    "policy": f"{solved.policy.id}@{solved.version}",
                    "action": band.action,
                    "segment": segment,
                    "metric": certificate.metric,
                    "at_least": certificate.at_least,
                    "at_most": certificate.at_most,
                    "valid": certificate.valid,
                    "reason": certificate.reason,
                    "monitor": None if monitor is None else _monitor(monitor),
                }
            )
    return found


def _alarm(status: Status) -> dict[str, Any]:
    monitor = next((one for one in status.monitors if one.kind == "calibration" and one.ended_at is None), None)
    return {
        "fired": monitor is not None and monitor.fired_at is not None,
        "tolerance": None if monitor is None else monitor.document["tolerance"],
        "job": None if monitor is None else monitor.job,
        "monitor": None if monitor is None else _monitor(monitor),
    }


def _monitor(one: StoredMonitor) -> dict[str, Any]:
    level = one.document["level"]
    return {
        "evidence": one.evidence,
        "peak": one.document["peak"],
        "fires_at": -math.log(level),
        "level": level,
        "place": one.place,
        "p_value": math.exp(-one.document["peak"]),
        "rows": one.document["rows"],
        "unlabelled": one.document["unlabelled"],
        "cohorts": one.cohorts,
        "since": iso(one.since),
        "through": iso(one.through),
        "fired_at": None if one.fired_at is None else iso(one.fired_at),
    }


def add_to(router: APIRouter) -> None:
    """Mount the endpoint."""
    found = answers.documented(answers.Monitoring)
    router.add_api_route("/monitoring", monitoring, methods=["GET"], tags=["monitoring"], responses=found)
