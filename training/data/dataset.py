"""A data set: its inputs in memory, in a temporary file or, for images, in the files that they came in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bundle.inputs import InputSpec
from bundle.table import Column, Columns
from bundle.text import PAD, SPECIAL, UNKNOWN, Vocabulary
from bundle.tokenizer import Tokenizer
from training.errors import ConfigurationError, DataError
from training.inputs import ImageShape, InputShape, TableShape, TextShape, TokenShape
from training.kept_texts import KeptTexts
from training.scratch import changed, chunks, taken
from training.stored import Stored
from training.tokenized import encoded

Kind = Literal["image", "tokens", "array", "tensors"]
Rows = NDArray[np.int64]

_DTYPES: dict[Kind, tuple[type[np.generic], int]] = {
    "image": (np.uint8, 4),
    "tokens": (np.int32, 2),
    "array": (np.float32, 2),
    "tensors": (np.int32, 3),
}
_MEASURED = 4096  # images in files whose scale is measured
_MEASURED_ROWS = 2**18  # rows of a table whose means and quantiles are measured


@dataclass(frozen=True)
class Dataset:
    """Labelled examples.

    Attributes:
        name: Key in `DATASETS`, with the selected classes.
        inputs: uint8 (N, H, W, C) images, int32 (N, L) tokens or float32 (N, F) rows of a table, as the graph's input;
            int32 (N, 2, L) ids and masks of texts by a tokenizer. `Stored` images are decoded when they are needed.
        labels: Class of each example, int64 (N,), in 0 … K − 1.
        label_names: Names of the K classes.
        kind: `image`, `tokens`, `array` or `tensors`, as in `bundle.InputSpec`.
        test: Rows that the authors set apart for testing; nothing is trained or fitted on them.
        sources: sha256 of each file read, by its path in the folder of data sets.
        resized: Whether images were resized when read; the bundle then resizes clients' images too.
        columns: Columns of a table, with the categories behind the codes; 0 is unknown or missing.
        vocabulary: Words behind the tokens.
        vocabulary_size: Largest vocabulary after `learned_from`.
        weights: Weight of each example, float64 (N,), finite and above 0; None where all are equal.
        groups: Group of each example, int64 (N,): rows that belong together, of a patient or a card, which no two parts
            share; None where each row is its own.
        equal: Number of each example's inputs, int64 (N,), of a data set of your own without groups: no two parts share
            equal rows either; None where all differ.
        texts: The texts themselves, where a tokenizer could encode them.
        tokenizer: What encoded the texts, for `tensors`.
        sizes: `train_rows`, `validation_rows` and `reference_rows` of a run that does not name them.

    Raises:
        DataError: The parts are inconsistent.
    """

    name: str
    inputs: NDArray[Any] | Stored
    labels: NDArray[np.int64]
    label_names: tuple[str, ...]
    kind: Kind = "image"
    test: range = range(0)
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    resized: bool = False
    columns: Columns | None = None
    vocabulary: Vocabulary | None = None
    vocabulary_size: int | None = None
    weights: NDArray[np.float64] | None = None
    groups: NDArray[np.int64] | None = None
    equal: NDArray[np.int64] | None = None
    texts: KeptTexts | None = None
    tokenizer: Tokenizer | None = None
    sizes: Mapping[str, int] | None = None

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
        """Return the input specification of one example; `resize` asks to resize encoded images of another size."""
        if self.tokenizer is not None:
            return self.tokenizer.input
        dtype, _ = _DTYPES[self.kind]
        return InputSpec(
            kind=self.kind, dtype=np.dtype(dtype).name, shape=self.inputs.shape[1:], resize=resize or self.resized
        )

    @property
    def together(self) -> NDArray[np.int64] | None:
        """Numbers of what no two parts share: groups, else equal rows; None where each row stands alone."""
        return self.equal if self.groups is None else self.groups

    @property
    def encoder(self) -> Vocabulary | Tokenizer | None:
        """What turns texts into inputs; None if the inputs are not texts."""
        return self.tokenizer or self.vocabulary

    @property
    def array(self) -> NDArray[Any]:
        """The inputs as an array; raises ConfigurationError for images in files."""
        if isinstance(self.inputs, Stored):
            raise ConfigurationError(f"{self.name} stays in its files, which only networks of images can learn from")
        return self.inputs

    def inputs_of(self, rows: Rows) -> NDArray[Any] | Stored:
        """Return the inputs of these rows, as `inputs[rows]`; those of large data sets in a temporary file again."""
        return self.inputs[rows] if isinstance(self.inputs, Stored) else taken(self.inputs, rows)

    def outside_test(self) -> Rows:
        """Return the rows outside `test`, ascending."""
        rows = np.arange(len(self), dtype=np.int64)
        return np.delete(rows, self.test) if len(self.test) else rows

    def select(self, rows: Rows) -> Dataset:
        """Return these rows alone, in ascending order; test rows among them stay set apart."""
        rows = np.sort(rows)
        start, stop = np.searchsorted(rows, [self.test.start, self.test.stop]).tolist() if len(self.test) else (0, 0)
        return replace(
            self,
            inputs=self.inputs_of(rows),
            labels=self.labels[rows],
            weights=None if self.weights is None else self.weights[rows],
            groups=None if self.groups is None else self.groups[rows],
            equal=None if self.equal is None else self.equal[rows],
            texts=None if self.texts is None else self.texts[rows],
            test=range(start, stop),
        )

    def shape(self, train: Rows, *, centred: bool = False) -> InputShape:
        """Measure the shape and scale of one example on the training rows.

        Args:
            train: Row numbers, int64.
            centred: Whether to subtract the mean from each channel of images.

        Raises:
            ConfigurationError: `centred` is set and the inputs are not images.
        """
        if self.kind == "image":
            images = self.inputs[train]
            if isinstance(images, Stored):
                images = images[np.linspace(0, len(images) - 1, min(len(images), _MEASURED)).astype(np.int64)]
            return ImageShape.measured(images, centred=centred)
        if centred:
            raise ConfigurationError(f"{self.name} does not contain images, which `centred` requires")
        if self.tokenizer is not None:
            return TextShape(len(self.tokenizer), self.inputs.shape[2], self.tokenizer.padding)
        if self.vocabulary is not None:
            return TokenShape(len(self.vocabulary), self.vocabulary.length)
        if self.columns is not None:
            categories = [column.categories for column in self.columns.columns]
            counts = [None if values is None else len(values) for values in categories]
            some = train
            if len(some) > _MEASURED_ROWS:
                some = some[np.linspace(0, len(some) - 1, _MEASURED_ROWS).astype(np.int64)]
            return TableShape.measured(taken(self.array, some), counts)
        raise DataError(f"{self.name}: {self.kind} without a vocabulary or columns")

    def tokenized(self, tokenizer: Tokenizer) -> Dataset:
        """Return the same texts, encoded by a tokenizer instead of a vocabulary.

        Raises:
            ConfigurationError: The data set has no texts, or the tokenizer cannot encode one.
        """
        if self.texts is None:
            raise ConfigurationError(f"{self.name} has no texts, which a tokenizer requires")
        inputs = encoded(tokenizer, self.texts)
        return replace(
            self,
            kind="tensors",
            inputs=inputs,
            texts=None,
            vocabulary=None,
            vocabulary_size=None,
            tokenizer=tokenizer,
        )

    def learned_from(self, train: Rows) -> Dataset:
        """Return the same examples, encoded by the training rows (int64 row numbers) alone.

        A vocabulary keeps the most frequent words of these rows, a column the categories that occur there; everything
        else becomes unknown. Held-out rows then contain unseen words and categories, as future inputs do. Images stay
        unchanged.
        """
        if self.vocabulary is not None:
            return self._with_words_of(self.vocabulary, train)
        if self.columns is not None:
            return self._with_categories_of(self.columns, train)
        return self

    def _with_words_of(self, vocabulary: Vocabulary, train: Rows) -> Dataset:
        total = np.zeros(len(vocabulary), np.int64)
        for rows in self._blocks_of(train):
            total += np.bincount(rows.ravel(), minlength=len(vocabulary))
        counts = total.tolist()
        seen = (token for token in range(len(SPECIAL), len(vocabulary)) if counts[token] > 0)
        ranked = sorted(seen, key=lambda token: (-counts[token], vocabulary.words[token]))
        if self.vocabulary_size is not None:
            ranked = ranked[: max(0, self.vocabulary_size - len(SPECIAL))]
        recoded = np.full(len(vocabulary), UNKNOWN, np.int32)
        recoded[PAD] = PAD
        recoded[ranked] = np.arange(len(SPECIAL), len(SPECIAL) + len(ranked), dtype=np.int32)
        words = SPECIAL + tuple(vocabulary.words[token] for token in ranked)
        inputs = changed(self.array, recoded.__getitem__)
        return replace(self, inputs=inputs, vocabulary=Vocabulary(words, vocabulary.length))

    def _with_categories_of(self, columns: Columns, train: Rows) -> Dataset:
        seen = {
            place: np.zeros(len(column.categories) + 1, np.bool_)
            for place, column in enumerate(columns.columns)
            if column.categories is not None
        }
        for rows in self._blocks_of(train):
            for place, found in seen.items():
                found[rows[:, place].astype(np.int64)] = True
        kept, recoded = list(columns.columns), dict[int, NDArray[np.float32]]()
        for place, found in seen.items():
            column, codes = kept[place], np.flatnonzero(found[1:]) + 1
            recoded[place] = order = np.zeros(len(found), np.float32)
            order[codes] = np.arange(1, len(codes) + 1, dtype=np.float32)
            kept[place] = Column(column.name, tuple((column.categories or ())[code - 1] for code in codes))

        def change(rows: NDArray[Any]) -> NDArray[Any]:
            for place, order in recoded.items():
                rows[:, place] = order[rows[:, place].astype(np.int64)]
            return rows

        return replace(self, inputs=changed(self.array, change), columns=Columns(tuple(kept)))

    def _blocks_of(self, rows: Rows) -> Iterator[NDArray[Any]]:
        """Yield the inputs of these rows in blocks, in ascending order, as they lie in a file."""
        chosen = np.zeros(len(self), np.bool_)
        chosen[rows] = True
        return (self.array[part][chosen[part]] for part in chunks(self.array))
