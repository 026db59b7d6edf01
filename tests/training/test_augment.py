"""Augmentation: windows of the padded image, mirror images, square holes, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from training.augment import Augmentation, check_suits
from training.errors import ConfigurationError
from training.models.torchvision_operators import define_missing_operators
from training.recipe import Recipe

SIZE = 6


def images(count: int = 200) -> torch.Tensor:
    """No pixel is black, and all of an image differ."""
    some = np.stack([np.random.default_rng(seed).permutation(np.arange(1, 109)) for seed in range(count)])
    return torch.from_numpy(some.reshape(count, SIZE, SIZE, 3).astype(np.uint8))


def changed(seed: int = 0, **settings: int | bool) -> torch.Tensor:
    return Augmentation(Recipe(**settings), torch.Generator().manual_seed(seed))(images())  # type: ignore[arg-type]


def test_without_a_wish_the_images_are_not_even_copied() -> None:
    some = images()
    assert Augmentation(Recipe(), torch.Generator())(some) is some


def test_half_of_the_images_are_mirrored() -> None:
    before, after = images(), changed(flip=True)
    mirrored = (after == before.flip(2)).flatten(1).all(dim=1)
    kept = (after == before).flatten(1).all(dim=1)
    assert (mirrored ^ kept).all()
    assert 70 <= int(mirrored.sum()) <= 130


def test_every_window_of_the_padded_image_comes_up() -> None:
    before, after = images(), changed(crop=1)
    padded = torch.nn.functional.pad(before, (0, 0, 1, 1, 1, 1))
    seen = set()
    for image, wide in zip(after, padded, strict=True):
        places = [
            (row, column)
            for row in range(3)
            for column in range(3)
            if torch.equal(image, wide[row : row + SIZE, column : column + SIZE])
        ]
        assert len(places) == 1
        seen.add(places[0])
    assert len(seen) == 9


def test_windows_of_mirrored_images_are_mirrored_windows() -> None:
    """With crop, flip and cutout at once, each is a window of the padded image, mirrored or not, with a hole in it."""
    before, after = images(), changed(crop=2, flip=True, cutout=3)
    padded = torch.nn.functional.pad(before, (0, 0, 2, 2, 2, 2))
    mirrored = 0
    for image, wide in zip(after, padded, strict=True):
        whole = (image != 0).all(dim=2)
        found = {
            (row, column, flipped)
            for row in range(5)
            for column in range(5)
            for flipped in (False, True)
            if torch.equal(image[whole], _window(wide, row, column, flipped)[whole])
        }
        assert len(found) >= 1
        mirrored += all(flipped for _, _, flipped in found)
    assert 70 <= mirrored <= 130


def _window(wide: torch.Tensor, row: int, column: int, flipped: bool) -> torch.Tensor:
    window = wide[row : row + SIZE, column : column + SIZE]
    return window.flip(1) if flipped else window


def test_holes_are_squares_that_may_reach_over_the_edge() -> None:
    before, after = images(), changed(cutout=4)
    areas, corners = set(), set()
    for old, new in zip(before, after, strict=True):
        hole = (new == 0).all(dim=2)
        assert torch.equal(new[~hole], old[~hole])
        rows, columns = hole.any(dim=1), hole.any(dim=0)
        assert torch.equal(hole, rows[:, None] & columns[None, :])
        for side in (rows, columns):
            places = side.nonzero()[:, 0]
            assert 1 <= len(places) <= 4
            assert int(places[-1] - places[0]) + 1 == len(places)
        areas.add(int(hole.sum()))
        corners |= {place for place in ((0, 0), (0, -1), (-1, 0), (-1, -1)) if hole[place]}
    assert max(areas) == 16
    assert len(areas) > 3
    assert len(corners) == 4  # the centre may be any pixel


def test_the_generator_decides_and_the_input_stays() -> None:
    some = images()
    twice = [
        Augmentation(Recipe(crop=2, flip=True, cutout=2), torch.Generator().manual_seed(seed))(some)
        for seed in (1, 1, 2)
    ]
    assert torch.equal(twice[0], twice[1])
    assert not torch.equal(twice[0], twice[2])
    assert torch.equal(some, images())


@pytest.mark.parametrize(
    ("settings", "shape", "words"),
    [
        ({"flip": True}, (5, 100), r"found inputs of shape \(5, 100\)"),
        ({"crop": 6}, (5, 6, 9, 1), "crop is 6, expected less than 6, the shorter side"),
        ({"cutout": 7}, (5, 9, 6, 3), "cutout is 7, expected less than 6"),
    ],
)
def test_what_leaves_nothing_of_an_image_is_refused(settings: dict, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        check_suits(Recipe(**settings), shape)
    check_suits(Recipe(crop=5, flip=True, cutout=5), (5, 6, 6, 1))
    check_suits(Recipe(), shape)


def test_rand_augment_and_erasing_are_torchvisions() -> None:
    """The same images as by hand, from the generator alone: what others draw changes nothing."""
    define_missing_operators()
    pytest.importorskip("torchvision")
    from torchvision.transforms import v2

    some = images(20)
    seed = int(torch.randint(2**62, (), generator=torch.Generator().manual_seed(3)))
    for settings, transform in (
        ({"rand_augment": 9}, v2.RandAugment(magnitude=9)),
        ({"erasing": 0.5}, v2.RandomErasing()),
    ):
        before = torch.get_rng_state()
        got = Augmentation(Recipe(**settings), torch.Generator().manual_seed(3))(some)  # type: ignore[arg-type]
        assert torch.equal(torch.get_rng_state(), before)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            expected = torch.stack([transform(image) for image in some.permute(0, 3, 1, 2)]).permute(0, 2, 3, 1)
        assert torch.equal(got, expected)
        assert not torch.equal(got, some)
        assert got.dtype == torch.uint8
