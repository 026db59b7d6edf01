"""A first policy for one class: the strictest precision that the certify rows will probably show, and a review share.

The promise is chosen from fit rows, and from the number, group sizes and scores of certify rows. Certify labels are not
read: a promise chosen because these labels support it would no longer be a hypothesis fixed before the test, and its
certificate could be false more often than delta. So a suggestion uses no look, and the certificates of the policy hold
at their level.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from candor.contract.certificates import Threshold
from candor.contract.conditions import REVIEW
from candor.contract.policies import TOP, Policy
from service.decisions.binomial import critical_errors
from service.decisions.clustered import clustered
from service.decisions.counting import Sample
from service.decisions.grid import Grid, grid_at, make_grid, pairs
from service.decisions.lint import furthest
from service.decisions.policy import parse_policy
from service.decisions.rows import ScoredRows
from service.decisions.sequence import choose_start
from service.errors import ConfigurationError, InputShapeError

LADDER: Final = (0.99, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Precisions that are tried, strictest first."""

POWER: Final = 0.8
"""Smallest estimated chance of all certificates with which a promise is chosen."""

FEW: Final = 25
"""Positives among the fit rows below which every estimate is rough."""

MOST: Final = 20
"""Largest number of labels for which an estimate is made: this many times the labels there are."""

_DRAWS: Final = 4000
_EXPLORED: Final = 0.25  # of what people look at: the rest is reviewed
_POLICY: Final = parse_policy({"id": "suggested", "bands": [{"action": REVIEW}]})  # what its promises count: rows


@dataclass(frozen=True, slots=True)
class Rung:
    """A precision of the ladder that is above the share of positives.

    Attributes:
        min_precision: The precision.
        chance: Estimated probability in [0, 1] that the certify rows certify it, with the policy's other promise.
        more: Estimated number of further labelled rows, split as these are, for a chance of `POWER`; 0 if it has that
            chance, None if even `MOST` times these labels are not enough.
    """

    min_precision: float
    chance: float
    more: int | None


