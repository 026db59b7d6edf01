"""A linear model of payments with a policy, beside the digits, a graph of two tensors, and scores alone; its rows."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import bundle as bundles
from bundle import Column, Columns, Golden, InputSpec, LabelledLogits, Reference
from calibrators import CALIBRATORS

from . import imported_models
from .conftest import Digits, contents

COLUMNS = Columns((Column("amount"), Column("country", ("DE", "Österreich"))))
WEIGHTS = np.array([[0.0, 0.02], [0.0, 1.0]], np.float32)
LABELS = ("genuine", "fraud")
POLICY = """
id: triage
positive: fraud
bands:
  - {action: block, when: {min_probability: 0.9}}
  - {action: allow}
"""
HEADER = ["tx", "amount", "country", "note"]


def linear(values: np.ndarray) -> np.ndarray:
    return (np.nan_to_num(values) @ WEIGHTS).astype(np.float32)


def model_bytes() -> bytes:
    nodes = [
        helper.make_node("IsNaN", ["input"], ["missing"]),
        helper.make_node("Where", ["missing", "zero", "input"], ["filled"]),
        helper.make_node("MatMul", ["filled", "weights"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 2])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(WEIGHTS, "weights"), numpy_helper.from_array(np.zeros((), np.float32), "zero")],
    )
    model: onnx.ModelProto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])
    return bytes(model.SerializeToString())


def write_payments(
    root: Path, digits: Digits, parts: list[LabelledLogits], golden: np.ndarray, columns: Columns | None = None
) -> None:
    """Write the bundle of the linear model: `parts` are its reference rows by role, `golden` its golden inputs."""
    payments = contents(
        digits.bundle,
        model="payments",
        labels=LABELS,
        input=InputSpec(kind="array", dtype="float32", shape=(2,)),
        model_bytes=model_bytes(),
        calibrator=CALIBRATORS["identity"]().fit(parts[0].logits, parts[0].labels),
        reference=Reference(*parts),
        golden=Golden(golden, linear(golden)),
        columns=columns,
    )
    bundles.write(root, payments)


def folders_of(digits: Digits, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write the bundles and the policy; return both folders as settings name them."""
    root, policies = tmp_path_factory.mktemp("bundles"), tmp_path_factory.mktemp("policies")
    draw = np.random.default_rng(3)
    values = np.stack([draw.uniform(0, 300, 60), draw.integers(0, 3, 60)], axis=1).astype(np.float32)
    labels = draw.integers(0, 2, 60)
    parts = [LabelledLogits(linear(values[part]), labels[part]) for part in np.split(np.arange(60), 3)]
    write_payments(root, digits, parts, values[:4], COLUMNS)
    bundles.write(root, contents(digits.bundle))
    imported_models.sentences(root)
    imported_models.vendor(root)
    imported_models.vendor(root, "bureau", "probabilities")
    (policies / "payments").mkdir()
    (policies / "payments" / "triage.yaml").write_text(POLICY)
    return {"bundles": root, "policies": policies}


def payments(rows: int) -> list[list[str]]:
    """Rows of text: amounts, some missing; countries, some unknown; notes with commas, quotes and line breaks."""
    draw = np.random.default_rng(rows)
    amounts = draw.uniform(0, 300, rows).round(2).tolist()
    countries = draw.choice(["DE", "Österreich", "日本", ""], rows).tolist()
    notes = ['a "quoted", note', "two\nlines", "naïve 🦊", ""]
    return [[f"tx-{i}", "" if i % 9 == 4 else str(amounts[i]), countries[i], notes[i % 4]] for i in range(rows)]


def written(path: Path, rows: list[list[str]], header: list[str] = HEADER) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def expected(rows: list[list[str]]) -> np.ndarray:
    """Probability of fraud of each row, computed here."""
    values = COLUMNS.encode([{"amount": row[1], "country": row[2]} for row in rows])
    exponentials = np.exp(linear(values))
    return exponentials[:, 1] / exponentials.sum(axis=1)
