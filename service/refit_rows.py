"""The rows that a refit works with: every logged prediction of the window, divided by role."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from service.decisions.split import CERTIFY, FIT, GATE, roles
from service.errors import TooFewLabelsError
from service.state.labelled import LabelledRows
from service.state.unlabelled import UnlabelledRows

# Inverse-propensity weights above this are cut: a single row must not decide a fit.
LARGEST_WEIGHT = 20.0
_NO_LABEL = -1


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """N logged predictions as columns.

    Attributes:
        logits: float32 (N, K).
        labels: int64 (N,), −1 where none has come.
        cluster: int64 (N,).
        propensity: float64 (N,), NaN where unknown.
        sought: bool (N,): the label was sought, whether or not it has come.
        tested: bool (N,): the label was sought, with a known propensity, and has come. Only such rows test anything: of
            other labels nobody knows how they came to be.
        predicted_at: int64 (N,), microseconds.
        labelled_at: int64 (N,), microseconds; 0 for unlabelled rows.
        segment: object (N,): str, or None where the request named none.
        action: object (N,): str, or None where no policy decided.
        whole: bool (N,): the row is of a time from which every row is here. The others are a selection: with their
            inverse propensities they fit, and say nothing else.
    """

    logits: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    cluster: npt.NDArray[np.int64]
    propensity: npt.NDArray[np.float64]
    sought: npt.NDArray[np.bool_]
    tested: npt.NDArray[np.bool_]
    predicted_at: npt.NDArray[np.int64]
    labelled_at: npt.NDArray[np.int64]
    segment: npt.NDArray[np.object_]
    action: npt.NDArray[np.object_]
    whole: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(cls, labelled: LabelledRows, unlabelled: UnlabelledRows, *, whole_since_us: int | None = None) -> Self:
        """Put labelled and unlabelled rows into one table; `whole_since_us` None says that all rows are there."""
        none = np.zeros(len(unlabelled), dtype=np.int64)
        predicted_at = np.concatenate([labelled.predicted_at, unlabelled.predicted_at])
        return cls(
            np.concatenate([labelled.logits, unlabelled.logits]),
            np.concatenate([labelled.labels, none + _NO_LABEL]),
            np.concatenate([labelled.cluster, unlabelled.cluster]),
            np.concatenate([labelled.propensity, unlabelled.propensity]),
            np.concatenate([labelled.label_sought, unlabelled.label_sought]),
            np.concatenate([labelled.label_sought & (labelled.propensity > 0), none.astype(np.bool_)]),
            predicted_at,
            np.concatenate([labelled.first_labelled_at, none]),
            np.concatenate([labelled.segment, unlabelled.segment]),
            np.concatenate([labelled.actions, unlabelled.actions]),
            predicted_at >= (0 if whole_since_us is None else whole_since_us),
        )

    def with_others(self, others: Rows) -> Rows:
        """Return these rows and others."""
        return Rows(*(np.concatenate([getattr(self, name), getattr(others, name)]) for name in self.__slots__))

    def take(self, which: npt.NDArray[np.bool_]) -> Rows:
        """Return the rows that `which` marks."""
        return Rows(*(getattr(self, name)[which] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Silence:
    """What it means that no label comes: where a source would have spoken by then, its silence is a label too.

    The rows that it speaks of are labelled one and all, by word or by silence, so in a fit each stands for itself. It
    is an assumption of the operator's, so such rows never certify and never gate.

    Attributes:
        label: int, the label that silence means.
        mature_before_us: Predictions made before this time have had their labels, in microseconds since the epoch.
        actions: The source speaks of rows that got one of these.
    """

    label: int
    mature_before_us: int
    actions: frozenset[str]

    def speaks_of(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Mark the rows (N,) whose label has come if there was one."""
        within = np.fromiter((action in self.actions for action in rows.action), np.bool_, len(rows))
        return within & (rows.predicted_at < self.mature_before_us)


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """The rows by what they are for. No group has rows in two of fit, certify and gate.

    Attributes:
        fitting: Labelled rows of role fit that the calibrator is fitted on; those of a silence with a propensity of 1.
        fit: All rows of role fit, from which candidate thresholds are chosen.
        certify: All rows of role certify; the tested ones certify, the others say what they do not cover.
        judged: All rows of role gate. The tested ones gate; the others show where such rows are missing.
        silent: How many of `fitting` are labelled by silence.
    """

    fitting: Rows
    fit: Rows
    certify: Rows
    judged: Rows
    silent: int = 0

    @property
    def gate(self) -> Rows:
        """Tested rows of role gate."""
        return self.judged.take(self.judged.tested)

    @property
    def unidentified_share(self) -> float:
        """Share of the rows of role gate that no label stands for.

        Their propensity is zero, unknown, or so small that none of the labels that came was sought with it.
        """
        return float((~(self.judged.propensity >= self.gate.propensity.min())).mean())

    @property
    def missing_share(self) -> float:
        """Share of the labels sought for rows of role gate that have not come."""
        return float((~self.judged.tested[self.judged.sought]).mean())


