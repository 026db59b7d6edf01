"""One model: its active revision, its loaded revisions, and its problem if it cannot serve."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from service.errors import NotReadyError, RevisionStateError
from service.inference.inputs import NOTHING, Beyond
from service.inference.runtimes import Runtime
from service.serving.plane import Plane, Served
from service.state.challengers import Challenger
from service.state.desired import UNSAID, Desired
from service.state.pointers import Pointer

if TYPE_CHECKING:  # few services have a model on another server, and its client takes long to import
    from service.inference.remote import Remote

# The pause between attempts to load a revision starts at the poll interval and doubles up to this.
LONGEST_RETRY_S = 30.0

NO_POINTER = Pointer(active="", previous=None, epoch=0)  # the model has never had an active revision


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt to load the active revision.

    Attributes:
        epoch: Epoch of the pointer.
        last_change: When the model's folder of bundles had last changed before the attempt.
        delay_s: Pause before the next attempt, unless the pointer or the folder changes.
        again_at: End of the pause on the monotonic clock.
    """

    epoch: int
    last_change: int
    delay_s: float
    again_at: float


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """A challenger on this process.

    Attributes:
        challenger: What the state says of it.
        active: Id of the bundle that was active when it was loaded.
        served: Ready to run; None if it needs no run (the active revision has its model file), or has a problem.
        problem: Why it is not scored; None otherwise.
        refused: Whether its labels are the problem, which stays as long as this bundle is active.
        last_change: When the model's folder of bundles had last changed before a failed attempt; a change is tried.
        again_at: When a problem is to be tried again, on the monotonic clock; infinite if only a change can help.
    """

    challenger: Challenger
    active: str
    served: Served | None = None
    problem: str | None = None
    refused: bool = False
    last_change: int = 0
    again_at: float = math.inf


@dataclass(eq=False)
class Model:
    """One model: its hot path and its loaded revisions.

    Attributes:
        name: Name of the model.
        plane: Its hot path; `plane.served` is None while no revision is active.
        pointer: The pointer last read from the state; `NO_POINTER` without one.
        desired: Whether the model should be served, as last read from the state.
        loaded: Revisions ready to run, by id, with voided certificates marked.
        beside: Its challengers on this process.
        beyond: Columns that rows may have for them.
        voided: Reasons of voided certificates, by key.
        problem: Why it does not serve its active revision; None if it does.
        damaged: Whether its bundle is the reason.
        refused: Why new bundles did not become proposals, and what is wrong with the active one's folder, by version.
        failure: The last failed attempt to load the active revision; None after a success.
    """

    name: str
    plane: Plane
    pointer: Pointer = NO_POINTER
    desired: Desired = UNSAID
    loaded: dict[str, Served] = field(default_factory=dict)
    beside: tuple[Beside, ...] = ()
    beyond: Beyond = NOTHING
    voided: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    failure: Failure | None = None
    damaged: bool = False
    refused: dict[int, str] = field(default_factory=dict)

    @property
    def refused_bundles(self) -> int:
        """Number of its bundles refused at the last attempt, the active one included."""
        return len(self.refused) + (self.problem is not None and self.damaged)

    @property
    def remote(self) -> Remote | None:
        """The active revision's model on a server elsewhere; None for all others."""
        served = self.plane.served
        return None if served is None else _remote(served.session)

    @property
    def remotes(self) -> set[Remote]:
        """Models on servers elsewhere, of all loaded revisions."""
        return {remote for served in self.loaded.values() if (remote := _remote(served.session)) is not None}

    @property
    def served(self) -> Served:
        """The active revision; raises NotReadyError without one."""
        served = self.plane.served
        if served is None:
            raise NotReadyError(
                f"Model {self.name} has no active revision."
                if self.desired.loaded
                else f"Model {self.name} is unloaded.",
                remedy="Wait until /readyz answers 200."
                if self.desired.loaded
                else f"Load it: POST /v1/models/{self.name}/load",
            )
        return served

    def check_loaded(self) -> None:
        """Raise RevisionStateError if the model is unloaded."""
        if not self.desired.loaded:
            raise RevisionStateError(
                f"Model {self.name} is unloaded.",
                where="model",
                found="unloaded",
                expected="loaded",
                remedy=f"Load it first: POST /v1/models/{self.name}/load",
            )

    def failed(self, pointer: Pointer, changed: int, *, first_delay_s: float) -> None:
        """Record a failed attempt to load the active revision, and double the pause: each attempt reads a whole bundle.

        Args:
            pointer: The pointer.
            changed: When the model's folder of bundles had last changed before the attempt.
            first_delay_s: Pause after a first failure.
        """
        before = self.failure
        delay_s = first_delay_s
        if before is not None and (before.epoch, before.last_change) == (pointer.epoch, changed):
            delay_s = min(2 * before.delay_s, LONGEST_RETRY_S)
        self.failure = Failure(pointer.epoch, changed, delay_s, time.monotonic() + delay_s)

    def would_fail_again(self, pointer: Pointer, changed: int) -> bool:
        """Return whether an attempt now would fail again."""
        return (
            self.failure is not None
            and (self.failure.epoch, self.failure.last_change) == (pointer.epoch, changed)
            and time.monotonic() < self.failure.again_at
        )


def _remote(session: Runtime) -> Remote | None:
    return cast("Remote", session) if session.provider == "remote" else None
