"""The caller of an operation, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from service.errors import ForbiddenError

PERSON: Final = "person-"
"""How ids of people begin; prefixes of keys are hexadecimal."""
_METRICS_ALONE: Final = frozenset({"metrics"})
_ALSO: Final = {"review": "feedback", "read": "approve"}
"""Scopes that another one includes: keys from before these scopes keep what they may do."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a person may do, and where.

    Attributes:
        scopes: The scopes.
        models: The only models that they are for; None for all.
    """

    scopes: frozenset[str]
    models: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of an API key, a person, or the local administrator of a service without keys.

    Attributes:
        name: Written into the audit log.
        scopes: What it may do; "admin" implies all.
        prefix: Public part of its key, or the id of a person; None without one.
        models: The only models that it may reach; None for all.
        source: The only source of the labels that it sends; None for any.
        grants: Its scopes by model where they differ; `scopes` and `models` then have all of them.
        rows_per_s: Its own rate limit of predicted rows; None for the settings' limit.
    """

    name: str
    scopes: frozenset[str]
    prefix: str | None = None
    models: frozenset[str] | None = None
    source: str | None = None
    grants: tuple[Grant, ...] = ()
    rows_per_s: float | None = None

    @property
    def limited(self) -> bool:
        """Whether what it may do depends on the model."""
        return self.models is not None or bool(self.grants)

    def allows(self, scope: str) -> bool:
        """Tell whether this principal may do what `scope` covers."""
        return scope in self.scopes or "admin" in self.scopes or _ALSO.get(scope) in self.scopes

    def reaches(self, model: str | None) -> bool:
        """Tell whether this principal may reach a model; None is the default model, or all of them."""
        return self.models is None or model in self.models

    def sees(self, model: str) -> bool:
        """Tell whether lists show this principal a model: it may do more there than read metrics."""
        return self.reaches(model) and self.on(model).scopes != _METRICS_ALONE

    def reach(self, model: str | None) -> None:
        """Raise ForbiddenError unless this principal may reach a model; None is all models at once."""
        if not self.reaches(model):
            raise ForbiddenError(
                f"{self._called} is limited to some models.",
                found=model or "all models",
                expected=sorted(self.models or ()),
                remedy="Ask for a group that has this model (CANDOR_OIDC_SCOPES)."
                if self.is_person
                else "Use a key without --model."
                if model is None
                else "Use a key for this model: candor keys create --model",
            )

    def on(self, model: str | None) -> Principal:
        """Return this principal with what it may do on a model; None is all models at once.

        Raises:
            ForbiddenError: It may not reach the model.
        """
        self.reach(model)
        if not self.grants:
            return self
        here = (grant.scopes for grant in self.grants if grant.models is None or model in grant.models)
        models = None if model is None else frozenset({model})
        return replace(self, scopes=frozenset().union(*here), models=models, grants=())

    def require(self, scope: str | None) -> None:
        """Raise ForbiddenError unless this principal has `scope`; None is any scope but "metrics"."""
        if self.scopes != _METRICS_ALONE if scope is None else self.allows(scope):
            return
        raise ForbiddenError(
            f"{self._called} may not do this.",
            found=sorted(self.scopes),
            expected=scope or "any scope but metrics",
            remedy=f"Ask for a group that has the scope {scope or 'read'!r} (CANDOR_OIDC_SCOPES)."
            if self.is_person
            else f"Make a key that has the scope: candor keys create --name … --scope {scope or 'predict'}",
        )

    @property
    def is_person(self) -> bool:
        """Whether it is a person that an identity provider knows."""
        return self.prefix is not None and self.prefix.startswith(PERSON)

    @property
    def _called(self) -> str:
        return repr(self.name) if self.is_person else f"The API key {self.name!r}"


LOCAL_ADMINISTRATOR = Principal("local", frozenset({"admin"}))
