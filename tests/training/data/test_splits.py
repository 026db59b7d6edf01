"""Splits: seeded, disjoint, whole, recorded."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import ConfigurationError, TrainConfig
from training.data import Splits, split


def parts_of(config: TrainConfig) -> Splits:
    return config.load()[1]


@given(
    st.integers(0, 2**63 - 1),
    st.integers(1, 50),
    st.integers(0, 9),
    st.integers(20, 60),
    st.integers(0, 100),
    st.integers(0, 30),
    st.integers(0, 1),
    st.booleans(),
)
def test_parts_are_disjoint_and_together_everything(
    seed: int, train: int, validation: int, reference: int, more: int, test: int, at_the_end: int, stratified: bool
) -> None:
    rows = train + validation + reference + more + test
    start = (rows - test) * at_the_end
    labels = np.random.default_rng(0).integers(0, 3, rows)
    parts = split(
        labels,
        seed=seed,
        train_rows=train,
        validation_rows=validation,
        reference_rows=reference,
        fit_share=0.5,
        certify_share=0.4,
        test=range(start, start + test),
        stratified=stratified,
    )
    together = np.concatenate(astuple(parts))
    assert together.dtype == np.int64
    assert sorted(together.tolist()) == list(range(rows))
    assert len(parts.train) == train
    assert len(parts.validation) == validation
    assert len(parts.reference()) == reference
    assert parts.test.tolist() == list(range(start, start + test))
    assert len(parts.unseen()) == (test or more)


def test_training_takes_all_that_is_left_when_no_number_is_given() -> None:
    parts = split(
        np.zeros(100, np.int64),
        seed=0,
        train_rows=None,
        validation_rows=10,
        reference_rows=20,
        fit_share=0.5,
        certify_share=0.4,
        test=range(75, 100),
    )
    assert (len(parts.train), len(parts.feedback)) == (45, 0)


def test_stratified_parts_have_the_classes_in_proportion() -> None:
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    parts = split(
        labels,
        seed=5,
        train_rows=500,
        validation_rows=100,
        reference_rows=200,
        fit_share=0.5,
        certify_share=0.45,
        stratified=True,
    )
    for rows in astuple(parts)[:-1]:
        counts = np.bincount(labels[rows], minlength=3)
        np.testing.assert_allclose(counts, len(rows) * np.array([0.6, 0.3, 0.1]), atol=2)


def test_the_digits_are_split_as_ever() -> None:
    order = np.random.default_rng(9).permutation(1797)
    parts = parts_of(TrainConfig(seed=9))
    np.testing.assert_array_equal(np.concatenate(astuple(parts)), order)


def test_the_seed_decides() -> None:
    first, again, other = (parts_of(TrainConfig(seed=seed)).sizes_and_digests() for seed in (1, 1, 2))
    assert first == again
    assert all(first[name] != other[name] for name in first)
    assert {name: rows for name, (rows, _) in first.items()} == {
        "train": 300,
        "fit": 200,
        "certify": 180,
        "gate": 20,
        "feedback": 1097,
    }


def test_validation_and_test_parts_are_recorded_where_there_are_any() -> None:
    record = parts_of(TrainConfig(validation_rows=50, test_rows=200)).sizes_and_digests()
    assert record["validation"][0] == 50
    assert record["test"][0] == 200
    assert len({digest for _, digest in record.values()}) == 7


def test_the_test_rows_are_the_same_for_every_seed() -> None:
    (one, first), (other, second) = (TrainConfig(seed=seed, test_rows=200).load() for seed in (1, 2))
    np.testing.assert_array_equal(one.inputs[first.test], other.inputs[second.test])


def test_the_feedback_part_does_not_depend_on_the_shares() -> None:
    one = parts_of(TrainConfig(fit_share=0.3, certify_share=0.3))
    two = parts_of(TrainConfig(fit_share=0.6, certify_share=0.3))
    np.testing.assert_array_equal(one.feedback, two.feedback)
    np.testing.assert_array_equal(one.train, two.train)


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(train_rows=1500),
        TrainConfig(reference_rows=2),
        TrainConfig(reference_rows=3),
        TrainConfig(train_rows=1300, validation_rows=98),
        TrainConfig(train_rows=1300, test_rows=98),
        TrainConfig(train_rows=0, validation_rows=1397),
    ],
)
def test_too_few_rows_are_refused(config: TrainConfig) -> None:
    with pytest.raises(ConfigurationError, match="expected"):
        config.load()


def test_data_configuration_and_command_line_do_not_import_torch() -> None:
    code = (
        "import sys, training, training.data, training.config, training.cli\n"
        "training.TrainConfig().load()\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("train_rows", [80, None])
def test_too_many_rows_are_told_by_their_settings(train_rows: int | None) -> None:
    with pytest.raises(ConfigurationError) as caught:
        split(
            np.zeros(100, np.int64),
            seed=0,
            train_rows=train_rows,
            validation_rows=10,
            reference_rows=90,
            fit_share=0.5,
            certify_share=0.4,
        )
    assert ("train_rows 80, validation_rows 10" in str(caught.value)) == (train_rows is not None)
    assert "reference_rows 90: expected at most 100 together" in str(caught.value)
    assert "--train-rows 0" in str(caught.value)


@given(st.integers(0, 1000), st.integers(60, 200), st.integers(1, 6), st.integers(0, 20))
def test_groups_stay_whole_near_the_sizes(seed: int, rows: int, largest: int, validation: int) -> None:
    groups = np.random.default_rng(seed).permutation(np.arange(rows) // largest)
    asked: dict[str, Any] = {"train_rows": None, "reference_rows": 20, "validation_rows": validation}
    asked |= {"fit_share": 0.5, "certify_share": 0.45, "seed": seed, "groups": groups}
    parts = split(np.zeros(rows, np.int64), **asked)
    held = [part for part in astuple(parts) if len(part)]
    assert np.array_equal(np.sort(np.concatenate(held)), np.arange(rows))
    assert sum(len(np.unique(groups[part])) for part in held) == len(np.unique(groups))
    assert len(parts.gate)
    assert abs(len(parts.reference()) - 20) <= 2 * largest
    assert abs(len(parts.validation) - validation) <= 2 * largest
    with pytest.raises(ConfigurationError, match="stratified is True, expected false where rows have groups"):
        split(np.zeros(rows, np.int64), stratified=True, **asked)


def test_too_few_groups_are_refused() -> None:
    asked: dict[str, Any] = {"train_rows": 40, "reference_rows": 40, "fit_share": 0.5, "certify_share": 0.4, "seed": 0}
    with pytest.raises(ConfigurationError, match="part would be empty, since groups stay whole"):
        split(np.zeros(100, np.int64), groups=np.arange(100) // 34, **asked)
