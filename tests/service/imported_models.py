"""Bundles of imported graphs and of scores, made by hand: what the service has to run as it came."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

import bundle as bundles
from bundle import Graph, GraphInput, GraphOutput, InputSpec, LabelledLogits, Reference, TensorSpec
from calibrators import CALIBRATORS
from importing.report import make_report
from tests.importing.graphs import model, value

RANDOM = np.random.default_rng(11)
RECORD = bundles.ImportRecord(format="onnx", source="model.onnx")


def write(root: Path, name: str, inputs: np.ndarray, spec: InputSpec, **fields: Any) -> Path:
    """Write a bundle whose reference rows and golden inputs are `inputs`, with labels drawn by the model."""
    labels: Sequence[str] = fields.setdefault("labels", ("no", "yes"))
    graph: Graph | None = fields.get("graph")
    if graph is None:
        logits = inputs
    else:
        found = ort.InferenceSession(fields["model_bytes"]).run([graph.output.name], graph.feeds(inputs))[0]
        logits = graph.output.logits(found, len(labels))
    drawn = np.argmax(logits + RANDOM.gumbel(size=logits.shape), axis=1)
    third = len(logits) // 3
    parts = [LabelledLogits(logits[at : at + third], drawn[at : at + third]) for at in (0, third, 2 * third)]
    reference, calibrator = Reference(*parts), CALIBRATORS["temperature"]().fit(parts[0].logits, parts[0].labels)
    contents = bundles.BundleContents(
        model=name,
        input=spec,
        calibrator=calibrator,
        reference=reference,
        golden=bundles.Golden(inputs[:4], logits[:4]),
        imported=RECORD,
        versions={},
        metrics={},
        report=make_report(reference, calibrator, labels),
        **fields,
    )
    return bundles.write(root, contents)


def photographs(root: Path) -> np.ndarray:
    """A convolution on NCHW floats, as PyTorch exports them, with mean and deviation outside the graph."""
    weights = {"w": RANDOM.normal(size=(3, 3, 2, 2)).astype(np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("GlobalMaxPool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["scores"]),
    ]
    shape = [value("x", TensorProto.FLOAT, 3, 6, 6)], [value("scores", TensorProto.FLOAT, 3)]
    images = RANDOM.integers(0, 256, (90, 6, 6, 3)).astype(np.uint8)
    feed = GraphInput(
        name="x",
        dtype="float32",
        shape=(3, 6, 6),
        layout="NCHW",
        scale=1 / 255,
        mean=(0.5, 0.4, 0.3),
        deviation=(0.2, 0.2, 0.3),
    )
    write(
        root,
        "photographs",
        images,
        InputSpec(kind="image", dtype="uint8", shape=(6, 6, 3)),
        labels=("cat", "dog", "bird"),
        model_bytes=model(nodes, *shape, **weights),
        source="imported",
        graph=Graph(inputs=(feed,), output=GraphOutput(name="scores", form="logits")),
    )
    return images


def sentences(root: Path) -> np.ndarray:
    """Token ids and a mask, as transformers take them; a softmax; runs of exactly two rows."""
    spec = InputSpec(
        kind="tensors",
        dtype="record",
        tensors=(
            TensorSpec(name="ids", dtype="int64", shape=(5,)),
            TensorSpec(name="mask", dtype="bool", shape=(5,)),
        ),
    )
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["embedded"]),
        helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["kept", "last"], ["column"]),
        helper.make_node("Mul", ["embedded", "column"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "middle"], ["scores"], keepdims=0),
        helper.make_node("Softmax", ["scores"], ["p"]),
    ]
    weights = {
        "table": RANDOM.normal(size=(20, 2)).astype(np.float32),
        "last": np.array([2]),
        "middle": np.array([1]),
    }
    inputs = [
        value("ids", TensorProto.INT64, 5, batch=2),
        value("mask", TensorProto.BOOL, 5, batch=2),
    ]
    rows = np.empty(90, spec.numpy)
    rows["ids"], rows["mask"] = RANDOM.integers(0, 20, (90, 5)), RANDOM.random((90, 5)) < 0.7
    made = model(nodes, inputs, [value("p", TensorProto.FLOAT, 2, batch=2)], **weights)
    graph = Graph(
        inputs=(GraphInput(name="ids", dtype="int64", shape=(5,)), GraphInput(name="mask", dtype="bool", shape=(5,))),
        output=GraphOutput(name="p", form="probabilities"),
        batch=2,
    )
    session, logits = ort.InferenceSession(made), []
    for start in range(0, 90, 2):
        found = session.run(["p"], graph.feeds(rows[start : start + 2]))[0]
        logits.append(graph.output.logits(found, 2))
    scores = np.concatenate(logits)
    labels = RANDOM.integers(0, 2, 90)
    parts = [LabelledLogits(scores[at : at + 30], labels[at : at + 30]) for at in (0, 30, 60)]
    contents = bundles.BundleContents(
        model="sentences",
        labels=("bad", "good"),
        input=spec,
        model_bytes=made,
        calibrator=CALIBRATORS["identity"]().fit(scores, labels),
        reference=Reference(*parts),
        golden=bundles.Golden(rows[:3], scores[:3]),
        imported=RECORD,
        source="imported",
        graph=graph,
        versions={},
        metrics={},
        report={},
    )
    bundles.write(root, contents)
    return rows


def shares(root: Path) -> None:
    """One tensor under its own name, as converters of scikit-learn call it; doubles, two of them."""
    spec = InputSpec(
        kind="tensors", dtype="record", tensors=(TensorSpec(name="float_input", dtype="float64", shape=(2,)),)
    )
    nodes = [helper.make_node("Cast", ["float_input"], ["scores"], to=TensorProto.FLOAT)]
    shape = [value("float_input", TensorProto.DOUBLE, 2)], [value("scores", TensorProto.FLOAT, 2)]
    rows = np.empty(90, spec.numpy)
    rows["float_input"] = RANDOM.random((90, 2))
    write(
        root,
        "shares",
        rows,
        spec,
        model_bytes=model(nodes, *shape),
        source="imported",
        graph=Graph(
            inputs=(GraphInput(name="float_input", dtype="float64", shape=(2,)),),
            output=GraphOutput(name="scores", form="logits"),
        ),
    )


def payments(root: Path) -> list[dict[str, Any]]:
    """A text and a double as tensors of their own; one column of sigmoids, as exporters of boosted trees give it."""
    spec = InputSpec(
        kind="tensors",
        dtype="record",
        tensors=(
            TensorSpec(name="country", dtype="string", shape=(1,), length=8),
            TensorSpec(name="amount", dtype="float64", shape=(1,)),
        ),
    )
    nodes = [
        helper.make_node(
            "LabelEncoder",
            ["country"],
            ["risk"],
            domain="ai.onnx.ml",
            keys_strings=["de", "fr"],
            values_floats=[-1.0, 0.5],
            default_float=2.0,
        ),
        helper.make_node("Cast", ["amount"], ["small"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["risk", "small"], ["sum"]),
        helper.make_node("Sigmoid", ["sum"], ["fraud"]),
    ]
    inputs = [value("country", TensorProto.STRING, 1), value("amount", TensorProto.DOUBLE, 1)]
    made = model(nodes, inputs, [value("fraud", TensorProto.FLOAT, 1)])
    columns = bundles.Columns(
        (
            bundles.Column("country", ("de", "fr"), "text", "country", on_unknown="refuse", on_missing="refuse"),
            bundles.Column("amount", tensor="amount", on_missing="refuse"),
        )
    )
    rows = [{"country": str(RANDOM.choice(["de", "fr"])), "amount": float(RANDOM.normal())} for _ in range(90)]
    graph = Graph(
        inputs=(
            GraphInput(name="country", dtype="string", shape=(1,)),
            GraphInput(name="amount", dtype="float64", shape=(1,)),
        ),
        output=GraphOutput(name="fraud", form="positive"),
    )
    write(
        root,
        "payments",
        columns.encode(rows, spec),
        spec,
        labels=("genuine", "fraud"),
        model_bytes=made,
        source="imported",
        graph=graph,
        columns=columns,
    )
    return rows


def spelled(root: Path) -> list[dict[str, Any]]:
    """A number as text, which the graph reads: a text that is not one ends its run."""
    spec = InputSpec(
        kind="tensors",
        dtype="record",
        tensors=(TensorSpec(name="amount", dtype="string", shape=(1,), length=16),),
    )
    nodes = [
        helper.make_node("Cast", ["amount"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Sigmoid", ["number"], ["fraud"]),
    ]
    columns = bundles.Columns((bundles.Column("amount", kind="text", tensor="amount", on_missing="refuse"),))
    rows = [{"amount": f"{RANDOM.normal():.3f}"} for _ in range(90)]
    write(
        root,
        "spelled",
        columns.encode(rows, spec),
        spec,
        labels=("genuine", "fraud"),
        model_bytes=model(nodes, [value("amount", TensorProto.STRING, 1)], [value("fraud", TensorProto.FLOAT, 1)]),
        source="imported",
        graph=Graph(
            inputs=(GraphInput(name="amount", dtype="string", shape=(1,)),),
            output=GraphOutput(name="fraud", form="positive"),
        ),
        columns=columns,
    )
    return rows


def claims(root: Path) -> list[dict[str, Any]]:
    """A number and a category in one matrix; a missing number counts as 40."""
    columns = bundles.Columns(
        (bundles.Column("age"), bundles.Column("fault", ("driver", "third party", "7"), on_unknown="refuse"))
    )
    nodes = [
        helper.make_node("IsNaN", ["x"], ["gap"]),
        helper.make_node("Where", ["gap", "forty", "x"], ["whole"]),
        helper.make_node("MatMul", ["whole", "w"], ["scores"]),
    ]
    weights = {"forty": np.array(40, np.float32), "w": np.array([[0.02, -0.01], [-0.4, 0.3]], np.float32)}
    shape = [value("x", TensorProto.FLOAT, 2)], [value("scores", TensorProto.FLOAT, 2)]
    rows: list[dict[str, Any]] = [
        {"age": None if row % 9 == 0 else float(row), "fault": str(RANDOM.choice(["driver", "third party", "7"]))}
        for row in range(90)
    ]
    write(
        root,
        "claims",
        columns.encode(rows),
        InputSpec(kind="array", dtype="float32", shape=(2,)),
        labels=("honest", "fraud"),
        model_bytes=model(nodes, *shape, **weights),
        source="imported",
        graph=Graph(
            inputs=(GraphInput(name="x", dtype="float32", shape=(2,)),),
            output=GraphOutput(name="scores", form="logits"),
        ),
        columns=columns,
    )
    return rows


def driver_rows(count: int, older_by: int = 0) -> np.ndarray:
    """Return rows of `drivers`, encoded."""
    rng = np.random.default_rng([count, older_by])
    return np.stack([rng.normal(40 + older_by, 10, count), rng.integers(0, 3, count)], axis=1).astype(np.float32)


def drivers(root: Path, older_by: int = 0) -> None:
    """A number and a category, with a profile of 1,500 rows."""
    columns = bundles.Columns((bundles.Column("age"), bundles.Column("fault", ("driver", "third party"))))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["scores"])]
    shape = [value("x", TensorProto.FLOAT, 2)], [value("scores", TensorProto.FLOAT, 2)]
    rows = driver_rows(3000, older_by)
    write(
        root,
        "drivers",
        rows,
        InputSpec(kind="array", dtype="float32", shape=(2,)),
        model_bytes=model(nodes, *shape, w=np.array([[0.02, -0.01], [-0.4, 0.3]], np.float32)),
        source="imported",
        graph=Graph(
            inputs=(GraphInput(name="x", dtype="float32", shape=(2,)),),
            output=GraphOutput(name="scores", form="logits"),
        ),
        columns=columns,
        profile=bundles.Profile.of(columns, rows[:1500], rows[1500:]),
    )


def thousand(root: Path) -> None:
    """Logits of a thousand classes, whose answers are large."""
    scores = bundles.Scores(form="logits")
    write(
        root,
        "thousand",
        RANDOM.normal(size=(3000, 1000)).astype(np.float32),
        InputSpec(kind="scores", dtype="float32", shape=(1000,)),
        labels=tuple(f"class-{number}" for number in range(1000)),
        model_bytes=scores.dump(),
        source="scores",
    )


def vendor(root: Path, name: str = "vendor", form: Any = "positive") -> None:
    """Scores of a model that nobody here has."""
    scores = bundles.Scores(form=form)
    positive = RANDOM.random(300)
    logits = scores.logits(positive if form == "positive" else np.stack([1 - positive, positive], axis=1))
    write(
        root,
        name,
        logits,
        InputSpec(kind="scores", dtype="float32", shape=(2,)),
        labels=("genuine", "fraud"),
        model_bytes=scores.dump(),
        source="scores",
    )
