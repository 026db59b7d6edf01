"""Small ONNX models of the kinds that people bring."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WEIGHTS = np.array([[1.0, -1.0], [0.5, 0.25], [-2.0, 1.0]], np.float32)


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], **weights: np.ndarray) -> bytes:
    initial = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "model", inputs, outputs, initial)
    sets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, ir_version=10, opset_imports=sets).SerializeToString()


def value(name: str, kind: int, *shape: int | str, batch: int | str = "N") -> Any:
    return helper.make_tensor_value_info(name, kind, [batch, *shape])


FLOATS = value("x", TensorProto.FLOAT, 3)
SCORES = helper.make_node("MatMul", ["x", "w"], ["scores"])
SOFTMAX = helper.make_node("Softmax", ["scores"], ["p"])


def logits() -> bytes:
    return model([SCORES], [FLOATS], [value("scores", TensorProto.FLOAT, 2)], w=WEIGHTS)


def shapeless() -> bytes:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)]
    return model([SCORES], inputs, [value("scores", TensorProto.FLOAT, 2)], w=WEIGHTS)


def noisy() -> bytes:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["exact"]),
        helper.make_node("RandomNormalLike", ["exact"], ["noise"]),
        helper.make_node("Add", ["exact", "noise"], ["scores"]),
    ]
    return model(nodes, [FLOATS], [value("scores", TensorProto.FLOAT, 2)], w=WEIGHTS)


def probabilities(batch: int | str = "N") -> bytes:
    inputs, outputs = [value("x", TensorProto.FLOAT, 3, batch=batch)], [value("p", TensorProto.FLOAT, 2, batch=batch)]
    return model([SCORES, SOFTMAX], inputs, outputs, w=WEIGHTS)


def halves() -> bytes:
    """Everything in float16."""
    inputs, outputs = [value("x", TensorProto.FLOAT16, 3)], [value("scores", TensorProto.FLOAT16, 2)]
    return model([SCORES], inputs, outputs, w=WEIGHTS.astype(np.float16))


def typed(kind: int) -> bytes:
    """An input of another type, cast before it is scored."""
    nodes = [
        helper.make_node("Cast", ["typed"], ["x"], to=TensorProto.FLOAT),
        SCORES,
    ]
    return model(nodes, [value("typed", kind, 3)], [value("scores", TensorProto.FLOAT, 2)], w=WEIGHTS)


def equals(name: str, text: str) -> bytes:
    """A column of texts: one of them has a probability of 0.9, all others of 0.1."""
    nodes = [
        helper.make_node("Equal", [name, "text"], ["same"]),
        helper.make_node("Cast", ["same"], ["ones"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["ones", "gain"], ["gained"]),
        helper.make_node("Add", ["gained", "others"], ["p"]),
    ]
    weights = {"gain": np.array([[-0.8, 0.8]], np.float32), "others": np.array([0.9, 0.1], np.float32)}
    inputs, outputs = [value(name, TensorProto.STRING, 1)], [value("p", TensorProto.FLOAT, 2)]
    return model(nodes, inputs, outputs, text=np.array([text], object), **weights)


def cut(smallest: float) -> bytes:
    """Logarithms of probabilities, −inf for those below the smallest."""
    nodes = [
        *(SCORES, SOFTMAX),
        helper.make_node("Less", ["p", "smallest"], ["small"]),
        helper.make_node("Where", ["small", "zero", "p"], ["kept"]),
        helper.make_node("Log", ["kept"], ["log"]),
    ]
    bounds = {"smallest": np.array(smallest, np.float32), "zero": np.array(0, np.float32)}
    return model(nodes, [FLOATS], [value("log", TensorProto.FLOAT, 2)], w=WEIGHTS, **bounds)


def both() -> bytes:
    outputs = [value("p", TensorProto.FLOAT, 2), value("scores", TensorProto.FLOAT, 2)]
    return model([SCORES, SOFTMAX], [FLOATS], outputs, w=WEIGHTS)


def two_heads() -> bytes:
    other = helper.make_node("MatMul", ["x", "v"], ["other"])
    outputs = [value("scores", TensorProto.FLOAT, 2), value("other", TensorProto.FLOAT, 2)]
    return model([SCORES, other], [FLOATS], outputs, w=WEIGHTS, v=-WEIGHTS)


def batch_statistics() -> bytes:
    """A model that subtracts the mean of its batch from each row, as a layer left in training mode does."""
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["mean"], keepdims=1),
        helper.make_node("Sub", ["x", "mean"], ["centred"]),
        helper.make_node("MatMul", ["centred", "w"], ["scores"]),
    ]
    return model(nodes, [FLOATS], [value("scores", TensorProto.FLOAT, 2)], w=WEIGHTS, axes=np.array([0]))


def sigmoids() -> bytes:
    """A sigmoid for each class, which do not add up to 1."""
    nodes = [SCORES, helper.make_node("Sigmoid", ["scores"], ["p"])]
    return model(nodes, [FLOATS], [value("p", TensorProto.FLOAT, 2)], w=WEIGHTS)


def sigmoid(*, squashed: bool = True, batch: int | str = "N") -> bytes:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["margin"])]
    if squashed:
        nodes.append(helper.make_node("Sigmoid", ["margin"], ["p"]))
    inputs = [value("x", TensorProto.FLOAT, 3, batch=batch)]
    output = value("p" if squashed else "margin", TensorProto.FLOAT, 1, batch=batch)
    return model(nodes, inputs, [output], w=WEIGHTS[:, 1:] - WEIGHTS[:, :1])


def label_and_maps(keys: Sequence[int | str] = (0, 1)) -> bytes:
    """What skl2onnx and onnxmltools make by default: the label, and a map of probabilities per row."""
    texts = isinstance(keys[0], str)
    name = "classlabels_strings" if texts else "classlabels_int64s"
    nodes = [
        SCORES,
        SOFTMAX,
        helper.make_node("ZipMap", ["p"], ["maps"], domain="ai.onnx.ml", **{name: list(keys)}),
        helper.make_node("ArgMax", ["p"], ["label"], axis=1, keepdims=0),
    ]
    key = TensorProto.STRING if texts else TensorProto.INT64
    maps = helper.make_value_info(
        "maps",
        helper.make_sequence_type_proto(
            helper.make_map_type_proto(key, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
        ),
    )
    return model(nodes, [FLOATS], [value("label", TensorProto.INT64), maps], w=WEIGHTS)


def decisions() -> bytes:
    """A model that gives no scores, only its decisions."""
    nodes = [SCORES, helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0)]
    return model(nodes, [FLOATS], [value("label", TensorProto.INT64)], w=WEIGHTS)


def endless() -> bytes:
    """A loop without an end."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still"]), helper.make_node("Add", ["a", "a"], ["b"])],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, None),
        ],
    )
    nodes = [SCORES, helper.make_node("Loop", ["", "true", "scores"], ["p"], body=body)]
    return model(nodes, [FLOATS], [value("p", TensorProto.FLOAT, 2)], w=WEIGHTS, true=np.array(True))