def divide(
    rows: Rows,
    *,
    unsought_may_fit: bool,
    min_rows: int,
    silence: Silence | None = None,
    where: str = "/source/feedback",
) -> Division:
    """Divide the rows by the keyed hash of their groups.

    Args:
        rows: Every logged prediction of the window.
        unsought_may_fit: Whether labels that nobody sought enter the fit.
        min_rows: Usable labelled rows below which nothing is done.
        silence: What it means that no label has come; None for nothing.
        where: What the rows are, for messages: the field of the request.

    Raises:
        TooFewLabelsError: There are fewer, or a role has none.
    """
    rows = rows.take(rows.whole | (roles(rows.cluster) == FIT))
    role = roles(rows.cluster)
    complete = np.zeros(len(rows), dtype=np.bool_) if silence is None else silence.speaks_of(rows) & rows.whole
    may_fit = complete | (unsought_may_fit & (rows.labels != _NO_LABEL))
    usable = rows.tested | (may_fit & (role == FIT))
    counts = [int((usable & (role == part)).sum()) for part in (FIT, CERTIFY, GATE)]
    if min(counts) == 0 and int(rows.tested.sum()) >= min_rows:  # labels enough, but of groups that share a role
        raise TooFewLabelsError(
            "There are too few usable labelled rows to refit: all rows of a group have one role.",
            where=where,
            found=f"{sum(counts)} usable labelled rows of {len(np.unique(rows.cluster[usable]))} groups: "
            f"{counts[0]} to fit, {counts[1]} to certify, {counts[2]} to gate",
            expected="some of each",
            remedy="Label rows of more groups; without `groups`, equal inputs are one.",
        )
    if sum(counts) < min_rows or min(counts) == 0:
        raise TooFewLabelsError(
            "There are too few usable labelled rows to refit.",
            where=where,
            found=f"{sum(counts)} usable of {int((rows.labels != _NO_LABEL).sum())} labelled rows: "
            f"{counts[0]} to fit, {counts[1]} to certify, {counts[2]} to gate",
            expected=f"at least {min_rows}, some of each",
            remedy="A label tests a refit only where a policy sought it: predict with one (`?policy=`) that reviews or "
            "explores. Widen `explore`, or let labels that nobody sought into the fit with unknown_propensity=fit.",
        )
    fitting, of_silence = rows.take(usable & (role == FIT)), complete[usable & (role == FIT)]
    silent = of_silence & (fitting.labels == _NO_LABEL)
    if silence is not None:
        fitting = replace(
            fitting,
            labels=np.where(silent, silence.label, fitting.labels),
            propensity=np.where(of_silence, 1.0, fitting.propensity),
        )
    return Division(
        fitting=fitting,
        fit=rows.take((role == FIT) & rows.whole),
        certify=rows.take(role == CERTIFY),
        judged=rows.take(role == GATE),
        silent=int(silent.sum()),
    )


def fit_weights(propensity: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return capped inverse propensities (N,); 1 where the propensity is zero or unknown.

    >>> fit_weights(np.array([1.0, 0.5, 0.001, np.nan]))
    array([ 1.,  2., 20.,  1.])
    """
    known = propensity > 0
    return np.where(known, np.minimum(1 / np.where(known, propensity, 1.0), LARGEST_WEIGHT), 1.0)


def effective_rows(weights: npt.NDArray[np.float64]) -> float:
    """Return how many equal rows the weighted ones are worth (Kish's effective sample size).

    >>> effective_rows(np.array([1.0, 1.0, 1.0])), effective_rows(np.array([1.0, 0.0]))
    (3.0, 1.0)
    """
    return float(weights.sum() ** 2 / (weights**2).sum())
