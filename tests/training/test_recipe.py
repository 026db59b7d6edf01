"""Recipes: schedules against their formulas, and settings that cannot work."""

from __future__ import annotations

import math
from typing import Any

import pytest

from training import ConfigurationError
from training.recipe import Recipe


def test_cosine_goes_from_the_full_step_to_none() -> None:
    recipe = Recipe(epochs=10, schedule="cosine", learning_rate=0.2)
    assert recipe.step_size(0) == 0.2
    assert recipe.step_size(5) == pytest.approx(0.1)
    assert recipe.step_size(10) == pytest.approx(0)
    for epoch in (0.25, 3.5, 9.9):
        assert recipe.step_size(epoch) == pytest.approx(0.2 * math.cos(math.pi * epoch / 20) ** 2)


def test_cosine_starts_after_the_warm_up() -> None:
    recipe = Recipe(epochs=10, schedule="cosine", learning_rate=0.2, warm_up=2)
    assert [recipe.step_size(epoch) for epoch in (0, 0.5, 1)] == pytest.approx([0, 0.05, 0.1])
    assert recipe.step_size(2) == 0.2
    assert recipe.step_size(6) == pytest.approx(0.1)


def test_steps_divide_at_each_milestone() -> None:
    recipe = Recipe(epochs=300, schedule="step", milestones=(150, 225), step_factor=5, learning_rate=0.1)
    assert [recipe.step_size(epoch) for epoch in (149.9, 150, 224, 225)] == pytest.approx([0.1, 0.02, 0.02, 0.004])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs is 0, expected at least 1"),
        ({"epochs": 2.5}, "epochs is 2.5, expected a whole number"),
        ({"learning_rate": "1e-3"}, "learning_rate is '1e-3', expected a number"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"learning_rate": float("inf")}, "learning_rate is inf"),
        ({"optimiser": "lion"}, "optimiser is 'lion', expected one of: adam, sgd"),
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"nesterov": True, "momentum": 0.0}, "nesterov is True, expected a positive momentum"),
        ({"schedule": "step"}, "milestones is (), expected milestones with the schedule 'step', and none otherwise"),
        ({"milestones": (5,)}, "milestones is (5,), expected milestones with the schedule 'step', and none otherwise"),
        ({"schedule": "step", "milestones": (5, 5)}, "ascending"),
        ({"schedule": "step", "milestones": (0, 5)}, "at least 1"),
        ({"warm_up": 60}, "warm_up is 60, expected less than the 60 epochs"),
        ({"clip": 0.0}, "clip is 0.0"),
        ({"patience": 0}, "patience is 0"),
        ({"weight_decay": -1e-4}, "weight_decay is -0.0001"),
        ({"mixup": float("inf")}, "mixup is inf"),
        ({"precision": "float16"}, "expected one of: float32, bfloat16"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Recipe(**settings)
    assert message in str(caught.value)
