"""The dimming lamp."""

from __future__ import annotations

import numpy as np

from training.data import drift


def test_it_darkens_adds_noise_and_repeats_itself() -> None:
    images = np.full((200, 8, 8, 1), 200, np.uint8)
    dark = drift.dim(images, seed=3)
    assert dark.dtype == np.uint8
    assert dark.shape == images.shape
    assert abs(dark.mean() - 200 * drift.GAIN) < 1
    assert abs(dark.std() - 255 * drift.NOISE) < 1
    np.testing.assert_array_equal(dark, drift.dim(images, seed=3))
    assert not np.array_equal(dark, drift.dim(images, seed=4))


def test_values_are_clipped_not_wrapped() -> None:
    assert drift.dim(np.zeros(1000, np.uint8), seed=0).max() < 128
    assert drift.dim(np.full(1000, 255, np.uint8), seed=0, gain=1.0).min() > 128


def test_no_drift_is_no_change() -> None:
    images = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(drift.dim(images, seed=0, gain=1.0, noise=0.0), images)
