"""Solve a policy's thresholds on labelled rows, and certify what it promises about them.

What is claimed, under which assumption and why it holds is in `docs/statistics.md`; in short: candidate thresholds and
the order in which they are tested come from fit rows alone, the tests are exact binomial tests on certify rows, and
delta is shared among bands and looks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, ndtri

from service.decisions.decide import SolvedBand, SolvedPolicy, order_keys
from service.decisions.policy import Certify, Policy
from service.decisions.split import one_per_group
from service.errors import InputValueError, PolicyError
from service.revision import Basis, Certificate, Threshold

GRID_POINTS: Final = 200
"""Candidate thresholds at a first look."""

BAND_POINTS: Final = 25
"""Candidate thresholds among them that later looks at the same rows may choose from, all tested at once."""

MAX_MISSING_SHARE: Final = 0.05
"""Largest share of sought labels that have not come under which anything is certified."""


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Rows as a policy sees them.

    Attributes:
        probability: From `decide.score_rows`, float32 of shape (N,).
        score: From `decide.score_rows`, float32 of shape (N,).
        positive: Whether the label is the positive class, or the predicted label is right; bool of shape (N,). Not
            read where `labelled` is False.
        weight: Weight of each row in estimates from fit rows, at least 0; None for equal weights. Certify rows are
            never weighted.
        group: Cluster numbers, int64 of shape (N,); None when every row is its own group.
        propensity: Probability in [0, 1] with which the row's label was sought, NaN where unknown; None when every
            label was sought.
        labelled: Whether the row's label was sought and has come, bool of shape (N,); None when all rows are labelled.
            Where labels are sought for some rows only, a claim about traffic needs the others here as well.
        sought: Whether the row's label was sought, bool of shape (N,), True wherever `labelled` is; None when all
            labels that were sought have come, those of propensity 1 aside.

    Raises:
        InputValueError: When shapes disagree, a probability or score is NaN, or a weight or propensity is out of range.
    """

    probability: NDArray[np.float32]
    score: NDArray[np.float32]
    positive: NDArray[np.bool_]
    weight: NDArray[np.float64] | None = None
    group: NDArray[np.int64] | None = None
    propensity: NDArray[np.float64] | None = None
    labelled: NDArray[np.bool_] | None = None
    sought: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        shape = (len(self.probability),)
        for name in ("probability", "score", "positive", "weight", "group", "propensity", "labelled", "sought"):
            values = getattr(self, name)
            if values is not None and values.shape != shape:
                raise InputValueError("Rows have unequal shapes.", where=name, found=values.shape, expected=shape)
        for name in ("probability", "score"):
            _within(getattr(self, name), name, -math.inf, math.inf)
        if self.weight is not None:
            _within(self.weight, "weight", 0.0, math.inf)
        if self.propensity is not None:
            _within(self.propensity[~np.isnan(self.propensity)], "propensity", 0.0, 1.0)

    def __len__(self) -> int:
        return len(self.probability)

    def take(self, rows: NDArray[Any]) -> ScoredRows:
        """Return the rows that an index or mask selects."""
        columns = (self.weight, self.group, self.propensity, self.labelled, self.sought)
        optional = (None if column is None else column[rows] for column in columns)
        return ScoredRows(self.probability[rows], self.score[rows], self.positive[rows], *optional)

    def known(self) -> NDArray[np.bool_]:
        """Return whether the label of each row was sought and has come."""
        return np.ones(len(self), dtype=bool) if self.labelled is None else self.labelled

    def asked(self) -> NDArray[np.bool_]:
        """Return whether the label of each row was sought, come or not; at propensity 1 it always was."""
        if self.propensity is None:
            return np.ones(len(self), dtype=bool)
        sought: NDArray[np.bool_] = self.known() if self.sought is None else self.sought
        certain: NDArray[np.bool_] = self.propensity == 1.0
        return sought | certain