def negating() -> Any:
    """The body of a Loop that negates a number at each turn, and goes on as long as it is told to."""

    def scalar(name: str, kind: int) -> Any:
        return helper.make_tensor_value_info(name, kind, [])

    return helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Neg", ["old"], ["new"])],
        "body",
        [scalar("turn", TensorProto.INT64), scalar("go", TensorProto.BOOL), scalar("old", TensorProto.FLOAT)],
        [scalar("on", TensorProto.BOOL), scalar("new", TensorProto.FLOAT)],
    )


def slow_to_open(size: int, times: int) -> bytes:
    """A few bytes of constants that ONNX Runtime multiplies as it opens the graph: `times` products of size³."""
    powers = [f"m{number}" for number in range(times + 1)]
    nodes = [
        helper.make_node("ConstantOfShape", ["size"], [powers[0]]),
        *(helper.make_node("MatMul", [last, last], [power]) for last, power in pairwise(powers)),
        helper.make_node("ReduceSum", [powers[-1]], ["sum"], keepdims=0),
        SCORES,
        helper.make_node("Add", ["scores", "sum"], ["p"]),
    ]
    return model(nodes, [FLOATS], [value("p", TensorProto.FLOAT, 2)], w=WEIGHTS, size=np.array([size, size]))


def slow_to_run(size: int) -> bytes:
    """One operator that takes long: a product of size³, which depends on the rows."""
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=1),
        helper.make_node("Expand", ["largest", "size"], ["square"]),
        helper.make_node("MatMul", ["square", "square"], ["product"]),
        helper.make_node("ReduceMax", ["product"], ["p"], keepdims=1),
    ]
    return model(nodes, [FLOATS], [value("p", TensorProto.FLOAT, 1)], size=np.array([size, size]))


