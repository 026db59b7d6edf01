"""The caller of an operation, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass

from service.errors import ForbiddenError


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of an API key, or the local administrator of a service without keys.

    Attributes:
        name: Written into the audit log.
        scopes: What it may do; "admin" implies all.
        prefix: Public part of its key, None without one.
    """

    name: str
    scopes: frozenset[str]
    prefix: str | None = None

    def allows(self, scope: str) -> bool:
        """Tell whether this principal may do what `scope` covers."""
        return scope in self.scopes or "admin" in self.scopes

    def require(self, scope: str) -> None:
        """Raise ForbiddenError unless this principal has `scope`."""
        if not self.allows(scope):
            raise ForbiddenError(
                f"The API key {self.name!r} may not do this.",
                found=sorted(self.scopes),
                expected=scope,
                remedy=f"Use a key with the scope {scope!r}: candor keys create --scope {scope}",
            )


LOCAL_ADMINISTRATOR = Principal("local", frozenset({"admin"}))
