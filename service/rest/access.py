"""Access over HTTP: the sender of a request, and the scope and model that its path requires."""

from __future__ import annotations

import contextlib
import re
from functools import lru_cache
from urllib.parse import parse_qsl

from service.errors import (
    ForbiddenError,
    ProviderUnavailableError,
    RateLimitedError,
    UnauthenticatedError,
    UnknownJobError,
)
from service.operations.access import Access, check_forwarded, names_loopback, not_local
from service.operations.principal import Principal
from service.places import in_header
from service.rest.bodies import Scope, header
from service.rest.paths import LONGEST
from service.runtime import Runtime

# Required scope by method and path, checked before the body is read. All others require any scope but "metrics".
_OTHER_SITES = ("cross-site", "same-site")
_SCOPES = (
    ("POST", re.compile(r".*/(?:predict|infer)|/v1/models/[^/]+:predict"), "predict"),
    ("POST", re.compile(r".*/feedback"), "feedback"),
    *((method, re.compile(r"/v1/models/[^/]+/cases(?:/.*)?"), "review") for method in ("GET", "POST")),  # rows' data
    ("POST", re.compile(r".*/recalibrate"), "calibrate"),
    ("POST", re.compile(r".*/labelled-sets"), "calibrate"),
    ("DELETE", re.compile(r".*/labelled-sets/[^/]+"), "calibrate"),
    ("POST", re.compile(r".*/prior-shift"), "calibrate"),
    ("PUT", re.compile(r".*/policies/[^/]+"), "calibrate"),
    ("PUT", re.compile(r".*/challengers/[^/]+"), "calibrate"),
    ("DELETE", re.compile(r".*/challengers/[^/]+"), "calibrate"),
    ("POST", re.compile(r".*/policies/[^/]+/(?:simulate|backtest)"), "calibrate"),
    ("POST", re.compile(r".*/(?:activate|rollback|reject)"), "approve"),
    ("GET", re.compile(r".*/revisions/[^/]+/traffic"), "calibrate"),
    ("GET", re.compile(r".*/audit"), "read"),
    ("DELETE", re.compile(r"/v1/jobs/[^/]+"), "calibrate"),
    ("POST", re.compile(r"/v1/jobs/[^/]+/propose"), "calibrate"),
    ("POST", re.compile(r".*/(?:load|unload|erase)"), "admin"),
    ("GET", re.compile(r"/dashboard/.*/(?:simulate|recalibrate)"), "calibrate"),
    ("GET", re.compile(r"/dashboard/.*/(?:activate|rollback|reject)"), "approve"),
    ("POST", re.compile(r"/dashboard/jobs/[^/]+/(?:cancel|propose)"), "calibrate"),
)


_OF_MODEL = re.compile(r"/(?:(?:v1|v2(?:/repository)?|dashboard)/models|v1/multilabel)/(?P<model>[^/]+)(?:/.*)?")
_OF_JOB = re.compile(r"/(?:v1|dashboard)/jobs/(?P<job>[^/]+)(?:/.*)?")
_OF_DEFAULT = ("/predict", "/feedback", "/recalibrate")
_ASKED = ("/v1/jobs", "/dashboard/audit")  # they are about the model in their query, and about all without one
# Requests that are not GET and count towards no quota of changes: labels and predictions have limits of their own.
_NO_CHANGE = re.compile(
    r".*/(?:predict|infer|feedback|simulate|backtest|logout)|/v1/models/[^/]+:predict|/v2/repository/index"
    r"|/(?:v1|dashboard)/models/[^/]+/cases(?:/(?![^/]+/assign$).*)?"  # the audit log keeps who assigned a case
)
# Of these, lists leave out other models.
_OF_NO_MODEL = re.compile(r"/v1/models|/v1/multilabel|/v2/?|/dashboard(?:/theme|/logout)?")


def needed_scope(method: str, path: str) -> str | None:
    """Return the scope that a request requires, None if any scope suffices that is not for metrics alone.

    >>> needed_scope("POST", "/v1/models/digits/feedback"), needed_scope("GET", "/v1/models")
    ('feedback', None)
    """
    return _needed(method, path) if len(path) <= LONGEST else _needed.__wrapped__(method, path)


