"""What schemathesis has to be told: a media type that it does not know, and what is right beyond the document."""

from __future__ import annotations

from typing import Any

import schemathesis


def as_text(_: Any, value: Any) -> bytes:
    """Lines are text; what is generated in their place may be anything."""
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


schemathesis.serializer("application/x-ndjson")(as_text)


def without_an_empty_encoding(_: Any, headers: Any) -> bool:
    """Leave out a Content-Encoding that names none: the document lists names, and the service takes none for none."""
    return (headers or {}).get("Content-Encoding") != ""


schemathesis.hook("filter_headers")(without_an_empty_encoding)
