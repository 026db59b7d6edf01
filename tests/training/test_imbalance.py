"""Class and row weights, balanced sampling and adjusted logits, and that the exported logits undo them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bundle.table import Column, Columns
from training import ConfigurationError, TrainConfig, candor_train
from training.data import Dataset
from training.imbalance import adjustment, chances, class_shift, row_weights
from training.loop import Rows, train
from training.losses import Criterion
from training.losses.cross_entropy import cross_entropy
from training.losses.focal import focal
from training.models.shift import Shift
from training.trained import learn

COUNTS = (60, 30, 10)
LABELS = np.repeat(np.arange(3), COUNTS)
TRAIN = np.arange(len(LABELS))


def data(labels: np.ndarray = LABELS, weights: np.ndarray | None = None) -> Dataset:
    columns = Columns((Column("x"),))
    names = ("a", "b", "c")[: int(labels.max()) + 1]
    return Dataset(
        "t", np.zeros((len(labels), 1), np.float32), labels, names, "array", columns=columns, weights=weights
    )


class Constant(nn.Module):
    """The same logits for all rows: their optimum has a closed form."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(3))

    def forward(self, rows: Tensor) -> Tensor:
        return self.logits.expand(len(rows), 3)


@pytest.mark.parametrize("weights", [None, np.tile([1.0, 3.0], 50)], ids=["rows alike", "row weights"])
@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        ({}, 1e-3),
        ({"class_weights": ("balanced",)}, 1e-3),
        ({"class_weights": ("a=0.5", "c=4")}, 1e-3),
        ({"logit_adjustment": 1.0}, 1e-3),
        ({"logit_adjustment": 0.5, "class_weights": ("c=2",)}, 1e-3),
        ({"sampling": "balanced"}, 0.02),
    ],
    ids=str,
)
def test_constant_logits_become_the_class_frequencies(
    settings: dict[str, Any], tolerance: float, weights: np.ndarray | None
) -> None:
    config = TrainConfig(
        epochs=300, batch_size=100, optimiser="sgd", learning_rate=1.0, schedule="cosine", device="cpu", **settings
    )
    found = data(weights=weights)
    added = adjustment(config, found, TRAIN)
    rows = Rows(found.inputs, LABELS, row_weights(config, found, TRAIN), chances(config, found, TRAIN))
    module = nn.Sequential(Constant())
    train(module, Criterion(cross_entropy, {}, len(LABELS), 3, adjustment=added), rows, config)
    shift = class_shift(config, found, TRAIN)
    assert (shift is None) == (not settings)
    if shift is not None:
        module.append(Shift(torch.from_numpy(shift)))
    stated = torch.softmax(module.eval()(torch.zeros(1, 1)), 1)[0].detach().numpy()
    expected = np.bincount(LABELS, weights) / (len(LABELS) if weights is None else weights.sum())
    np.testing.assert_allclose(stated, expected, atol=tolerance)


def test_balanced_weights_and_chances_are_those_of_their_definition() -> None:
    config = TrainConfig(class_weights=("balanced",))
    weights = row_weights(config, data(), TRAIN)
    assert weights is not None
    np.testing.assert_allclose(np.bincount(LABELS, weights), [100 / 3] * 3)
    drawn = chances(replace(config, class_weights=(), sampling="balanced"), data(), TRAIN)
    assert drawn is not None
    np.testing.assert_allclose(np.bincount(LABELS, drawn), [1 / 3] * 3)
    assert row_weights(TrainConfig(), data(), TRAIN) is None
    assert chances(TrainConfig(), data(), TRAIN) is None


def test_a_shift_is_for_evaluation_alone() -> None:
    shift = Shift(torch.tensor([1.0, -1.0]))
    logits = torch.zeros(2, 2)
    assert torch.equal(shift.train()(logits), logits)
    assert torch.equal(shift.eval()(logits), torch.tensor([[1.0, -1.0], [1.0, -1.0]]))


def test_focal_with_alpha_weights_two_classes() -> None:
    logits, labels = torch.tensor([[0.3, -0.2], [1.0, 0.5]], dtype=torch.float64), torch.tensor([0, 1])
    plain, weighted = focal(logits, labels, gamma=2.0), focal(logits, labels, gamma=2.0, alpha=0.25)
    torch.testing.assert_close(weighted, plain * torch.tensor([0.75, 0.25], dtype=torch.float64))
    soft = torch.tensor([[0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)
    both = [focal(logits, torch.full((2,), label), gamma=2.0, alpha=0.25) for label in (0, 1)]
    expected = torch.stack([(both[0][0] + both[1][0]) / 2, both[1][1]])
    torch.testing.assert_close(focal(logits, soft, gamma=2.0, alpha=0.25), expected)
    with pytest.raises(ConfigurationError, match="alpha weights two classes, not 3"):
        focal(torch.zeros(1, 3), torch.tensor([0]), alpha=0.25)
    with pytest.raises(ConfigurationError, match="alpha is 1"):
        focal(logits, labels, alpha=1.0)


@pytest.mark.parametrize(
    "settings",
    [
        {"class_weights": ("balanced",)},
        {"sampling": "balanced"},
        {"logit_adjustment": 1.0},
        {"loss": "focal", "coefficients": {"gamma": 0.0, "alpha": 0.9}},
    ],
    ids=str,
)
def test_a_networks_base_rate_is_the_populations(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(2)
    x = random.normal(size=3000).astype(np.float32)
    labels = (random.random(3000) < 1 / (1 + np.exp(3 - 1.5 * x))).astype(np.int64)
    whole = Dataset("t", x[:, None], labels, ("no", "yes"), "array", columns=Columns((Column("x"),)))
    monkeypatch.setattr(TrainConfig, "read", lambda _: whole)
    config = TrainConfig(
        model="table_cnn", epochs=4, batch_size=128, learning_rate=3e-3, reference_rows=1000, validation_rows=0,
        device="cpu", threads=1, **settings,
    )  # fmt: skip
    found = learn(config)
    assert found.config.calibrator == "platt"
    rows = found.parts.reference()
    logits = found.scored(rows).logits.astype(np.float64)
    stated = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    # Unshifted, the mean would be three times the rate or more.
    assert stated.mean() == pytest.approx(labels[rows].mean(), rel=0.5)
    raw = found.module.train(False)[:2](torch.from_numpy(whole.inputs[rows])).softmax(1)[:, 1].mean().item()
    assert raw > 2 * labels[rows].mean()


@pytest.mark.parametrize(("alpha", "told"), [(0.9, "alpha weights two classes, not 3"), (1.9, "alpha is 1.9")])
def test_a_weight_of_focal_that_does_not_fit_is_refused_by_the_loss(alpha: float, told: str, tmp_path: Path) -> None:
    labels = np.arange(120) // 40
    inputs = np.eye(3, dtype=np.float32)[labels] + np.arange(120, dtype=np.float32)[:, None]
    with pytest.raises(ConfigurationError, match=told):
        candor_train(
            "table_cnn",
            (inputs, labels),
            out=tmp_path,
            name="eyes",
            loss="focal",
            coefficients={"alpha": alpha},
            epochs=1,
        )
