"""A line in the log for a request: every one of the control plane, a share of the predictions."""

from __future__ import annotations

import random
from typing import Any

import structlog

from service.plane import Answer
from service.rest.bodies import Scope

logger = structlog.get_logger(__name__)

_NAMED = ("model", "revision", "policy", "job")  # parameters of paths
_IDS = 10  # of predictions, that a line names


class RequestLog:
    """Writes one line for each request that ended.

    Args:
        share: Of prediction requests that get a line, 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self._share = share

    def ended(self, scope: Scope, route: str, status: int, seconds: float, *, quiet: bool) -> None:
        """Write the line, if there is to be one.

        Args:
            scope: The request's. `principal`, `answer` and `path_params` are read where they are there.
            route: The path's template.
            status: Of the answer; 0 where none was begun.
            seconds: From the request's head to the end of its answer.
            quiet: At the level "debug": health checks, metrics.
        """
        predicting = route.endswith(("predict", "infer"))
        if predicting and not (self._share and random.random() < self._share):  # noqa: S311 — a sample, no secret
            return
        line: dict[str, Any] = {
            "method": scope["method"],
            "route": route,
            "status": status,
            "duration_s": round(seconds, 6),
            "key": getattr(scope.get("principal"), "prefix", None),
        }
        (logger.debug if quiet else logger.info)("request", **describe(scope), **line)


def describe(scope: Scope) -> dict[str, Any]:
    """Return what a request was about: the model, the revision, predictions; else what its path names."""
    answer: Answer | None = scope.get("answer")
    if answer is None:
        return {name: value for name, value in scope.get("path_params", {}).items() if name in _NAMED}
    revision = answer.served.revision
    return {
        "model": revision.model,
        "revision": revision.id,
        "predictions": len(answer.ids),
        "prediction_ids": answer.ids[:_IDS],
    }
