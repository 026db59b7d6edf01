"""scikit-learn's steps as an ONNX graph, by skl2onnx: in float64 where its operators exist, otherwise in float32."""

from __future__ import annotations

import copy
from typing import Any, Literal

import numpy as np

from importing.converters.forest import IR_VERSION, OPSETS
from importing.converters.sklearn_inputs import MATRIX, Inputs
from importing.converters.sklearn_trees import parts
from importing.errors import UnsupportedModelError
from importing.libraries import library

_STEPS = "steps/"

Precision = Literal["float64", "float32"]


def steps(model: Any, inputs: Inputs) -> tuple[Any, str, Precision]:
    """Return the graph of a transformer or a classifier, the name of its output, and the type of its numbers.

    Args:
        model: Fitted; of a classifier the output is its probabilities (N, K), otherwise the features (N, F).
        inputs: Columns that it reads; they are the inputs of the graph.

    Raises:
        UnsupportedModelError: skl2onnx or ONNX Runtime does not know a step.
    """
    _refuse_other_calibrations(model)
    failures = []
    for precision in ("float64", "float32"):
        try:
            graph, output = _convert(model, inputs, precision)
            library("onnxruntime").InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001 — skl2onnx and ONNX Runtime raise every kind; the message is told
            failures.append(f"{precision}: {str(error).strip().splitlines()[0][:200] or type(error).__name__}")
        else:
            return graph, output, precision
    raise UnsupportedModelError(
        "a step cannot become ONNX",
        where=" → ".join(_names(model)),
        found="; ".join(failures),
        expected="steps that skl2onnx converts",
        remedy="Replace the step, or import the model's scores: candor import scores.",
    )


def _refuse_other_calibrations(model: Any) -> None:
    """Refuse what skl2onnx converts to something else."""
    for part in parts(model):
        if type(part).__name__ != "CalibratedClassifierCV":
            continue
        if part.method != "sigmoid":
            isotonic = part.method == "isotonic"
            raise UnsupportedModelError(
                "skl2onnx takes steps where scikit-learn interpolates"
                if isotonic
                else "skl2onnx does not convert this calibration",
                where="CalibratedClassifierCV",
                found=f"method={part.method!r}",
                expected="method='sigmoid'",
                remedy="Or import the model inside it: Candor calibrates it, too, with --calibrator "
                + ("isotonic" if isotonic else "temperature")
                + ".",
            )
        inside = [each.estimator for each in part.calibrated_classifiers_]
        if any(hasattr(each, "steps") and hasattr(each, "decision_function") for each in inside):
            raise UnsupportedModelError(
                "skl2onnx calibrates the probabilities of a pipeline, and scikit-learn its decision values",
                where="CalibratedClassifierCV",
                found=" → ".join(_names(inside[0])),
                expected="a calibrated classifier as the last step of a pipeline",
                remedy="Train make_pipeline(…, CalibratedClassifierCV(classifier)), or import the pipeline without it: "
                "Candor calibrates it.",
            )


def _rewritten(model: Any) -> Any:
    """Return a copy of a model with the same answers, in forms that skl2onnx converts."""
    copied = copy.deepcopy(model)
    for part in parts(copied):
        kind = type(part).__name__
        if kind == "KBinsDiscretizer" and part.encode == "onehot":
            part.encode = "onehot-dense"
        elif kind == "VotingClassifier":
            part.flatten_transform = False  # of `transform`, which nothing calls
            part.weights = None if part.weights is None else np.asarray(part.weights, np.float64)
        elif (
            kind == "LinearDiscriminantAnalysis" and len(getattr(part, "classes_", ())) == 2
        ):  # skl2onnx doubles its log-odds
            part.__class__ = library("sklearn.linear_model").LogisticRegression
            part.solver = "liblinear"
    return copied


def _names(model: Any) -> list[str]:
    return [type(step).__name__ for _, step in model.steps] if hasattr(model, "steps") else [type(model).__name__]


