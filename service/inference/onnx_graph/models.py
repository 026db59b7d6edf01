"""Whole ONNX models: a calibrator's own, and a classifier with its calibrator behind the logits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto, compose, helper

from bundle import GraphOutput
from bundle.errors import BundleFormatError
from bundle.manifest import MODEL_FILE
from calibrators import Calibrator
from service.inference.onnx_graph.maps import probabilities
from service.inference.onnx_graph.rows import Rows
from service.inference.onnx_graph.scores import add_logits
from service.inference.onnx_graph.values import Nodes, Value, as_type, row_argmax

# The operators are used in the form that they have from this version on.
OPSET = 18
_IR_VERSION = 8
_PREFIX = "calibrator/"
_MODEL_PREFIX = "model/"
_NAMES = {"logits", "probabilities", "confidence", "label"}


def calibrator_model(calibrator: Calibrator, classes: int) -> bytes:
    """The ONNX model of a fitted calibrator: `logits` float32 (N, K) → `probabilities` float32 (N, K).

    It computes in float64 and agrees with `predict_proba` to 1e-6. Bins and steps agree as well for rows that lie on
    their very edges, as the rows of a fit do; with three classes or more, a row whose score is within rounding of an
    edge but not on it may fall on its other side.

    Args:
        calibrator: Fitted.
        classes: K.

    Returns:
        The serialised model, of opset 18.

    Raises:
        CalibrationDataError: Fitted for another number of classes, or no calibrator of this project.
        CalibrationFitError: Not fitted.
    """
    nodes = Nodes(_PREFIX)
    _add_probabilities(nodes, calibrator, classes)
    graph = helper.make_graph(
        nodes.nodes,
        calibrator.name,
        [_tensor("logits", TensorProto.FLOAT, "batch", classes)],
        [_tensor("probabilities", TensorProto.FLOAT, "batch", classes)],
        nodes.constants,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR_VERSION, producer_name="candor"
    )
    return bytes(model.SerializeToString(deterministic=True))


def calibrated_model(
    model: bytes,
    calibrator: Calibrator,
    classes: int,
    *,
    output: GraphOutput | None = None,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """A classifier's ONNX model with a calibrator behind its logits.

    Args:
        model: A model of opset 18 or later.
        calibrator: Fitted.
        classes: K.
        output: Output of an imported model that scores the classes; None for `logits` float32 (N, K).
        metadata: Added to `metadata_props`.

    Returns:
        The serialised model: its inputs and outputs as before, and after them `logits` float32 (N, K) unless it gives
        them, `probabilities` float32 (N, K), as `calibrator_model` gives them, `confidence` float32 (N,) and `label`
        int64 (N,), the number of the predicted class, as `top_label` gives them. Outputs of an imported model that
        have one of these names begin with `model/`.

    Raises:
        BundleFormatError: The model is not a valid ONNX model, has an older opset, lacks the output, or already uses
            names that this function adds.
        CalibrationDataError: The calibrator is fitted for another number of classes, or is not one of this project.
        CalibrationFitError: The calibrator is not fitted.
    """
    fused = _parsed(model)
    nodes = Nodes(_PREFIX)
    if output is None or (output.form, output.name, output.order) == ("logits", "logits", ()):
        own = _check_logits(fused)
    else:
        if _NAMES & {name for node in fused.graph.node for name in node.output}:
            fused = compose.add_prefix(fused, _MODEL_PREFIX, rename_inputs=False)
            output = output.model_copy(update={"name": _MODEL_PREFIX + output.name})
        own = None
        nodes.operator("Cast", add_logits(nodes, fused.graph, output, classes), output="logits", to=TensorProto.FLOAT)
    added = _add_probabilities(nodes, calibrator, classes)
    graph = fused.graph
    scores = nodes.input("logits") if calibrator.top_label_only else added
    label = row_argmax(scores)
    nodes.operator("GatherElements", added, label, output=f"{_PREFIX}confidence", axis=1)
    nodes.operator("Squeeze", nodes.input(f"{_PREFIX}confidence"), np.array([1]), output="confidence")
    nodes.operator("Squeeze", label, np.array([1]), output="label")
    taken = {name for node in graph.node for name in node.output}
    taken |= {one.name for one in (*graph.initializer, *graph.input)}
    clashes = sorted(taken & {name for node in nodes.nodes for name in node.output})
    if clashes:
        raise BundleFormatError(
            "the model has names that its calibrator's graph gives",
            file=MODEL_FILE,
            found=", ".join(clashes[:3]),
            expected="a model without a calibrator",
        )
    batch = "batch" if own is None else own
    graph.node.extend(nodes.nodes)
    graph.initializer.extend(nodes.constants)
    if own is None:
        graph.output.append(_tensor("logits", TensorProto.FLOAT, batch, classes))
    graph.output.append(_tensor("probabilities", TensorProto.FLOAT, batch, classes))
    graph.output.append(_tensor("confidence", TensorProto.FLOAT, batch))
    graph.output.append(_tensor("label", TensorProto.INT64, batch))
    properties = {one.key: one.value for one in fused.metadata_props} | dict(metadata or {})
    helper.set_model_props(fused, properties)
    onnx.checker.check_model(fused, full_check=True)
    return bytes(fused.SerializeToString(deterministic=True))


def _add_probabilities(nodes: Nodes, calibrator: Calibrator, classes: int) -> Value:
    logits = as_type(nodes.input("logits"), np.float64)
    result = probabilities(Rows(logits, classes), calibrator)
    return nodes.operator("Cast", result, output="probabilities", to=TensorProto.FLOAT)


def _tensor(name: str, kind: int, *shape: str | int) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _parsed(model: bytes) -> ModelProto:
    try:
        parsed = onnx.load_from_string(model)
    except Exception as error:  # protobuf's own errors are of many types
        raise BundleFormatError(f"the model is not a valid ONNX protobuf: {error}", file=MODEL_FILE) from error
    opset = max((one.version for one in parsed.opset_import if one.domain in ("", "ai.onnx")), default=0)
    if opset < OPSET:
        raise BundleFormatError(
            "the model's operators are too old to put a calibrator behind it",
            file=MODEL_FILE,
            found=f"opset {opset}",
            expected=f"{OPSET} or later: export it again, or convert it with onnx.version_converter",
        )
    return parsed


def _check_logits(model: ModelProto) -> str:
    """Return the name of the batch axis of the output `logits`."""
    outputs = {one.name: one.type.tensor_type for one in model.graph.output}
    logits = outputs.get("logits")
    if logits is None or logits.elem_type != TensorProto.FLOAT or len(logits.shape.dim) != 2:
        raise BundleFormatError(
            "the model gives no logits",
            file=MODEL_FILE,
            found=", ".join(outputs) or "no output",
            expected="an output `logits`, float32 (N, K)",
        )
    return str(logits.shape.dim[0].dim_param)
