"""Your own texts in files: a column of texts and a column of labels."""

from __future__ import annotations

from pathlib import Path

from importing.errors import RowsError
from importing.rows.roles import Roles
from importing.rows.values import spellings
from training.data.dataset import Dataset
from training.data.distribution import Distribution
from training.data.equal import equal_texts
from training.data.row_files import RoleColumns, RowFiles
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
    words: bool = True,
) -> Dataset:
    """Texts of your own: CSV, TSV, NDJSON or Parquet files with a text and a label column.

    A missing text counts as an empty one. The texts may be more than memory holds. The vocabulary contains all words,
    up to a million, until `Dataset.learned_from` keeps those of the training rows; a model with a tokenizer of its own
    (`hf:FOLDER`) takes the texts instead.

    Args:
        root: Folder that `file` begins at; None for CANDOR_DATA, else the current folder.
        file: Path of the file, of a folder of files, or a pattern of their paths with `*` and `?`.
        text: Column of the text.
        label: Column of the label.
        weight: Column of row weights, positive numbers; no input of the model.
        group: Column of groups: rows that belong together, which no two parts share; no input of the model.
        length: Words to read from the beginning of a text.
        vocabulary_size: Maximum vocabulary after the training rows are known, including padding and unknown.
        words: Whether to number words; no for a model with a tokenizer of its own.

    Returns:
        Tokens int32 (N, length) in the order of the files; classes in the order of their names, or numbers.

    Raises:
        ConfigurationError: A setting is missing or out of range.
        DataError: The file is missing or cannot be read, lacks a column, or has only one class.
    """
    if file is None or text is None or label is None:
        raise ConfigurationError("texts require the settings `file` (its path), `text` and `label` (its columns)")
    if text in (label, weight, group):
        raise ConfigurationError(f"column {text!r} is the text and has another role, expected one role a column")
    require_sizes(length, vocabulary_size)
    files = TEXTS.anywhere(root)
    content = TextsAndTokens(length, words=words)
    try:
        roles = Roles(label, group=group, weight=weight, columns=(text,))
        found = RowFiles(files, file)
        others = RoleColumns(roles, found)
        for rows in found.blocks(roles):
            others.add(rows)
            content.add(value or "" for value in spellings(rows.block.columns[text]))
        labels, names = others.labels(())
    except RowsError as error:
        raise DataError(str(error)) from error
    tokens, vocabulary, texts = content.finish()
    groups = others.groups()
    return Dataset(
        "texts",
        tokens,
        labels,
        names,
        kind="tokens",
        sources=files.digests,
        vocabulary=vocabulary,
        vocabulary_size=vocabulary_size,
        weights=others.weights(),
        groups=groups,
        equal=equal_texts(texts, labels) if groups is None else None,
        texts=texts,
    )
