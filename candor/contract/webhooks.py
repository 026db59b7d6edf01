"""Webhooks: what the service sends when a case comes, ends, or is reopened, and how a receiver verifies it."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Sequence
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from candor.contract.cases import Case

SIGNATURE_HEADER: Final = "Candor-Signature"
TOLERANCE_S: Final = 300
"""Age in seconds up to which `verify` accepts a delivery."""

_PARTS: Final = re.compile(r"t=(?P<at>[0-9]{1,12})(?P<macs>(?:,v1=[0-9a-f]{64}){1,8})")


class CaseEvent(BaseModel):
    """The body of a webhook: a case as it was when it was sent."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str = Field(description="Id of the event; each retry has the same, unless the case has changed since.")
    type: Literal["case.waiting", "case.labelled", "case.skipped"] = Field(
        description="State of the case; a case that was reopened is waiting again."
    )
    at: str = Field(description="When the state was read, UTC. Ignore an event older than one of the same case.")
    case: Case


class SignatureError(ValueError):
    """A delivery is not from the service, was changed on its way, or is too old."""


def sign(body: bytes, secrets: Sequence[str], *, at: int) -> str:
    """Return the header `Candor-Signature` of a body, with one signature for each secret.

    Args:
        body: The body as it is sent.
        secrets: Shared with the receiver.
        at: Time of the delivery, seconds since the epoch.

    Example:
        >>> sign(b"{}", ["s3cr3t"], at=1_700_000_000)[:27]
        't=1700000000,v1=dd8508e44d9'
    """
    macs = (hmac.digest(secret.encode(), b"%d." % at + body, hashlib.sha256).hex() for secret in secrets)
    return ",".join([f"t={at}", *(f"v1={mac}" for mac in macs)])


def verify(
    body: bytes, signature: str | None, secret: str, *, tolerance_s: float = TOLERANCE_S, now: float | None = None
) -> CaseEvent:
    """Return the event of a delivery that the service has signed; see `check`.

    Args:
        body: The body as it came, before it is parsed.
        signature: The header `Candor-Signature`.
        secret: Shared with the service; white space around it, as at the end of a file, is ignored.
        tolerance_s: Largest difference between the time of the delivery and now, in seconds.
        now: Seconds since the epoch; by default the clock.

    Raises:
        SignatureError: The header is missing or malformed, no signature matches, or the delivery is too old.

    Example:
        >>> verify(b"{}", "t=1,v1=00", "s3cr3t")
        Traceback (most recent call last):
        ...
        candor.contract.webhooks.SignatureError: The header Candor-Signature is missing or malformed.
    """
    check(body, signature, secret, tolerance_s=tolerance_s, now=now)
    return CaseEvent.model_validate_json(body)


def check(
    body: bytes, signature: str | None, secret: str, *, tolerance_s: float = TOLERANCE_S, now: float | None = None
) -> None:
    """Check the signature of any delivery: a case, or a head of the audit log.

    Args:
        body: The body as it came, before it is parsed.
        signature: The header `Candor-Signature`.
        secret: Shared with the service; white space around it, as at the end of a file, is ignored.
        tolerance_s: Largest difference between the time of the delivery and now, in seconds.
        now: Seconds since the epoch; by default the clock.

    Raises:
        SignatureError: The header is missing or malformed, no signature matches, or the delivery is too old.
    """
    match = _PARTS.fullmatch(signature or "")
    if match is None:
        raise SignatureError(f"The header {SIGNATURE_HEADER} is missing or malformed.")
    at = int(match["at"])
    expected = sign(body, [secret.strip()], at=at).partition(",v1=")[2]
    if not any([hmac.compare_digest(expected, mac) for mac in match["macs"].split(",v1=")[1:]]):  # noqa: C419 — all are compared
        raise SignatureError("No signature matches: another secret, or the body was changed.")
    if abs((time.time() if now is None else now) - at) > tolerance_s:
        raise SignatureError(f"The delivery is more than {tolerance_s:g} s from now.")
