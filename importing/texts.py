"""Texts of the rows, as a tokenizer makes them the inputs of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bundle import BundleFormatError, Graph, GraphInput, InputSpec, RowError, TensorSpec, Tokenizer
from bundle.graph import Run
from importing.errors import AmbiguousModelError, RowsError, UnsupportedModelError
from importing.examples import Examples, OnDemand
from importing.model import Port
from importing.rows import Rows

DEFAULT_LENGTH = 128
_COMPARED = 16
_SAME = 1e-4  # difference of a logit


@dataclass(frozen=True)
class Texts:
    """What is known of a model's texts.

    Attributes:
        tokenizer: Content of `tokenizer.json`.
        length: Tokens per text where the graph takes any number; None for `DEFAULT_LENGTH`.
    """

    tokenizer: bytes
    length: int | None = None


def text_examples(rows: Rows, ports: Sequence[Port], texts: Texts) -> Examples:
    """Describe texts as the only input of the rows; they are encoded when scored. A missing text is an empty one.

    Args:
        rows: The rows.
        ports: Inputs of the graph.
        texts: The tokenizer.

    Raises:
        AmbiguousModelError: The rows have several inputs, any of which could be the text.
        UnsupportedModelError: The tokenizer does not fill the inputs of the graph.
    """
    if len(rows.features) != 1:
        raise AmbiguousModelError(
            "the rows have more than one input, and the tokenizer takes one text",
            where=str(rows.path),
            found=", ".join(rows.features),
            expected="--text COLUMN",
        )
    (name, values), *_ = rows.features.items()
    spec = _spec(ports, texts)
    try:
        tokenizer = Tokenizer(texts.tokenizer, spec)
    except BundleFormatError as error:
        raise UnsupportedModelError(
            error.message, where=error.file, found=error.found, expected=error.expected
        ) from error
    given = np.array([value or "" for value in values], np.object_)

    def encoded(places: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        try:
            return tokenizer.encode(given[places].tolist())
        except RowError as error:
            raise _first(rows.take(places), name, given[places].tolist(), tokenizer) from error

    empty = int(sum(not text for text in given))
    length = spec.tensors[0].shape[0]
    notes = [f"input {port}" for port in ports]
    notes.append(f"texts: column {name}, {length} tokens each; longer texts are cut (--max-length)")
    if empty:
        notes.append(f"rows without a text: {empty} of {len(given)}, encoded as empty texts")
    inputs = tuple(GraphInput(name=each.name, dtype=each.dtype, shape=each.shape) for each in spec.tensors)
    return Examples(spec, inputs, None, OnDemand(len(rows), encoded), tuple(notes), tokenizer, given)


def without_padding(graph: Graph, run: Run, examples: Examples, ports: Sequence[Port], classes: int) -> Graph:
    """Return the graph with a mask that spares it the padding, where the answers stay the same.

    Args:
        graph: The graph, without a mask.
        run: `OnnxModel.run`.
        examples: The rows.
        ports: Inputs of the graph, of which each must take any number of tokens.
        classes: Number K of labels.

    Raises:
        UnsupportedModelError: The model fails.
    """
    mask = None if examples.tokenizer is None else examples.tokenizer.mask
    if mask is None or any(port.row != (None,) for port in ports):
        return graph
    shorter = graph.model_copy(update={"mask": mask})
    for row in range(min(_COMPARED, len(examples.values))):
        one = examples.values[row : row + 1]
        try:
            difference = np.abs(shorter.run(run, one, classes) - graph.run(run, one, classes)).max()
        except ValueError as error:
            raise UnsupportedModelError(str(error)) from error
        if not difference <= _SAME:
            return graph
    return shorter


def _spec(ports: Sequence[Port], texts: Texts) -> InputSpec:
    fixed = [port.row[0] for port in ports if len(port.row) == 1 and port.row[0] is not None]
    length = fixed[0] if fixed else texts.length or DEFAULT_LENGTH
    fields = []
    for port in ports:
        if port.dtype is None or len(port.row) != 1:
            raise UnsupportedModelError(
                "an input of the graph does not take tokens", found=str(port), expected="two axes: rows and tokens"
            )
        fields.append(TensorSpec(name=port.name, dtype=port.dtype, shape=(port.row[0] or length,)))
    return InputSpec(kind="tensors", dtype="record", tensors=tuple(fields))


def _first(rows: Rows, name: str, given: list[str], tokenizer: Tokenizer) -> RowsError:
    """Return the error of the first text that fails."""
    for row, text in enumerate(given):
        try:
            tokenizer.encode([text])
        except RowError as error:
            return RowsError(error.message, where=rows.where(row, name), found=error.found, expected=error.expected)
    raise AssertionError(name)  # the caller has seen one fail
