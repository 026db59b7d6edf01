"""Whether all processes of the service serve what they should."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from service.others import CONDITION, Answer
from service.runtime import Runtime

_STOPPING: Final = "It is stopping."
_MISSING: Final = {"starting": "It has not started yet.", "silent": "It does not answer."}


@dataclass(frozen=True, slots=True)
class Readiness:
    """The condition of the service.

    Attributes:
        problems: Why models do not serve their active revisions, by model; and what keeps a worker from its first
            answer, by "worker" and its number; "service" while it stops. Empty if the service is ready.
        models: Active revision by model, None without one.
        bundles: Why the remote folder of bundles could not be listed; this makes nothing unready.
        state: Why the state could not be read the last time; by itself this makes nothing unready.
        stale_for_s: Longest time without database contact, in seconds.
    """

    problems: dict[str, str]
    models: dict[str, str | None]
    bundles: str | None
    state: str | None
    stale_for_s: float


async def readiness(runtime: Runtime) -> Readiness:
    """Return the condition of the service, on the event loop."""
    found = together(await runtime.others.gather(CONDITION))
    return replace(found, problems={**found.problems, "service": _STOPPING}) if runtime.others.stopping else found


def together(answers: Sequence[Answer]) -> Readiness:
    """Return the condition of the service from those of its workers: the worst.

    A worker that is being started again has no connections, so it makes nothing unready.
    """
    problems = {f"worker {each.worker}": _MISSING[each.missing] for each in answers if each.missing in _MISSING}
    told = [each.value for each in answers if each.value is not None]
    for value in told:
        problems |= value["problems"]
    return Readiness(
        problems=problems,
        models=told[0]["models"] if told else {},
        bundles=next((value["bundles"] for value in told if value["bundles"]), None),
        state=next((value["state"] for value in told if value["state"]), None),
        stale_for_s=max((value["stale_for_s"] for value in told), default=0.0),
    )
