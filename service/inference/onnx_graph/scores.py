"""The scores that an imported graph gives, as logits in the order of the labels: what `GraphOutput.logits` computes."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, helper

from bundle import BundleFormatError, GraphOutput
from bundle.manifest import MODEL_FILE
from service.inference.onnx_graph.rows import Rows
from service.inference.onnx_graph.values import Nodes, Value, as_type, greatest, log, side_by_side, where


def add_logits(nodes: Nodes, graph: GraphProto, output: GraphOutput, classes: int) -> Value:
    """Return the logits (N, K), float64.

    Args:
        nodes: Where nodes are added.
        graph: The graph.
        output: Its output that scores the classes.
        classes: Number K of labels.

    Raises:
        BundleFormatError: The output is a sequence of maps that no ZipMap makes.
    """
    name, order = output.name, list(output.order)
    if output.form == "maps":
        name, order = _before_maps(graph, output)
    scores = nodes.operator("Reshape", as_type(nodes.input(name), np.float64), np.array([0, -1]))
    if output.columns:
        scores = nodes.operator("Gather", scores, np.array(output.columns), axis=1)
    if order:
        scores = nodes.operator("Gather", scores, np.array(order), axis=1)
    if output.form == "margin":
        return side_by_side(scores * 0.0, scores)
    if output.form == "logits":
        rows = Rows(scores, classes)
        return where(rows.possible, scores, rows.maxima + np.log(output.smallest))
    if output.form == "positive":
        scores = side_by_side(1.0 - scores, scores)
    return log(greatest(scores, output.smallest))


def _before_maps(graph: GraphProto, output: GraphOutput) -> tuple[str, list[int]]:
    """Return the probabilities of which a ZipMap makes maps, and the column of each label."""
    for node in graph.node:
        if node.op_type == "ZipMap" and output.name in node.output:
            keys = [key for each in node.attribute for key in helper.get_attribute_value(each)]
            known = [key.decode() if isinstance(key, bytes) else key for key in keys]
            return node.input[0], [known.index(key) for key in output.keys]
    raise BundleFormatError(
        "the output is a sequence of maps that no ZipMap makes",
        file=MODEL_FILE,
        found=output.name,
        expected="probabilities as a tensor: export the model with zipmap=False",
    )
