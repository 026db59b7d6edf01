"""Probabilities of a converted model, by ONNX Runtime as the service uses it, and the rows that find its mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from scipy.special import softmax

import bundle
from importing.converted import Converted, Feeds


def answer(converted: Converted, feeds: Feeds, model: bytes | None = None) -> NDArray[np.float64]:
    session = ort.InferenceSession(model or converted.model, providers=["CPUExecutionProvider"])
    output = converted.graph.output
    found = session.run([output.name], dict(feeds))[0]
    return softmax(output.logits(found, converted.classes).astype(np.float64), axis=1)


def answers(found: bundle.Bundle, rows: list[dict[str, Any]]) -> np.ndarray:
    """Probabilities before calibration of rows as a client sends them."""
    manifest = found.manifest
    assert manifest.graph is not None
    assert found.columns is not None
    inputs = found.columns.encode(rows, manifest.input)
    logits = manifest.graph.run(ort.InferenceSession(found.model_bytes).run, inputs, len(manifest.labels))
    return np.asarray(softmax(logits.astype(np.float64), axis=1))


def matrix(converted: Converted, rows: NDArray[Any]) -> Feeds:
    (entry,) = converted.graph.inputs
    return {entry.name: entry.feed(rows)}


def thresholds(model: bytes) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return features and thresholds of all splits."""
    (node,) = [node for node in onnx.load_from_string(model).graph.node if node.op_type == "TreeEnsembleRegressor"]
    found = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    splits = np.array([mode != b"LEAF" for mode in found["nodes_modes"]])
    values = onnx.numpy_helper.to_array(found["nodes_values_as_tensor"])
    return np.array(found["nodes_featureids"])[splits], values[splits]


def at_thresholds(converted: Converted, rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows, and beside them copies with one value each on a threshold, just above, or just below it."""
    features, values = thresholds(converted.model)
    features, values = features[np.abs(values) < 1e38], values[np.abs(values) < 1e38]  # LightGBM's infinity is 1e300
    few = np.random.default_rng(0).choice(len(features), min(len(features), 300), replace=False)
    extra = []
    for feature, value in zip(features[few], values[few], strict=True):
        for near in (value, np.nextafter(value, np.inf), np.nextafter(value, -np.inf)):
            row = rows[len(extra) % len(rows)].astype(values.dtype)
            row[feature] = near if abs(near) > 2e-35 else 0.0  # LightGBM reads smaller ones as zero
            extra.append(row)
    return np.vstack([rows.astype(values.dtype), *extra])


def features(rng: np.random.Generator, rows: int = 500) -> NDArray[np.float64]:
    """Return six columns: normal with NaN, small whole numbers with zeros, mostly zero, large, tenths, constant."""
    normal = rng.normal(size=rows)
    normal[rng.random(rows) < 0.1] = np.nan
    whole = rng.integers(-3, 4, rows).astype(float)
    whole[rng.random(rows) < 0.05] = np.nan
    sparse = np.where(rng.random(rows) < 0.6, 0.0, rng.normal(size=rows))
    large = 1.7e9 + rng.integers(0, 100_000, rows) / 7
    tenths = rng.integers(-20, 20, rows) / 10
    return np.column_stack([normal, whole, sparse, large, tenths, np.ones(rows)])


def labels(rng: np.random.Generator, rows: NDArray[np.float64], classes: int) -> NDArray[np.int64]:
    score = (
        np.nan_to_num(rows[:, 0]) + (rows[:, 1] > 0) + (rows[:, 2] == 0) + rows[:, 4] + rng.normal(size=len(rows)) / 2
    )
    return np.searchsorted(np.quantile(score, np.arange(1, classes) / classes), score)
