"""Preprocessing inside the graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from training.inputs import CategoryColumn, NumberColumn, TableShape
from training.preprocess import ImageInput, TableInput, TokenInput


def test_scale_layout_and_size() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 2)).astype(np.uint8)
    seen = ImageInput([10.0, 20.0], 32)(torch.from_numpy(images))
    assert seen.dtype == torch.float32
    assert seen.shape == (3, 2, 32, 32)
    for channel, rms in enumerate((10.0, 20.0)):
        plane = Image.fromarray(images[0, :, :, channel].astype(np.float32))
        expected = np.asarray(plane.resize((32, 32), Image.Resampling.BILINEAR)) / rms
        np.testing.assert_allclose(seen[0, channel].numpy(), expected, rtol=1e-5, atol=1e-5)


def test_the_right_size_is_left_alone() -> None:
    images = torch.arange(16, dtype=torch.uint8).reshape(1, 4, 4, 1)
    assert ImageInput([1.0], 4)(images).flatten().tolist() == list(range(16))


def test_black_stays_zero_and_dimmer_is_smaller() -> None:
    module = ImageInput([50.0], 8)
    images = torch.full((1, 8, 8, 1), 100, dtype=torch.uint8)
    assert not module(torch.zeros_like(images)).any()
    torch.testing.assert_close(module(images // 2), module(images) / 2)


def test_with_a_mean_images_are_centred_before_they_are_divided() -> None:
    images = torch.tensor([[[[100, 200]]]], dtype=torch.uint8)
    seen = ImageInput([50.0, 25.0], 1, mean=[120.0, 100.0])(images)
    assert seen.flatten().tolist() == pytest.approx([-0.4, 4.0])


def test_tokens_outside_of_the_vocabulary_are_unknown_words() -> None:
    tokens = torch.tensor([[0, 1, 9, 10, -1, 2**31 - 1, -(2**31)]], dtype=torch.int32)
    seen = TokenInput(10)(tokens)
    assert seen.dtype == torch.int64
    assert seen.tolist() == [[0, 1, 9, 1, 1, 1, 1]]


def test_numbers_are_standardised_and_missing_ones_are_the_mean() -> None:
    shape = TableShape((CategoryColumn(3), NumberColumn(10.0, 2.0), NumberColumn(-1.0, 0.5)))
    rows = torch.tensor([[1.0, 14.0, -2.0], [2.0, torch.nan, torch.inf]])
    numbers, codes = TableInput(shape)(rows)
    assert (numbers.dtype, codes.dtype) == (torch.float32, torch.int64)
    assert numbers.tolist() == [[2.0, -2.0], [0.0, 0.0]]
    assert codes.tolist() == [[1], [2]]


def test_numbers_are_followed_by_how_far_they_have_come_through_each_part() -> None:
    module = TableInput(TableShape((NumberColumn(1.0, 2.0, (0.0, 1.0, 5.0)), NumberColumn(3.0, 1.0))))
    rows = torch.tensor([[-9.0, 3.0], [0.5, 3.0], [2.0, 4.0], [99.0, 3.0], [torch.nan, torch.nan]])
    numbers, _ = module(rows)
    assert module.numbers == numbers.shape[1] == 4
    expected = [[-5.0, 0, 0, 0], [-0.25, 0, 0.5, 0], [0.5, 1, 1, 0.25], [49.0, 0, 1, 1], [0.0, 0, 1, 0]]
    torch.testing.assert_close(numbers, torch.tensor(expected))


def test_codes_that_no_category_has_are_unknown() -> None:
    rows = torch.tensor([[0.0], [3.0], [4.0], [-1.0], [1.5], [torch.nan], [torch.inf], [1e30]])
    _, codes = TableInput(TableShape((CategoryColumn(3),)))(rows)
    assert codes.flatten().tolist() == [0, 3, 0, 0, 0, 0, 0, 0]
