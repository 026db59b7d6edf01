"""Paths that are recognised before routing."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

from service.rest.bodies import Scope

PREDICT: Final = re.compile(r"(?:/v1/models/(?P<model>[^/]+))?/predict")
INSTANCES: Final = re.compile(r"/v1/models/(?P<model>[^/]+):predict")
INFER: Final = re.compile(r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?/infer")
FEEDBACK: Final = re.compile(r"(?:/v1/models/(?P<model>[^/]+))?/feedback")
METRICS: Final = "/metrics"  # every key may read it
MULTILABEL: Final = re.compile(r"/v1/multilabel/(?P<model>[^/]+)/predict")
V2: Final = re.compile(r"/v2(?:/.*)?", re.DOTALL)  # a path may hold a line break
# Health, and documentation that contains nothing beyond the source (docs/explanation/decisions/0003-open-paths.md).
OPEN: Final = re.compile(r"/livez|/readyz|/v2/health/(?:live|ready)|/openapi\.json|/docs(?:/.*)?")


_POLICY: Final = re.compile(r"/v1/models/[^/]+/policies/[^/]+(?:/simulate|/backtest)?")
_LABELS_OF_ROWS: Final = re.compile(r"/v1/multilabel/[^/]+/feedback")
_MOST_BYTES: Final = 64 * 1024  # of a body that is read on the event loop
MOST_POLICY_BYTES: Final = 256 * 1024


LONGEST: Final = 512
"""Maximum length of texts of clients that are remembered: heads of 64 KiB would fill the memory."""


class Predicts(NamedTuple):
    """A path that predicts.

    Attributes:
        protocol: The pattern that it matches: `PREDICT`, `INSTANCES`, `MULTILABEL` or `INFER`.
        route: Template of the path.
        model: The model, None for the default model.
        version: The version, None for the active revision.
    """

    protocol: re.Pattern[str]
    route: str
    model: str | None
    version: str | None = None


class Labels(NamedTuple):
    """A path that takes labels.

    Attributes:
        route: Template of the path.
        model: The model, None for the default model.
    """

    route: str
    model: str | None


def most_bytes(path: str) -> int | None:
    """Return the size of the largest body that a path takes, None if that is a matter of settings.

    >>> most_bytes("/rollback"), most_bytes("/feedback")
    (65536, None)
    """
    if predicts(path) or labels(path):
        return None
    return MOST_POLICY_BYTES if _POLICY.fullmatch(path) or _LABELS_OF_ROWS.fullmatch(path) else _MOST_BYTES


def route_of(scope: Scope) -> str:
    """Return the path template, which keeps metric labels few."""
    found = predicts(scope["path"]) or labels(scope["path"])
    return found.route if found else getattr(scope.get("route"), "path", "") or "unmatched"


def predicts(path: str) -> Predicts | None:
    """Return the parts of a path that predicts, None for others and long ones.

    >>> predicts("/v1/models/digits:predict").route, predicts("/predict").model, predicts("/v1/models")
    ('/v1/models/{model}:predict', None, None)
    """
    return _predicts(path) if len(path) <= LONGEST else None


@lru_cache(maxsize=1024)
def _predicts(path: str) -> Predicts | None:
    if found := PREDICT.fullmatch(path):
        return Predicts(PREDICT, "/predict" if path == "/predict" else "/v1/models/{model}/predict", found["model"])
    if found := INSTANCES.fullmatch(path):
        return Predicts(INSTANCES, "/v1/models/{model}:predict", found["model"])
    if found := MULTILABEL.fullmatch(path):
        return Predicts(MULTILABEL, "/v1/multilabel/{model}/predict", found["model"])
    if found := INFER.fullmatch(path):
        versioned = "/versions/{version}" if found["version"] else ""
        return Predicts(INFER, f"/v2/models/{{model}}{versioned}/infer", found["model"], found["version"])
    return None


def labels(path: str) -> Labels | None:
    """Return the parts of a path that takes labels, None for others and long ones.

    >>> labels("/v1/models/digits/feedback").model, labels("/feedback").route, labels("/predict")
    ('digits', '/feedback', None)
    """
    return _labels(path) if len(path) <= LONGEST else None


@lru_cache(maxsize=1024)
def _labels(path: str) -> Labels | None:
    found = FEEDBACK.fullmatch(path)
    return found and Labels("/v1/models/{model}/feedback" if found["model"] else path, found["model"])


class Target(NamedTuple):
    """The target of a request that predicts or brings labels.

    Attributes:
        path: Its path, unquoted.
        raw_path: Its path as it came.
        query: Its query without the question mark.
        asks: The parts of its path.
    """

    path: str
    raw_path: bytes
    query: bytes
    asks: Predicts | Labels


def target_of(url: bytes) -> Target | None:
    """Return the parts of a target in origin form that predicts or brings labels; None for others and long ones.

    >>> target_of(b"/v1/models/digits/predict?top=1").asks.model, target_of(b"/livez")
    ('digits', None)
    """
    return _target(url) if len(url) <= LONGEST else None


@lru_cache(maxsize=1024)
def _target(url: bytes) -> Target | None:
    raw_path, _, query = url.partition(b"?")
    if b"#" in url or not url.isascii():
        return None
    path = unquote(raw_path.decode("ascii"))
    found = predicts(path) or labels(path)
    return None if found is None or "\n" in path else Target(path, raw_path, query, found)
