"""Logs of the service: one JSON document per line on standard error, without secrets."""

from __future__ import annotations

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
_SECRETS = (
    # An API key; its prefix stays because it identifies the key.
    (re.compile(r"(cnd_[0-9a-f]{12}_)[\w-]+"), rf"\1{_REMOVED}"),
    (re.compile(r"(?i)\b((?:bearer|basic)\s+)(?!cnd_)[\w.~+/=-]{8,}"), rf"\1{_REMOVED}"),
    (re.compile(r"(://[^\s:/@\"']*:)[^\s@/\"']+(?=@)"), rf"\1{_REMOVED}"),
    (re.compile(r"(?i)(password\s*=\s*)[^\s\"'\\]+"), rf"\1{_REMOVED}"),
)


def configure_logs(level: str = "info", secrets: Iterable[str] = (), *, worker: int | None = None) -> None:
    """Send structlog and the standard library's loggers (uvicorn, alembic) through one JSON renderer.

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
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _Rendered(secrets),
            ],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in OURS:
        logging.getLogger(name).setLevel(level.upper())


class _Rendered:
    """Renders lines without API keys, credentials in headers and URLs, and the given texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        # Every form that a line can contain: escaped for JSON, in a traceback's literals, in URLs.
        forms = {form for text in texts if text for form in (text, repr(text)[1:-1], quote(text, safe=""))}
        self._texts = sorted({json.dumps(form)[1:-1] for form in forms}, key=len, reverse=True)
        self._render = structlog.processors.JSONRenderer()

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        line = str(self._render(logger, method, event))
        for pattern, instead in _SECRETS:
            line = pattern.sub(instead, line)
        if any(text in line for text in self._texts):
            line = _STRING.sub(self._without_texts, line)
        return line

    def _without_texts(self, string: re.Match[str]) -> str:
        inside = string[0][1:-1]
        for text in self._texts:
            inside = inside.replace(text, _REMOVED)
        return f'"{inside}"'
