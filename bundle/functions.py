"""What an ONNX model calls, and refusing models whose functions unfold to far more nodes than the file has.

A runtime replaces each call of a model's own function by the nodes of that function. Functions that call the next one
twice make a small file an enormous graph, whose opening takes hours.

Source: onnx/onnx.proto (field numbers).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from bundle.errors import BundleFormatError
from bundle.protobuf import BYTES, fields

MAX_NODES = 2**16
"""Maximum nodes of a model with functions, unfolded. ONNX Runtime 1.31 opens half as many in 8 s."""

_GRAPH, _FUNCTIONS = 7, 25
_NODES_OF_GRAPH, _NODES_OF_FUNCTION = 1, 7
_FUNCTION_KEY, _NODE_KEY = (10, 1, 13), (7, 4, 8)  # domain, name or operator, overload
_ATTRIBUTE, _SUBGRAPHS = 5, (6, 11)
_Key = tuple[bytes, ...]


def refuse(model: bytes, *, file: str) -> None:
    """Check how far the functions of an ONNX model unfold.

    Args:
        model: Bytes of a serialised `ModelProto` that `external_data.refuse` has accepted.
        file: Name of the model's file for error messages.

    Raises:
        BundleFormatError: They unfold to more than `MAX_NODES` nodes, or call themselves.
    """
    whole = memoryview(model)
    functions = {
        _key(function, _FUNCTION_KEY): _calls(function, _NODES_OF_FUNCTION) for function in _messages(whole, _FUNCTIONS)
    }
    if not functions:
        return
    sizes: dict[_Key, int] = {}
    try:
        for key in TopologicalSorter(functions).static_order():
            sizes[key] = _size(functions[key], sizes) if key in functions else 1
    except CycleError as error:
        raise BundleFormatError("a function of the model calls itself", file=file) from error
    found = sum(_size(_calls(graph, _NODES_OF_GRAPH), sizes) for graph in _messages(whole, _GRAPH))
    if found > MAX_NODES:
        raise BundleFormatError(
            "the functions of the model unfold to too many nodes",
            file=file,
            expected=f"at most {MAX_NODES}",
        )


def operators(model: bytes) -> frozenset[str]:
    """Return the names of the operators that a verified ONNX model calls, in its subgraphs and functions too."""
    whole = memoryview(model)
    found = [_calls(graph, _NODES_OF_GRAPH) for graph in _messages(whole, _GRAPH)]
    found += [_calls(function, _NODES_OF_FUNCTION) for function in _messages(whole, _FUNCTIONS)]
    return frozenset(name.decode() for calls in found for _, name, _ in calls)


def _size(calls: Counter[_Key], sizes: dict[_Key, int]) -> int:
    """Return the nodes of a graph or function, unfolded; at most one more than the maximum."""
    return min(MAX_NODES + 1, sum(times * sizes.get(called, 1) for called, times in calls.items()))


def _calls(message: memoryview, nodes: int) -> Counter[_Key]:
    """Return how often a graph or function calls each operator, in its subgraphs too."""
    found: Counter[_Key] = Counter()
    for node in _messages(message, nodes):
        found[_key(node, _NODE_KEY)] += 1
        for attribute in _messages(node, _ATTRIBUTE):
            for field in _SUBGRAPHS:
                for graph in _messages(attribute, field):
                    found.update(_calls(graph, _NODES_OF_GRAPH))
    return found


def _key(message: memoryview, numbers: tuple[int, int, int]) -> _Key:
    """Return the texts of fields; of a field that comes twice the last one, as Protocol Buffers reads it."""
    found = dict.fromkeys(numbers, b"")
    for field, wire, value in fields(message, frozenset(numbers)):
        if wire == BYTES and isinstance(value, memoryview):
            found[field] = bytes(value)
    domain, *rest = found.values()
    return (b"" if domain == b"ai.onnx" else domain, *rest)


def _messages(message: memoryview, number: int) -> Iterator[memoryview]:
    for _, wire, value in fields(message, frozenset({number})):
        if wire == BYTES and isinstance(value, memoryview):
            yield value
