"""Configurations that cannot work are refused in one sentence."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from training import ConfigurationError, TrainConfig, train_bundle


@pytest.mark.parametrize(
    "change",
    [
        {"train_rows": -1},
        {"reference_rows": -1},
        {"epochs": 0},
        {"batch_size": 0},
        {"threads": 0},
        {"seed": -1},
        {"seed": 2**63},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"learning_rate": float("inf")},
        {"dropout": 1.0},
        {"dropout": -0.1},
        {"fit_share": 0.5, "certify_share": 0.5},
        {"fit_share": 0.0},
        {"certify_share": float("nan")},
    ],
)
def test_values_out_of_range(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="expected"):
        TrainConfig(**change)


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({"dataset": "nope"}, "digits"),
        ({"model": "nope"}, "lenet5"),
        ({"loss": "nope"}, "cross_entropy"),
        ({"calibrator": "nope"}, "temperature"),
    ],
)
def test_unknown_names_list_the_known_ones_before_anything_is_trained(
    tmp_path: Path, change: dict[str, Any], known: str
) -> None:
    def trained(_: object) -> None:
        pytest.fail("an epoch was trained")

    with pytest.raises(ConfigurationError, match=f"'nope'.*{known}"):
        train_bundle(TrainConfig(**change), tmp_path, on_epoch=trained)
    assert not any(tmp_path.iterdir())


def test_it_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        TrainConfig().seed = 1  # type: ignore[misc]
