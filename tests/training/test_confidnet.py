"""ConfidNet: it learns who is right, and leaves the classifier alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from calibrators import metrics
from training import ConfigurationError
from training.confidnet import confidences, features_and_logits, fine_tuned, fit_confidnet
from training.recipe import Recipe


class Half(nn.Module):
    """Right where the second number is positive, and equally sure everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        with torch.no_grad():
            self.linear.weight.copy_(torch.tensor([[2.0, 0.0], [-2.0, 0.0]]))
            self.linear.bias.zero_()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.linear(inputs)
        return logits


def world(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    inputs = np.stack([rng.choice([-1.0, 1.0], 600), rng.normal(size=600)], axis=1).astype(np.float32)
    said = (inputs[:, 0] < 0).astype(np.int64)
    return inputs, np.where(inputs[:, 1] > 0, said, 1 - said)


def test_it_orders_right_before_wrong_where_the_softmax_cannot() -> None:
    classifier, (inputs, labels) = Half(), world(0)
    before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    network = fit_confidnet(classifier, inputs, labels, Recipe(epochs=15, batch_size=64, learning_rate=2e-3))
    held_out, truth = world(1)
    scores = confidences(network, classifier, held_out)
    assert scores.shape == (600,)
    assert ((scores >= 0) & (scores <= 1)).all()
    right = features_and_logits(classifier, held_out)[1].argmax(dim=1).numpy() == truth
    order = np.argsort(scores)
    assert right[order[300:]].mean() - right[order[:300]].mean() > 0.9
    for name, tensor in classifier.state_dict().items():
        assert torch.equal(tensor, before[name])
    # The classifier itself cannot: it is as sure of what is wrong.
    probabilities = features_and_logits(classifier, held_out)[1].softmax(dim=1).numpy()
    assert abs(metrics.refinement_auroc(probabilities, truth) - 0.5) < 0.05


def test_the_target_is_the_probability_of_the_true_class() -> None:
    classifier, (inputs, labels) = Half(), world(0)
    network = fit_confidnet(classifier, inputs, labels, Recipe(epochs=30, batch_size=64, learning_rate=2e-3))
    scores = confidences(network, classifier, inputs)
    clear = np.abs(inputs[:, 1]) > 0.5
    true_class = features_and_logits(classifier, inputs)[1].softmax(dim=1).numpy()[np.arange(600), labels]
    assert np.abs(scores - true_class)[clear].mean() < 0.05


@pytest.mark.parametrize("seed", range(3))
def test_large_features_of_a_classifier_that_is_mostly_right_leave_it_able_to_learn(seed: int) -> None:
    """Unless they are standardised, the sigmoid saturates at 1 within a few steps and every row gets the same."""
    classifier, (inputs, labels) = Half(), world(seed)
    labels[inputs[:, 1] > -1] = (inputs[inputs[:, 1] > -1, 0] < 0).astype(np.int64)  # 84 % right
    inputs = inputs * np.float32(100)
    network = fit_confidnet(classifier, inputs, labels, Recipe(epochs=20, batch_size=64, seed=seed))
    scores = confidences(network, classifier, inputs)
    assert scores[inputs[:, 1] > -50].min() > 0.5 > scores[inputs[:, 1] < -150].max()


def test_the_seed_decides() -> None:
    classifier, (inputs, labels) = Half(), world(0)
    one, two, other = (
        confidences(fit_confidnet(classifier, inputs, labels, Recipe(epochs=1, seed=seed)), classifier, inputs)
        for seed in (0, 0, 1)
    )
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_a_classifier_without_a_linear_layer_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no linear layer"):
        fit_confidnet(nn.Identity(), np.zeros((2, 2), np.float32), np.zeros(2, np.int64), Recipe(epochs=1))


def test_the_second_stage_trains_copies_and_comes_closer_to_the_target() -> None:
    torch.manual_seed(0)
    classifier = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    inputs, labels = world(0)
    before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    first = fit_confidnet(classifier, inputs, labels, Recipe(epochs=2, batch_size=64, learning_rate=1e-3))
    kept = {name: tensor.clone() for name, tensor in first.state_dict().items()}
    both = fine_tuned(first, classifier, inputs, labels, Recipe(epochs=10, batch_size=64, learning_rate=1e-3))
    target = features_and_logits(classifier, inputs)[1].softmax(dim=1).numpy()[np.arange(len(labels)), labels]
    errors = [np.mean((confidences(*pair, inputs) - target) ** 2) for pair in ((first, classifier), both)]
    assert errors[1] < 0.9 * errors[0]
    for module, found in ((classifier, before), (first, kept)):
        assert all(torch.equal(tensor, found[name]) for name, tensor in module.state_dict().items())
    assert not torch.equal(both[1].get_parameter("0.weight"), classifier.get_parameter("0.weight"))
    again = fine_tuned(first, classifier, inputs, labels, Recipe(epochs=10, batch_size=64, learning_rate=1e-3))
    np.testing.assert_array_equal(confidences(*again, inputs), confidences(*both, inputs))
