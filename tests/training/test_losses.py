"""Losses."""

from __future__ import annotations

import math

import torch

from training.losses import LOSSES, cross_entropy


def test_known_values_one_per_example() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [math.log(3.0), 0.0, -torch.inf, -torch.inf]])
    losses = cross_entropy(logits, torch.tensor([1, 0]))
    torch.testing.assert_close(losses, torch.tensor([math.log(4.0), math.log(4 / 3)]))


def test_gradient_is_softmax_minus_onehot() -> None:
    logits = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.tensor([0, 1, 2, 1, 0])
    (gradient,) = torch.autograd.grad(cross_entropy(logits, labels).sum(), logits)
    torch.testing.assert_close(gradient, torch.softmax(logits, 1) - torch.nn.functional.one_hot(labels, 3))
    assert torch.autograd.gradcheck(lambda z: cross_entropy(z, labels), logits)


def test_extreme_logits_stay_finite() -> None:
    losses = cross_entropy(torch.tensor([[1e4, -1e4], [-1e4, 1e4]]), torch.tensor([0, 0]))
    torch.testing.assert_close(losses, torch.tensor([0.0, 2e4]))


def test_every_loss_gives_one_value_per_example() -> None:
    for loss in LOSSES.values():
        assert loss(torch.zeros(7, 3), torch.zeros(7, dtype=torch.int64)).shape == (7,)
