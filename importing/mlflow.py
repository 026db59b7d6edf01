"""A folder that MLflow saved: its file `MLmodel` says which library's file is the model. MLflow is not imported."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from importing.errors import ModelReferenceError, UnsafeFileError, UnsupportedModelError
from importing.libraries import library

MLMODEL_FILE = "MLmodel"
MAX_MLMODEL = 2**20
_DEEPEST = 32
_FLAVOURS = {
    "onnx": "model.onnx",
    "lightgbm": "model.lgb",
    "xgboost": "model.xgb",
    "catboost": "model.cb",
    "sklearn": "model.pkl",
}
"""Name of the model's file by flavour, where `MLmodel` does not say it; the first one present is read."""


def model_of(folder: Path) -> tuple[str, PurePosixPath]:
    """Return the format of a folder's model, and its file below the folder.

    Args:
        folder: A folder with `MLmodel`; the model's file may be absent yet.

    Raises:
        ModelReferenceError: The folder has no `MLmodel` that can be read.
        UnsafeFileError: The model is a pickle.
        UnsupportedModelError: The model has no flavour that an import reads.
    """
    flavours = _flavours(folder / MLMODEL_FILE)
    for flavour, usual in _FLAVOURS.items():
        if flavour in flavours:
            found = flavours[flavour]
            key = "pickled_model" if flavour == "sklearn" else "data"
            data = found.get(key, usual) if isinstance(found, dict) else usual
            path = PurePosixPath(data) if isinstance(data, str) else PurePosixPath("/")
            if not path.name or not (folder / path).resolve().is_relative_to(folder.resolve()):
                raise ModelReferenceError(
                    "the model's file is outside its folder", where=MLMODEL_FILE, found=str(data)[:200]
                )
            if path.suffix == ".skops":  # a scikit-learn model, or a LightGBM or XGBoost classifier
                return "sklearn", path
            if flavour == "sklearn":
                raise UnsafeFileError(
                    "reading a pickle runs the code in it",
                    where=MLMODEL_FILE,
                    found=f"flavour sklearn, {path}",
                    expected="a .skops file, or another flavour",
                    remedy="Save it with serialization_format='skops', or, in the process that has the model, call "
                    "candor.import_model(model, X, y, name=…, out=…).",
                )
            return flavour, path
    raise UnsupportedModelError(
        "the model has no flavour that can be imported",
        where=MLMODEL_FILE,
        found=", ".join(map(str, flavours))[:200],
        expected=f"one of {', '.join(_FLAVOURS)}",
        remedy="Save it to ONNX: mlflow.onnx.log_model.",
    )


def _flavours(path: Path) -> dict[str, Any]:
    yaml = library("yaml")
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_MLMODEL + 1)
        if len(text) > MAX_MLMODEL or not _plain(yaml, text):
            raise ModelReferenceError("too large or too deep, or with anchors: not written by MLflow", where=str(path))
        document = yaml.safe_load(text)
    except OSError as error:
        raise ModelReferenceError("not a folder that MLflow saved", where=str(path), found=str(error)) from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ModelReferenceError("not valid YAML", where=str(path), found=str(error)[:200]) from error
    found = document.get("flavors") if isinstance(document, dict) else None
    if not isinstance(found, dict):
        raise ModelReferenceError("MLmodel names no flavours", where=str(path), expected="flavors:")
    return found


def _plain(yaml: Any, text: bytes) -> bool:
    """Return whether a document is shallow and without anchors, with which a short text is an enormous document."""
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST or isinstance(event, yaml.AliasEvent):
            return False
    return True
