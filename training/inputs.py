"""What one example looks like, and what its numbers are measured against: all that a network must know of the data.

`training.models.assemble` puts preprocessing and network together from one of these. Nothing here imports torch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bundle.text import SPECIAL
from training.errors import ConfigurationError

_BLOCK = 1024  # images that are held as float64 at once
_PARTS = 16  # that a column of numbers is cut into
_NARROWEST = 1e-6  # part, in deviations: float32 does not tell the ends of a narrower one apart


@dataclass(frozen=True)
class ImageShape:
    """Images, uint8 (N, height, width, channels).

    Attributes:
        height: Rows of pixels.
        width: Columns of pixels.
        scale: What each channel is divided by, on the scale 0 … 255, positive: its root mean square, or its standard
            deviation where a mean is given.
        mean: What is subtracted from each channel before, on the scale 0 … 255; None for nothing.

    Raises:
        ConfigurationError: A value is out of its range.

    Example:
        >>> ImageShape(32, 32, scale=(63.0, 62.1, 66.7), mean=(125.3, 123.0, 113.9)).channels
        3
    """

    height: int
    width: int
    scale: tuple[float, ...]
    mean: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1 or not self.scale:
            raise ConfigurationError(
                f"images of {self.height} × {self.width} pixels in {self.channels} channels, expected at least 1 each"
            )
        if not all(0 < value < math.inf for value in self.scale):
            raise ConfigurationError(f"the scale of the channels is {self.scale}, expected positive numbers")
        if self.mean is not None and not (
            len(self.mean) == self.channels and all(math.isfinite(value) for value in self.mean)
        ):
            raise ConfigurationError(f"the mean of the channels is {self.mean}, expected {self.channels} numbers")

    @property
    def channels(self) -> int:
        """Number of channels."""
        return len(self.scale)

    @classmethod
    def uncentred(cls, images: NDArray[np.uint8]) -> Self:
        """As the training images uint8 (N, H, W, C) say: divided by their root mean square, black stays zero."""
        total = np.zeros(images.shape[3])
        for start in range(0, len(images), _BLOCK):  # whole numbers below 2**53: the sum is exact in any order
            total += np.square(images[start : start + _BLOCK], dtype=np.float64).sum(axis=(0, 1, 2))
        mean_square = total / np.prod(images.shape[:3])
        return cls(images.shape[1], images.shape[2], _positive(np.sqrt(mean_square)))

    @classmethod
    def centred(cls, images: NDArray[np.uint8]) -> Self:
        """As the training images uint8 (N, H, W, C) say: less their mean, divided by their standard deviation.

        Example:
            >>> ImageShape.centred(np.array([[[[10], [30]]]], np.uint8))
            ImageShape(height=1, width=2, scale=(10.0,), mean=(20.0,))
        """
        total, squares = np.zeros(images.shape[3]), np.zeros(images.shape[3])
        for start in range(0, len(images), _BLOCK):  # whole numbers below 2**53: the sums are exact in any order
            block = images[start : start + _BLOCK].astype(np.float64)
            total += block.sum(axis=(0, 1, 2))
            squares += np.square(block).sum(axis=(0, 1, 2))
        count = np.prod(images.shape[:3])
        mean = total / count
        variance = np.maximum(squares / count - mean**2, 0.0)
        shape = images.shape[1], images.shape[2]
        return cls(*shape, _positive(np.sqrt(variance)), tuple(float(value) for value in mean))


@dataclass(frozen=True)
class TokenShape:
    """Texts, int32 (N, length): 0 is padding, 1 an unknown word, the others are words, up to vocabulary − 1.

    Attributes:
        vocabulary: Number of token ids, padding and unknown among them.
        length: Tokens of a text.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    vocabulary: int
    length: int

    def __post_init__(self) -> None:
        if self.vocabulary < len(SPECIAL) or self.length < 1:
            raise ConfigurationError(
                f"texts of {self.length} tokens out of {self.vocabulary}, expected at least 1 token out "
                f"of {len(SPECIAL)}, padding and unknown"
            )


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers; one that is missing, NaN, counts as the mean.

    Attributes:
        mean: Its mean over the training rows.
        deviation: Its standard deviation over the training rows, positive.
        knots: Ascending values between which a network may bend; none, or two and more.
    """

    mean: float = 0.0
    deviation: float = 1.0
    knots: tuple[float, ...] = ()


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories, as codes: 1 … categories, and 0 for a missing one or one that is not known.

    Attributes:
        categories: Number of known categories.
    """

    categories: int


@dataclass(frozen=True)
class TableShape:
    """Rows of a table, float32 (N, F).

    Attributes:
        columns: What each column holds.

    Raises:
        ConfigurationError: There is no column, or a value is out of its range.
    """

    columns: tuple[NumberColumn | CategoryColumn, ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise ConfigurationError("a table without columns, expected at least 1")
        for place, column in enumerate(self.columns):
            match column:
                case NumberColumn(mean, deviation, knots):
                    if not (math.isfinite(mean) and 0 < deviation < math.inf):
                        raise ConfigurationError(
                            f"column {place} has mean {mean} and deviation {deviation}, expected a number and a "
                            "positive number"
                        )
                    ascending = all(a < b for a, b in itertools.pairwise(knots))
                    if len(knots) == 1 or not (ascending and all(math.isfinite(knot) for knot in knots)):
                        raise ConfigurationError(
                            f"column {place} has the knots {knots}, expected none, or two and more, ascending"
                        )
                case CategoryColumn(categories):
                    if categories < 0:
                        raise ConfigurationError(f"column {place} has {categories} categories, expected at least 0")

    @classmethod
    def measured(cls, rows: NDArray[np.float32], categories: Sequence[int | None]) -> Self:
        """With the means, deviations and knots of training rows, whatever is missing left out.

        Knots are a column's values where there are up to 17, else the quantiles that cut it into 16 parts.

        Args:
            rows: The training rows, float32 (N, F).
            categories: For each column its number of categories, or None for numbers.

        Example:
            >>> rows = np.array([[1.0, 2.0], [3.0, 1.0], [np.nan, 0.0]], np.float32)
            >>> TableShape.measured(rows, [None, 2]).columns
            (NumberColumn(mean=2.0, deviation=1.0, knots=(1.0, 3.0)), CategoryColumn(categories=2))
        """
        return cls(
            tuple(
                _number_column(values) if count is None else CategoryColumn(count)
                for values, count in zip(rows.T, categories, strict=True)
            )
        )


InputShape = ImageShape | TokenShape | TableShape


def _number_column(values: NDArray[np.float32]) -> NumberColumn:
    known = values[np.isfinite(values)].astype(np.float64)
    if not known.size:
        return NumberColumn()
    (deviation,) = _positive(known.std(keepdims=True))
    return NumberColumn(float(known.mean()), deviation, _knots(known, deviation))


def _knots(values: NDArray[np.float64], deviation: float) -> tuple[float, ...]:
    distinct = np.unique(values)
    if len(distinct) > _PARTS + 1:
        # Values of the column themselves, so that what a knot stands for is exact in float32.
        distinct = np.unique(np.quantile(values, np.linspace(0, 1, _PARTS + 1), method="inverted_cdf"))
    apart = distinct[np.diff(distinct, prepend=-np.inf) > _NARROWEST * deviation]
    return tuple(apart.tolist()) if len(apart) > 1 else ()


def _positive(values: NDArray[Any]) -> tuple[float, ...]:
    """As floats, 1 in place of 0: a channel that is black throughout, a column that says always the same."""
    return tuple(float(value) if value > 0 else 1.0 for value in values)
