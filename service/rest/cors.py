"""Cross-origin requests: pages of named origins may call the service from a browser, with an API key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fastapi.responses import Response

from service.rest.bodies import Headers, Scope, header

_METHODS: Final = "DELETE, GET, HEAD, POST, PUT"
_EXPOSED: Final = b"ETag, Location, Retry-After, X-Candor-Revision, X-Request-ID"
_REMEMBERED_S: Final = "600"


class Cors:
    """Headers that let a browser hand answers to the pages of some origins.

    Browsers send no cookies with these requests: the dashboard's session is of no use to another origin.

    Args:
        origins: Exact origins, such as "https://app.example"; none turns it off.
    """

    def __init__(self, origins: Iterable[str]) -> None:
        self._vary = (b"vary", b"origin")
        self._headers = {
            origin: (
                (b"access-control-allow-origin", origin.encode()),
                (b"access-control-expose-headers", _EXPOSED),
                self._vary,
            )
            for origin in origins
        }

    def headers(self, scope: Scope) -> Headers:
        """Return the headers of an answer; none where no origin is allowed."""
        if not self._headers:
            return ()
        return self._headers.get(header(scope, b"origin") or "", (self._vary,))

    def preflight(self, scope: Scope) -> Response | None:
        """Return the answer to a browser that asks before a request of an allowed origin; None for other requests."""
        method = header(scope, b"access-control-request-method")
        if scope["method"] != "OPTIONS" or method is None or header(scope, b"origin") not in self._headers:
            return None
        allowed = {"access-control-allow-methods": _METHODS, "access-control-max-age": _REMEMBERED_S}
        if headers := header(scope, b"access-control-request-headers"):
            allowed["access-control-allow-headers"] = headers
        return Response(status_code=204, headers=allowed)
