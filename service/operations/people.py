"""People that an identity provider knows: who they are, and what their groups may do here."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from service.errors import ForbiddenError, UnauthenticatedError
from service.operations.oidc import Provider, refused
from service.operations.principal import PERSON, Grant, Principal
from service.settings import Settings
from service.state.access_record import AccessRecord
from service.state.database import now_us
from service.state.keys import LONGEST_NAME
from service.state.sessions import Session

_MOST_REMEMBERED: Final = 1024
_LONGEST_SUBJECT: Final = 255  # by the standard


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody whom the provider has identified.

    Attributes:
        principal: What the person may do. Its prefix is made of the issuer and the subject, so that it stays when the
            name changes, and no other person gets it.
        groups: The groups that mean something here.
        subject: The provider's own name for the person.
        until: When the token ends, in microseconds since the epoch.
    """

    principal: Principal
    groups: tuple[str, ...]
    subject: str = ""
    until: int = 0

    @property
    def prefix(self) -> str:
        """Id of the person."""
        return self.principal.prefix or ""

    @property
    def name(self) -> str:
        """Name in the audit log."""
        return self.principal.name

    @property
    def requests_per_s(self) -> None:
        """No rate of its own: the settings' limit holds."""

    @property
    def rows_per_s(self) -> None:
        """None of its own either."""


class People:
    """Identify people by tokens, and give them the scopes of their groups.

    Args:
        settings: Settings of the service, with an issuer.
        record: Tells the audit log who sends tokens; None for nobody.
    """

    def __init__(self, settings: Settings, record: AccessRecord | None = None) -> None:
        self.provider = Provider(settings)
        self._record = record
        self.logs_in = settings.oidc_client_id is not None
        self._audience = settings.oidc_audience
        self._groups_claim = settings.oidc_groups_claim
        self._name_claim = settings.oidc_name_claim
        self._subject_claim = settings.oidc_subject_claim
        self._skew_us = int(settings.oidc_clock_skew_s * 1e6)
        self._granted = {group: tuple(map(_grant, granted)) for group, granted in settings.oidc_scopes.items()}
        self._remembered: dict[bytes, Person] = {}
        self._changes = 0

    async def follow(self) -> None:
        """Read the provider's keys again and again."""
        while True:
            await self.provider.read()
            await asyncio.sleep(self.provider.pause_s)

    def known(self, token: str) -> Person | None:
        """Return the person of a token that was checked before and is in force; None for others."""
        self._forget()
        found = self._remembered.get(_digest(token))
        return found if found is not None and now_us() < found.until else None

    async def admit(self, token: str) -> Person:
        """Return the person of an access token.

        Raises:
            UnauthenticatedError: The token is not valid, or none are accepted.
            ForbiddenError: No group of the person may do anything here.
            ProviderUnavailableError: The provider's keys are not known.
        """
        if (found := self.known(token)) is not None:
            return found
        if self._audience is None:
            raise refused("a token", "an API key (CANDOR_OIDC_AUDIENCE is not set)")
        person = self._person(await self.provider.claims(token, self._audience))
        if self._record is not None:
            issuer, subject = self.provider.issuer, person.subject
            self._record.identified(person.prefix, person.name, issuer=issuer, subject=subject)
        self._forget()
        self._remembered[_digest(token)] = person
        return person

    def _forget(self) -> None:
        """Forget tokens when a key may have been withdrawn, and when there are many."""
        if self._changes != self.provider.changes or len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
            self._changes = self.provider.changes

    async def arrive(self, code: str, *, verifier: str, nonce: str) -> Person:
        """Return the person who has logged in.

        Raises:
            UnauthenticatedError: The provider refuses the code, or its token fails a check.
            ForbiddenError: No group of the person may do anything here.
            ProviderUnavailableError: The provider does not answer.
        """
        token = await self.provider.exchange(code, verifier)
        return self._person(await self.provider.claims(token, self.provider.client_id, nonce))

    def in_session(self, session: Session) -> Person:
        """Return the person of a session.

        Raises:
            ForbiddenError: The groups of the person may no longer do anything.
        """
        groups = session.groups or ()
        return Person(self._principal(session.key, session.name or session.key, groups), groups)

    def _principal(self, prefix: str, name: str, groups: Iterable[str]) -> Principal:
        """Return what a person may do by the settings of now.

        Raises:
            ForbiddenError: That is nothing.
        """
        by_models: dict[frozenset[str] | None, frozenset[str]] = {}
        for group in groups:
            for one in self._granted.get(group, ()):
                by_models[one.models] = by_models.get(one.models, frozenset()) | one.scopes
        if not by_models:
            raise ForbiddenError(
                f"No group of {name!r} may do anything here.",
                found=sorted(groups),
                expected="a group of CANDOR_OIDC_SCOPES",
                remedy="Ask an administrator for a group.",
            )
        grants = tuple(Grant(scopes, models) for models, scopes in by_models.items())
        named = [grant.models for grant in grants if grant.models is not None]
        return Principal(
            name,
            frozenset().union(*by_models.values()),
            prefix,
            frozenset().union(*named) if len(named) == len(grants) else None,
            grants=grants if len(grants) > 1 else (),
        )

    def _person(self, claims: dict[str, Any]) -> Person:
        """Return the person of a token's claims.

        Raises:
            UnauthenticatedError: They have no id, no name that can be shown, or an address that nobody has verified.
            ForbiddenError: No group of the person may do anything here.
        """
        name, subject = claims.get(self._name_claim), claims.get(self._subject_claim)
        if not isinstance(subject, str) or not subject.isprintable() or not 0 < len(subject) <= _LONGEST_SUBJECT:
            expected = f"the id of the person, 1 to {_LONGEST_SUBJECT} printable characters"
            raise _unnamed(self._subject_claim, subject, expected)
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.strip()) <= LONGEST_NAME:
            raise _unnamed(self._name_claim, name, f"the name of the person, 1 to {LONGEST_NAME} printable characters")
        if self._name_claim == "email" and (verified := claims.get("email_verified")) is not True:
            raise _unnamed("email_verified", verified, "true, or another claim in CANDOR_OIDC_NAME_CLAIM")
        given = claims.get(self._groups_claim)
        listed = given if isinstance(given, list) else [given]
        identity = hashlib.sha256(f"{self.provider.issuer}\0{subject}".encode()).hexdigest()[:16]
        until = int(claims["exp"]) * 1_000_000 + self._skew_us
        known = tuple(sorted({one for one in listed if isinstance(one, str) and one in self._granted}))
        return Person(self._principal(f"{PERSON}{identity}", name.strip(), known), known, subject, until)


def _grant(text: str) -> Grant:
    scope, _, model = text.partition("@")
    return Grant(frozenset({scope}), frozenset({model}) if model else None)


def _unnamed(claim: str, found: Any, expected: str) -> UnauthenticatedError:
    return refused(f"{claim}: {repr(found)[:LONGEST_NAME]}", f"{claim}: {expected}")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
