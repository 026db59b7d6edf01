"""Scores of trees, moved by constants inside the graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibrators import softmax
from importing.converted import Converted, Feeds
from importing.libraries import library

_SCORES = "unshifted_scores"


def shifted(converted: Converted, shift: NDArray[np.float64]) -> Converted:
    """Return the same model with constants added to its logits, in the graph and in the library's answers.

    Args:
        converted: A model whose output is a margin or logits.
        shift: Added to each class's logit, (K,).
    """
    onnx = library("onnx")
    model = onnx.load_from_string(converted.model)
    output = converted.graph.output
    for node in model.graph.node:
        for place, name in enumerate(node.output):
            if name == output.name:
                node.output[place] = _SCORES
    added = shift[1:] - shift[:1] if output.form == "margin" else shift
    model.graph.initializer.append(onnx.numpy_helper.from_array(added.astype(np.float32)[None], "shift"))
    model.graph.node.append(onnx.helper.make_node("Add", [_SCORES, "shift"], [output.name]))
    onnx.checker.check_model(model)

    def native(feeds: Feeds) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.asarray(softmax(np.log(converted.native(feeds)) + shift), np.float64)

    trees = None if converted.trees is None else replace(converted.trees, base=converted.trees.base + added)
    return replace(converted, model=model.SerializeToString(), native=native, trees=trees)
