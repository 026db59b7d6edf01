"""Windows that are chosen with the labels in view pay for every window that could have been chosen."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from service.decisions import windows as subject
from service.decisions.certify import solve
from service.decisions.policy import parse_policy
from service.decisions.rows import ScoredRows
from service.decisions.sequence import choose_in_band, walk
from service.decisions.windows import windows

WORLDS, DAYS, ROWS, CELLS = 20_000, 30, 30, 5
DAY_US = 86_400_000_000
NOW = 20_000 * DAY_US + 12_345


def test_a_window_by_rule_costs_nothing() -> None:
    assert windows(None, None, at_us=NOW, rows=300) == 1
    assert windows(None, NOW, at_us=NOW, rows=300) == windows(None, NOW + DAY_US, at_us=NOW, rows=300) == 1


def test_the_parts_of_all_windows_are_at_most_the_whole() -> None:
    numbers = range(1, 2**14)
    assert sum(1 / subject._share(number) for number in numbers) == pytest.approx(1 - 1 / 15)
    # Of the newest days and rows: starts, ends, and both.
    ends = [NOW // DAY_US * DAY_US - day * DAY_US for day in range(200)]
    starts = sum(1 / windows(start, None, at_us=NOW, rows=rows) for rows, start in enumerate(ends, start=1))
    until = sum(1 / windows(None, end, at_us=NOW, rows=1) for end in ends)
    both = sum(1 / windows(a, b, at_us=NOW, rows=10**9) for b, a in itertools.combinations(ends, 2))
    assert max(starts, until, both) <= 1 / 3
    assert starts + until + both > 0.2, "little of the whole is left unused"


def test_an_exact_time_costs_no_more_than_the_rows_that_it_selects() -> None:
    exact, whole_day = NOW - DAY_US - 7, NOW // DAY_US * DAY_US - DAY_US
    assert windows(exact, None, at_us=NOW, rows=300) == 3 * 2 * 90 * 256
    assert windows(whole_day, None, at_us=NOW, rows=300) == 144


def counted(errors: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the errors of each day up to its end, from counts of (worlds, days, cells)."""
    return np.cumsum(np.pad(np.cumsum(errors, axis=2), ((0, 0), (1, 0), (0, 0))), axis=1)


def test_whoever_chooses_the_luckiest_days_is_wrong_at_most_delta_of_the_time() -> None:
    """Flat just under the promise; labels of all days are known, and the best span of days is chosen."""
    rng = np.random.default_rng(31)
    errors = counted(rng.binomial(ROWS // CELLS, 0.1001, (WORLDS, DAYS, CELLS)))
    n_of_a_day = np.arange(1, CELLS + 1) * (ROWS // CELLS)
    chosen, five_days, today = (np.zeros(WORLDS, dtype=bool) for _ in range(3))
    for start, end in itertools.combinations(range(DAYS + 1), 2):
        n, wrong = n_of_a_day * (end - start), errors[:, end] - errors[:, start]
        since, until = ((NOW // DAY_US - DAYS + day) * DAY_US for day in (start, end))
        divided = windows(since, until if end < DAYS else None, at_us=NOW, rows=int(n[-1]))
        chosen |= choose_in_band(n, wrong, 0.1, 0.05 / divided) >= 0
        if end - start == 5:
            five_days |= walk(n, wrong, CELLS - 1, 0.1, 0.05) >= 0
        if (start, end) == (0, DAYS):
            today |= walk(n, wrong, CELLS - 1, 0.1, 0.05) >= 0
    assert binom.isf(0.001, WORLDS, 0.05) >= chosen.sum()
    assert today.mean() > 0.03, "the rule's window uses its level"
    assert five_days.mean() > 0.15, "the same test of the best five days does not hold"


def test_solve_tests_a_chosen_window_in_a_band_at_its_part() -> None:
    rows = [
        ScoredRows(probability=p, score=p, positive=p > 0.02) for p in np.random.default_rng(0).random((2, 2000), "f")
    ]
    document = {"id": "p", "bands": [{"action": "accept", "when": {"min_precision": 0.95}}, {"action": "review"}]}
    arguments = {"version": 1, "fit": rows[0], "certify": rows[1], "look": 1, "basis": "traffic"}
    by_rule, chosen = (
        solve(parse_policy(document), **arguments, windows=by).bands[0].certificate for by in (1.0, 144.0)
    )
    assert by_rule is not None
    assert chosen is not None
    assert chosen.valid
    assert chosen.delta == pytest.approx(by_rule.delta / 144)
    hopeless = solve(parse_policy(document), **arguments, windows=1e200).bands[0].certificate
    assert hopeless is not None
    assert not hopeless.valid
    assert "The request chose the window" in (hopeless.reason or "")
    once = parse_policy(document | {"certify": {"looks": "once"}})
    refused = solve(once, **arguments, windows=144.0).bands[0].certificate
    assert refused is not None
    assert not refused.valid
    assert "the request chose the window" in (refused.reason or "")
