"""Open an ONNX model as it came: its inputs and outputs, and runs with a limit on time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import numpy.typing as npt
import onnxruntime as ort

from bundle import BundleFormatError, external_data, functions
from bundle.inputs import TensorType
from bundle.time_limit import within
from importing.errors import SlowModelError, UnsupportedModelError

TYPES: dict[str, TensorType] = {
    "tensor(bool)": "bool",
    "tensor(uint8)": "uint8",
    "tensor(int8)": "int8",
    "tensor(uint16)": "uint16",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(float16)": "float16",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(string)": "string",
}
"""Type of a tensor by ONNX Runtime's name."""

OPENING_S = 120.0
"""Time that the opening of a graph may take: ONNX Runtime computes what depends on constants alone."""

RUN_S = 60.0
"""Time that one run may take; a graph can loop for ever, and one operator can take hours."""


@dataclass(frozen=True)
class Port:
    """An input or output of a graph.

    Attributes:
        name: Its name.
        dtype: Type of its elements; None for sequences and maps.
        shape: Its shape with the batch axis first, None for dynamic sizes; None where the graph does not say.
        type: ONNX Runtime's name of its type.
    """

    name: str
    dtype: TensorType | None
    shape: tuple[int | None, ...]
    type: str

    @property
    def row(self) -> tuple[int | None, ...]:
        """Shape of one row, without the batch axis."""
        return self.shape[1:]

    def __str__(self) -> str:
        # Only the first axis is the rows'; other axes of any size need not be equal.
        sizes = ["?" if size is None else str(size) for size in self.shape]
        sizes[:1] = ["N"] if self.shape[:1] == (None,) else sizes[:1]
        shape = f"[{', '.join(sizes)}]" if sizes else "(shape not declared, or a scalar)"
        return f"{self.name}: {self.dtype or self.type} {shape}"


class Model(Protocol):
    """What an import needs of a model.

    Attributes:
        origin: Source of the bundle's model.
        content: Bytes of the bundle's model file.
        inputs: Its inputs, in order.
        outputs: Its outputs, in order.
        batch: Number of rows in every run where it fixes it; None for any number.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    @property
    def origin(self) -> Literal["imported", "remote"]:
        """Source of the bundle's model."""

    @property
    def content(self) -> bytes:
        """Bytes of the bundle's model file."""

    @property
    def batch(self) -> int | None:
        """Number of rows in every run where it fixes it; None for any number."""

    def run(self, names: list[str], feeds: dict[str, npt.NDArray[Any]]) -> Sequence[Any]:
        """Return outputs for a batch; see `bundle.graph.Run`."""


class OnnxModel:
    """An ONNX model with one thread.

    Args:
        content: The file.
        where: Its name, for errors.

    Attributes:
        content: The file.
        inputs: Inputs of the graph, in order.
        outputs: Outputs of the graph, in order.
        origin: Source of the bundle's model.

    Raises:
        UnsupportedModelError: The model has external data or too many nodes, or ONNX Runtime cannot load it.
        SlowModelError: ONNX Runtime takes longer than `OPENING_S` to load it.
    """

    origin: Final = "imported"

    def __init__(self, content: bytes, where: str) -> None:
        self.content = content
        self._where = where
        try:
            external_data.refuse(content, file=where)
            functions.refuse(content, file=where)
        except BundleFormatError as error:
            raise UnsupportedModelError(
                error.message,
                where=where,
                found=error.found,
                expected=error.expected,
                remedy="Save the model as one valid ONNX file, with its weights inside and its functions inlined.",
            ) from error
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session = within(
                OPENING_S,
                lambda: ort.InferenceSession(content, options, providers=["CPUExecutionProvider"]),
                lambda: options.set_load_cancellation_flag(True),
            )
        except TimeoutError as error:
            raise SlowModelError(
                f"the model takes longer than {OPENING_S:g} s to open",
                where=where,
                remedy="Simplify it where you trust it: compute what depends on constants alone before the export.",
            ) from error
        except Exception as error:  # ONNX Runtime raises bare C++ exceptions of many types
            raise _cannot_load(str(error), where) from error
        self.inputs = tuple(map(_port, self._session.get_inputs()))
        self.outputs = tuple(map(_port, self._session.get_outputs()))

    @property
    def batch(self) -> int | None:
        """Number of rows in every run where the graph fixes it; None for any number."""
        return fixed_batch(self.inputs)

    def run(self, names: list[str], feeds: dict[str, npt.NDArray[Any]]) -> Sequence[Any]:
        """Run the graph; see `bundle.graph.Run`.

        Raises:
            UnsupportedModelError: The graph fails.
            SlowModelError: It takes longer than `RUN_S`.
        """
        options = ort.RunOptions()
        try:
            found: Sequence[Any] = within(
                RUN_S,
                lambda: self._session.run(names, feeds, options),
                lambda: setattr(options, "terminate", True),  # seen between operators
            )
        except TimeoutError as error:
            raise SlowModelError(f"a run takes longer than {RUN_S:g} s", where=self._where) from error
        except Exception as error:  # ONNX Runtime raises bare C++ exceptions of many types
            raise UnsupportedModelError(
                "the model cannot run these rows",
                where=self._where,
                found=str(error)[:500],
                expected=", ".join(map(str, self.inputs)),
            ) from error
        return found


def fixed_batch(inputs: Sequence[Port]) -> int | None:
    """Return the number of rows that all inputs fix; None for any number."""
    sizes = {port.shape[0] for port in inputs if port.shape}
    fixed = {size for size in sizes if size is not None}
    return fixed.pop() if len(fixed) == 1 and len(sizes) == 1 else None


def _cannot_load(said: str, where: str) -> UnsupportedModelError:
    """Return why ONNX Runtime cannot load a model, without the signature of its own function."""
    if version := re.search(r"IR version: (\d+), max supported IR version: (\d+)", said):
        kind, found, most = "IR version", *version.groups()
    elif version := re.search(r"Opset (\d+) is under development.*is till opset (\d+)", said, re.DOTALL):
        kind, found, most = "opset", *version.groups()
    else:
        said = re.sub(r"/onnxruntime_src/\S+ .*?\) (?=[A-Z])", "", said)
        remedy = "Custom operators are not supported; export the model with standard ones."
        return UnsupportedModelError(
            "ONNX Runtime cannot load the model", where=where, found=said.strip()[:500], remedy=remedy
        )
    return UnsupportedModelError(
        f"ONNX Runtime does not know the model's {kind}",
        where=where,
        found=f"{kind} {found}",
        expected=f"at most {most}",
        remedy="Export the model with a lower one (opset_version=), or with an older version of the exporter.",
    )


def _port(found: Any) -> Port:
    shape = tuple(size if isinstance(size, int) and size > 0 else None for size in found.shape or ())
    return Port(found.name, TYPES.get(found.type), shape, found.type)
