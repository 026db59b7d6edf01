"""Losses: pure functions of logits and labels that return one value per example; `Loss` is their contract.

Weight decay belongs to the optimiser, dropout to the network, and mixup to the batch (`training.mixup`).
"""

from training.losses.correctness_ranking import correctness_ranking
from training.losses.criterion import Criterion
from training.losses.cross_entropy import cross_entropy
from training.losses.entropy_regularisation import entropy_regularisation
from training.losses.focal import focal, sample_dependent_focal
from training.losses.inverse_focal import inverse_focal
from training.losses.label_smoothing import label_smoothing
from training.losses.loss import Loss
from training.losses.lp_norm import lp_norm
from training.losses.mmce import mmce, weighted_mmce

LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "label_smoothing": label_smoothing,
    "lp_norm": lp_norm,
    "entropy_regularisation": entropy_regularisation,
    "focal": focal,
    "inverse_focal": inverse_focal,
    "sample_dependent_focal": sample_dependent_focal,
    "mmce": mmce,
    "weighted_mmce": weighted_mmce,
    "correctness_ranking": correctness_ranking,
}

__all__ = ["LOSSES", "Criterion", "Loss"]
