"""Paths that are recognised before routing."""

from __future__ import annotations

import re
from typing import Final

from service.rest.bodies import Scope

PREDICT: Final = re.compile(r"(?:/v1/models/(?P<model>[^/]+))?/predict")
INFER: Final = re.compile(r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?/infer")
V2: Final = re.compile(r"/v2(?:/.*)?", re.DOTALL)  # a path may hold a line break
# Health, and documentation that contains nothing beyond the source (docs/explanation/decisions/0003-open-paths.md).
OPEN: Final = re.compile(r"/livez|/readyz|/v2/health/(?:live|ready)|/openapi\.json|/docs(?:/.*)?")


def route_of(scope: Scope) -> str:
    """Return the path template, which keeps metric labels few."""
    if PREDICT.fullmatch(scope["path"]):
        return "/predict" if scope["path"] == "/predict" else "/v1/models/{model}/predict"
    if inference := INFER.fullmatch(scope["path"]):
        return "/v2/models/{model}/versions/{version}/infer" if inference["version"] else "/v2/models/{model}/infer"
    return getattr(scope.get("route"), "path", "") or "unmatched"
