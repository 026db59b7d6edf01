"""A multi-label model of three labels over one graph, imported by the command that people use, and its truth."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from typer.testing import CliRunner

from service.cli import app
from tests.importing import graphs

LABELS = ("toxic", "threat", "insult")
WEIGHTS = np.array([[1.5, -1.0, 0.5], [0.5, 1.5, -1.0], [-1.0, 0.5, 1.5]], np.float32)
POLICY = """
id: moderation
positive: present
bands:
  - {action: hide, when: {min_precision: 0.7}}
  - {action: show}
certify: {delta: 0.05, labels: 3}
explore: {share: 1.0, actions: [hide, show]}
"""


def sigmoids(factor: float = 2.0) -> bytes:
    """Overconfident by a factor."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("Sigmoid", ["s"], ["p"])]
    inputs, outputs = [graphs.value("x", TensorProto.FLOAT, 3)], [graphs.value("p", TensorProto.FLOAT, 3)]
    return graphs.model(nodes, inputs, outputs, w=np.float32(factor) * WEIGHTS)


def drawn(count: int, seed: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows and their labels, whose log-odds are those of the rows plus `shift`."""
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(count, 3)).astype(np.float32)
    return rows, (draw.random((count, 3)) < 1 / (1 + np.exp(-(rows @ WEIGHTS + shift)))).astype(int)


def imported(folder: Path, made: bytes, *options: str, name: str = "comments", count: int = 1500) -> Any:
    """Import a model with its policy."""
    rows, marks = drawn(count, 1)
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", *LABELS])
        writer.writerows([*map(float, row), *own] for row, own in zip(rows, marks.tolist(), strict=True))
    (folder / "model.onnx").write_bytes(made)
    (folder / "moderation.yaml").write_text(POLICY)
    given = ["import", "onnx", str(folder / "model.onnx"), "--name", name, "--validation", str(folder / "rows.csv")]
    columns = ["--label-columns", ",".join(LABELS), "--out", str(folder / "bundles"), *options]
    result = CliRunner().invoke(app, [*given, *columns, "--policy", str(folder / "moderation.yaml")])
    assert result.exit_code == 0, result.output
    return result
