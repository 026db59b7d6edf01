"""What an epoch's evaluation says, against definitions and against rows whose answer is known."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from training.evaluate import evaluate


def some_rows(seed: int, count: int = 300, classes: int = 4, sharpness: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    logits = random.normal(size=(count, classes))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([random.choice(classes, p=share) for share in shares])
    return (sharpness * logits).astype(np.float32), labels


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    shares: np.ndarray = powers / powers.sum(axis=1, keepdims=True)
    return shares


def ece(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """From its definition: 15 bins of equal width, closed on the right."""
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    places = np.ceil(confidence * 15)
    return sum(abs((confidence - right)[places == place].sum()) for place in range(16)) / len(labels)


@pytest.mark.parametrize("seed", range(3))
def test_every_metric_is_that_of_its_definition(seed: int) -> None:
    logits, labels = some_rows(seed)
    found, probabilities = evaluate(logits, labels), softmax(logits)
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    assert found.accuracy == pytest.approx(right.mean())
    assert found.nll == pytest.approx(-np.log(probabilities[np.arange(len(labels)), labels]).mean(), rel=1e-5)
    assert found.ece == pytest.approx(ece(probabilities, labels), abs=1e-5)
    area = mannwhitneyu(confidence[right], confidence[~right]).statistic / right.sum() / (~right).sum()
    assert found.refinement_auroc == pytest.approx(area, abs=1e-6)
    assert found.ece_at_temperature == pytest.approx(ece(softmax(logits / found.temperature), labels), abs=1e-5)

    def nll(temperature: float) -> float:
        scaled = softmax(logits / temperature)
        return float(-np.log(scaled[np.arange(len(labels)), labels]).mean())

    assert nll(found.temperature) <= min(nll(0.99 * found.temperature), nll(1.01 * found.temperature))


def test_logits_that_are_too_sharp_are_seen_to_be() -> None:
    logits, labels = some_rows(0, count=4000, sharpness=3.0)
    found = evaluate(logits, labels)
    assert found.temperature == pytest.approx(3.0, rel=0.1)
    assert found.ece_at_temperature < found.ece / 4


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), sharpness=st.floats(0.3, 5.0))
def test_the_optimal_ece_is_the_least_of_all(seed: int, sharpness: float) -> None:
    logits, labels = some_rows(seed, count=60, sharpness=sharpness)
    found = evaluate(logits, labels)
    assert found.optimal_ece <= min(found.ece, found.ece_at_temperature)
    for temperature in np.geomspace(0.125, 8.0, 61):  # at those it was sought among, by a softmax in double precision
        assert found.optimal_ece <= ece(softmax(logits / np.float32(temperature)), labels) + 2 / 60


@pytest.mark.parametrize(("shift", "accuracy"), [(0, 1.0), (1, 0.0)])
def test_rows_that_are_all_right_or_all_wrong_have_no_refinement(shift: int, accuracy: float) -> None:
    logits, _ = some_rows(0)
    found = asdict(evaluate(logits, (logits.argmax(axis=1) + shift) % 4))
    assert found["accuracy"] == accuracy
    assert math.isnan(found.pop("refinement_auroc"))
    of_two_classes = [found.pop(name) for name in ("auroc", "average_precision", "recall_at_precision")]
    assert all(map(math.isnan, of_two_classes))
    assert all(math.isfinite(value) for value in found.values())


def test_a_network_that_knows_nothing_refines_nothing() -> None:
    found = evaluate(np.zeros((60, 3), np.float32), np.arange(60) % 3)
    assert found.nll == pytest.approx(math.log(3))
    assert (found.accuracy, found.refinement_auroc) == (pytest.approx(1 / 3), 0.5)
