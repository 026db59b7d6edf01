import json

import numpy as np
import pytest
from scipy.stats import binom

from service.decisions.binomial import upper_share
from service.decisions.caps import Cap


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
    cap = Cap("flipped", "auto", 3, 10, 0.7, None)
    assert cap.holds
    assert Cap("flipped", "auto", 3, 10, 0.7, 0.7).holds
    assert not Cap("flipped", "auto", 3, 10, 0.7, 0.6).holds
    assert json.loads(json.dumps(cap.to_dict()))["upper"] == 0.7
