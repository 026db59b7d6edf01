"""Losses: pure functions of logits and labels, one value per example; the caller reduces."""

from training.losses.cross_entropy import cross_entropy
from training.losses.loss import Loss

LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
}

__all__ = ["LOSSES", "Loss", "cross_entropy"]