def enormous(values: int) -> bytes:
    """A few bytes that ask for a tensor of so many values."""
    nodes = [
        helper.make_node("ConstantOfShape", ["size"], ["big"]),
        helper.make_node("ReduceSum", ["big"], ["sum"]),
        helper.make_node("MatMul", ["x", "w"], ["own"]),
        helper.make_node("Add", ["own", "sum"], ["p"]),
    ]
    return model(nodes, [FLOATS], [value("p", TensorProto.FLOAT, 2)], w=WEIGHTS, size=np.array([values]))


def texts(values: int) -> bytes:
    """A few bytes that ask for so many copies of a text."""
    nodes = [
        helper.make_node("Expand", ["text", "size"], ["copies"]),
        helper.make_node("Equal", ["copies", "text"], ["same"]),
        helper.make_node("Cast", ["same"], ["ones"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["ones"], ["one"]),
        helper.make_node("MatMul", ["x", "w"], ["own"]),
        helper.make_node("Add", ["own", "one"], ["p"]),
    ]
    text = np.array(["a text of more bytes than a short one takes"], object)
    outputs = [value("p", TensorProto.FLOAT, 2)]
    return model(nodes, [FLOATS], outputs, w=WEIGHTS, text=text, size=np.array([values]))


def crashing() -> bytes:
    """A tree whose nodes ask for one value after the other; ONNX Runtime 1.31 reads it by recursion."""
    length = 60_000
    tree = helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["p"],
        domain="ai.onnx.ml",
        tree_roots=[0],
        n_targets=2,
        aggregate_function=1,
        post_transform=0,
        nodes_featureids=[0] * length,
        nodes_modes=helper.make_tensor("modes", TensorProto.UINT8, [length], bytes([4] * length), raw=True),
        nodes_splits=numpy_helper.from_array(np.arange(length, dtype=np.float32), "splits"),
        nodes_trueleafs=[1] * length,
        nodes_truenodeids=[0] * length,
        nodes_falseleafs=[0] * (length - 1) + [1],
        nodes_falsenodeids=[*range(1, length), 1],
        leaf_targetids=[0, 1],
        leaf_weights=numpy_helper.from_array(np.array([1, 2], np.float32), "weights"),
    )
    graph = helper.make_graph([tree], "model", [FLOATS], [value("p", TensorProto.FLOAT, 2)])
    sets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 5)]
    return helper.make_model(graph, ir_version=10, opset_imports=sets).SerializeToString()


def custom() -> bytes:
    """An operator that only its maker has."""
    node = helper.make_node("Judge", ["x"], ["p"], domain="com.vendor")
    graph = helper.make_graph([node], "model", [FLOATS], [value("p", TensorProto.FLOAT, 2)])
    sets = [helper.make_opsetid("", 20), helper.make_opsetid("com.vendor", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=sets).SerializeToString()


def outside() -> bytes:
    """Weights in a file of another name."""
    made = helper.make_model(
        helper.make_graph([SCORES], "model", [FLOATS], [value("scores", TensorProto.FLOAT, 2)]), ir_version=10
    )
    weights = made.graph.initializer.add()
    weights.CopyFrom(numpy_helper.from_array(WEIGHTS, "w"))
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    entry = weights.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"
    return made.SerializeToString()


def photographs(height: int = 4, width: int = 5, *, channels_last: bool = False) -> bytes:
    """The mean of each channel, scored."""
    shape = (height, width, 3) if channels_last else (3, height, width)
    axes = np.array([1, 2] if channels_last else [2, 3])
    nodes = [
        helper.make_node("ReduceMean", ["pixels", "axes"], ["means"], keepdims=0),
        helper.make_node("MatMul", ["means", "w"], ["scores"]),
    ]
    inputs = [value("pixels", TensorProto.FLOAT, *shape)]
    return model(nodes, inputs, [value("scores", TensorProto.FLOAT, 2)], axes=axes, w=WEIGHTS)


def sentences() -> bytes:
    """Token ids and a mask."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["embedded"]),
        helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["kept", "last"], ["column"]),
        helper.make_node("Mul", ["embedded", "column"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "middle"], ["scores"], keepdims=0),
    ]
    inputs = [value("ids", TensorProto.INT64, "L"), value("mask", TensorProto.INT64, "L")]
    table = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    outputs = [value("scores", TensorProto.FLOAT, 2)]
    return model(nodes, inputs, outputs, table=table, last=np.array([2]), middle=np.array([1]))