@dataclass(frozen=True, slots=True)
class Plateau:
    """Fit rows of one probability: a fixed threshold takes all of them, or none.

    Attributes:
        probability: The probability.
        share: Their share of the fit rows.
        taken: Whether the threshold takes them, since no other takes fewer rows.
    """

    probability: float
    share: float
    taken: bool


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A first policy, and what the fit rows say about it.

    Attributes:
        policy: The policy.
        rungs: The precisions tried, strictest first.
        fit_rows: Number of fit rows; of groups where rows have groups.
        positives: Number of positives among them.
        certify_rows: Number of rows that will certify.
        blocked: Largest share of the rows that `block` is expected to take; 0 without that band.
        flagged: Share of the fit rows at or above the last threshold, at most.
        precision: Share of positives among the fit rows that are there; None without rows.
        recall: Share of the positives among the fit rows that are there; None without positives.
        plateau: Rows of one probability that keep a fixed threshold far from the review share; None without these.
    """

    policy: Policy
    rungs: tuple[Rung, ...]
    fit_rows: int
    positives: int
    certify_rows: int
    blocked: float
    flagged: float
    precision: float | None
    recall: float | None
    plateau: Plateau | None

    @property
    def promised(self) -> float | None:
        """The precision that the policy promises; None for none."""
        values = [when.value for _, when in self.policy.promises() if when.metric == "precision"]
        return values[0] if values else None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        return {"policy": self.policy.to_dict(), **{k: v for k, v in asdict(self).items() if k != "policy"}}


def suggest(
    fit: ScoredRows,
    *,
    positive: str,
    certify_rows: int,
    labelled_rows: int,
    certify: ScoredRows | None = None,
    delta: float = 0.05,
    labels: int = 1,
    review_share: float = 0.02,
    rows_per_day: int | None = None,
    per: Literal["row", "group"] = "row",
    seed: int = 0,
) -> Suggestion:
    """Write a first policy of `block`, `review` and `allow` whose promises will probably be certified.

    `block` promises the highest precision of `LADDER` for which the certificates of the policy have an estimated chance
    of at least `POWER`; without such a precision there is no such band. `review` takes `review_share` of the rows
    beyond, a quarter of it for exploration. It promises a flag rate where the certify rows can show one, and is a fixed
    threshold otherwise.

    Args:
        fit: Labelled rows that choose.
        positive: The class that they are scored for.
        certify_rows: Number of rows, or groups, that will certify.
        labelled_rows: Number of all labelled rows, of which these are a part.
        certify: These rows, of which the sizes of groups are read and no labels; None if they are like the fit rows.
        delta: Probability that any promise of the policy is false.
        labels: Number of labels of a multi-label model that share delta.
        review_share: Share of all rows in (0, 1) that people look at.
        rows_per_day: Rows of a busy day, for a promise in rows per day; None for a promise of a share.
        per: What the promises count, `certify.per` of the policy.
        seed: Of the draws.

    Returns:
        The policy, and its estimates.

    Raises:
        ConfigurationError: The positive class is "top", or the review share is out of range.
        InputShapeError: There are no fit rows.
        PolicyError: Delta is out of range.

    Example:
        >>> p = np.linspace(0, 1, 4000, dtype=np.float32)
        >>> rows = ScoredRows(probability=p, score=p, positive=np.random.default_rng(0).random(4000) < p**4)
        >>> found = suggest(rows, positive="fraud", certify_rows=4000, labelled_rows=8000)
        >>> [(rung.min_precision, rung.chance >= POWER) for rung in found.rungs][2:5]
        [(0.9, False), (0.8, True), (0.7, True)]
        >>> found.promised
        0.8
    """
    if positive == TOP:
        raise ConfigurationError(
            'A suggestion is about one class, not about "top".',
            where="--positive",
            found=TOP,
            expected="a label of the model",
            remedy='For automatic answers, start from the policy "Answer automatically, or abstain" of the reference.',
        )
    if not 0 < review_share < 1:
        raise ConfigurationError(
            "The review share is out of range.",
            where="--review-share",
            found=review_share,
            expected="a number above 0 and below 1",
            remedy="Give the share of all rows that people can look at, such as 0.02.",
        )
    if not len(fit):
        raise InputShapeError(
            "The reference has no fit rows to choose a promise from.", where="fit", found=0, expected="labelled rows"
        )
    certifying = fit if certify is None else certify
    rows = _FitRows(fit, certifying, positive, certify_rows, delta, labels, review_share, rows_per_day, per, seed)
    rungs, chosen = [], rows.draft(None)
    for precision in LADDER:
        if precision <= rows.base_rate:
            break
        draft = rows.draft(precision)
        likely = draft.chance >= POWER
        if likely and chosen.precision is None:
            chosen = draft
        more = 0 if likely else rows.more(precision, labelled_rows)
        rungs.append(Rung(precision, round(draft.chance, 3), more))
    flagged, right, recall = rows.flagged(chosen)
    return Suggestion(
        policy=chosen.policy,
        rungs=tuple(rungs),
        fit_rows=rows.size,
        positives=rows.positives,
        certify_rows=certify_rows,
        blocked=rows.share(chosen.blocked),
        flagged=flagged,
        precision=right,
        recall=recall,
        plateau=chosen.plateau,
    )


@dataclass(frozen=True, slots=True)
class _Draft:
    """A policy with the chance of its certificates.

    Attributes:
        policy: The policy.
        precision: The precision that it promises, if any.
        chance: Estimated probability in [0, 1] that all its promises are certified at a first look.
        blocked: The last candidate that `block` may take; None for none.
        flagged: The last candidate that `block` or `review` may take; None for a fixed threshold.
        plateau: See `Suggestion`.
    """

    policy: Policy
    precision: float | None
    chance: float
    blocked: int | None
    flagged: int | None
    plateau: Plateau | None

    @property
    def fixed(self) -> float:
        """The fixed threshold of `review`."""
        return next(band.condition.value for band in self.policy.bands if band.action == REVIEW and band.condition)


class _FitRows:
    """What fit rows say about policies, on the grid that `solve` will make of them."""

    def __init__(
        self,
        fit: ScoredRows,
        certify: ScoredRows,
        positive: str,
        certify_rows: int,
        delta: float,
        labels: int,
        review_share: float,
        rows_per_day: int | None,
        per: Literal["row", "group"],
        seed: int,
    ) -> None:
        self._fit, self._positive, self._delta, self._seed = fit, positive, delta / labels, seed
        self._certificates: dict[str, Any] = {"delta": delta}
        if labels > 1:
            self._certificates["labels"] = labels
        if per == "group":
            self._certificates["per"] = per
        self._day = rows_per_day
        self._certify, self._review = certify_rows, review_share
        self._grid = make_grid(fit, fit)
        # None where no group has two rows
        groups = None if per == "group" else clustered(_POLICY, self._grid, fit, certify, seed)
        self._grouped = None if groups is None else cache(groups.chances)
        sample = self._sample(self._grid)
        self._precision, self._recall = sample.count("precision"), sample.count("recall")
        values, counts = np.unique(fit.probability, return_counts=True)
        self._values, self._counts = values[::-1], counts[::-1]
        self.size = sample.size
        self.positives = int(self._recall.known[-1])
        self.base_rate = self.positives / self.size
        self._share: NDArray[np.float64] = np.divide(self._precision.n, self.size)
        n, errors = self._precision.n, self._precision.errors
        self._rate: NDArray[np.float64] = np.asarray(
            scipy.special.betaincinv(errors + 0.5, n - errors + 0.5, 0.5), np.float64
        )

    def _sample(self, grid: Grid) -> Sample:
        return Sample(self._fit, grid.cells(self._fit), grid.floor, self._seed)

    def share(self, place: int | None) -> float:
        """Return the share of the rows at or above a candidate."""
        return 0.0 if place is None else float(self._share[place])

    def flagged(self, draft: _Draft) -> tuple[float, float | None, float | None]:
        """Return `flagged`, `precision` and `recall` of a suggestion."""
        place, precision, recall = draft.flagged, self._precision, self._recall
        if place is None:
            sample = self._sample(grid_at([Threshold.at(draft.fixed, -math.inf)], self._fit, self._fit))
            place, precision, recall = 0, sample.count("precision"), sample.count("recall")
        n = int(precision.n[place])
        right = 1 - float(precision.errors[place]) / n if n else None
        return n / self.size, right, 1 - float(recall.known_errors[place]) / self.positives if self.positives else None

    def draft(self, precision: float | None, times: float = 1.0) -> _Draft:
        """Return the policy with a precision for `block`, or without that band.

        Args:
            precision: The precision.
            times: How many times the labelled rows there are. The further rows are expected to have the median rates.
        """
        blocked = None if precision is None else furthest(1 - precision, "precision", self._precision)
        bands: list[dict[str, Any]] = []
        if precision is not None:
            bands.append({"action": "block", "when": {"min_precision": precision}})
        # A flag rate counts the blocked, the reviewed and the explored rows; people look at the last two.
        digits = 1 - math.floor(math.log10(self._review))
        limit, explored = round(self.share(blocked) + self._review, digits), round(self._review * _EXPLORED, digits + 1)
        if self._day is not None:
            limit = min(max(round((self.share(blocked) + self._review) * self._day), 1) / self._day, 1.0)
        level = self._delta / (1 if precision is None else 2) / 2  # of each promise, at a first look
        when, flagged, flags, plateau = self._reviewed(
            blocked, limit, (limit - explored) / (1 - explored), level, times
        )
        bands += [{"action": REVIEW}] if when is None else [{"action": REVIEW, "when": when}, {"action": "allow"}]
        actions = [band["action"] for band in bands if band["action"] != REVIEW]
        policy = parse_policy(
            {
                "id": "suggested",
                "positive": self._positive,
                "bands": bands,
                "certify": self._certificates,
                "explore": {"share": explored, "actions": actions} if actions else {},
                **({"rows_per_day": self._day} if when is not None and "max_review_per_day" in when else {}),
            }
        )
        chance = 0.0
        if precision is not None:
            shown = self._shown_precision(1 - precision, policy.certify.delta / policy.claims / 2, times)
            chance = max(shown + flags - 1, 0.0)
        return _Draft(policy, precision, chance, blocked, flagged, plateau)

    def more(self, precision: float, labelled_rows: int) -> int | None:
        """Return how many more labelled rows give a precision a chance of `POWER`; None beyond `MOST` times these."""
        low, high = 1.0, float(MOST)
        if self.draft(precision, high).chance < POWER:
            return None
        while high - low > 0.02 * low:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if self.draft(precision, middle).chance >= POWER else (middle, high)
        return math.ceil((high - 1) * labelled_rows)

    def _reviewed(
        self, blocked: int | None, limit: float, left: float, level: float, times: float
    ) -> tuple[dict[str, float] | None, int | None, float, Plateau | None]:
        """Return the condition of `review`, the last candidate it may take, the chance of its certificate, a plateau.

        A flag rate is promised where the rows will show it for at least half of the room that it leaves. Without room
        for a threshold there is no condition: all other rows are reviewed.
        """
        taken = self.share(blocked)
        if limit < 1:
            half = np.flatnonzero((self._share >= (taken + left) / 2) & (self._share <= left))
            if len(half):
                shown = self._shown_flag_rate(int(half[0]), left, level, times)
                if shown >= (1 + POWER) / 2:
                    promise = {"max_flag_rate": limit}
                    if self._day is not None:
                        promise = {"max_review_per_day": round(limit * self._day)}
                    return promise, int(half[-1]), shown, None
        everything = len(self._share) - 1
        if limit >= 1:
            return None, everything, 1.0, None
        fixed, plateau = self._fixed(blocked, taken, left)
        if fixed is None:
            return None, everything, 1.0, plateau
        return {"min_probability": fixed}, None, 1.0, plateau

    def _fixed(self, blocked: int | None, taken: float, left: float) -> tuple[float | None, Plateau | None]:
        """Return a fixed threshold, None if it takes all rows, and the plateau that keeps it far from its share.

        It takes as many rows as `left` allows, `taken` of them blocked; if all thresholds take more, the fewest.
        """
        values, counts = self._values, self._counts
        volumes = np.cumsum(counts) / len(self._fit)
        beyond = pairs(self._grid.keys)[0][0 if blocked is None else blocked + 1 :]
        first = int((values > beyond.max(initial=-1.0)).sum())  # the first value that is not blocked as a whole
        if first == len(values):
            return None, None
        last = max(int((volumes <= left).sum()) - 1, first)
        over = bool(volumes[last] > left)
        plateau, place = None, last if over else last + 1
        if (over or volumes[last] < (taken + left) / 2) and counts[place] > 1:
            plateau = Plateau(float(values[place]), float(counts[place] / len(self._fit)), over)
        if last + 1 == len(values) or values[last] <= 0:
            return None, plateau
        return _between(values[last + 1], values[last]), plateau

    def _shown_precision(self, tolerance: float, level: float, times: float) -> float:
        """Return the chance that the first test of a precision succeeds: the one that `solve` starts with."""
        if self._grouped is not None:
            chance = self._grouped("precision", range(len(self._share)), tolerance)
            return chance(level, times * self._certify, times * self.size)
        rows = np.multiply(self._precision.n, times, dtype=np.float64)
        errors = self._precision.errors + (rows - self._precision.n) * self._rate
        certify = round(times * self._certify)
        at = choose_start(self._share * certify, errors, rows, tolerance, level)
        draw = np.random.default_rng((self._seed, 3))
        rate = draw.beta(errors[at] + 0.5, rows[at] - errors[at] + 0.5, _DRAWS)
        n = draw.binomial(certify, self._drawn_share(at, draw, times))
        return float((draw.binomial(n, rate) <= critical_errors(n, tolerance, level)).mean())

    def _shown_flag_rate(self, at: int, tolerance: float, level: float, times: float) -> float:
        """Return the chance that a flag rate is shown for one candidate."""
        if self._grouped is not None:
            return self._grouped("flag_rate", (at,), tolerance)(level, times * self._certify, times * self.size)
        certify = np.array([round(times * self._certify)])
        draw = np.random.default_rng((self._seed, 4))
        errors = draw.binomial(certify[0], self._drawn_share(at, draw, times))
        return float((errors <= critical_errors(certify, tolerance, level)).mean())

    def _drawn_share(self, at: int, draw: np.random.Generator, times: float) -> NDArray[np.float64]:
        """Return shares of the rows at or above a candidate as they may be in the population (Jeffreys)."""
        n = self._precision.n[at]
        return draw.beta(times * n + 0.5, times * (self.size - n) + 0.5, _DRAWS)


def _between(low: np.float32, high: np.float32) -> float:
    """Return a number of few digits above `low` and at most `high`, near their middle."""
    middle = (float(low) + float(high)) / 2
    rounded = (round(middle, digits) for digits in range(1, 50))
    return next((value for value in rounded if low < np.float32(value) <= high), float(high))
