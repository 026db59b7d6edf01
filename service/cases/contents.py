"""What is stored of a case: the row that was predicted, and the scores it got."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select

from bundle import Column, Columns, RowError, Tokenizer, Vocabulary
from service.serving.plane import Served
from service.state.database import Database
from service.state.inputs import unpacked
from service.state.tables import inputs, predictions

MOST_VALUES: Final = 10_000
"""Maximum number of values of an input that is shown as numbers."""
_EXACT: Final = 2**53  # larger floats are whole, whatever was sent


def input_of(database: Database, served: Served, id_: str) -> NDArray[Any] | None:
    """Return the stored input of a prediction as the model took it, without a batch axis; None if it is not stored.

    Args:
        database: The state.
        served: A revision of the same model file.
        id_: Id of the prediction.
    """
    with database.connect() as connection:
        content = connection.execute(select(inputs.c.content).where(inputs.c.id == id_)).scalar_one_or_none()
    if content is None:
        return None
    example: NDArray[Any] = unpacked([content], served.input.numpy, served.input.shape)[0]
    return example


def shown(served: Served, example: NDArray[Any]) -> Any:
    """Return an input as JSON-able values: by column for a table, a text, else by tensor, or as lists.

    None if it is too large. A text is as the model saw it, by the bundle's vocabulary or tokenizer: `<unknown>` stands
    for a word that the vocabulary does not have. A text without any known word, or with ids beyond them, remains ids.

    Args:
        served: A revision of the model file that it is for.
        example: From `input_of`.
    """
    tensors = example.dtype.names
    count = sum(example[name].size for name in tensors) if tensors else example.size
    if count > MOST_VALUES:
        return None
    columns = served.encoder.columns if isinstance(served.encoder, Columns) else None
    if columns is not None:
        parts = {"": example} if tensors is None else {name: example[name] for name in tensors}
        own = {name: [column for column in columns if tensors is None or column.tensor == name] for name in parts}
        cells = {
            column.name: _cell(column, value)
            for name, values in parts.items()
            for column, value in zip(own[name], _values(values.ravel()), strict=True)
        }
        return {column.name: cells[column.name] for column in columns}
    if (text := _text(served, example)) is not None:
        return text
    if tensors is not None:
        return {name: _plain(_values(example[name])) for name in tensors}
    return _plain(_values(example))


def logits_of(database: Database, classes: int, id_: str) -> NDArray[np.float32] | None:
    """Return the logits (K,) of a prediction; None if it is no longer logged."""
    with database.connect() as connection:
        logits = connection.execute(select(predictions.c.logits).where(predictions.c.id == id_)).scalar_one_or_none()
    return None if logits is None else np.frombuffer(logits, "<f4").reshape(classes)


def _text(served: Served, example: NDArray[Any]) -> str | None:
    """Return the text that an input stands for; None if it stands for none, or nobody can tell."""
    encoder = served.encoder
    try:
        if isinstance(encoder, Vocabulary) and example.min() >= 0:
            return encoder.shown(example)
        if isinstance(encoder, Tokenizer):
            return encoder.decode(example)
    except (IndexError, RowError):  # a client may send any ids
        pass
    return None


def _values(numbers: NDArray[Any]) -> Any:
    """Return numbers as Python's, a float32 by the shortest decimal that names it: 524.2 and not 524.2000122070312."""
    return (numbers.astype(np.str_).astype(np.float64) if numbers.dtype.kind == "f" else numbers).tolist()


def _cell(column: Column, value: Any) -> Any:
    """Return the value of a column as a client sends it; None if it was missing or unknown."""
    if column.kind != "category":
        whole = isinstance(value, float) and value.is_integer() and abs(value) < _EXACT
        return int(value) if whole else _plain(value)
    place = math.nan if math.isnan(value) else value - column.first_code
    known = column.categories or ()
    return known[int(place)] if 0 <= place < len(known) else None


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return None if isinstance(value, float) and not math.isfinite(value) else value
