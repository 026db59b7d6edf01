"""Logs of the service: one JSON document per line on standard error, without secrets."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
from collections.abc import Iterable, MutableMapping
from typing import Any
from urllib.parse import quote

import structlog

OURS = ("service", "uvicorn")
_REMOVED = "[removed]"
# Secrets are removed from JSON strings only, so that a secret such as `1` or `:` cannot break the JSON.
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SECRETS = (  # a hint in lower case, without which no search is needed; what it removes; what stays
    # An API key; its prefix stays because it identifies the key.
    ("cnd_", re.compile(r"(cnd_[0-9a-f]{12}_)[\w-]+"), rf"\1{_REMOVED}"),
    ("bearer", re.compile(r"(?i)\b(bearer\s+)(?!cnd_)[\w.~+/=-]{8,}"), rf"\1{_REMOVED}"),
    ("basic", re.compile(r"(?i)\b(basic\s+)(?!cnd_)[\w.~+/=-]{8,}"), rf"\1{_REMOVED}"),
    ("://", re.compile(r"(://[^\s:/@\"']*:)[^\s@/\"']+(?=@)"), rf"\1{_REMOVED}"),
    ("password", re.compile(r"(?i)(password\s*=\s*)[^\s\"'\\]+"), rf"\1{_REMOVED}"),
)


def configure_logs(level: str, secrets: Iterable[str], *, worker: int | None = None) -> None:
    """Send structlog's loggers and the standard library's (uvicorn, alembic) through one JSON renderer.

    structlog writes by itself: a record of the standard library for each line would cost more than all the rest.

    Args:
        level: Minimum level of the service's logs. Libraries log from "warning": below it some log what they send.
        secrets: Texts to remove from every line.
        worker: Number of this process among several; part of every line.
    """

    def number(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return event if worker is None else {**event, "worker": worker}

    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        number,
    ]
    rendered: list[structlog.types.Processor] = [structlog.processors.format_exc_info, _Rendered(secrets)]
    structlog.configure(
        processors=[*shared, *rendered],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_Lines,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendered],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in OURS:
        logging.getLogger(name).setLevel(level.upper())


class _Lines(structlog.WriteLogger):
    """Writes lines to standard error. A line that cannot be written, for example to a full disk, is dropped.

    Args:
        name: Name of the logger.
    """

    def __init__(self, name: str) -> None:
        super().__init__(sys.stderr)
        self.name = name

    def msg(self, message: str) -> None:
        """Write a line."""
        with contextlib.suppress(OSError, ValueError):
            super().msg(message)

    log = debug = info = warn = warning = fatal = failure = err = error = critical = exception = msg


class _Rendered:
    """Renders lines without API keys, credentials in headers and URLs, and the given texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        # Every form that a line can contain: escaped for JSON, in a traceback's literals, in URLs.
        forms = {form for text in texts if text for form in (text, repr(text)[1:-1], quote(text, safe=""))}
        self._texts = sorted({json.dumps(form)[1:-1] for form in forms}, key=len, reverse=True)
        self._render = structlog.processors.JSONRenderer()

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        line = str(self._render(logger, method, event))
        lower = line.lower()
        for hint, pattern, instead in _SECRETS:
            if hint in lower:
                line = pattern.sub(instead, line)
        if any(text in line for text in self._texts):
            line = _STRING.sub(self._without_texts, line)
        return line

    def _without_texts(self, string: re.Match[str]) -> str:
        inside = string[0][1:-1]
        for text in self._texts:
            inside = inside.replace(text, _REMOVED)
        return f'"{inside}"'
