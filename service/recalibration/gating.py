"""The gate of a recalibration: both calibrators on the same gate rows, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bundle.split import one_per_group
from calibrators import Calibrator, Temperature
from candor.contract.gate import Gate
from service.decisions.calibrated import Calibrated
from service.decisions.gate import compare, even_sample
from service.decisions.multicalibrated import Multicalibrated
from service.decisions.rows import Rows
from service.decisions.solved import SolvedPolicy
from service.decisions.unattended import judge
from service.recalibration.calibration_parts import calibration_parts
from service.recalibration.elsewhere import elsewhere
from service.recalibration.report import change_caps
from service.recalibration.rows import Division
from service.recalibration.task import RefitTask
from service.recalibration.uploaded import Uploaded

_Side = tuple[Calibrator, Mapping[str, SolvedPolicy]]
_Pair = tuple[Calibrated, Calibrated]


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """Gate rows before and after: under the active calibrator and policies, and under the recalibrated ones.

    Attributes:
        all: All rows.
        labelled: The labelled ones, which gate.
        compared: Those of them that the verdict compares, see `even_sample`.
        calibrator: The recalibrated calibrator.
    """

    all: _Pair
    labelled: _Pair
    compared: _Pair
    calibrator: Calibrator

    @classmethod
    def of(cls, rows: Rows, names: Sequence[str], before: _Side, after: _Side, seed: int) -> Self:
        """Calibrate and decide rows on both sides.

        Args:
            rows: The gate rows.
            names: The model's labels.
            before: The active calibrator and policies.
            after: The recalibrated ones.
            seed: Seed of the sample that is compared.
        """
        known = rows.known()
        one, other = (Calibrated.of(calibrator, names, rows, policies) for calibrator, policies in (before, after))
        labelled = one.take(known), other.take(known)
        kept = even_sample(labelled[0].rows.propensity, seed)
        return cls((one, other), labelled, (labelled[0].take(kept), labelled[1].take(kept)), after[0])

    def calibration(self, seed: int) -> list[dict[str, Any]]:
        """Return the evidence on calibration of each part of the compared rows, see `calibration_parts`."""
        cells, calibrator = self.compared[0].rows.cells, self.calibrator
        by_value = calibrator.groups(cells) if isinstance(calibrator, Multicalibrated) and cells is not None else ()
        return calibration_parts(*self.compared, seed, by_value)


def gate_verdict(
    task: RefitTask,
    rows: Division,
    sides: Sides,
    active: Calibrator,
    uploaded: Uploaded | None,
    *,
    attempt: int,
    seed: int,
    uncertified: Sequence[tuple[str, str | None]],
    calibration_error: float,
    window_by_rule: bool,
) -> Gate:
    """Return the verdict on a recalibrated calibrator, with whether it may be activated automatically.

    Args:
        task: The task.
        rows: The rows by role.
        sides: The gate rows, before and after.
        active: The active calibrator; nothing is tested if it is also the recalibrated one.
        uploaded: Source of uploaded rows; None for traffic.
        attempt: Number of this look at the gate rows.
        seed: Seed of every draw.
        uncertified: As in `judge`.
        calibration_error: As in `judge`.
        window_by_rule: As in `judge`.
    """
    candidate, drawn = sides.calibrator, rows.judged.drawn
    before, after = sides.labelled
    others = drawn & ~rows.judged.known()
    verdict = compare(
        after.probabilities,
        before.probabilities,
        before.rows.label,
        before.rows.group,
        mode=task.request.gate,
        attempt=attempt,
        alpha=task.alpha,
        margin=task.margin,
        propensity=before.rows.propensity,
        traffic=(sides.all[1].probabilities[others], sides.all[0].probabilities[others]) if others.any() else None,
        elsewhere=elsewhere(candidate, active, (rows.fitting, rows.fit, rows.certify)),
        seed=seed,
    )
    if candidate is active:
        reason = "The calibrator is unchanged: the policies are solved anew on labelled traffic."
        verdict = verdict.model_copy(update={"mode": "non_inferior", "passed": True, "reason": reason})
    every = np.flatnonzero(drawn)
    return judge(
        verdict,
        limits=task.limits,
        unidentified_share=rows.unidentified_share,
        missing_share=rows.judged.take(every).missing_share(),
        caps=change_caps(
            *sides.all,
            which=every[one_per_group(rows.judged.group[every], seed)],
            limits=task.limits,
            level=verdict.alpha,
        ),
        uncertified=uncertified,
        calibration_error=calibration_error,
        at_bound=isinstance(candidate, Temperature) and candidate.at_bound_,
        represents_traffic=uploaded is None or uploaded.represents,
        uploaded=uploaded is not None,
        window_by_rule=window_by_rule,
    )
