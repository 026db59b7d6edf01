"""Results of finished cells: one file each, and one list for the whole study."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bundle.whole_file import whole_file
from studies.cell import Cell, differences
from training.documents import without_nan
from training.errors import ConfigurationError

SCHEMA = 1
CONFIG, RESULT, FAILURE, RESULTS = "config.json", "result.json", "failure.json", "results.jsonl"
_PARTS: dict[str, type] = {"cell": dict, "rows": dict, "epochs": list, "test": dict, "temperature": float}


def write_result(cell: Cell, out: Path, measured: Mapping[str, Any]) -> dict[str, Any]:
    """Write a cell's `result.json`, whole or not at all, and return it.

    Args:
        cell: The cell.
        out: Folder of studies.
        measured: Measurements, plain values.
    """
    document = {"schema": SCHEMA, "cell": cell.document(), **without_nan(measured)}
    write_json(cell.folder(out) / RESULT, document)
    return document


def read_result(cell: Cell, out: Path) -> dict[str, Any] | None:
    """Return a finished cell's result; None if it has not finished.

    Raises:
        ConfigurationError: The file is damaged or belongs to another cell.
    """
    path = cell.folder(out) / RESULT
    if not path.exists():
        return None
    try:
        result = check_result(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ConfigurationError) as error:
        raise ConfigurationError(f"{path} is damaged: {error}; remove it to run the cell again") from error
    check_same(cell, result["cell"], path)
    return result


def check_result(text: str) -> dict[str, Any]:
    """Parse and check one result.

    Raises:
        ConfigurationError: The text is not a result; the message says why.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"not valid JSON ({error})") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise ConfigurationError(f"schema is {found!r}, expected {SCHEMA}")
    for name, kind in _PARTS.items():
        if not isinstance(document.get(name), kind):
            raise ConfigurationError(f"{name!r} is {type(document.get(name)).__name__}, expected {kind.__name__}")
    for method, found in document["test"].items():
        for name in ("accuracy", "nll", "brier", "ece"):
            value = found.get(name) if isinstance(found, dict) else None
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ConfigurationError(f"test.{method}.{name} is {value!r}, expected a number")
    return document


def check_same(cell: Cell, found: Mapping[str, Any], where: Path) -> None:
    """Raise ConfigurationError, with the differences, if a document belongs to another cell."""
    if told := differences(found, cell.document()):
        raise ConfigurationError(
            f"{where} belongs to another configuration: {told}. Name another folder with --out, or delete this one"
        )


def write_results(path: Path, results: Iterable[Mapping[str, Any]]) -> None:
    """Write results as JSON lines, to continue a study on another machine."""
    lines = (json.dumps(result, allow_nan=False, sort_keys=True) for result in results)
    _write(path, "".join(line + "\n" for line in lines))


def read_results(folder: Path) -> dict[str, dict[str, Any]]:
    """Read what `write_results` wrote, by cell key.

    Args:
        folder: Folder of the file, or the file itself.

    Raises:
        ConfigurationError: The file is missing or damaged.
    """
    path = folder / RESULTS if folder.is_dir() else folder
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = content.decode().splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}; expected a study's {RESULTS}") from error
    results = {}
    for number, line in enumerate(lines, start=1):
        try:
            result = check_result(line)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}, line {number} is damaged: {error}") from error
        results[str(result["cell"].get("key"))] = result
    return results


def write_json(path: Path, document: object) -> None:
    """Write JSON, whole or not at all."""
    _write(path, json.dumps(document, allow_nan=False, indent=1) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read an object that `write_json` wrote; raises ConfigurationError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} holds {type(document).__name__}, expected an object")
    return document


def _write(path: Path, text: str) -> None:
    with whole_file(path) as stream:
        stream.write(text.encode())
