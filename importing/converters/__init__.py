"""From other libraries' own safe files to ONNX, each with the library's own answers beside it.

Every converter takes the path of a file or the object itself, and returns a `Converted`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from importing.converted import Converted
from importing.converters import catboost, lightgbm, sklearn, xgboost

CONVERTERS: dict[str, Callable[[Path | Any], Converted]] = {
    "catboost": catboost.convert,
    "lightgbm": lightgbm.convert,
    "sklearn": sklearn.convert,
    "xgboost": xgboost.convert,
}
"""Function that converts each format."""
