from __future__ import annotations

import numpy as np
import pytest

from calibrators import softmax
from calibrators.metrics import overconfidence_error, reliability_curve


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_is_the_sum_over_the_bars_of_the_diagram(scheme, world):
    logits, labels = world(800, 4, 1.5)
    probabilities = softmax(logits)
    for weight in (None, np.random.default_rng(0).uniform(0.1, 2, 800)):
        curve = reliability_curve(probabilities, labels, 12, scheme, weight)
        expected = sum(
            share * conf * max(conf - acc, 0)
            for share, conf, acc in zip(curve.share, curve.confidence, curve.accuracy, strict=True)
        )
        found = overconfidence_error(probabilities, labels, 12, scheme, weight)
        assert found == pytest.approx(expected, abs=1e-12)
        assert found > 0


def test_modest_models_score_zero():
    assert overconfidence_error([[0.6, 0.4]] * 5, [0] * 5) == 0