@lru_cache(maxsize=1024)
def _needed(method: str, path: str) -> str | None:
    return next((scope for verb, pattern, scope in _SCOPES if method == verb and pattern.fullmatch(path)), None)


def changes(method: str, path: str) -> bool:
    """Return whether a request may change more than labels and cases, or assigns a case.

    >>> changes("PUT", "/v1/models/digits/policies/auto-read"), changes("POST", "/v1/models/digits/cases/01J/claim")
    (True, False)
    >>> changes("POST", "/dashboard/models/digits/cases/01J/assign")
    True
    """
    return method != "GET" and _NO_CHANGE.fullmatch(path) is None


async def on_model(principal: Principal, path: str, query: bytes, runtime: Runtime) -> Principal:
    """Return a limited sender with what it may do on the model that a request is about.

    Args:
        principal: The sender.
        path: Path of the request, unquoted.
        query: Its query, as it was sent.
        runtime: Parts of the service.

    Raises:
        ForbiddenError: The path is about another model, or about all of them.
        UnknownModelError: There is no default model.
    """
    if _OF_NO_MODEL.fullmatch(path):
        return principal
    if found := _OF_MODEL.fullmatch(path):
        return principal.on(found["model"].removesuffix(":predict"))
    if found := _OF_JOB.fullmatch(path):
        with contextlib.suppress(UnknownJobError):
            return principal.on((await runtime.jobs.get(found["job"])).model)
        return principal
    if path in _OF_DEFAULT:
        return principal.on(runtime.models.get(None).name)
    return principal.on(_model_in(query) if path in _ASKED else None)


def _model_in(query: bytes) -> str | None:
    """Return the model that a query asks for; None for all, and where another reader could see another one."""
    asked = [value for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True) if name == "model"]
    return asked[0] if len(asked) == 1 else None


async def sender(access: Access, scope: Scope) -> Principal:
    """Return the sender of a request. Until the first key is made, web pages in a browser are refused.

    Raises:
        UnauthenticatedError: The key is missing or not valid.
        ForbiddenError: No key exists, and the request does not come from this machine.
        RateLimitedError: The key has sent too many requests.
    """
    if not access.guarded:
        _check_unguarded(access, scope)
    return await access.principal(header(scope, b"authorization"))


def sender_at_once(access: Access, scope: Scope, needed: str, model: str | None) -> Principal | None:
    """Return the sender of a request without waiting, None where `sender` has to decide.

    A request whose sender is returned was counted, no other.
    """
    try:
        if not access.guarded:
            _check_unguarded(access, scope)
        return access.at_once(header(scope, b"authorization"), needed, model)
    except (UnauthenticatedError, ForbiddenError, RateLimitedError):
        return None


async def is_known(access: Access, scope: Scope) -> bool:
    """Return whether the sender of a request is authenticated, by a key that is not for metrics alone."""
    try:
        (await sender(access, scope)).require(None)
    except (UnauthenticatedError, ForbiddenError, RateLimitedError, ProviderUnavailableError):
        return False
    return True


def _check_unguarded(access: Access, scope: Scope) -> None:
    """Refuse requests to a service without keys that a page of another site made a browser send, or a proxy forwards.

    Raises:
        ForbiddenError: The Host or Origin names another machine, or a header is that of a proxy.
    """
    headers = dict(reversed(scope["headers"]))  # the first of equals, as everywhere
    site, origin, host = (_text(headers.get(name)) for name in (b"sec-fetch-site", b"origin", b"host"))
    other = origin is not None and origin.partition("://")[2] != host if site is None else site in _OTHER_SITES
    if other and scope["method"] != "GET":  # links from elsewhere may lead here
        raise not_local(in_header("Origin"), origin or site or "", "a page of this service")
    if not access.local_only:
        return
    for name, value in (("Host", host), ("Origin", origin)):
        if value is not None and not names_loopback(value if name == "Origin" else f"//{value}"):
            raise not_local(in_header(name), value, "localhost or 127.0.0.1")
    _check_forwarded(tuple(headers))


def _text(value: bytes | None) -> str | None:
    return None if value is None else str(value, "latin-1")


@lru_cache(maxsize=32)  # clients send the same names with every request; a head may have 64 KiB of them
def _check_forwarded(names: tuple[bytes, ...]) -> None:
    check_forwarded(str(name, "latin-1") for name in names)