@dataclass(frozen=True, slots=True)
class _Grid:
    """Candidate thresholds, strictest first, and what fit rows say about the rows at or above each."""

    probability: NDArray[np.float32]
    score: NDArray[np.float32]
    keys: NDArray[np.uint64]
    floor: NDArray[np.float64]  # rate at which rows at or above enter the test, non-increasing
    volume: NDArray[np.float64]  # share of rows at or above
    errors: NDArray[np.float64]
    rows: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Tests:
    """The grid, and what certify rows say of each candidate."""

    grid: _Grid
    rows: int  # in all, one of each group
    missing: float  # share of the labels that were sought, and have not come
    n: NDArray[np.int64]  # rows in the test
    errors: NDArray[np.int64]  # errors among them
    unlabelled: NDArray[np.int64]  # those of the errors that count as such because no label is known


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What the tests of one promise gave."""

    share: float
    threshold: Threshold | None
    succeeded: bool
    n: int
    errors: int
    unlabelled: int
    needed: int | None


def solve(
    policy: Policy,
    *,
    version: int,
    fit: ScoredRows,
    certify: ScoredRows,
    look: int,
    basis: Basis,
    window: tuple[str, str] | None = None,
    seed: int = 0,
) -> SolvedPolicy:
    """Find and certify the thresholds of a policy.

    Args:
        policy: What must hold.
        version: Version of the policy.
        fit: Rows that choose candidates and the order of tests.
        certify: Rows that test; none of their groups is among the fit rows. When more than 5 % of the labels that were
            sought among them have not come, nothing is certified.
        look: How many times these certify rows have been looked at, this one included; from 1.
        basis: Which rows these are, for the certificates.
        window: Their first and last time (ISO 8601), for the certificates.
        seed: Of the draws that choose one row per group and thin by propensity; fixed before any label is seen.

    Returns:
        The solved policy; under `review_all` when a promise could not be certified.

    Raises:
        PolicyError: When a promise cannot be certified and the policy says "fail"; `where` names the band.

    Example:
        >>> policy = Policy.from_dict(
        ...     {
        ...         "id": "auto-read",
        ...         "bands": [{"action": "accept", "when": {"min_precision": 0.9}}, {"action": "review"}],
        ...     }
        ... )
        >>> p = np.linspace(0.5, 1.0, 300, dtype=np.float32)
        >>> rows = ScoredRows(p, p, p > 0.6)
        >>> solved = solve(policy, version=1, fit=rows, certify=rows, look=1, basis="reference")
        >>> solved.review_all, solved.bands[0].threshold.probability < 0.6
        (False, True)
    """
    if look < 1:
        raise ValueError(f"looks are counted from 1, found {look}")
    promises = sum(band.when is not None and band.when.certified for band in policy.bands)
    tests: _Tests | None = None
    bands: list[SolvedBand] = []
    for i, band in enumerate(policy.bands):
        if band.when is None:
            bands.append(SolvedBand(band.action, None, None))
        elif not band.when.certified:
            bands.append(SolvedBand(band.action, Threshold(float(np.float32(band.when.value)), -math.inf), None))
        else:
            tests = tests or _count(fit, certify, seed)
            outcome = _test(tests, policy.certify, 1.0 - band.when.value, promises, look)
            reason = _objection(policy.certify, look, tests.missing, outcome, band.when.value)
            certificate = Certificate(
                metric="precision",
                at_least=band.when.value,
                at_most=None,
                delta=outcome.share,
                n=outcome.n,
                errors=outcome.errors,
                looks=look,
                basis=basis,
                window=window,
                valid=reason is None,
                reason=reason,
                needed=outcome.needed,
            )
            if reason is not None and policy.on_uncertifiable == "fail":
                raise PolicyError(
                    f"The band {band.action!r} cannot be certified: {reason}",
                    where=f"/bands/{i}/when/{band.when.name}",
                    found={"n": outcome.n, "errors": outcome.errors},
                    expected=f"precision of at least {band.when.value:g}",
                    remedy="Collect more labels, promise less, or let on_uncertifiable be review_all.",
                )
            bands.append(SolvedBand(band.action, outcome.threshold if reason is None else None, certificate))
    review_all = any(band.certificate is not None and not band.certificate.valid for band in bands)
    return SolvedPolicy(policy, version, tuple(bands), review_all)


def critical_errors(n: NDArray[np.int64], tolerance: float, level: float) -> NDArray[np.float64]:
    """Return the largest number of errors with which n rows still reject "the error rate exceeds the tolerance".

    Args:
        n: Numbers of rows, any shape.
        tolerance: Error rate q in (0, 1) at the edge of the promise.
        level: Level of the one-sided exact binomial test.

    Returns:
        Largest c with P(Binomial(n, q) ≤ c) ≤ level, −1 where even 0 errors do not reject.

    Example:
        >>> critical_errors(np.array([58, 59, 71, 72]), 0.05, 0.05)
        array([-1.,  0.,  0.,  0.])
    """
    z = float(ndtri(level))
    guess = n * tolerance + z * np.sqrt(n * tolerance * (1 - tolerance)) + (z**2 - 1) * (1 - 2 * tolerance) / 6 - 0.5
    critical: NDArray[np.float64] = np.clip(np.floor(guess), -1.0, n - 1.0)
    while True:
        up = _tail(critical + 1, n, tolerance) <= level
        down = (critical >= 0) & (_tail(critical, n, tolerance) > level)
        if not (up | down).any():
            return critical
        critical += up.astype(np.float64) - down


def choose_start(
    expected: NDArray[np.float64],
    fit_errors: NDArray[np.float64],
    fit_rows: NDArray[np.float64],
    tolerance: float,
    level: float,
) -> int:
    """Return the candidate at which a certificate is most likely to succeed, judged from fit rows alone.

    Args:
        expected: Expected number of test rows at or above each candidate, shape (G,), G ≥ 1.
        fit_errors: Errors among fit rows there, shape (G,).
        fit_rows: Fit rows there, shape (G,).
        tolerance: Error rate at the edge of the promise.
        level: Level of the test.

    Returns:
        Index of the candidate with the largest predicted power; where no test can succeed, the one that comes closest.
    """
    rows = np.rint(expected).astype(np.int64)
    rate = (fit_errors + 0.5) / (fit_rows + 1.0)
    critical = critical_errors(rows, tolerance, level)
    power = np.where(critical >= 0, bdtr(np.maximum(critical, 0), np.maximum(rows, 1), rate), 0.0)
    if power.max() > 0:
        return int(power.argmax())
    return int(((tolerance - rate) * np.sqrt(rows / (rate * (1 - rate)))).argmax())


def walk(
    n: NDArray[np.int64], errors: NDArray[np.int64], start: int, tolerance: float, level: float
) -> NDArray[np.intp]:
    """Test candidates from a start on, each looser than the one before, until the first failure.

    Args:
        n: Test rows at or above each candidate, strictest first, shape (G,), or (…, G).
        errors: Errors among them, shape (…, G).
        start: Index of the first test.
        tolerance: Error rate q at the edge of the promise.
        level: Level of each test; the whole sequence has it too.

    Returns:
        Index of the last candidate that succeeded, −1 where the first fails, shape (…).

    Example:
        >>> walk(np.array([10, 60, 80, 90, 300]), np.array([0, 0, 0, 9, 0]), 1, 0.05, 0.05)
        array(2)
    """
    failed = errors[..., start:] > critical_errors(n[..., start:], tolerance, level)
    steps = np.where(failed.any(axis=-1), failed.argmax(axis=-1), failed.shape[-1])
    return np.asarray(np.where(steps > 0, start + steps - 1, -1))


def choose_in_band(n: NDArray[np.int64], errors: NDArray[np.int64], tolerance: float, share: float) -> NDArray[np.intp]:
    """Test `BAND_POINTS` of the candidates at once and take the loosest that succeeds.

    Each test runs at share/`BAND_POINTS`, so that with probability 1 − share none is false, whatever the promise is and
    however it was chosen.

    Args:
        n: Test rows at or above each candidate, strictest first, shape (G,), or (…, G); G ≥ 1.
        errors: Errors among them, shape (…, G).
        tolerance: Error rate q at the edge of the promise.
        share: Level of the whole band.

    Returns:
        Index of the loosest candidate that succeeded, −1 where none did, shape (…).
    """
    points = _band(n.shape[-1])
    succeeded = errors[..., points] <= critical_errors(n[..., points], tolerance, share / BAND_POINTS)
    loosest = points[BAND_POINTS - 1 - succeeded[..., ::-1].argmax(axis=-1)]
    return np.asarray(np.where(succeeded.any(axis=-1), loosest, -1))


def labels_needed(n: int, errors: int, tolerance: float, level: float) -> int:
    """Return how many more rows, none of them an error, the test would need to succeed.

    Args:
        n: Rows in the denominator so far.
        errors: Errors among them.
        tolerance: Error rate q at the edge of the promise.
        level: Level of the test.

    Returns:
        The smallest such number, 0 when the test succeeds already.

    Example:
        >>> labels_needed(0, 0, 0.05, 0.05), labels_needed(0, 0, 0.05, 0.025)
        (59, 72)
    """
    if bdtr(errors, max(n, 1), tolerance) <= level and n:
        return 0
    low, high = n, max(2 * n, 1)
    while bdtr(errors, high, tolerance) > level:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bdtr(errors, middle, tolerance) <= level else (middle, high)
    return high - n


def _band(candidates: int) -> NDArray[np.intp]:
    """Return the indices of the candidates that a later look tests, evenly spread; some twice where there are few."""
    return np.linspace(0, candidates - 1, BAND_POINTS).round().astype(np.intp)


def _tail(errors: NDArray[Any], n: NDArray[Any], tolerance: float) -> NDArray[np.float64]:
    """P(Binomial(n, q) ≤ errors): the p-value, 1 where there are no rows."""
    rows = np.maximum(n, 1).astype(np.int64)
    return np.where(n > 0, bdtr(np.maximum(errors, 0.0), rows, tolerance), 1.0)


def _test(tests: _Tests, certify: Certify, tolerance: float, promises: int, look: int) -> _Outcome:
    """Test one promise: along a fixed sequence on rows not shown before, in a simultaneous band on others."""
    once = certify.looks == "once"
    share = certify.delta / promises / (1 if once else look * (look + 1))
    grid = tests.grid
    if not len(grid.keys):
        return _Outcome(share, None, False, 0, 0, 0, labels_needed(0, 0, tolerance, share))
    if once or look == 1:
        level = share
        closest = choose_start(grid.volume * grid.floor * tests.rows, grid.errors, grid.rows, tolerance, share)
        chosen = int(walk(tests.n, tests.errors, closest, tolerance, share))
    else:
        level = share / BAND_POINTS
        chosen = int(choose_in_band(tests.n, tests.errors, tolerance, share))
        points = _band(len(grid.keys))
        closest = int(points[_tail(tests.errors[points], tests.n[points], tolerance).argmin()])
    at = chosen if chosen >= 0 else closest
    n, errors = int(tests.n[at]), int(tests.errors[at])
    needed = labels_needed(0, 0, tolerance, level) if once and look > 1 else labels_needed(n, errors, tolerance, level)
    threshold = Threshold(float(grid.probability[at]), float(grid.score[at]))
    return _Outcome(share, threshold, chosen >= 0, n, errors, int(tests.unlabelled[at]), needed or None)


def _objection(certify: Certify, look: int, missing: float, outcome: _Outcome, promise: float) -> str | None:
    """Return why the promise is not certified, None when it is."""
    if certify.looks == "once" and look > 1:
        return f"looks is once, and these rows have been shown before (look {look}): only fresh rows certify"
    if missing > MAX_MISSING_SHARE:
        return (
            f"{missing:.1%} of the labels that were sought have not come; above {MAX_MISSING_SHARE:.0%} nothing is "
            "certified"
        )
    if outcome.succeeded:
        return None
    if outcome.threshold is None:
        return f"no fit rows to choose a threshold from; then at least {outcome.needed} labelled rows above it"
    unknown = f" ({outcome.unlabelled} of them for want of a label)" if outcome.unlabelled else ""
    return (
        f"{outcome.errors} errors{unknown} among {outcome.n} rows do not show a precision of at least {promise:g}; at "
        f"least {outcome.needed} more labelled rows at or above the threshold are needed, if none of them is an error"
        + (", and more than that when they are added to rows already shown" if outcome.n else "")
    )


def _make_grid(fit: ScoredRows, certify: ScoredRows) -> _Grid:
    """Choose candidates at ranks of the fit rows: half of them spaced evenly, half geometrically for rare classes."""
    keys = order_keys(fit.probability, fit.score)
    ordered = np.sort(keys)[::-1]
    size = len(keys)
    half = GRID_POINTS // 2
    ranks = np.concatenate([np.linspace(1, size, half), np.geomspace(1, size, half)]) if size else np.empty(0)
    candidates = np.unique(ordered[ranks.astype(np.intp) - 1])[::-1] if size else ordered
    points = len(candidates)
    cells = _cells(candidates, keys)

    weight = fit.asked() * (np.ones(size) if fit.weight is None else fit.weight)
    rows = _at_or_above(cells, points, weight)
    errors = _at_or_above(cells, points, weight * ~(fit.positive & fit.known()))
    # Weighted rows count as the number of equal rows that is worth as much (Kish), or precision would look too sure.
    squares = _at_or_above(cells, points, weight**2)
    worth = np.divide(rows, squares, out=np.ones(points), where=squares > 0)
    probability, score = _pairs(candidates)
    return _Grid(
        probability=probability,
        score=score,
        keys=candidates,
        floor=_floor(candidates, cells, fit, certify),
        volume=_at_or_above(cells, points) / max(size, 1),
        errors=errors * worth,
        rows=rows * worth,
    )


def _floor(
    candidates: NDArray[np.uint64], cells: NDArray[np.intp], fit: ScoredRows, certify: ScoredRows
) -> NDArray[np.float64]:
    """Return, per candidate, the smallest positive propensity at or above it: the rate of an even sample."""
    lowest = np.ones(len(candidates) + 1)
    sources = [(cells, fit.propensity)]
    if certify.labelled is None:
        # Without the unlabelled rows the rarest propensity may stand among certify rows only.
        sources.append((_cells(candidates, order_keys(certify.probability, certify.score)), certify.propensity))
    for cell, propensity in sources:
        if propensity is not None:
            known = propensity > 0
            np.minimum.at(lowest, cell[known], propensity[known])
    return np.minimum.accumulate(lowest[:-1])


def _cells(candidates: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.intp]:
    return len(candidates) - np.searchsorted(candidates[::-1], keys, side="right")


def _at_or_above(cells: NDArray[np.intp], points: int, weight: NDArray[np.float64] | None = None) -> NDArray[Any]:
    """Return, per candidate, the number (or weight) of the rows in its cell and all stricter ones."""
    return np.cumsum(np.bincount(cells, weight, minlength=points + 1)[:points])


def _pairs(keys: NDArray[np.uint64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Undo `order_keys`."""
    halves = (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)
    probability, score = (
        np.where(half >> np.uint32(31), half ^ np.uint32(0x80000000), ~half).view(np.float32) for half in halves
    )
    return probability, score


