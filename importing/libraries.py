"""Libraries that only some imports need."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import Any

from importing.errors import MissingLibraryError

EXTRAS = {
    "catboost": "catboost",
    "lightgbm": "import",
    "onnx": "import",
    "onnxruntime": "cpu",
    "pandas": "import",
    "skl2onnx": "import",
    "skl2onnx.common.data_types": "import",
    "sklearn": "import",
    "sklearn.ensemble": "import",
    "sklearn.impute": "import",
    "sklearn.linear_model": "import",
    "skops.io": "import",
    "threadpoolctl": "import",
    "xgboost": "xgboost",
    "yaml": "serve",
}
"""The extra of Candor that installs a module."""


def library(name: str) -> Any:
    """Import a module of `EXTRAS`.

    Raises:
        MissingLibraryError: It is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingLibraryError(
            f"{name.partition('.')[0]} is not installed",
            found=str(error),
            remedy=f"In a checkout of Candor, run: python requirements/install.py {EXTRAS[name]}",
        ) from error


def named(module: Any) -> str:
    """Return a library's name and version, such as `lightgbm 4.6.0`."""
    found: str | None = getattr(module, "__version__", None)
    return f"{module.__name__} {found or version(module.__name__)}"
