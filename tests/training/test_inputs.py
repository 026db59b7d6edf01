"""What an example looks like: measured on training rows, and refused where it makes no sense."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from training import ConfigurationError
from training.inputs import CategoryColumn, ImageShape, InputShape, NumberColumn, TableShape, TokenShape


def test_images_are_measured_by_channel_and_black_ones_are_divided_by_one() -> None:
    images = np.zeros((2, 4, 5, 3), np.uint8)
    images[0, :, :, 0], images[1, :, :, 1] = 200, 100
    shape = ImageShape.measured(images)
    assert (shape.height, shape.width, shape.channels, shape.mean) == (4, 5, 3, None)
    assert shape.scale == pytest.approx((200 / math.sqrt(2), 100 / math.sqrt(2), 1.0))


def test_centred_images_are_measured_over_blocks() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2500, 3, 4, 3)).astype(np.uint8)
    images[:, :, :, 2] = 9
    shape = ImageShape.measured(images, centred=True)
    pixels = images.reshape(-1, 3).astype(np.float64)
    assert shape.mean == pytest.approx(pixels.mean(axis=0), rel=1e-12)
    assert shape.scale == pytest.approx([*pixels[:, :2].std(axis=0), 1.0], rel=1e-9)  # 1 where all are equal
    assert (shape.height, shape.width) == (3, 4)


def test_columns_are_measured_without_what_is_missing() -> None:
    rows = np.array([[1.0, np.nan, 7.0, 1.0], [3.0, np.nan, 7.0, 2.0], [np.nan, np.nan, 7.0, 0.0]], np.float32)
    assert TableShape.measured(rows, [None, None, None, 2]).columns == (
        NumberColumn(2.0, 1.0, (1.0, 3.0)),
        NumberColumn(0.0, 1.0),
        NumberColumn(7.0, 1.0),
        CategoryColumn(2),
    )


def test_knots_are_the_values_of_a_column_or_cut_it_into_even_parts() -> None:
    few, many = np.arange(1600) % 17, np.arange(1600) ** 2
    shape = TableShape.measured(np.stack([few, many], axis=1).astype(np.float32), [None, None])
    knots = [column.knots for column in shape.columns if isinstance(column, NumberColumn)]
    assert knots[0] == tuple(range(17))
    assert len(knots[1]) == 17
    assert set(np.histogram(many, knots[1])[0]) <= {99, 100, 101}
    (wide,) = TableShape.measured(np.array([[0.0], [1e-30], [1e30]], np.float32), [None]).columns
    assert isinstance(wide, NumberColumn)
    assert wide.knots == pytest.approx((0.0, 1e30)), "no part is so narrow that its length is 0"


@pytest.mark.parametrize(
    "make",
    [
        lambda: ImageShape(0, 4, (1.0,)),
        lambda: ImageShape(4, 4, ()),
        lambda: ImageShape(4, 4, (1.0, 0.0)),
        lambda: ImageShape(4, 4, (math.nan,)),
        lambda: ImageShape(4, 4, (1.0,), mean=(0.0, 0.0)),
        lambda: ImageShape(4, 4, (1.0,), mean=(math.inf,)),
        lambda: TokenShape(1, 4),
        lambda: TokenShape(4, 0),
        lambda: TableShape(()),
        lambda: TableShape((NumberColumn(math.nan, 1.0),)),
        lambda: TableShape((NumberColumn(0.0, 0.0),)),
        lambda: TableShape((NumberColumn(knots=(1.0,)),)),
        lambda: TableShape((NumberColumn(knots=(1.0, 1.0)),)),
        lambda: TableShape((NumberColumn(knots=(1.0, math.inf)),)),
        lambda: TableShape((CategoryColumn(-1),)),
    ],
)
def test_shapes_that_make_no_sense_are_refused(make: Callable[[], InputShape]) -> None:
    with pytest.raises(ConfigurationError, match="expected"):
        make()


def test_shapes_do_not_import_torch() -> None:
    code = "import sys, training.inputs; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
