"""The request of a recalibration, and its messages to the service."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from calibrators import Calibrator
from service.decisions.multicalibrated import METHOD, Multicalibrated
from service.decisions.unattended import Limits

UNCHANGED: Final = "unchanged"
"""Instead of a method: keep the calibrator and solve only the policies on labelled traffic."""


@dataclass(frozen=True, slots=True)
class RefitRequest:
    """A request to /recalibrate.

    Attributes:
        mode: "dry_run" keeps nothing, "propose" keeps a proposal, "activate" also activates it if the gate passes.
        calibrator: Registered name, "multicalibration", or `UNCHANGED`; None keeps the active method.
        columns: Columns of a multicalibration; None for those of the active one.
        since_us: Earliest prediction time (microseconds, UTC), or None.
        until_us: Time before which predictions count, or None.
        window_by_rule: Whether a rule set these times, not a caller who may have seen the labels.
        unknown_propensity: "exclude", or "fit" to use labels that were not sought in the fit, never to certify or gate.
        gate: "superior" or "non_inferior".
        implicit_negative: Label of a source's silence, `{"label", "source", "maturity_days", "actions"}`, or None.
        rescore: Whether to add rows of earlier models with stored inputs, scored again.
        labelled_set: Id of the uploaded set to use; None uses labelled traffic.
        limits: Fields of `Limits` that are stricter than the operator's.
    """

    mode: Literal["dry_run", "propose", "activate"] = "dry_run"
    calibrator: str | None = None
    columns: Sequence[str] | None = None
    since_us: int | None = None
    until_us: int | None = None
    window_by_rule: bool = False
    unknown_propensity: Literal["exclude", "fit"] = "exclude"
    gate: Literal["superior", "non_inferior"] = "superior"
    implicit_negative: dict[str, Any] | None = None
    rescore: bool = False
    labelled_set: str | None = None
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def start_by_rule(self) -> bool:
        """Whether a rule sets the start of the window."""
        return self.since_us is None or self.window_by_rule


@dataclass(frozen=True, slots=True)
class Started:
    """The start of a job, as its row shows it.

    Attributes:
        number: Number of the job.
        created_at: When it was created, in microseconds since the epoch.
        starts: Number of its starts, including this one.
        at_us: When it was started, in microseconds since the epoch.
    """

    number: int
    created_at: int
    starts: int
    at_us: int


@dataclass(frozen=True, slots=True)
class RefitTask:
    """The child process's task.

    `limits` restrict automatic activation; labels of the newest predictions are read, up to `max_labels`, from the
    replica at `read_url` if there is one and it shows that the job has `started`; predictions are deleted after
    `kept_us` microseconds, or never; the model may take `run_timeout_s` for a run; hours of the log are read from the
    files of `log_sink`. `rows_per_day` are those of the model's traffic, measured where a policy needs them. Inputs are
    scored on the cluster at `ray`, if there is one.
    """

    database_url: str
    bundle: str
    model: str
    revision: str
    min_rows: int
    alpha: float
    margin: float
    max_labels: int
    run_timeout_s: float
    request: RefitRequest
    limits: Limits = field(default_factory=Limits)
    read_url: str | None = None
    kept_us: float | None = None
    started: Started | None = None
    log_sink: str | None = None
    rows_per_day: int | None = None
    ray: str | None = None


def packed(groups: NDArray[np.int64]) -> str:
    """Return groups as a message carries them.

    >>> unpacked(packed(np.array([7, -5, 7])))
    array([-5,  7])
    """
    return b64encode(np.unique(groups).astype("<i8").tobytes()).decode()


def unpacked(groups: str) -> NDArray[np.int64]:
    """Undo `packed`."""
    return np.frombuffer(b64decode(groups), "<i8").astype(np.int64)


def columns_of(request: RefitRequest, active: Calibrator) -> tuple[str, ...]:
    """Return the columns that the requested calibrator reads; none but for a multicalibration."""
    if (request.calibrator or active.name) != METHOD:
        return ()
    if request.columns is None and isinstance(active, Multicalibrated):
        return active.columns
    return tuple(request.columns or ())


Show = Callable[[dict[str, Any]], dict[str, Any]]
Progress = Callable[[str, int], None]
STEPS: Final = 6
"""Steps of a recalibration: reading, fitting, certifying, comparing, measuring, and keeping the result."""
