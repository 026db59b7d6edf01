import json

import numpy as np
import pytest
from scipy.stats import binom

from service.decisions.binomial import upper_share
from service.decisions.caps import bounded, change_cap, ratio_cap


@pytest.mark.parametrize("level", [0.025, 0.0042])
def test_the_bound_is_exact(level: float) -> None:
    for of in (1, 7, 300):
        for count in range(0, of, max(of // 7, 1)):
            upper = upper_share(count, of, level)
            assert binom.cdf(count, of, upper) == pytest.approx(level)
    assert upper_share(5, 5, level) == upper_share(0, 0, level) == 1.0


def test_the_bound_lies_below_the_share_at_most_at_its_level() -> None:
    for share in np.linspace(0.01, 0.99, 23):
        counts = np.arange(201)
        below = np.array([upper_share(int(count), 200, 0.05) < share for count in counts])
        assert binom.pmf(counts, 200, share)[below].sum() <= 0.05


def test_a_cap_of_none_asks_nothing() -> None:
    cap = bounded("flipped", "auto", 3, 10, 0.3, 0.7, None)
    assert cap.holds
    assert bounded("flipped", "auto", 3, 10, 0.3, 0.7, 0.7).holds
    assert not bounded("flipped", "auto", 3, 10, 0.3, 0.7, 0.6).holds
    assert json.loads(json.dumps(cap.document))["upper"] == 0.7


@pytest.mark.parametrize(
    ("both", "only_before", "only_after"), [(0.1, 0.0, 0.05), (0.02, 0.01, 0.025), (0.4, 0.2, 0.2), (0.01, 0.0, 0.0)]
)
@pytest.mark.parametrize("rows", [80, 1_000])
def test_a_ratio_above_the_cap_passes_at_most_at_the_level(
    both: float, only_before: float, only_after: float, rows: int
) -> None:
    """The cap is a hair below the truth, so that each pass is a false one."""
    level, truth = 0.05, (both + only_after) / (both + only_before)
    draws = np.random.default_rng(1).multinomial(
        rows, [both, only_before, only_after, 1 - both - only_before - only_after], 4_000
    )
    kinds, repeats = np.unique(draws, axis=0, return_counts=True)
    passed = 0
    for (a, b, c, _), times in zip(kinds, repeats, strict=True):
        before, after = np.arange(rows) < a + b, (np.arange(rows) < a) | (np.arange(rows) >= rows - c)
        passed += times * ratio_cap("auto", before, after, level, truth - 1e-9).holds
    assert passed / 4_000 <= level + 3 * np.sqrt(level / 4_000)


def test_a_refit_that_changes_little_is_bounded_closely() -> None:
    flagged = np.arange(5_000) < 1_000
    same = ratio_cap("auto", flagged, flagged, 0.025, None)
    assert (same.value, same.holds) == (1.0, True)
    assert same.upper < 1.01
    nothing = ratio_cap("auto", np.zeros(10, bool), np.zeros(10, bool), 0.025, 2.0)
    assert (nothing.value, nothing.holds, nothing.document["upper"]) == (1.0, False, None)


@pytest.mark.parametrize("rows", [400, 3_000])
def test_the_quantile_of_changes_lies_above_the_bound_at_most_at_the_level(rows: int) -> None:
    rng, level = np.random.default_rng(rows), 0.05
    bounds = [change_cap(rng.random(rows) ** 3, level, None).upper for _ in range(2_000)]
    assert np.mean(np.array(bounds) < 0.99**3) <= level + 3 * np.sqrt(level / 2_000)
    assert max(bounds) < 1  # and it is no empty bound


def test_few_rows_bound_no_change() -> None:
    few = change_cap(np.full(366, 0.01), 0.025, 0.2)
    assert (few.upper, few.value, few.holds) == (1.0, 0.01, False)
    assert change_cap(np.full(368, 0.01), 0.025, 0.2).holds
    assert change_cap(np.zeros(0), 0.025, None).upper == 1.0
