"""The digits."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from training.data import DATASETS


def test_pixels_are_scaled_exactly() -> None:
    data = DATASETS["digits"]()
    original = load_digits()
    assert data.inputs.dtype == np.uint8
    assert len(data) == 1797
    expected = np.rint(original.images * 255 / 16)
    np.testing.assert_array_equal(data.inputs[..., 0], expected)
    np.testing.assert_array_equal(data.labels, original.target)
    assert data.label_names == tuple("0123456789")
    assert (data.inputs.min(), data.inputs.max()) == (0, 255)


def test_the_example_image_is_a_seven_of_the_feedback_part() -> None:
    from pathlib import Path

    from bundle import InputSpec
    from bundle.images import decode_image
    from training import TrainConfig

    file = Path(__file__).parents[3] / "examples" / "seven.png"
    spec = InputSpec(kind="image", dtype="uint8", shape=(8, 8, 1))
    image = decode_image(file.read_bytes(), spec, max_pixels=64)
    data, parts = TrainConfig().load()
    feedback = parts.feedback
    same = (data.inputs[feedback] == image).all(axis=(1, 2, 3))
    assert data.labels[feedback][same].tolist() == [7]
