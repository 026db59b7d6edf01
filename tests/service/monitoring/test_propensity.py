import json
import math

import numpy as np
import pytest
from scipy.stats import binom

from service.decisions.rows import ScoredRows
from service.errors import InputValueError
from service.monitoring.calibration import CalibrationMonitor
from service.monitoring.propensity import LOG_WEIGHTS, PropensityMonitor, log_factors


def traffic(rng: np.random.Generator, n: int, *, wrong: bool) -> ScoredRows:
    """Return rows whose label is sought half of the time, as logged; or errors only a tenth of the time."""
    p = rng.beta(8, 2, n).astype(np.float32)
    positive = rng.random(n) < p
    propensity = np.where(p < 0.3, 1.0, 0.5)
    sought = rng.random(n) < np.where(wrong & ~positive & (propensity < 1), 0.1, propensity)
    return ScoredRows(
        probability=p,
        score=p,
        positive=positive,
        propensity=propensity,
        sought=sought,
        labelled=sought,
        predicted_at=np.arange(n),
    )


def test_the_mean_of_every_bet_is_one() -> None:
    assert np.exp(LOG_WEIGHTS).sum() == pytest.approx(1.0)
    p, propensity = np.array([0.01, 0.6, 1.0], np.float32), np.array([0.01, 0.5, 0.97])
    either = [np.exp(log_factors(p, propensity, np.full(3, sought))) for sought in (True, False)]
    mean = propensity[:, None] * either[0] + (1 - propensity[:, None]) * either[1]
    np.testing.assert_allclose(mean, 1.0)
    certain = np.array([0.0, 1e-12, 1.0])
    either = [np.exp(log_factors(p, certain, np.full(3, sought))) for sought in (True, False)]
    assert (certain[:, None] * either[0] + (1 - certain[:, None]) * either[1] <= 1.0).all()


def test_honest_propensities_alarm_within_the_level_and_errors_that_are_sought_less_are_found() -> None:
    rng = np.random.default_rng(1)
    worlds, fired = 60, {False: 0, True: 0}
    for _ in range(worlds):
        for wrong in fired:
            audit = PropensityMonitor(level=0.05, since=0)
            audit.update(traffic(rng, 2000, wrong=wrong), through=2000)
            fired[wrong] += audit.alarm.fired_at is not None
    assert fired[False] <= binom.isf(0.001, worlds, 0.05)
    assert fired[True] >= 0.9 * worlds


def test_a_monitor_comes_back_from_its_document_and_leaves_out_unknown_propensities() -> None:
    rows = traffic(np.random.default_rng(2), 300, wrong=True)
    whole, cut = (PropensityMonitor(level=0.05, since=0) for _ in range(2))
    whole.update(rows, through=300)
    for start in (0, 120):
        end = 120 if start == 0 else 300
        cut.update(rows.take(slice(start, end)), through=end)
        cut = PropensityMonitor.from_dict(json.loads(json.dumps(cut.to_dict(), allow_nan=False)))
    assert cut.to_dict() == whole.to_dict()
    silent = PropensityMonitor(level=0.05, since=0)
    p = np.full(9, 0.5, np.float32)
    unknown = ScoredRows(
        probability=p, score=p, positive=p > 1, propensity=np.full(9, math.nan), predicted_at=np.arange(9)
    )
    silent.update(unknown, through=9)
    assert silent.alarm.rows == 0
    with pytest.raises(InputValueError):
        PropensityMonitor.from_dict(CalibrationMonitor(floor=1.0, level=0.05, since=0).to_dict())
