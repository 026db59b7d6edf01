"""Security headers for browsers."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_ALWAYS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_DATA: Final = (
    *_ALWAYS,
    (b"cache-control", b"no-store"),  # predictions may be personal data
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
# Swagger UI, from this service alone; FastAPI starts it with a script in the page.
_DOCUMENTATION: Final = (
    *_ALWAYS,
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        b"img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
)


# Its own stylesheet and scripts, nothing inline. Its forms need an Origin, which "no-referrer" would hide.
_DASHBOARD: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
)


def security_headers(path: str) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers for an answer at `path`.

    >>> (b"cache-control", b"no-store") in security_headers("/predict")
    True
    """
    if path.startswith("/dashboard"):
        return _DASHBOARD
    return _DOCUMENTATION if path.startswith("/docs") else _DATA


@lru_cache(maxsize=1024)
def security_lines(path: str) -> bytes:
    """Return these headers as lines of a head."""
    return b"".join(b"%b: %b\r\n" % pair for pair in security_headers(path))
