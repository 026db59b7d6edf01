"""A pickle is refused by what it holds, whatever its name."""

from __future__ import annotations

import bz2
import gzip
import lzma
import pickle
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import pytest

from importing.converters import CONVERTERS
from importing.errors import UnsafeFileError

OBJECT = {"weights": [1.0, 2.0]}


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps(OBJECT))


def written(function: Callable[[bytes], bytes]) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(function(pickle.dumps(OBJECT)))


WRITERS: dict[str, Callable[[Path], Any]] = {
    "pickle": written(bytes),
    "protocol 2": lambda path: path.write_bytes(pickle.dumps(OBJECT, protocol=2)),
    "joblib": lambda path: joblib.dump(OBJECT, path),
    "joblib-zlib": lambda path: joblib.dump(OBJECT, path, compress=3),
    "zlib": written(zlib.compress),
    "gzip": written(gzip.compress),
    "bz2": written(bz2.compress),
    "xz": written(lzma.compress),
    "zip": zipped,
}


@pytest.mark.parametrize("library", CONVERTERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_pickle_is_refused(tmp_path: Path, library: str, writer: str) -> None:
    WRITERS[writer](tmp_path / "model.json")
    with pytest.raises(UnsafeFileError, match=r"reading a pickle runs the code.*candor\.import_model\("):
        CONVERTERS[library](tmp_path / "model.json")


@pytest.mark.parametrize("name", ["model.pkl", "model.JOBLIB"])
def test_the_oldest_pickles_are_refused_by_their_names(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(OBJECT, protocol=0))
    with pytest.raises(UnsafeFileError, match="a pickle by its name"):
        CONVERTERS["lightgbm"](tmp_path / name)
