"""A folder of images for each class."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import ExifTags, Image

from training import ConfigurationError, DataError
from training.data import DATASETS

RANDOM = np.random.default_rng(0)


def write(path: Path, size: tuple[int, int] = (6, 4), **options: Any) -> NDArray[np.uint8]:
    """An image of `size` (height, width) in colour; the format is that of the path's ending."""
    pixels = RANDOM.integers(0, 256, (*size, 3)).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return pixels


@pytest.fixture
def cats(tmp_path: Path) -> Path:
    for name in ("cat/b.png", "cat/a.png", "bird/z.webp", "bird/y.jpg"):
        write(tmp_path / name)
    return tmp_path


def test_classes_and_files_are_in_order(tmp_path: Path) -> None:
    second = write(tmp_path / "cat" / "b.png")
    first = write(tmp_path / "cat" / "A.PNG")
    bird = write(tmp_path / "bird" / "z.webp", lossless=True)
    (tmp_path / "cat" / ".DS_Store").write_text("x")
    (tmp_path / "notes.txt").write_text("no class")
    data = DATASETS["image_folder"](tmp_path)
    assert data.label_names == ("bird", "cat")
    assert data.labels.tolist() == [0, 1, 1]
    np.testing.assert_array_equal(data.inputs, np.stack([bird, first, second]))
    assert not data.test
    assert not data.spec().resize
    assert list(data.sources) == ["."]


def test_a_test_folder_is_set_apart(tmp_path: Path) -> None:
    for name in ("train/a/1.png", "train/b/1.png", "test/b/1.png"):
        write(tmp_path / "mine" / name)
    data = DATASETS["image_folder"](tmp_path, folder="mine")
    assert data.test == range(2, 3)
    assert data.labels.tolist() == [0, 1, 1]
    (tmp_path / "mine" / "val").mkdir()
    with pytest.raises(DataError, match="unexpected folder val/"):
        DATASETS["image_folder"](tmp_path, folder="mine")
    (tmp_path / "mine" / "val").rmdir()
    write(tmp_path / "mine" / "test" / "c" / "1.png")
    with pytest.raises(DataError, match="has the class c, which train/ does not have"):
        DATASETS["image_folder"](tmp_path, folder="mine")


def test_sizes_that_differ_are_refused_or_resized(cats: Path) -> None:
    write(cats / "cat" / "c.png", (9, 9))
    with pytest.raises(DataError, match=r"c\.png.*wrong size.*`size`"):
        DATASETS["image_folder"](cats)
    resized = DATASETS["image_folder"](cats, size=5)
    assert resized.inputs.shape == (5, 5, 5, 3)
    assert resized.spec().resize  # the service is to take the images that were taken here
    assert DATASETS["image_folder"](cats, size=[3, 7], channels=1).inputs.shape == (5, 3, 7, 1)


def test_a_photograph_on_its_side_is_turned(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    pixels = write(tmp_path / "a" / "1.png", (6, 4), exif=exif)
    write(tmp_path / "b" / "1.png", (4, 6))
    data = DATASETS["image_folder"](tmp_path)
    np.testing.assert_array_equal(data.inputs[0], np.rot90(pixels, -1))


@pytest.mark.parametrize("kind", ["cut", "text", "ending", "folder", "empty class", "one class", "no class", "nowhere"])
def test_what_is_no_image_is_named(cats: Path, kind: str) -> None:
    told = "strange.png"
    strange, folder = cats / "cat" / told, "."
    if kind == "cut":
        buffer = io.BytesIO()
        Image.fromarray(np.zeros((6, 4, 3), np.uint8)).save(buffer, "PNG")
        strange.write_bytes(buffer.getvalue()[:-20])
    elif kind == "text":
        strange.write_text("no image")
    elif kind == "ending":
        told = r"picture\.gif"
        Image.new("RGB", (4, 6)).save(cats / "cat" / "picture.gif")
    elif kind == "folder":
        strange.mkdir()
    elif kind == "empty class":
        told = "dog is empty"
        (cats / "dog").mkdir()
    elif kind == "one class":
        told, folder = "contains one class folder, cat; at least two", "alone"
        write(cats / "alone" / "cat" / "1.png")
    elif kind == "no class":
        told, folder = "contains no class folders", "cat"
    else:
        told, folder = "is not a folder", "nowhere"
    with pytest.raises(DataError, match=told):
        DATASETS["image_folder"](cats, folder=folder)


def test_several_bad_images_are_told_at_once(cats: Path) -> None:
    for name in "defghij":
        (cats / "cat" / f"{name}.png").write_text("no image")
    with pytest.raises(DataError) as caught:
        DATASETS["image_folder"](cats, size=5)
    assert [name for name in "abdefghij" if f"{name}.png" in str(caught.value)] == list("defgh")


@pytest.mark.parametrize("settings", [{"channels": 2}, {"size": 0}, {"size": [1, 2, 3]}, {"size": "big"}])
def test_settings_out_of_range(cats: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="expected"):
        DATASETS["image_folder"](cats, **settings)
