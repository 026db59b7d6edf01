"""Pairs: what two cells of one seed share, as the configuration tells and as training shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from studies.pairs import SHARED, at, compared, shared
from studies.registry import STUDIES
from training import TrainConfig, loop
from training.augment import Augmentation
from training.losses import LOSSES
from training.recipe import Recipe
from training.trained import learn

BASE = TrainConfig(epochs=2, train_rows=96, reference_rows=100, batch_size=32, dropout=0.2, flip=True, crop=2)


def seen(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a network was trained with: its weights before the first step, and every batch after augmentation."""
    found: dict[str, Any] = {"batches": [], "weights": None}
    augment, make = Augmentation.__call__, loop.make_optimiser

    def called(self: Augmentation, images: Any) -> Any:
        changed = augment(self, images)
        found["batches"].append(changed.numpy().copy())
        return changed

    def made(module: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
        found["weights"] = [weight.detach().clone().numpy() for weight in module.parameters()]
        return make(module, recipe)

    with monkeypatch.context() as patched:
        patched.setattr(Augmentation, "__call__", called)
        patched.setattr(loop, "make_optimiser", made)
        trained = learn(config)
    found["held out"] = trained.parts.reference()
    return found


@pytest.mark.parametrize(
    "changed",
    [{"loss": loss} for loss in LOSSES if loss != "cross_entropy"]
    + [{"mixup": 0.2}, {"weight_decay": 0.1}, {"dropout": 0.0}, {"learning_rate": 1e-4, "schedule": "cosine"}],
    ids=str,
)
def test_cells_of_a_seed_share_rows_weights_order_and_augmentation(
    changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (seen(config, monkeypatch) for config in (BASE, replace(BASE, **changed)))
    np.testing.assert_array_equal(first["held out"], second["held out"])
    assert len(first["weights"]) == len(second["weights"]) > 0
    for one, other in zip(first["weights"], second["weights"], strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(first["batches"]) == len(second["batches"]) == 2 * 3
    for one, other in zip(first["batches"], second["batches"], strict=True):
        np.testing.assert_array_equal(one, other)


def test_cells_of_two_seeds_share_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (seen(config, monkeypatch) for config in (BASE, replace(BASE, seed=1)))
    assert not np.array_equal(first["held out"], second["held out"])
    assert not np.array_equal(first["weights"][0], second["weights"][0])
    assert not np.array_equal(first["batches"][0], second["batches"][0])


def test_what_two_configurations_share() -> None:
    one = {"dataset": "cifar10", "model": "resnet20", "batch_size": 128, "loss": "focal"}
    assert shared(one, one | {"loss": "mmce"}) == tuple(SHARED)
    assert shared(one, one | {"reference_rows": 500}) == ("initial weights",)
    assert shared(one, one | {"batch_size": 64}) == ("held-out rows", "initial weights", "augmentation")


def test_the_losses_of_each_study_are_paired_in_everything() -> None:
    for name in ("wang2021", "losses-cifar10"):
        cells = [cell for cell in STUDIES[name].cells("small", 1) if not cell.config.train_rows]
        for cell in cells:
            alike = next(other for other in cells if other.config.dataset == cell.config.dataset)
            assert shared(cell.document()["config"], alike.document()["config"]) == tuple(SHARED)


def result(seed: int, ece: float | None) -> dict[str, Any]:
    return {"cell": {"config": {"seed": seed}}, "test": {"none": {"ece": ece}}}


def test_only_common_seeds_are_compared_whatever_their_order() -> None:
    ours = [result(2, 0.05), result(0, 0.03), result(1, 0.04), result(7, 0.9), result(4, None)]
    theirs = [result(0, 0.01), result(1, 0.03), result(2, 0.02), result(3, 0.9), result(4, 0.5)]
    found = compared(ours, theirs, at("test", "none", "ece"))
    assert found is not None
    assert (found.pairs, found.difference) == (3, pytest.approx(2.0))
    assert found.deviation == pytest.approx(1.0)
    assert compared(ours[:1], theirs[:1], at("test", "none", "ece")) is None
