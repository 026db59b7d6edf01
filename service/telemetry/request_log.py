"""Log lines of requests: all of the control plane, a share of the predictions."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from service.serving.plane import Answer

logger = structlog.get_logger(__name__)

_NAMED = ("model", "revision", "policy", "job")  # parameters of paths
_IDS = 10  # prediction ids per line


class RequestLog:
    """Write one line per finished request.

    Args:
        share: Of prediction requests that get a line, 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self._share = share

    def wants(self, route: str) -> bool:
        """Return whether a request gets a line; sampling leaves predictions out."""
        if not route.lower().endswith(("predict", "infer")):
            return True
        return self._share > 0 and random.random() < self._share  # noqa: S311 — a sample, no secret

    def ended(
        self, request: Mapping[str, Any], route: str, status: int | str, seconds: float, *, quiet: bool = False
    ) -> None:
        """Write the line of a request that gets one.

        Args:
            request: ASGI scope, or the like for gRPC: `method`, and optionally `principal`, `answer`, `path_params`.
            route: Template of the path, or the gRPC method.
            status: Status of the answer; 0 if none was begun.
            seconds: Time from the head of the request to the end of its answer.
            quiet: At the level "debug": health checks, metrics.
        """
        line: dict[str, Any] = {
            "method": request["method"],
            "route": route,
            "status": status,
            "duration_s": round(seconds, 6),
            "key": getattr(request.get("principal"), "prefix", None),
        }
        (logger.debug if quiet else logger.info)("request", **describe(request), **line)


def describe(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model, revision and predictions of a request, or the parameters of its path."""
    answer: Answer | None = request.get("answer")
    if answer is None:
        return {name: value for name, value in request.get("path_params", {}).items() if name in _NAMED}
    revision = answer.served.revision
    return {
        "model": revision.model,
        "revision": revision.id,
        "predictions": len(answer.ids),
        "prediction_ids": answer.ids[:_IDS],
    }
