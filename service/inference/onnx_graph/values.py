"""Write ONNX graphs like numpy code: values with operators, each of which adds a node.

All floating point values are float64. The operators used keep their form from opset 18 on, and ONNX Runtime computes
them in float64 on CPUs and CUDA devices.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, helper, numpy_helper

Doubles: TypeAlias = npt.NDArray[np.float64]
Operand: TypeAlias = "Value | float | int | npt.NDArray[Any]"


class Nodes:
    """Nodes and constants in the making.

    Args:
        prefix: Begins the name of every value, so that none is a name that the model has.

    Attributes:
        nodes: In an order in which they can be run.
        constants: What they take beside the graph's inputs.
    """

    def __init__(self, prefix: str) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._prefix = prefix
        self._known: dict[tuple[str, tuple[int, ...], bytes], Value] = {}

    def input(self, name: str) -> Value:
        """A value that stands outside: an input of the graph, or what the model computes."""
        return Value(self, name)

    def constant(self, number: float | int | npt.NDArray[Any]) -> Value:
        """A constant of the array's type; a bare number is float64. Equal ones are one."""
        array = np.asarray(number, np.float64 if isinstance(number, float | int) else None)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            name = f"{self._prefix}constant_{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
            self._known[key] = Value(self, name)
        return self._known[key]

    def operator(self, kind: str, *operands: Operand, output: str | None = None, **attributes: Any) -> Value:
        """The first output of a new node, called `output` where that is given."""
        name = output or f"{self._prefix}value_{len(self.nodes)}"
        inputs = [(one if isinstance(one, Value) else self.constant(one)).name for one in operands]
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return Value(self, name)


class Value:
    """A tensor that the graph computes. Operators broadcast as numpy's do."""

    __slots__ = ("name", "nodes")

    def __init__(self, nodes: Nodes, name: str) -> None:
        self.nodes = nodes
        self.name = name

    def __add__(self, other: Operand) -> Value:
        return self.nodes.operator("Add", self, other)

    def __sub__(self, other: Operand) -> Value:
        return self.nodes.operator("Sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.nodes.operator("Sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.nodes.operator("Mul", self, other)

    def __truediv__(self, other: Operand) -> Value:
        return self.nodes.operator("Div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.nodes.operator("Div", other, self)

    def __neg__(self) -> Value:
        return self.nodes.operator("Neg", self)

    def columns(self, first: int, last: int) -> Value:
        """Columns `first` to `last` − 1 of (N, K), as (N, last − first)."""
        bounds = (np.array([first]), np.array([last]), np.array([1]))
        return self.nodes.operator("Slice", self, *bounds)


def as_type(value: Value, dtype: npt.DTypeLike) -> Value:
    """The values in another type."""
    return value.nodes.operator("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def exp(value: Value) -> Value:
    """The exponential; of −inf, 0."""
    return value.nodes.operator("Exp", value)


def log(value: Value) -> Value:
    """The natural logarithm; of 0, −inf."""
    return value.nodes.operator("Log", value)


def log1p(value: Value) -> Value:
    """log(1 + x) of x ≥ 0, to all digits however small x: what 1 + x loses of x, the quotient puts right."""
    above = value + 1.0
    nothing = equal(above, 1.0)
    return where(nothing, value, log(above) * (value / where(nothing, 1.0, above - 1.0)))


def absolute(value: Value) -> Value:
    """The absolute value."""
    return value.nodes.operator("Abs", value)


def least(value: Value, bound: Operand) -> Value:
    """The lesser of the two, entry by entry."""
    return value.nodes.operator("Min", value, bound)


def greatest(value: Value, bound: Operand) -> Value:
    """The greater of the two, entry by entry."""
    return value.nodes.operator("Max", value, bound)


def where(condition: Value, yes: Operand, no: Operand) -> Value:
    """`yes` where the condition holds, else `no`."""
    return condition.nodes.operator("Where", condition, yes, no)


def equal(value: Value, other: Operand) -> Value:
    """Where both are the same, bool."""
    return value.nodes.operator("Equal", value, other)


def less(value: Value, other: Operand) -> Value:
    """Where the value is less than the other, bool."""
    return value.nodes.operator("Less", value, other)


def greater(value: Value, other: Operand) -> Value:
    """Where the value is greater than the other, bool."""
    return value.nodes.operator("Greater", value, other)


def at_least(value: Value, other: Operand) -> Value:
    """Where the value is as great as the other or greater, bool."""
    return value.nodes.operator("GreaterOrEqual", value, other)


def row_maximum(value: Value) -> Value:
    """Largest entry (N, 1) of each row."""
    return value.nodes.operator("ReduceMax", value, np.array([1]), keepdims=1)


def row_sum(value: Value) -> Value:
    """Sum (N, 1) of each row."""
    return value.nodes.operator("ReduceSum", value, np.array([1]), keepdims=1)


def row_argmax(value: Value) -> Value:
    """Column (N, 1) int64 of each row's largest entry, the first of equals."""
    return value.nodes.operator("ArgMax", value, axis=1, keepdims=1)


def side_by_side(*parts: Value) -> Value:
    """Columns of all parts, one after the other."""
    return parts[0].nodes.operator("Concat", *parts, axis=1)


def entries(table: npt.NDArray[Any], index: Value) -> Value:
    """What stands in a flat table at each index, in the shape of `index`."""
    return index.nodes.operator("Gather", table, index)


def product(value: Value, matrix: Doubles) -> Value:
    """Matrix product of (N, K) with (K, M)."""
    return value.nodes.operator("MatMul", value, matrix)
