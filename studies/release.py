"""One file with the raw outputs of a study's networks, from which others compute its figures anew."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from bundle.whole_file import whole_file
from studies.cell import Cell, differences
from studies.grid import Grid
from studies.raw import measured_of
from studies.results import SCHEMA, read_result
from studies.run_cell import LOGITS
from training.documents import without_nan
from training.errors import ConfigurationError

DOCUMENT = "document"
_RECORDED = ("cell", "rows", "parameters", "epochs", "machine", "versions", "seconds", "people")
"""Parts of a result that do not follow from raw outputs: facts of the training, and the comparison with people, whose
labels have a licence of their own."""


def write_release(grid: Grid, path: Path) -> tuple[int, int]:
    """Write the raw outputs of all finished cells to one `.npz` file, whole or not at all.

    The file has `CELL/ARRAY` for each array of `studies.raw.raw_of`, and `CELL/document`, JSON in UTF-8.

    Returns:
        Number of cells written, and of finished cells whose raw outputs are not there.
    """
    written = missing = 0
    with whole_file(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for cell in grid.cells:
            result, logits = read_result(cell, grid.out), cell.folder(grid.out) / LOGITS
            if result is None or not logits.exists():
                missing += result is not None
                continue
            recorded = {name: result[name] for name in _RECORDED if name in result}
            document = np.frombuffer(json.dumps(recorded).encode(), np.uint8)
            with np.load(logits, allow_pickle=False) as arrays:
                for name, array in {**arrays, DOCUMENT: document}.items():
                    with archive.open(f"{cell.key}/{name}.npy", "w", force_zip64=True) as entry:
                        np.lib.format.write_array(entry, array, allow_pickle=False)
            written += 1
    return written, missing


def read_release(path: Path, cells: list[Cell]) -> dict[str, dict[str, Any]]:
    """Compute the results of cells anew, from the raw outputs in a file of `write_release`.

    Args:
        path: The file.
        cells: Cells of the study; others in the file are left out.

    Raises:
        ConfigurationError: The file is damaged, or a cell in it has another configuration.
    """
    found = {}
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            for cell in (cell for cell in cells if f"{cell.key}/{DOCUMENT}" in archive.files):
                prefix = f"{cell.key}/"
                raw = {name.removeprefix(prefix): archive[name] for name in archive.files if name.startswith(prefix)}
                recorded = json.loads(raw.pop(DOCUMENT).tobytes())
                if told := differences(recorded["cell"], cell.document()):
                    raise ConfigurationError(f"{path}: {cell.key} belongs to another configuration: {told}")
                found[cell.key] = {"schema": SCHEMA, **recorded, **without_nan(measured_of(cell, raw))}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}; expected a study's raw outputs") from error
    return found
