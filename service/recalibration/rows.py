"""The rows of a recalibration, divided by role."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from bundle.split import CERTIFY, FIT, GATE, roles
from service.decisions.rows import NO_LABEL, Rows
from service.errors import TooFewLabelsError
from service.places import Place, in_body
from service.times import iso

_FEEDBACK: Final = in_body("source", "feedback")
LARGEST_WEIGHT: Final = 20.0  # of an inverse propensity: a single row must not decide a fit


@dataclass(frozen=True, slots=True)
class Silence:
    """An implicit label for rows on which a source stays silent until maturity.

    The source labels all its rows, by a label or by silence, so each row has weight 1 in a fit. This is an assumption
    of the operator, so such rows never certify and never gate.

    Attributes:
        label: int, the implicit label.
        mature_before_us: Predictions before this time are mature, in microseconds since the epoch.
        actions: The source covers rows with these actions.
    """

    label: int
    mature_before_us: int
    actions: frozenset[str]

    def speaks_of(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return a mask (N,) of the mature rows that the source covers, but for those with a label the model lacks."""
        within = np.fromiter((action in self.actions for action in rows.action), np.bool_, len(rows))
        lacked = (rows.label == NO_LABEL) & (rows.labelled_at > 0)
        within &= ~lacked & (rows.predicted_at < self.mature_before_us)
        return within


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """The rows by role. All rows of a group have the same role: fit, certify or gate.

    Attributes:
        fitting: Weighted fit rows for the calibrator, implicitly labelled ones with a propensity of 1.
        fit: All drawn fit rows, weighted, for candidate thresholds.
        certify: All drawn certify rows; the labelled ones certify, the others show what they do not cover.
        judged: Gate rows: the labelled ones gate, and the drawn ones show what they do not cover.
        silent: Number of implicitly labelled rows in `fitting`.
    """

    fitting: Rows
    fit: Rows
    certify: Rows
    judged: Rows
    silent: int = 0

    @property
    def gate(self) -> Rows:
        """Labelled gate rows."""
        return self.judged.take(self.judged.known())

    @property
    def unidentified_share(self) -> float:
        """Share of unidentified gate rows: those that no labelled row represents.

        Their propensity is zero, unknown, or below that of every labelled row. All, if none is drawn.
        """
        propensity = self.judged.propensity
        represented = propensity >= propensity[self.judged.known()].min()
        drawn = represented[self.judged.drawn]
        return float((~drawn).mean()) if len(drawn) else 1.0


def divide(
    rows: Rows,
    *,
    unsought_may_fit: bool,
    min_rows: int,
    silence: Silence | None = None,
    share: float = 1.0,
    left_out_before: int | None = None,
    where: Place = _FEEDBACK,
) -> Division:
    """Divide the rows by the keyed hash of their groups.

    Args:
        rows: All logged predictions of the window.
        unsought_may_fit: Whether labels that were not sought enter the fit.
        min_rows: Minimum usable labelled rows.
        silence: Rule for implicit labels; None without one.
        share: Share of the groups that are drawn: an implicitly labelled row stands for 1/share rows in a fit.
        left_out_before: Time before which rows are left out, for errors; None if none are.
        where: Field of the request, for errors.

    Raises:
        TooFewLabelsError: Too few rows are usable, or a role has none.
    """
    if not rows.whole.all():
        rows = rows.take(rows.whole | (roles(rows.group) == FIT))
    role = roles(rows.group)
    complete = np.zeros(len(rows), dtype=np.bool_) if silence is None else silence.speaks_of(rows) & rows.whole
    may_fit = complete | (unsought_may_fit & (rows.label != NO_LABEL))
    usable = (rows.known() & (rows.drawn | (role != CERTIFY))) | (may_fit & (role == FIT))
    counts = [int((usable & (role == part)).sum()) for part in (FIT, CERTIFY, GATE)]
    sampled = "" if share == 1 else f" Only {share:.2%} of the groups certify: a shorter window has a larger share."
    since = "" if left_out_before is None else f" since {iso(left_out_before)} (earlier ones are left out)"
    if min(counts) == 0 and int(rows.known().sum()) >= min_rows:  # enough labels, but too few groups
        raise TooFewLabelsError(
            "Too few groups to split into fit, certify and gate rows.",
            where=where,
            found=f"{sum(counts)} usable labelled rows of {len(np.unique(rows.group[usable]))} groups: "
            f"{counts[0]} to fit, {counts[1]} to certify, {counts[2]} to gate",
            expected="some of each",
            remedy="Label rows of more groups; without `groups`, equal inputs form a group." + sampled,
        )
    if sum(counts) < min_rows or min(counts) == 0:
        raise TooFewLabelsError(
            "Too few usable labelled rows to recalibrate.",
            where=where,
            found=f"{sum(counts)} usable of {int((rows.label != NO_LABEL).sum())} labelled rows{since}: "
            f"{counts[0]} to fit, {counts[1]} to certify, {counts[2]} to gate",
            expected=f"at least {min_rows}, some of each",
            remedy="Only sought labels certify and gate: predict with a policy (`?policy=`) that reviews or explores, "
            "or whose `labels` arise by themselves. Increase `explore`, or add labels that were not sought to the fit "
            "with unknown_propensity=fit." + sampled,
        )
    fitting, of_silence = rows.take(usable & (role == FIT)), complete[usable & (role == FIT)]
    silent = of_silence & (fitting.label == NO_LABEL)
    if silence is not None:
        fitting = replace(
            fitting,
            label=np.where(silent, silence.label, fitting.label),
            propensity=np.where(of_silence, 1.0, fitting.propensity),
        )
    return Division(
        fitting=_weighted(fitting, np.where(silent, 1 / share, 1.0)),
        fit=_weighted(rows.take((role == FIT) & rows.whole & rows.drawn)),
        certify=rows.take((role == CERTIFY) & rows.drawn),
        judged=rows.take(role == GATE),
        silent=int(silent.sum()),
    )


def _weighted(rows: Rows, each: npt.NDArray[np.float64] | float = 1.0) -> Rows:
    return replace(rows, weight=fit_weights(rows.propensity) * each)


def fit_weights(propensity: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return capped inverse propensities (N,); 1 where the propensity is zero or unknown.

    >>> fit_weights(np.array([1.0, 0.5, 0.001, np.nan]))
    array([ 1.,  2., 20.,  1.])
    """
    known = propensity > 0
    return np.where(known, np.minimum(1 / np.where(known, propensity, 1.0), LARGEST_WEIGHT), 1.0)


def effective_rows(weights: npt.NDArray[np.float64]) -> float:
    """Return the effective number of weighted rows (Kish).

    >>> effective_rows(np.array([1.0, 1.0, 1.0])), effective_rows(np.array([1.0, 0.0]))
    (3.0, 1.0)
    """
    return float(weights.sum() ** 2 / (weights**2).sum())
