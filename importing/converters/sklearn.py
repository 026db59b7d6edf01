"""scikit-learn's classifiers and pipelines, from a `.skops` file or as objects, to ONNX.

skl2onnx converts the steps. Trees, wherever they come last, are converted here: skl2onnx compares float32 where the
library compares float64, and is wrong by whole leaves after a scaler.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle import Graph, GraphInput, GraphOutput, Trees
from importing.converted import Converted, Feeds
from importing.converters import catboost, lightgbm, xgboost
from importing.converters.files import readable
from importing.converters.forest import INPUT, assemble
from importing.converters.sklearn_graph import Precision, steps, versioned
from importing.converters.sklearn_inputs import Inputs, inputs
from importing.converters.sklearn_trees import check, forest
from importing.errors import UnsafeFileError, UnsupportedModelError
from importing.libraries import library

TRUSTED = (
    "collections.OrderedDict",
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMClassifier",
    "numpy.dtype",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
    "xgboost.core.Booster",
    "xgboost.sklearn.XGBClassifier",
)
"""Types that a `.skops` file may have beside those that skops trusts. Trees are checked before they are walked."""

_CAST = "steps/cast"
_OF_DICTS = ("DictVectorizer", "FeatureHasher")
_BOOSTERS = {
    "catboost.core.CatBoostClassifier": catboost.convert,
    "lightgbm.sklearn.LGBMClassifier": lightgbm.convert,
    "xgboost.sklearn.XGBClassifier": xgboost.convert,
}


def convert(source: Path | Any) -> Converted:
    """Convert a classifier.

    Args:
        source: Path of a `.skops` file, or a fitted classifier or Pipeline whose last step is one.

    Raises:
        UnsupportedModelError: The file is not one of skops, the model does not classify, or a step cannot become ONNX.
        UnsafeFileError: The file has types that skops and Candor do not trust, or a damaged tree.
    """
    sklearn = library("sklearn")
    estimator = _read(source) if isinstance(source, Path) else source
    _classifies(estimator)
    given = inputs(estimator)
    model, graph, trees = _graph(estimator, given)

    def native(feeds: Feeds) -> NDArray[np.float64]:
        return np.asarray(estimator.predict_proba(given.rows(feeds)), np.float64)

    labels = tuple(map(str, estimator.classes_))
    return Converted(
        model=model,
        graph=graph,
        classes=len(labels),
        columns=given.columns,
        labels=labels,
        library=f"scikit-learn {sklearn.__version__}",
        native=native,
        trees=trees,
    )


def _read(path: Path) -> Any:
    readable(path, "skops")
    skops = library("skops.io")
    if not zipfile.is_zipfile(path):
        raise UnsupportedModelError(
            "not a skops file",
            where=str(path),
            expected="what skops.io.dump writes",
            remedy="Write it with skops.io.dump(model, 'model.skops').",
        )
    try:
        unknown = [name for name in skops.get_untrusted_types(file=path) if name not in TRUSTED]
        estimator = None if unknown else skops.load(path, trusted=list(TRUSTED))
    except Exception as error:  # a file of others: skops raises what its parts raise
        raise UnsupportedModelError("skops cannot read the model", where=str(path), found=str(error)[:300]) from error
    if unknown:
        raise UnsafeFileError(
            "the file has types that Candor does not trust",
            where=str(path),
            found=", ".join(unknown),
            expected="types of scikit-learn, NumPy, SciPy, LightGBM and XGBoost",
            remedy="In the process that has the model, call candor.import_model(model, X, y, name=…, out=…).",
        )
    check(estimator)
    return estimator


def _classifies(estimator: Any) -> None:
    for name, part in estimator.get_params().items():
        if hasattr(part, "build_analyzer"):
            raise UnsupportedModelError(
                "text vectorisers of scikit-learn are not converted",
                where=f"step {name}",
                found=type(part).__name__,
                expected="columns of numbers and categories",
                remedy="Import the model's scores: candor import scores. Or train a transformer, and import it: "
                "candor import huggingface.",
            )
    last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    if not hasattr(last, "classes_"):
        raise UnsupportedModelError(
            "the model is not a fitted classifier", found=type(last).__name__, expected="an estimator with classes_"
        )
    if not hasattr(estimator, "predict_proba"):
        raise UnsupportedModelError(
            "the model gives no probabilities",
            found=type(last).__name__,
            expected="an estimator with predict_proba",
            remedy=f"Wrap {type(last).__name__} in sklearn.calibration.CalibratedClassifierCV, or import its scores: "
            "candor import scores, with what decision_function gives.",
        )
    if not hasattr(estimator, "n_features_in_"):
        first = type(estimator.steps[0][1] if hasattr(estimator, "steps") else estimator).__name__
        if first in _OF_DICTS:
            raise UnsupportedModelError(
                "the model reads dictionaries, not columns",
                found=first,
                expected="a table with the same columns in each row",
                remedy="Train it on pandas.DataFrame(dictionaries), with OneHotEncoder(handle_unknown='ignore') for "
                f"texts in place of {first}. Or import the model's scores: candor import scores.",
            )
        raise UnsupportedModelError(
            "the model does not say how many columns it reads",
            found=first,
            expected="n_features_in_, which steps have that learn from numbers and categories",
            remedy="Replace the step, or import the model's scores: candor import scores.",
        )


def _graph(estimator: Any, given: Inputs) -> tuple[bytes, Graph, Trees | None]:
    before, last = (estimator[:-1], estimator.steps[-1][1]) if hasattr(estimator, "steps") else (None, estimator)
    ending = _trees(last)
    if ending is None:
        graph, name, precision = steps(estimator, given)
        return *_finished(graph, given, precision, GraphOutput(name=name, form="probabilities")), None
    model, fed, trees = ending
    if before is None or not before.steps:
        return model, fed, trees
    onnx = library("onnx")
    features, name, precision = steps(before, given)
    (entry,) = fed.inputs
    merged = onnx.compose.merge_models(
        _cast(onnx, features, name, entry),
        versioned(onnx, onnx.load_from_string(model)),
        io_map=[(_CAST, INPUT)],
    )
    return *_finished(merged, given, precision, fed.output), None  # the trees see other columns


def _trees(last: Any) -> tuple[bytes, Graph, Trees | None] | None:
    """Return the graph and the trees of a last step that is made of trees; None for any other."""
    booster = _BOOSTERS.get(f"{type(last).__module__}.{type(last).__name__}")
    if booster is not None:
        converted = booster(last)
        return converted.model, converted.graph, converted.trees
    found = forest(last)
    if found is None:
        return None
    made, base, form = found
    return assemble(made, last.n_features_in_, base, form=form)


def _cast(onnx: Any, features: Any, name: str, entry: GraphInput) -> Any:
    """Give the features of the steps the type that the trees take."""
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(entry.dtype))
    features.graph.node.append(onnx.helper.make_node("Cast", [name], [_CAST], to=element))
    del features.graph.output[:]
    features.graph.output.append(onnx.helper.make_tensor_value_info(_CAST, element, ["N", *entry.shape]))
    return features


def _finished(graph: Any, given: Inputs, precision: Precision, output: GraphOutput) -> tuple[bytes, Graph]:
    library("onnx").checker.check_model(graph)
    return graph.SerializeToString(), Graph(inputs=given.entries(precision), output=output)
