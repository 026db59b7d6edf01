"""Your own texts in one file: a column of texts and a column of labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from importing.errors import ImportRefusedError
from importing.rows import read_rows
from training.data.dataset import Dataset
from training.data.distribution import Distribution
from training.data.groups import numbered
from training.data.tokens import TextsAndTokens, require_sizes
from training.errors import ConfigurationError, DataError

TEXTS = Distribution(
    title="Texts",
    folders=(),
    obtain="Set `file` to its path: absolute, or relative to the folder of data sets (else the current folder).",
    layout="CSV, TSV, NDJSON (each also .gz or .bz2) or Parquet, with a column of texts and one of labels.",
)


def load(
    root: Path | None = None,
    *,
    file: str | None = None,
    text: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    group: str | None = None,
    length: int = 1000,
    vocabulary_size: int = 20_000,
) -> Dataset:
    """Texts of your own: a CSV, TSV, NDJSON or Parquet file with a text and a label column.

    A missing text counts as an empty one. The texts may be more than memory holds. The vocabulary contains all words,
    up to a million, until `Dataset.learned_from` keeps those of the training rows; a model with a tokenizer of its own
    (`hf:FOLDER`) takes the texts instead.

    Args:
        root: Folder that `file` begins at; None for CANDOR_DATA, else the current folder.
        file: Path of the file.
        text: Column of the text.
        label: Column of the label.
        weight: Column of row weights, positive numbers; no input of the model.
        group: Column of groups: rows that belong together, which no two parts share; no input of the model.
        length: Words to read from the beginning of a text.
        vocabulary_size: Maximum vocabulary after the training rows are known, including padding and unknown.

    Returns:
        Tokens int32 (N, length) in the order of the file; classes in the order of their names, or numbers.

    Raises:
        ConfigurationError: A setting is missing or out of range.
        DataError: The file is missing or cannot be read, lacks a column, or has only one class.
    """
    if file is None or text is None or label is None:
        raise ConfigurationError("texts require the settings `file` (its path), `text` and `label` (its columns)")
    require_sizes(length, vocabulary_size)
    files = TEXTS.own(root, file)
    path = files.folder / Path(file).name
    if not path.is_file():
        raise files.problem(f"{path.name} is missing in {files.folder.absolute()}")
    content = TextsAndTokens(length)

    def receive(values: NDArray[np.object_]) -> None:
        content.add(value or "" for value in values)

    try:
        rows = read_rows(path, label=label, columns=(text,), weight=weight, group=group, received={text: receive})
    except ImportRefusedError as error:
        raise DataError(str(error)) from error
    files.note(path.name, rows.sha256)
    tokens, vocabulary, texts = content.finish()
    return Dataset(
        "texts",
        tokens,
        rows.codes,
        rows.classes,
        kind="tokens",
        sources=files.digests,
        vocabulary=vocabulary,
        vocabulary_size=vocabulary_size,
        weights=rows.weight,
        groups=None if rows.group is None else numbered(rows.group.tolist()),
        texts=texts,
    )
