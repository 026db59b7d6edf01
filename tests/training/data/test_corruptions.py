"""Corruptions: what each does, in five severities."""

from __future__ import annotations

import numpy as np
import pytest

from training import ConfigurationError
from training.data import CORRUPTIONS, corrupt

RANDOM = np.random.default_rng(0)
SMOOTH = np.clip(
    np.add.outer(np.linspace(30, 130, 32), np.linspace(0, 60, 32))[np.newaxis, ..., np.newaxis]
    + RANDOM.normal(0, 12, (40, 32, 32, 3)),
    0,
    255,
).astype(np.uint8)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(float) - other).mean())


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_each_severity_is_further_from_the_original(name: str, channels: int) -> None:
    images = SMOOTH[..., :channels]
    before = images.copy()
    distances = []
    for severity in range(1, 6):
        corrupted = corrupt(images, name, severity, seed=1)
        assert corrupted.dtype == np.uint8
        assert corrupted.shape == images.shape
        distances.append(distance(corrupted, images))
    assert distances == sorted(distances)
    assert distances[0] > 0
    np.testing.assert_array_equal(images, before)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_seed_decides_and_only_noise_asks_for_it(name: str) -> None:
    one, again, other = (corrupt(SMOOTH, name, 3, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert np.array_equal(one, other) != name.endswith("noise")


def test_an_image_does_not_depend_on_those_after_it() -> None:
    many = np.concatenate([SMOOTH] * 15)  # more than are worked on at once
    for name in CORRUPTIONS:
        all_of_them, some = corrupt(many, name, 2), corrupt(many[:520], name, 2)
        np.testing.assert_array_equal(all_of_them[:512], some[:512])


def test_noise_has_its_deviation() -> None:
    grey = np.full((100, 32, 32, 1), 128, np.uint8)
    for severity, share in enumerate((0.04, 0.06, 0.08, 0.09, 0.10), start=1):
        assert corrupt(grey, "gaussian_noise", severity).std() == pytest.approx(share * 255, rel=0.01)
    for severity, photons in enumerate((500, 250, 100, 75, 50), start=1):
        expected = 255 * np.sqrt(128 / 255 / photons)
        assert corrupt(grey, "shot_noise", severity).std() == pytest.approx(
            expected, rel=0.03
        )  # counts and pixels round apart


def test_blur_and_contrast_keep_the_mean() -> None:
    for name in ("gaussian_blur", "contrast"):
        assert corrupt(SMOOTH, name, 5).mean() == pytest.approx(SMOOTH.mean(), abs=0.6)
    assert corrupt(SMOOTH, "contrast", 5).std() < 0.3 * SMOOTH.std()


def test_a_flat_image_has_nothing_to_blur_or_to_pixelate() -> None:
    flat = np.full((2, 32, 32, 3), (200, 100, 7), np.uint8)
    for name in ("gaussian_blur", "contrast", "pixelate"):
        np.testing.assert_array_equal(corrupt(flat, name, 5), flat)


def test_brightness_keeps_the_hue_and_lifts_black() -> None:
    image = np.array([[[[100, 40, 0], [0, 0, 0], [250, 250, 250]]]], np.uint8)
    brighter = corrupt(image, "brightness", 4)[0, 0]
    assert brighter.tolist() == [[151, 60, 0], [51, 51, 51], [255, 255, 255]]


def test_pixels_become_blocks() -> None:
    image = corrupt(RANDOM.integers(0, 256, (1, 8, 8, 3)).astype(np.uint8), "pixelate", 5)[0]
    assert len({tuple(row) for row in image.reshape(8, -1).tolist()}) == 5


@pytest.mark.parametrize(
    ("images", "name", "severity"),
    [
        (SMOOTH, "fog", 1),
        (SMOOTH, "jpeg", 0),
        (SMOOTH, "jpeg", 6),
        (SMOOTH.astype(float), "jpeg", 1),
        (SMOOTH[0], "jpeg", 1),
        (SMOOTH[..., :2], "jpeg", 1),
    ],
)
def test_what_cannot_be_corrupted(images: np.ndarray, name: str, severity: int) -> None:
    with pytest.raises(ConfigurationError, match="expected"):
        corrupt(images, name, severity)
