"""Images of one's own in a .npz file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from training import ConfigurationError, DataError
from training.data import DATASETS

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3)).astype(np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def test_images_and_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", images=IMAGES, labels=LABELS)
    data = DATASETS["arrays"](tmp_path, file="own.npz")
    np.testing.assert_array_equal(data.inputs, IMAGES)
    assert data.labels.tolist() == LABELS.tolist()
    assert data.label_names == ("0", "1", "2")
    assert not data.test


def test_grey_images_a_test_part_and_names(tmp_path: Path) -> None:
    np.savez_compressed(
        tmp_path / "own.npz",
        images=IMAGES[..., 0],
        labels=LABELS.astype(np.uint8),
        test_images=IMAGES[:2, ..., 0],
        test_labels=LABELS[:2],
        label_names=np.array(["a", "b", "c", "d"]),
    )
    data = DATASETS["arrays"](tmp_path, file="own.npz")
    assert data.inputs.shape == (8, 5, 4, 1)
    assert data.test == range(6, 8)
    assert data.label_names == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"images": IMAGES.astype(np.float32)}, "float32"),
        ({"images": IMAGES[..., :2]}, "images uint8"),
        ({"images": IMAGES[:, 0, 0]}, "images uint8"),
        ({"labels": LABELS[:5]}, "for 6 images"),
        ({"labels": LABELS.astype(float)}, "labels float64"),
        ({"labels": LABELS - 1}, "labels -1, 0, 1 and no label_names, expected 0 … 2"),
        ({"labels": LABELS * 2}, "labels 0, 2, 4 and no label_names, expected 0 … 2"),
        ({"labels": LABELS * 0}, "expected two or more"),
        ({"labels": np.array([{}] * 6, object)}, "cannot be read"),
        ({"label_names": np.array(["a", "b"])}, "labels are 0 … 2, expected 0 … 1"),
        ({"label_names": np.array([1, 2, 3])}, "label_names"),
        ({"test_images": IMAGES}, "holds only"),
        ({"test_images": IMAGES[:, :4], "test_labels": LABELS}, "another shape"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    np.savez(tmp_path / "own.npz", **({"images": IMAGES, "labels": LABELS} | change))
    with pytest.raises(DataError, match=told):
        DATASETS["arrays"](tmp_path, file="own.npz")


def test_other_files_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "cut.npz", images=IMAGES, labels=LABELS)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:300])
    (tmp_path / "text.npz").write_text("no arrays")
    np.savez(tmp_path / "other.npz", pixels=IMAGES)
    np.save(tmp_path / "one.npy", IMAGES)
    for file in ("cut.npz", "text.npz", "other.npz", "one.npy", "none.npz"):
        with pytest.raises(DataError, match=r"numpy\.savez") as caught:
            DATASETS["arrays"](tmp_path, file=file)
        assert "pickle" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="`file`"):
        DATASETS["arrays"](tmp_path)
