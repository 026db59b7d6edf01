"""The caller of an operation, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from service.errors import ForbiddenError

_METRICS_ALONE: Final = frozenset({"metrics"})
_ALSO: Final = {"review": "feedback", "read": "approve"}
"""Scopes that another one includes: keys from before these scopes keep what they may do."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of an API key, or the local administrator of a service without keys.

    Attributes:
        name: Written into the audit log.
        scopes: What it may do; "admin" implies all.
        prefix: Public part of its key, None without one.
        models: The only models that it may reach; None for all.
        source: The only source of the labels that it sends; None for any.
    """

    name: str
    scopes: frozenset[str]
    prefix: str | None = None
    models: frozenset[str] | None = None
    source: str | None = None

    def allows(self, scope: str) -> bool:
        """Tell whether this principal may do what `scope` covers."""
        return scope in self.scopes or "admin" in self.scopes or _ALSO.get(scope) in self.scopes

    def reaches(self, model: str | None) -> bool:
        """Tell whether this principal may reach a model; None is the default model, or all of them."""
        return self.models is None or model in self.models

    def reach(self, model: str | None) -> None:
        """Raise ForbiddenError unless this principal may reach a model; None is all models at once."""
        if not self.reaches(model):
            raise ForbiddenError(
                f"The API key {self.name!r} is limited to some models.",
                found=model or "all models",
                expected=sorted(self.models or ()),
                remedy="Use a key for this model: candor keys create --model",
            )

    def require(self, scope: str | None) -> None:
        """Raise ForbiddenError unless this principal has `scope`; None is any scope but "metrics"."""
        if self.scopes != _METRICS_ALONE if scope is None else self.allows(scope):
            return
        raise ForbiddenError(
            f"The API key {self.name!r} may not do this.",
            found=sorted(self.scopes),
            expected=scope or "any scope but metrics",
            remedy=f"Use a key with the scope {scope or 'predict'!r}: candor keys create --scope {scope or 'predict'}",
        )


LOCAL_ADMINISTRATOR = Principal("local", frozenset({"admin"}))
