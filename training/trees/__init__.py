"""Boosted trees for tables, by name. Each is a function from rows to a model that `importing.converters` converts.

None of these modules imports its library until it trains.
"""

from __future__ import annotations

from importlib.util import find_spec

from training.trees import catboost, hist_gradient_boosting, lightgbm, xgboost
from training.trees.table import Fit

TREES: dict[str, Fit] = {
    "lightgbm": lightgbm.fit,
    "xgboost": xgboost.fit,
    "catboost": catboost.fit,
    "hist_gradient_boosting": hist_gradient_boosting.fit,
}
"""How each library trains."""

CONVERTER = {"hist_gradient_boosting": "sklearn"}
"""Key of `importing.converters.CONVERTERS`, where it is not the model's own name."""


def default() -> str:
    """Return the default model for tables: LightGBM where it is installed, else scikit-learn's trees."""
    return "lightgbm" if find_spec("lightgbm") is not None else "hist_gradient_boosting"


def advice(name: str) -> str:
    """Return what to install for a better default; empty where it is installed."""
    if name == "lightgbm":
        return ""
    return " LightGBM is not installed: python requirements/install.py import makes it the default."


__all__ = ["CONVERTER", "TREES", "Fit", "advice", "default"]
