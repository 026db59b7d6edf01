"""Models whose functions unfold to enormous graphs are refused before a runtime opens them."""

from __future__ import annotations

from typing import Any

import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from bundle import BundleFormatError, functions

SETS = [helper.make_opsetid("", 20), helper.make_opsetid("d", 1)]


def call(name: str, source: str, result: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(name, [source], [result], domain="d", **attributes)


def model(levels: int, *, last: str = "Neg") -> onnx.ModelProto:
    """Functions that call the next one twice: 2 to the power of `levels` nodes."""
    made = []
    for level in reversed(range(levels)):
        nodes = [call(f"f{level + 1}", "a", "t"), call(f"f{level + 1}", "t", "b")]
        made.append(helper.make_function("d", f"f{level}", ["a"], ["b"], nodes, SETS))
    own = [helper.make_node(last, ["a"], ["b"], domain="" if last == "Neg" else "d")]
    made.append(helper.make_function("d", f"f{levels}", ["a"], ["b"], own, SETS))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in "xy")
    graph = helper.make_graph([call("f0", "x", "y")], "graph", [x], [y])
    return helper.make_model(graph, ir_version=10, opset_imports=SETS, functions=made)


def test_functions_that_unfold_to_enormous_graphs_are_refused() -> None:
    small = model(4).SerializeToString()
    functions.refuse(small, file="model.onnx")
    ort.InferenceSession(small)
    functions.refuse(model(16).SerializeToString(), file="model.onnx")
    for levels in (17, 5000):
        with pytest.raises(BundleFormatError, match="unfold to too many nodes"):
            functions.refuse(model(levels).SerializeToString(), file="model.onnx")


def test_subgraphs_count_and_no_name_hides_a_function() -> None:
    whole = model(16)
    branch = helper.make_graph([call("f0", "x", "z")], "branch", [], [])
    whole.graph.node.append(call("If", "x", "w", then_branch=branch))
    with pytest.raises(BundleFormatError, match="too many nodes"):
        functions.refuse(whole.SerializeToString(), file="model.onnx")
    node = whole.graph.node[0].SerializeToString()
    twice = b"\x22\x01x" + node  # an operator before the operator: the last one counts
    graph = b"\x0a" + bytes([len(twice)]) + twice
    bomb = model(17).SerializeToString().replace(b"\x0a" + bytes([len(node)]) + node, graph)
    at = bomb.index(graph)
    bomb = bomb[: at - 1] + bytes([bomb[at - 1] + 3]) + bomb[at:]
    assert onnx.load_from_string(bomb).graph.node[0].op_type == "f0"
    with pytest.raises(BundleFormatError, match="too many nodes"):
        functions.refuse(bomb, file="model.onnx")


def test_a_function_that_calls_itself_is_refused() -> None:
    with pytest.raises(BundleFormatError, match="calls itself"):
        functions.refuse(model(3, last="f1").SerializeToString(), file="model.onnx")
