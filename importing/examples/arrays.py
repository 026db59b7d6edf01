"""Arrays for the inputs of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bundle import GraphInput, InputSpec, RowError, TensorSpec, tensors
from importing.errors import RowsError
from importing.examples.result import Examples, OnDemand
from importing.model import Port
from importing.rows import Rows


def array_examples(rows: Rows, ports: Sequence[Port]) -> Examples:
    """Match the arrays of an `.npz` file with the inputs of the graph by name; one array fits one input.

    Args:
        rows: The rows.
        ports: Inputs of the graph.

    Raises:
        RowsError: The arrays have other names or shapes than the inputs.
    """
    names = {port.name for port in ports}
    if len(ports) == 1 and len(rows.features) == 1:
        names = set(rows.features)
        found = {ports[0].name: next(iter(rows.features.values()))}
    else:
        found = rows.features
    if set(rows.features) != names:
        raise RowsError(
            "The arrays are not the inputs of the model.",
            where=str(rows.path),
            found=", ".join(sorted(rows.features)),
            expected=", ".join(map(str, ports)),
        )
    fields = []
    for port in ports:
        array = found[port.name]
        shape = array.shape[1:]
        if len(shape) != len(port.row) or any(
            size not in (None, own) for size, own in zip(port.row, shape, strict=True)
        ):
            raise RowsError(
                f"The array `{port.name}` has the wrong shape.",
                where=str(rows.path),
                found=f"{array.dtype} {array.shape}",
                expected=str(port),
                remedy=f"If clients will send images, add --input {port.name}."
                if array.dtype == np.uint8 and len(port.row) == 3
                else None,
            )
        longest = array.dtype.itemsize // 4 if array.dtype.kind == "U" else 64
        assert port.dtype is not None  # noqa: S101 — checked above
        fields.append(TensorSpec(name=port.name, dtype=port.dtype, shape=shape, length=min(longest, 4096)))
    spec = InputSpec(kind="tensors", dtype="record", tensors=tuple(fields))
    inputs = tuple(GraphInput(name=each.name, dtype=each.dtype, shape=each.shape) for each in fields)

    def records(places: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        values = np.empty(len(places), spec.numpy)
        for tensor in spec.tensors:
            try:
                values[tensor.name] = tensors.column(found[tensor.name][places], tensor)
            except RowError as error:
                where = f"{rows.where(int(places[0]))} to {rows.lines[places[-1]]}"
                raise RowsError(error.message, where=where, found=error.found, expected=error.expected) from error
        return values

    notes = [f"input {port}" for port in ports]
    if other := ", ".join(sorted(set(rows.features) - {port.name for port in ports})):
        notes.append(f"the only array, {other}, is read as {ports[0].name}")
    return Examples(spec, inputs, None, OnDemand(len(rows), records), tuple(notes))
