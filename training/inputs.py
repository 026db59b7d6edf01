"""The shape and scale of one example: everything that a network must know about the data.

`training.models.assemble` builds preprocessing and network from one of these. Nothing here imports torch.
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
from training.stored import Stored, batches

_BLOCK = 2**22  # values held as float64 at a time
_PARTS = 16  # of a column of numbers
_NARROWEST = 1e-6  # width of a part in deviations: float32 cannot separate the ends of narrower parts


@dataclass(frozen=True)
class ImageShape:
    """Images, uint8 (N, height, width, channels).

    Attributes:
        height: Rows of pixels.
        width: Columns of pixels.
        scale: Divisor of each channel on the scale 0 … 255, positive: its root mean square, or its standard deviation
            if a mean is given.
        mean: Subtracted from each channel before that, on the scale 0 … 255; None for nothing.

    Raises:
        ConfigurationError: A value is out of range.

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
    def measured(cls, images: NDArray[np.uint8] | Stored, *, centred: bool = False) -> Self:
        """Measure training images uint8 (N, H, W, C): root mean square, or mean and standard deviation if centred.

        Example:
            >>> ImageShape.measured(np.array([[[[10], [30]]]], np.uint8), centred=True)
            ImageShape(height=1, width=2, scale=(10.0,), mean=(20.0,))
        """
        total, squares = np.zeros(images.shape[3]), np.zeros(images.shape[3])
        for images_of_block in batches(images, max(1, _BLOCK // math.prod(images.shape[1:]))):
            # Whole numbers below 2**53: the sums are exact in any order.
            block = images_of_block.astype(np.float64)
            total += block.sum(axis=(0, 1, 2))
            squares += np.square(block).sum(axis=(0, 1, 2))
        count = np.prod(images.shape[:3])
        mean = total / count if centred else np.zeros_like(total)
        scale = _positive(np.sqrt(np.maximum(squares / count - mean**2, 0.0)))
        return cls(images.shape[1], images.shape[2], scale, tuple(mean.tolist()) if centred else None)


@dataclass(frozen=True)
class TokenShape:
    """Texts, int32 (N, length): 0 is padding, 1 an unknown word, others are words, up to vocabulary − 1.

    Attributes:
        vocabulary: Number of token ids, including padding and unknown.
        length: Tokens of a text.

    Raises:
        ConfigurationError: A value is out of range.
    """

    vocabulary: int
    length: int

    def __post_init__(self) -> None:
        if self.vocabulary < len(SPECIAL) or self.length < 1:
            raise ConfigurationError(
                f"texts of {self.length} tokens from a vocabulary of {self.vocabulary}, expected at least 1 token "
                f"and a vocabulary of {len(SPECIAL)} (padding and unknown)"
            )


@dataclass(frozen=True)
class TextShape:
    """Texts by a tokenizer: ids and mask, int32 (N, 2, length).

    Attributes:
        vocabulary: Number of token ids.
        length: Tokens of a text.
        padding: Id of the padding token.
    """

    vocabulary: int
    length: int
    padding: int


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers; a missing number, NaN, counts as the mean.

    Attributes:
        mean: Mean over the training rows.
        deviation: Standard deviation over the training rows, positive.
        knots: Ascending values between which a network may bend; none, or two or more.
    """

    mean: float = 0.0
    deviation: float = 1.0
    knots: tuple[float, ...] = ()


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories, as codes: 1 … categories, and 0 for missing or unknown ones.

    Attributes:
        categories: Number of known categories.
    """

    categories: int


@dataclass(frozen=True)
class TableShape:
    """Rows of a table, float32 (N, F).

    Attributes:
        columns: Content of each column.

    Raises:
        ConfigurationError: The columns are missing, or a value is out of range.
    """

    columns: tuple[NumberColumn | CategoryColumn, ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise ConfigurationError("the table has no columns, expected at least 1")
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
                            f"column {place} has the knots {knots}, expected none, or two or more, ascending"
                        )
                case CategoryColumn(categories):
                    if categories < 0:
                        raise ConfigurationError(f"column {place} has {categories} categories, expected at least 0")

    @property
    def numbers(self) -> int:
        """Values per row after preprocessing: one for each column of numbers, and one for each part between knots."""
        columns = [column for column in self.columns if isinstance(column, NumberColumn)]
        return sum(1 + max(0, len(column.knots) - 1) for column in columns)

    @property
    def categories(self) -> tuple[int, ...]:
        """Number of known categories of each column of categories; codes are 0 … that number."""
        return tuple(column.categories for column in self.columns if isinstance(column, CategoryColumn))

    @classmethod
    def measured(cls, rows: NDArray[np.float32], categories: Sequence[int | None]) -> Self:
        """Measure the means, deviations and knots of training rows, without missing values.

        Knots are a column's values if there are up to 17, otherwise the quantiles that cut it into 16 parts.

        Args:
            rows: The training rows, float32 (N, F).
            categories: Number of categories of each column, or None for numbers.

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


InputShape = ImageShape | TokenShape | TextShape | TableShape


def _number_column(values: NDArray[np.float32]) -> NumberColumn:
    known = values[np.isfinite(values)].astype(np.float64)
    if not known.size:
        return NumberColumn()
    (deviation,) = _positive(known.std(keepdims=True))
    return NumberColumn(float(known.mean()), deviation, _knots(known, deviation))


def _knots(values: NDArray[np.float64], deviation: float) -> tuple[float, ...]:
    distinct = np.unique(values)
    if len(distinct) > _PARTS + 1:
        # Quantiles that are values of the column, so that knots are exact in float32.
        distinct = np.unique(np.quantile(values, np.linspace(0, 1, _PARTS + 1), method="inverted_cdf"))
    apart = distinct[np.diff(distinct, prepend=-np.inf) > _NARROWEST * deviation]
    return tuple(apart.tolist()) if len(apart) > 1 else ()


def _positive(values: NDArray[Any]) -> tuple[float, ...]:
    """Return floats with 1 in place of 0: for a black channel or a constant column."""
    return tuple(float(value) if value > 0 else 1.0 for value in values)
