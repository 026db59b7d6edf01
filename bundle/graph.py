"""How examples enter a model's graph as it came, and how its output becomes logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from bundle.inputs import InputSpec, TensorType
from bundle.schema import Finite, Frozen

Run = Callable[[list[str], dict[str, npt.NDArray[Any]]], Sequence[Any]]
ROUNDING: Final = 1e-3
"""How far a probability may lie outside 0 to 1: sums of 3,000 trees in float32 reach 1.00004."""
_TOKENS = 8

Form = Literal["logits", "probabilities", "positive", "margin", "maps"]
"""What an output holds per row: K scores, K probabilities, the second class's probability or log-odds, or one map."""


class ProbabilityError(ValueError):
    """An output that holds probabilities gives another number.

    Args:
        output: Name of the output.
        value: The number.
        row: Its row in the batch, from 0.
    """

    def __init__(self, output: str, value: float, row: int) -> None:
        super().__init__(f"output {output!r} gives {value:.6g}, expected a probability from 0 to 1")
        self.output = output
        self.value = value
        self.row = row


class GraphInput(Frozen):
    """An input of the graph.

    Attributes:
        name: Its name.
        dtype: Its type.
        shape: Shape of one row of it, without the batch axis; () for one value per row.
        layout: Order of an image's axes in the graph; None for other inputs.
        scale: Factor of every value before `mean` and `deviation`.
        mean: Subtracted from each channel, one number or one per channel; empty for none.
        deviation: Divisor of each channel after that, in the same form.
    """

    name: Annotated[str, Field(min_length=1, max_length=256)]
    dtype: TensorType
    shape: tuple[Annotated[int, Field(ge=1)], ...] = ()
    layout: Literal["NHWC", "NCHW"] | None = None
    scale: Finite = 1.0
    mean: tuple[Finite, ...] = ()
    deviation: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] = ()

    @model_validator(mode="after")
    def _one_per_channel(self) -> Self:
        if self.layout is not None:
            if len(self.shape) != 3:
                raise ValueError(f"layout {self.layout} requires 3 axes, not {len(self.shape)}")
            channels = self.shape[0 if self.layout == "NCHW" else 2]
            for name, values in (("mean", self.mean), ("deviation", self.deviation)):
                if len(values) not in (0, 1, channels):
                    raise ValueError(f"{name} has {len(values)} values, expected one, or one per channel ({channels})")
        return self

    def feed(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a batch of examples (N, …) as this input takes it, C-contiguous."""
        if self.dtype == "string":
            return values.astype(object).reshape(len(values), *self.shape)
        if self.scale != 1.0 or self.mean or self.deviation:
            values = values.astype(np.float32) * np.float32(self.scale)
            if self.mean:
                values -= np.array(self.mean, np.float32)
            if self.deviation:
                values /= np.array(self.deviation, np.float32)
        if self.layout == "NCHW":
            values = np.moveaxis(values, -1, 1)
        return np.ascontiguousarray(values, self.dtype).reshape(len(values), *self.shape)


class GraphOutput(Frozen):
    """The output of the graph that scores the classes.

    Attributes:
        name: Its name.
        form: What it holds.
        order: Place of each label's score: column of a matrix; empty for the order of the labels.
        keys: Key of each label in a map; only for maps.
        columns: Columns of an output that scores each label of a multi-label model on its own, as `form` says: a pair
            of logits each, of its absence and its presence. Empty for the output of one column.
        smallest: Probabilities below this are raised to it, so that exact zeros and ones have logits; a logit of −inf
            becomes that of a class this much less probable than the row's top label.

    Example:
        >>> output = GraphOutput(name="p", form="positive", smallest=1e-6)
        >>> output.logits(np.array([[0.5], [1.0]], np.float32), 2).round(3)
        array([[ -0.693,  -0.693],
               [-13.816,   0.   ]], dtype=float32)
    """

    name: Annotated[str, Field(min_length=1, max_length=256)]
    form: Form
    order: tuple[Annotated[int, Field(ge=0)], ...] = ()
    keys: tuple[int | str, ...] = ()
    columns: tuple[Annotated[int, Field(ge=0)], ...] = ()
    smallest: Annotated[float, Field(gt=0, lt=0.5)] = 1e-7

    def logits(self, output: Any, classes: int) -> npt.NDArray[np.float32]:
        """Return the output as logits, float32 (N, K).

        Args:
            output: What the graph gave: an array, or a list of maps.
            classes: Number K of labels.

        Raises:
            ProbabilityError: A probability lies outside 0 to 1 by more than `ROUNDING`.
            ValueError: The output has another shape, or a map lacks a label.
        """
        if self.form == "maps":
            try:
                scores = np.array([[row[key] for key in self.keys] for row in output], np.float64)
            except KeyError as error:
                raise ValueError(f"a map of output {self.name!r} has no key {error.args[0]!r}") from None
            return self._of_probabilities(scores.reshape(-1, classes))
        array = np.asarray(output)
        if self.form in ("positive", "margin"):
            present = self._present(array.reshape(len(array), -1)).astype(np.float64)
            absent = 1.0 - present if self.form == "positive" else np.zeros_like(present)
            pairs = np.stack([absent, present], axis=2).reshape(len(array), -1)
            return self._of_probabilities(pairs) if self.form == "positive" else pairs.astype(np.float32)
        array = array.reshape(len(array), -1)
        if self.order:
            array = array[:, list(self.order)]
        if array.shape[1] != classes:
            raise ValueError(f"output {self.name!r} has {array.shape[1]} values a row, expected {classes}")
        if self.form == "probabilities":
            return self._of_probabilities(array.astype(np.float64))
        return self._floored(array.astype(np.float32, copy=False))

    def _present(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the column of the second class, or one column per label of a multi-label model."""
        least, exactly = (max(self.columns) + 1, "at least ") if self.columns else (1, "")
        if array.shape[1] < least or (not self.columns and array.shape[1] != 1):
            raise ValueError(f"output {self.name!r} has {array.shape[1]} values a row, expected {exactly}{least}")
        return array[:, list(self.columns)] if self.columns else array

    def _floored(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        impossible = np.isneginf(logits)
        if not impossible.any():
            return logits
        floor = logits.max(axis=1, keepdims=True) + np.float32(np.log(self.smallest))
        return np.where(impossible, floor, logits)

    def _of_probabilities(self, probabilities: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        wrong = (probabilities < -ROUNDING) | (probabilities > 1.0 + ROUNDING)
        if wrong.any():
            row = int(wrong.any(axis=1).argmax())
            column = wrong[row].argmax() | (self.form == "positive")  # of a pair, the probability as it was given
            raise ProbabilityError(self.name, float(probabilities[row, column]), row)
        with np.errstate(invalid="ignore"):  # NaN stays NaN, for the check of the logits
            return np.log(np.maximum(probabilities, self.smallest)).astype(np.float32)


class Graph(Frozen):
    """A graph as it came.

    Attributes:
        inputs: Its inputs. One for every kind of example but tensors, whose inputs are matched by name.
        output: The output that scores the classes.
        batch: Number of rows in every run where the graph fixes it; None for any number.
        mask: Input that is 0 for the padding of texts, where the graph takes any number of tokens: columns at the end
            that are padding in every row of a batch are left out. None to run all columns.
    """

    inputs: Annotated[tuple[GraphInput, ...], Field(min_length=1)]
    output: GraphOutput
    batch: Annotated[int, Field(ge=1, le=4096)] | None = None
    mask: Annotated[str, Field(min_length=1, max_length=256)] | None = None

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len({each.name for each in self.inputs}) != len(self.inputs):
            raise ValueError("the inputs of a graph must have distinct names")
        return self

    def check(self, spec: InputSpec, classes: int) -> None:
        """Raise ValueError unless examples of `spec` fit the inputs, and the output fits the classes."""
        names = [each.name for each in self.inputs]
        if spec.kind == "tensors":
            if sorted(names) != sorted(tensor.name for tensor in spec.tensors):
                raise ValueError(f"the graph's inputs {names} differ from the tensors of an example")
        elif len(names) != 1:
            raise ValueError(f"input kind {spec.kind!r} requires one input of the graph, not {len(names)}")
        shapes = {each.shape for each in self.inputs}
        if self.mask is not None and (self.mask not in names or len(shapes) != 1 or len(shapes.pop()) != 1):
            raise ValueError(f"mask {self.mask!r} requires inputs of one axis and one length, it among them")
        output = self.output
        single = output.form in ("positive", "margin")
        if single and classes != 2:
            raise ValueError(f"form {output.form!r} requires two labels, not {classes}")
        if len(output.columns) > single:
            raise ValueError(f"{len(output.columns)} columns of labels for form {output.form!r}")
        if output.form == "maps" and len(output.keys) != classes:
            raise ValueError(f"{len(output.keys)} keys for {classes} labels")
        if output.order and len(output.order) != classes:
            raise ValueError(f"{len(output.order)} columns for {classes} labels")

    def run(self, run: Run, inputs: npt.NDArray[Any], classes: int) -> npt.NDArray[np.float32]:
        """Return the logits (N, K) of a batch, in runs of the size that the graph fixes, if it fixes one.

        Args:
            run: `onnxruntime.InferenceSession.run` of the graph.
            inputs: The batch (N, …), structured for several tensors.
            classes: Number K of labels.

        Raises:
            ProbabilityError: A probability lies outside 0 to 1.
            ValueError: The output has another shape than described.
        """
        if self.batch is None:
            return self._run(run, inputs, classes)
        logits = np.empty((len(inputs), classes), np.float32)
        for start in range(0, len(inputs), self.batch):
            part = inputs[start : start + self.batch]
            full = np.resize(part, (self.batch, *part.shape[1:]))  # the last run repeats rows to fill its batch
            try:
                logits[start : start + len(part)] = self._run(run, full, classes)[: len(part)]
            except ProbabilityError as error:
                raise ProbabilityError(error.output, error.value, start + error.row) from None
        return logits

    def _run(self, run: Run, inputs: npt.NDArray[Any], classes: int) -> npt.NDArray[np.float32]:
        logits = self.output.logits(run([self.output.name], self.feeds(inputs))[0], classes)
        if len(logits) != len(inputs):
            raise ValueError(f"output {self.output.name!r} has {len(logits)} rows for {len(inputs)} rows of the inputs")
        return logits

    def feeds(self, inputs: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Return a batch of examples (N, …), structured for tensors, as the graph's inputs by name."""
        feeds = feed_all(self.inputs, inputs)
        if self.mask is None:
            return feeds
        used = np.flatnonzero(feeds[self.mask].any(axis=0))
        length = int(used[-1]) + 1 if used.size else 1
        length += -length % _TOKENS  # few lengths, because some runtimes prepare each
        return {name: np.ascontiguousarray(values[:, :length]) for name, values in feeds.items()}


def feed_all(inputs: Sequence[GraphInput], values: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Return a batch of examples (N, …), structured for tensors, as these inputs of a graph by name."""
    fields = values.dtype.names
    return {each.name: each.feed(values if fields is None else values[each.name]) for each in inputs}
