"""Liveness, readiness and metrics."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from candor.contract.health import Health, Liveness
from service.operations.access import Access
from service.operations.readiness import readiness
from service.rest.access import is_known
from service.rest.paths import METRICS
from service.rest.responses import sent
from service.runtime import Runtime
from service.telemetry.metrics import exposition
from service.version import VERSION


def router(runtime: Runtime, access: Access) -> APIRouter:
    """Return the operators' routes."""
    routes = APIRouter(tags=["operation"])
    started = time.monotonic()

    @routes.get("/livez")
    async def livez() -> Liveness:
        """Prove that the process runs."""
        return Liveness(live=True, uptime_s=round(time.monotonic() - started, 1), version=VERSION)

    unready = {"model": Health, "description": "Some models are not serving their active revision."}

    @routes.get("/readyz", response_model=Health, responses={503: unready})
    async def readyz(request: Request) -> Response:
        """Return whether every model serves its active revision. With a valid key: which models, and why not."""
        found = await readiness(runtime)
        known: dict[str, Any] = {}
        if await is_known(access, request.scope):
            # They make nothing unready: what is served stays, and a restart elsewhere would not help.
            beside = {"bundles": found.bundles, "state": found.state}
            known = {
                "models": found.models,
                "problems": {name: text for name, text in beside.items() if text} | found.problems,
            }
        health = Health(ready=not found.problems, stale_for_s=round(found.stale_for_s, 1), **known)
        return sent(health, 503 if found.problems else 200)

    @routes.get(METRICS, response_class=PlainTextResponse)
    def metrics() -> Response:  # not on the event loop: it takes milliseconds
        """Return metrics in the Prometheus text format."""
        return Response(exposition(runtime.all_metrics()), media_type="text/plain; version=0.0.4; charset=utf-8")

    return routes