def _convert(model: Any, inputs: Inputs, precision: Precision) -> tuple[Any, str]:
    onnx, skl2onnx, types = library("onnx"), library("skl2onnx"), library("skl2onnx.common.data_types")
    model = _rewritten(model)
    number = types.DoubleTensorType if precision == "float64" else types.FloatTensorType
    kinds = {"number": number, "integer": types.Int64TensorType, "string": types.StringTensorType}
    if inputs.whole:
        entries = [(MATRIX, number([None, inputs.width]))]
    else:
        entries = [(field.name or f"column{field.place}", kinds[field.kind]([None, 1])) for field in inputs.fields]
    imputer = library("sklearn.impute").SimpleImputer
    made = skl2onnx.convert_sklearn(
        model,
        initial_types=entries,
        target_opset=OPSETS,
        options={id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else None,
        custom_shape_calculators={imputer: _imputed_shape},
        custom_conversion_functions={imputer: _impute},
    )
    made = versioned(onnx, made)
    output = made.graph.output[-1].name  # a classifier's first output is the label
    names = [entry.name for entry in made.graph.input]
    made = onnx.utils.Extractor(made).extract_model(names, [output])
    made = versioned(onnx, onnx.compose.add_prefix(made, _STEPS))
    front = _front(onnx, inputs, precision, entries)
    merged = onnx.compose.merge_models(
        front, made, io_map=[(f"to/{place}", f"{_STEPS}{name}") for place, name in enumerate(names)]
    )
    return merged, f"{_STEPS}{output}"


def versioned(onnx: Any, model: Any) -> Any:
    """Give a model the versions of all parts, so that they can be merged. Every part uses these or older operators."""
    del model.opset_import[:]
    model.opset_import.extend([onnx.helper.make_opsetid(domain, version) for domain, version in OPSETS.items()])
    model.ir_version = IR_VERSION
    return model


def _front(onnx: Any, inputs: Inputs, precision: Precision, entries: list[tuple[str, Any]]) -> Any:
    """Return the graph from the model's inputs, under their own names, to those of skl2onnx, which renames them."""
    helper, types = onnx.helper, onnx.TensorProto
    number = types.DOUBLE if precision == "float64" else types.FLOAT
    elements = {"number": number, "integer": types.INT64, "string": types.STRING}
    outputs = [f"to/{place}" for place in range(len(entries))]
    kinds = [elements[field.kind] for field in inputs.fields]
    if inputs.whole:
        nodes = [helper.make_node("Identity", [MATRIX], outputs)]
        given = [helper.make_tensor_value_info(MATRIX, number, ["N", inputs.width])]
        taken = [helper.make_tensor_value_info(outputs[0], number, ["N", inputs.width])]
    elif inputs.matrix:
        parts = [f"part/{place}" for place in range(len(entries))]
        nodes = [helper.make_node("Split", [MATRIX], parts, axis=1, num_outputs=len(parts))]
        nodes += [
            helper.make_node("Cast", [part], [output], to=kind)
            for part, output, kind in zip(parts, outputs, kinds, strict=True)
        ]
        given = [helper.make_tensor_value_info(MATRIX, number, ["N", len(entries)])]
        taken = [
            helper.make_tensor_value_info(output, kind, ["N", 1]) for output, kind in zip(outputs, kinds, strict=True)
        ]
    else:
        nodes, given, taken = [], [], []
        for field, output, kind in zip(inputs.fields, outputs, kinds, strict=True):
            nodes.append(helper.make_node("Identity", [field.name], [output]))
            given.append(helper.make_tensor_value_info(field.name, kind, ["N", 1]))
            taken.append(helper.make_tensor_value_info(output, kind, ["N", 1]))
    return versioned(onnx, helper.make_model(helper.make_graph(nodes, "front", given, taken)))


def _imputed_shape(operator: Any) -> None:
    given = operator.inputs[0].type
    operator.outputs[0].type = type(given)([given.shape[0], len(operator.raw_operator.statistics_)])


def _impute(scope: Any, operator: Any, container: Any) -> None:
    """Write a SimpleImputer of numbers or texts: ONNX Runtime has its operator in float32 only."""
    imputer, types = operator.raw_operator, library("skl2onnx.common.data_types")
    kept = imputer.statistics_
    if imputer.add_indicator or (kept.dtype.kind == "f" and np.isnan(kept).any()):
        raise ValueError("SimpleImputer with add_indicator or a column without values")
    text = isinstance(operator.inputs[0].type, types.StringTensorType)
    missing = imputer.missing_values
    onnx = library("onnx")
    element = onnx.TensorProto.STRING if text else types.guess_proto_type(operator.inputs[0].type)

    def constant(values: Any, shape: list[int]) -> str:
        name = str(scope.get_unique_variable_name("imputed"))
        container.add_initializer(name, element, shape, [str(value).encode() for value in values] if text else values)
        return name

    rows, output = operator.inputs[0].full_name, operator.outputs[0].full_name
    lacking = scope.get_unique_variable_name("lacking")
    if isinstance(missing, float) and np.isnan(missing) and not text:
        container.add_node("IsNaN", [rows], [lacking], op_version=13)
    else:
        told = "" if not isinstance(missing, str) and text else missing
        container.add_node("Equal", [rows, constant([told], [1])], [lacking], op_version=19)
    container.add_node("Where", [lacking, constant(kept.tolist(), [1, len(kept)]), rows], [output], op_version=16)