def _one_per_group(rows: ScoredRows, seed: int) -> ScoredRows:
    """Keep one row of each group, drawn without regard to labels, and no row of unknown propensity."""
    if rows.propensity is not None:
        rows = rows.take(~np.isnan(rows.propensity))
    if rows.group is None:
        return rows
    ordered = np.sort(rows.group)
    if not (ordered[1:] == ordered[:-1]).any():
        return rows
    return rows.take(one_per_group(rows.group, seed))


def _count(fit: ScoredRows, certify: ScoredRows, seed: int) -> _Tests:
    """Choose the grid and count, per candidate, the rows of an even sample at or above it, and the errors among them.

    Every row carries one uniform number u, which is below its propensity when its label was sought, come or not: a row
    enters the sample of a candidate when u is below that candidate's floor. One without a label counts as an error.
    """
    asked = certify.asked()
    missing = int((asked & ~certify.known()).sum()) / max(int(asked.sum()), 1)
    grid = _make_grid(fit, certify)
    rows = _one_per_group(certify, seed)
    points = len(grid.keys)
    cells = _cells(grid.keys, order_keys(rows.probability, rows.score))
    propensity = np.ones(len(rows)) if rows.propensity is None else rows.propensity
    # Nobody sought a label at propensity 0, whatever the columns say.
    labelled, asked = rows.known() & (propensity > 0), rows.asked() & (propensity > 0)
    draw = np.random.default_rng((seed, 1)).random(len(rows))
    uniform = np.where(asked, draw * propensity, propensity + draw * (1.0 - propensity))
    # The floor falls as candidates loosen, so a row is in the samples from its cell up to `last`.
    last = points - np.searchsorted(grid.floor[::-1], uniform, side="right")
    inside = cells < last
    n, errors, unlabelled = (
        _at_or_above(cells[chosen], points) - _at_or_above(last[chosen], points)
        for chosen in (inside, inside & ~(rows.positive & labelled), inside & ~labelled)
    )
    return _Tests(grid, len(rows), missing, n, errors, unlabelled)


def _within(values: NDArray[Any], where: str, low: float, high: float) -> None:
    if len(values) and not (low <= values.min() and values.max() <= high):
        raise InputValueError(
            f"A {where} is not between {low:g} and {high:g}.",
            where=where,
            found=[float(values.min()), float(values.max())],
            expected=[low, high],
        )
