"""A trained model as a bundle holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bundle import Golden, Graph, Trees


@dataclass(frozen=True, eq=False)
class Exported:
    """A trained model as an ONNX graph, checked against what was trained.

    Attributes:
        model: The ONNX file.
        golden: Inputs with the logits that it must give.
        difference: Largest difference from what was trained: of a network's logits on the golden inputs, of the
            probabilities of a library's model on all held-out rows.
        parameters: Number of parameters: weights of a network, leaves of trees.
        architecture: Arguments that the model was built with, for the manifest.
        graph: How examples enter the graph; None where it takes `input` and gives `logits`.
        trees: The trees of the graph; None for networks.
    """

    model: bytes
    golden: Golden
    difference: float
    parameters: int
    architecture: dict[str, Any] = field(default_factory=dict)
    graph: Graph | None = None
    trees: Trees | None = None
