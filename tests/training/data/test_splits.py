"""Splits: seeded, disjoint, whole, recorded."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import ConfigurationError, TrainConfig
from training.data import split


@given(st.integers(0, 2**63 - 1), st.integers(1, 50), st.integers(20, 60), st.integers(0, 100))
def test_parts_are_disjoint_and_together_everything(seed: int, train: int, reference: int, more: int) -> None:
    rows = train + reference + more
    parts = split(rows, seed=seed, train_rows=train, reference_rows=reference, fit_share=0.5, certify_share=0.4)
    together = np.concatenate(astuple(parts))
    assert together.dtype == np.int64
    assert sorted(together.tolist()) == list(range(rows))
    assert len(parts.train) == train
    assert len(parts.fit) + len(parts.certify) + len(parts.gate) == reference


def test_the_seed_decides() -> None:
    first, again, other = (TrainConfig(seed=seed).splits(1797).sizes_and_digests() for seed in (1, 1, 2))
    assert first == again
    assert all(first[name] != other[name] for name in first)
    assert {name: rows for name, (rows, _) in first.items()} == {
        "train": 300,
        "fit": 200,
        "certify": 180,
        "gate": 20,
        "feedback": 1097,
    }


def test_the_feedback_part_does_not_depend_on_the_shares() -> None:
    one = TrainConfig(fit_share=0.3, certify_share=0.3).splits(1797)
    two = TrainConfig(fit_share=0.6, certify_share=0.3).splits(1797)
    np.testing.assert_array_equal(one.feedback, two.feedback)
    np.testing.assert_array_equal(one.train, two.train)


@pytest.mark.parametrize(
    "config", [TrainConfig(train_rows=1500), TrainConfig(reference_rows=2), TrainConfig(reference_rows=3)]
)
def test_too_few_rows_are_refused(config: TrainConfig) -> None:
    with pytest.raises(ConfigurationError, match="expected"):
        config.splits(1797)


def test_data_configuration_and_command_line_do_not_import_torch() -> None:
    code = (
        "import sys, training, training.data, training.config, training.cli\n"
        "data = training.data.DATASETS['digits']()\n"
        "training.TrainConfig().splits(len(data))\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
