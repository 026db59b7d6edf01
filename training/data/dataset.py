"""What a data set is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bundle.manifest import InputSpec
from bundle.table import Column, Columns
from bundle.text import PAD, SPECIAL, UNKNOWN, Vocabulary
from training.errors import ConfigurationError, DataError
from training.inputs import ImageShape, InputShape, TableShape, TokenShape

Kind = Literal["image", "tokens", "array"]
Rows = NDArray[np.int64]

_DTYPES: dict[Kind, tuple[type[np.generic], int]] = {
    "image": (np.uint8, 4),
    "tokens": (np.int32, 2),
    "array": (np.float32, 2),
}


@dataclass(frozen=True)
class Dataset:
    """Labelled examples.

    Attributes:
        name: Key in `DATASETS`, with the classes that were chosen of it.
        inputs: uint8 (N, H, W, C) images, int32 (N, L) tokens or float32 (N, F) rows of a table, as the graph takes
            them.
        labels: Class of each example, int64 (N,), in 0 … K − 1.
        label_names: Names of the K classes.
        kind: `image`, `tokens` or `array`, as in `bundle.InputSpec`.
        test: Numbers of the rows that its makers set apart for testing; nothing is ever trained or fitted on them.
        sources: sha256 of each file that was read, by its path in the folder of data sets.
        resized: Whether images were resized when they were read; then those that a client sends are resized too.
        columns: What the columns of a table are; codes of categories are theirs, 0 for an unknown or missing one.
        vocabulary: What the tokens are.
        vocabulary_size: Largest vocabulary that `learned_from` leaves.

    Raises:
        DataError: The parts do not fit one another.
    """

    name: str
    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    label_names: tuple[str, ...]
    kind: Kind = "image"
    test: range = range(0)
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    resized: bool = False
    columns: Columns | None = None
    vocabulary: Vocabulary | None = None
    vocabulary_size: int | None = None

    def __post_init__(self) -> None:
        dtype, axes = _DTYPES[self.kind]
        n, classes = len(self.labels), len(self.label_names)
        if self.inputs.dtype != dtype or self.inputs.ndim != axes or len(self.inputs) != n or n == 0:
            raise DataError(
                f"{self.name}: inputs are {self.inputs.dtype} {self.inputs.shape} for {n} labels, expected "
                f"{np.dtype(dtype)} with {axes} axes and one label each, at least one"
            )
        if self.labels.dtype != np.int64 or self.labels.ndim != 1:
            raise DataError(f"{self.name}: labels are {self.labels.dtype} {self.labels.shape}, expected int64 (N,)")
        lowest, highest = int(self.labels.min()), int(self.labels.max())
        if lowest < 0 or highest >= classes:
            raise DataError(f"{self.name}: labels are {lowest} … {highest}, expected 0 … {classes - 1}")
        if classes < 2 or len(set(self.label_names)) != classes:
            raise DataError(f"{self.name}: classes are {self.label_names}, expected two or more, distinct")
        if len(self.test) and (self.test.step != 1 or self.test.start < 0 or self.test.stop > n):
            raise DataError(f"{self.name}: test rows are {self.test}, expected rows among {n}, in one piece")

    def __len__(self) -> int:
        return len(self.labels)

    def spec(self, *, resize: bool = False) -> InputSpec:
        """One example as the graph takes it.

        Args:
            resize: Whether encoded images of another size are resized; they are where these were.
        """
        dtype, _ = _DTYPES[self.kind]
        return InputSpec(
            kind=self.kind, dtype=np.dtype(dtype).name, shape=self.inputs.shape[1:], resize=resize or self.resized
        )

    def outside_test(self) -> Rows:
        """Numbers of the rows outside `test`, ascending."""
        rows = np.arange(len(self), dtype=np.int64)
        return np.delete(rows, self.test) if len(self.test) else rows

    def select(self, rows: Rows) -> Dataset:
        """These rows alone, in ascending order, test rows among them still set apart."""
        rows = np.sort(rows)
        start, stop = np.searchsorted(rows, [self.test.start, self.test.stop]).tolist() if len(self.test) else (0, 0)
        return replace(self, inputs=self.inputs[rows], labels=self.labels[rows], test=range(start, stop))

    def shape(self, train: Rows, *, centred: bool = False) -> InputShape:
        """What a network needs to know of one example, measured on the training rows.

        Args:
            train: Row numbers, int64.
            centred: Whether the mean is subtracted from each channel of images.

        Raises:
            ConfigurationError: Inputs that are no images are to be centred.
        """
        if self.kind == "image":
            return (ImageShape.centred if centred else ImageShape.uncentred)(self.inputs[train])
        if centred:
            raise ConfigurationError(f"{self.name} holds no images, expected some to be centred")
        if self.vocabulary is not None:
            return TokenShape(len(self.vocabulary), self.vocabulary.length)
        if self.columns is not None:
            categories = [column.categories for column in self.columns.columns]
            counts = [None if values is None else len(values) for values in categories]
            return TableShape.measured(self.inputs[train], counts)
        raise DataError(f"{self.name}: {self.kind} without a vocabulary or columns")

    def learned_from(self, train: Rows) -> Dataset:
        """The same examples, encoded with what the training rows alone teach.

        A vocabulary keeps the words that are most frequent in these rows, a column the categories that occur there;
        all else becomes unknown. Held-out rows thus meet the model as tomorrow's do, with words and categories that it
        may never have seen. Images stay what they are.

        Args:
            train: Row numbers, int64.
        """
        if self.vocabulary is not None:
            return self._with_words_of(self.vocabulary, train)
        if self.columns is not None:
            return self._with_categories_of(self.columns, train)
        return self

    def _with_words_of(self, vocabulary: Vocabulary, train: Rows) -> Dataset:
        counts = np.bincount(self.inputs[train].ravel(), minlength=len(vocabulary)).tolist()
        seen = (token for token in range(len(SPECIAL), len(vocabulary)) if counts[token] > 0)
        ranked = sorted(seen, key=lambda token: (-counts[token], vocabulary.words[token]))
        if self.vocabulary_size is not None:
            ranked = ranked[: max(0, self.vocabulary_size - len(SPECIAL))]
        recoded = np.full(len(vocabulary), UNKNOWN, np.int32)
        recoded[PAD] = PAD
        recoded[ranked] = np.arange(len(SPECIAL), len(SPECIAL) + len(ranked), dtype=np.int32)
        words = SPECIAL + tuple(vocabulary.words[token] for token in ranked)
        return replace(self, inputs=recoded[self.inputs], vocabulary=Vocabulary(words, vocabulary.length))

    def _with_categories_of(self, columns: Columns, train: Rows) -> Dataset:
        inputs, kept = self.inputs.copy(), []
        for place, column in enumerate(columns.columns):
            if column.categories is not None:
                codes = inputs[:, place].astype(np.int64)
                seen = np.unique(codes[train])
                seen = seen[seen > 0]
                recoded = np.zeros(len(column.categories) + 1, np.float32)
                recoded[seen] = np.arange(1, len(seen) + 1, dtype=np.float32)
                inputs[:, place] = recoded[codes]
                column = Column(column.name, tuple(column.categories[code - 1] for code in seen))
            kept.append(column)
        return replace(self, inputs=inputs, columns=Columns(tuple(kept)))
