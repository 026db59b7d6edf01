"""Mixup and CutMix: convex pairs of inputs, boxes of images, and their labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from training import ConfigurationError
from training.losses import cross_entropy
from training.mixup import Mixing, cutmix, mixup
from training.recipe import Recipe


def batch(rows: int = 6, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs that are the one-hot labels themselves, so that both must be mixed alike."""
    labels = torch.arange(rows) % classes
    return torch.nn.functional.one_hot(labels, classes).float().reshape(rows, classes, 1, 1), labels


def test_inputs_and_labels_are_mixed_alike() -> None:
    images, labels = batch()
    for seed in range(20):
        mixed, weights = mixup(images, labels, 3, alpha=1.0, generator=np.random.default_rng(seed))
        torch.testing.assert_close(mixed[:, :, 0, 0], weights)
        torch.testing.assert_close(weights.sum(dim=1), torch.ones(6))
        assert (weights >= 0).all()


def test_every_row_meets_one_partner_with_one_share() -> None:
    images = torch.tensor([[1.0], [10.0], [100.0], [1000.0]])
    mixed, _ = mixup(images, torch.zeros(4, dtype=torch.int64), 2, generator=np.random.default_rng(3))
    random = np.random.default_rng(3)
    share, partner = random.beta(0.2, 0.2), random.permutation(4)
    torch.testing.assert_close(mixed, share * images + (1 - share) * images[partner])


def test_shares_follow_the_beta_distribution() -> None:
    """Beta(α, α) has mean 1/2 and variance 1 / (4 (2 α + 1)); 4,000 draws keep within five standard errors."""
    random, one = np.random.default_rng(0), torch.tensor([[0.0], [1.0]])
    shares = []
    while len(shares) < 4000:
        mixed, _ = mixup(one, torch.tensor([0, 1]), 2, alpha=0.2, generator=random)
        if mixed[0] != 0:  # the row met the other one, not itself; then it is 1 − λ, which is distributed as λ
            shares.append(mixed[0].item())
    variance = 1 / (4 * 1.4)
    assert np.mean(shares) == pytest.approx(0.5, abs=5 * math.sqrt(variance / 4000))
    assert np.var(shares) == pytest.approx(variance, rel=0.05)


def test_without_strength_nothing_is_mixed() -> None:
    images, labels = batch()
    mixed, weights = mixup(images, labels, 3, alpha=0.0, generator=np.random.default_rng(0))
    assert torch.equal(mixed, images)
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(cross_entropy(logits, weights), cross_entropy(logits, labels))


def test_the_generator_decides_and_the_batch_stays() -> None:
    images, labels = batch()
    before = images.clone()
    one, same, other = (mixup(images, labels, 3, generator=np.random.default_rng(seed))[0] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(images, before)


def test_half_precision_inputs_stay_so() -> None:
    images, labels = batch()
    mixed, weights = mixup(images.bfloat16(), labels, 3, generator=np.random.default_rng(0))
    assert (mixed.dtype, weights.dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize("alpha", [-0.1, math.inf, math.nan])
def test_a_strength_out_of_range_is_refused(alpha: float) -> None:
    with pytest.raises(ConfigurationError, match="alpha is"):
        mixup(*batch(), 3, alpha=alpha, generator=np.random.default_rng(0))


def test_tokens_and_stored_pixels_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"torch\.uint8, expected a floating type"):
        mixup(
            torch.zeros(2, 3, dtype=torch.uint8),
            torch.zeros(2, dtype=torch.int64),
            2,
            generator=np.random.default_rng(),
        )


def test_a_pasted_box_weighs_its_area() -> None:
    """Each image is of one value, its own label: the mean of a mixed one is the label's weighted mean."""
    labels = torch.arange(6) % 3
    images = labels.float()[:, None, None, None].expand(6, 2, 9, 5)
    for seed in range(50):
        mixed, weights = cutmix(images, labels, 3, generator=np.random.default_rng(seed))
        torch.testing.assert_close(mixed.mean(dim=(1, 2, 3)), weights @ torch.arange(3.0))
        torch.testing.assert_close(weights.sum(dim=1), torch.ones(6))
        pasted = mixed[:, 0] != images[:, 0]
        for box in pasted:  # a rectangle
            assert torch.equal(box, box.any(dim=1)[:, None] & box.any(dim=0))


def test_areas_of_boxes_that_lie_inside_follow_the_beta_distribution() -> None:
    """With α = 1 the area is uniform; boxes beyond the border are cut off, so those around the centre are counted."""
    images = torch.tensor([0.0, 1.0])[:, None, None, None].expand(2, 1, 64, 64)
    random, areas = np.random.default_rng(0), []
    while len(areas) < 400:
        mixed, _ = cutmix(images, torch.tensor([0, 1]), 2, generator=random)
        box = mixed[0, 0] == 1
        rows, columns = box.any(dim=1), box.any(dim=0)
        if box.any() and not (rows[0] or rows[-1] or columns[0] or columns[-1]):
            areas.append(box.float().mean().item())
    sides = np.sqrt(
        areas
    )  # a box of side s lies inside with a chance of (1 − s)², so sides have the density 12 s (1 − s)²
    assert np.mean(sides) == pytest.approx(0.4, abs=5 * 0.2 / math.sqrt(400))
    assert np.std(sides) == pytest.approx(0.2, abs=0.03)


def test_only_images_have_boxes() -> None:
    with pytest.raises(ConfigurationError, match=r"torch\.float32 \(2, 3\), expected preprocessed images"):
        cutmix(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), 2, generator=np.random.default_rng())


def test_with_both_each_batch_takes_one_of_the_two() -> None:
    images, labels = torch.tensor([0.0, 1.0])[:, None, None, None].expand(2, 1, 8, 8), torch.tensor([0, 1])
    mixing = Mixing(torch.nn.Identity(), torch.nn.Identity(), 2, Recipe(mixup=1.0, cutmix=1.0))
    generator = np.random.default_rng(0)
    pasted = [
        bool(((mixed := mixing(images, labels, generator)[0]) == 0).any() and (mixed == 1).any()) for _ in range(200)
    ]
    assert 30 < sum(pasted) < 170
