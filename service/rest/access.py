"""Access over HTTP: the sender of a request, and the scope that its path requires."""

from __future__ import annotations

import re
from functools import lru_cache

from service.errors import ForbiddenError, RateLimitedError, UnauthenticatedError
from service.operations.access import Access, names_loopback
from service.operations.principal import Principal
from service.places import in_header
from service.rest.bodies import Scope, header

# Required scope by method and path, checked before the body is read. All other paths require a key of any scope.
_SCOPES = (
    ("POST", re.compile(r".*/(?:predict|infer)|/v1/models/[^/]+:predict"), "predict"),
    ("POST", re.compile(r".*/feedback"), "feedback"),
    ("POST", re.compile(r".*/recalibrate"), "calibrate"),
    ("POST", re.compile(r".*/labelled-sets"), "calibrate"),
    ("DELETE", re.compile(r".*/labelled-sets/[^/]+"), "calibrate"),
    ("POST", re.compile(r".*/prior-shift"), "calibrate"),
    ("PUT", re.compile(r".*/policies/[^/]+"), "calibrate"),
    ("POST", re.compile(r".*/policies/[^/]+/simulate"), "calibrate"),
    ("POST", re.compile(r".*/(?:activate|rollback|reject)"), "approve"),
    ("GET", re.compile(r".*/audit"), "approve"),
    ("DELETE", re.compile(r"/v1/jobs/[^/]+"), "calibrate"),
    ("POST", re.compile(r"/v1/jobs/[^/]+/propose"), "calibrate"),
    ("POST", re.compile(r".*/(?:load|unload|erase)"), "admin"),
    ("GET", re.compile(r"/dashboard/.*/(?:simulate|recalibrate)"), "calibrate"),
    ("GET", re.compile(r"/dashboard/.*/(?:activate|rollback|reject)"), "approve"),
    ("POST", re.compile(r"/dashboard/jobs/[^/]+/(?:cancel|propose)"), "calibrate"),
)


@lru_cache(maxsize=1024)
def needed_scope(method: str, path: str) -> str | None:
    """Return the scope that a request requires, None if any key suffices.

    >>> needed_scope("POST", "/v1/models/digits/feedback"), needed_scope("GET", "/v1/models")
    ('feedback', None)
    """
    return next((scope for verb, pattern, scope in _SCOPES if method == verb and pattern.fullmatch(path)), None)


async def sender(access: Access, scope: Scope) -> Principal:
    """Return the sender of a request. Until the first key is made, web pages in a browser are refused.

    Raises:
        UnauthenticatedError: The key is missing or not valid.
        ForbiddenError: No key exists, and the request does not come from this machine.
        RateLimitedError: The key has sent too many requests.
    """
    if not access.guarded:
        _check_local(scope)
    return await access.principal(header(scope, b"authorization"))


def sender_at_once(access: Access, scope: Scope, needed: str) -> Principal | None:
    """Return the sender of a request without waiting, None where `sender` has to decide.

    A request whose sender is returned was counted, no other.
    """
    try:
        if not access.guarded:
            _check_local(scope)
        return access.at_once(header(scope, b"authorization"), needed)
    except (UnauthenticatedError, ForbiddenError, RateLimitedError):
        return None


async def is_known(access: Access, scope: Scope) -> bool:
    """Return whether the sender of a request is authenticated."""
    try:
        await sender(access, scope)
    except (UnauthenticatedError, ForbiddenError, RateLimitedError):
        return False
    return True


def _check_local(scope: Scope) -> None:
    """Refuse requests that a web page made a browser on this machine send.

    Raises:
        ForbiddenError: The Host or Origin names another machine.
    """
    for name in (b"host", b"origin"):
        value = header(scope, name)
        if value is not None and not names_loopback(value if name == b"origin" else f"//{value}"):
            raise ForbiddenError(
                "Without an API key, the service accepts requests from this machine only.",
                where=in_header(name.decode().capitalize()),
                found=value[:200],
                expected="localhost or 127.0.0.1",
                remedy="Make a key: candor keys create --name ops --scope admin",
            )
