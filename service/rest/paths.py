"""Paths that are recognised before routing."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

from service.rest.bodies import Scope

PREDICT: Final = re.compile(r"(?:/v1/models/(?P<model>[^/]+))?/predict")
INFER: Final = re.compile(r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?/infer")
V2: Final = re.compile(r"/v2(?:/.*)?", re.DOTALL)  # a path may hold a line break
# Health, and documentation that contains nothing beyond the source (docs/explanation/decisions/0003-open-paths.md).
OPEN: Final = re.compile(r"/livez|/readyz|/v2/health/(?:live|ready)|/openapi\.json|/docs(?:/.*)?")


_LONGEST: Final = 512  # of targets that are remembered


def route_of(scope: Scope) -> str:
    """Return the path template, which keeps metric labels few."""
    return _predicting(scope["path"]) or getattr(scope.get("route"), "path", "") or "unmatched"


@lru_cache(maxsize=1024)
def _predicting(path: str) -> str | None:
    """Return the path template of a path that predicts, None for others."""
    if PREDICT.fullmatch(path):
        return "/predict" if path == "/predict" else "/v1/models/{model}/predict"
    if inference := INFER.fullmatch(path):
        return "/v2/models/{model}/versions/{version}/infer" if inference["version"] else "/v2/models/{model}/infer"
    return None


class Target(NamedTuple):
    """The target of a request that predicts.

    Attributes:
        path: Its path, unquoted.
        raw_path: Its path as it came.
        query: Its query without the question mark.
        route: Template of the path.
        model: The model, None for the default model.
        version: The version, None for the active revision.
    """

    path: str
    raw_path: bytes
    query: bytes
    route: str
    model: str | None
    version: str | None


def target_of(url: bytes) -> Target | None:
    """Return the parts of a request target in origin form that predicts; None for all others, and for long ones.

    >>> target_of(b"/v1/models/digits/predict?top=1").model, target_of(b"/livez")
    ('digits', None)
    """
    return _target(url) if len(url) <= _LONGEST else None


@lru_cache(maxsize=1024)
def _target(url: bytes) -> Target | None:
    raw_path, _, query = url.partition(b"?")
    if b"#" in url or not url.isascii():
        return None
    path = unquote(raw_path.decode("ascii"))
    matched = PREDICT.fullmatch(path) or INFER.fullmatch(path)
    route = _predicting(path)
    if matched is None or route is None or "\n" in path:
        return None
    groups = matched.groupdict()
    return Target(path, raw_path, query, route, groups["model"], groups.get("version"))
