"""Archives of labelled rows that no reader of theirs can read are refused in the service's own words."""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.bulk.inputs import Source
from service.commands.row_files import Parts
from service.errors import (
    BodyTooLargeError,
    CandorError,
    InputShapeError,
    InputTypeError,
    InputValueError,
    MalformedBodyError,
)
from service.row_files.npz_rows import read_npz
from tests.array_files import npy
from tests.memory import most_traced


def zipped(member: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("label.npy", member)
    return stream.getvalue()


def with_header(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


LZMA = bytearray(zipped(with_header(b"{}") + bytes(100), zipfile.ZIP_LZMA))
LZMA[50:70] = bytes(20)


@pytest.mark.parametrize(
    "archive",
    [
        zipped(with_header(b"{'descr': ")),  # NumPy says so with an error of Python's tokenizer
        zipped(with_header(b"{[]: 1}")),
        bytes(LZMA),
    ],
    ids=["a header that breaks off", "a header that is no dict", "a damaged LZMA stream"],
)
def test_damaged_archives(tmp_path: Path, archive: bytes) -> None:
    (tmp_path / "body").write_bytes(archive)
    with pytest.raises(MalformedBodyError, match="archive cannot be read"):
        list(read_npz(tmp_path / "body", limit=1 << 20))


def packed(*members: tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


def claimed(shape: tuple[int, ...], kind: str = "<f8", content: bytes = b"") -> bytes:
    return with_header(repr({"descr": kind, "fortran_order": False, "shape": shape}).encode() + b"\n") + content


LABEL = ("label.npy", npy(["a", "b"]))
X = npy(np.zeros(2))
LYING = packed(("x.npy", npy(np.zeros(100_000))), LABEL).replace((800_128).to_bytes(4, "little"), bytes([144, 0, 0, 0]))
HOSTILE: dict[str, tuple[bytes, type[CandorError]]] = {
    "more bytes than the limit": (packed(("x.npy", npy(np.zeros(200_000))), LABEL), BodyTooLargeError),
    "more bytes than the archive says": (LYING, MalformedBodyError),
    "a header of 8 TB": (packed(("x.npy", claimed((2, 10**12))), LABEL), MalformedBodyError),
    "a negative length": (packed(("x.npy", claimed((-1,))), LABEL), InputShapeError),
    "rows without values": (
        packed(("x.npy", claimed((10**12, 0))), ("label.npy", claimed((10**12, 0)))),
        InputShapeError,
    ),
    "texts without characters": (packed(("x.npy", claimed((10**12,), "|S0"))), InputShapeError),
    "one name twice": (packed(("x.npy", X), ("x.npy", X), LABEL), MalformedBodyError),
    "one name with and without its ending": (packed(("x.npy", X), ("x", X), LABEL), MalformedBodyError),
    "an archive in the archive": (packed(("x.npy", packed(("x.npy", X))), LABEL), MalformedBodyError),
    "objects": (packed(("x.npy", npy(np.array([{}, {}], object))), LABEL), InputTypeError),
    "20,000 arrays": (packed(*((f"x{number}.npy", b"") for number in range(20_000))), MalformedBodyError),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused(tmp_path: Path, name: str) -> None:
    archive, error = HOSTILE[name]
    path = tmp_path / "rows.npz"
    path.write_bytes(archive)
    with pytest.raises(error):
        list(read_npz(path, limit=1 << 20))
    if error is not BodyTooLargeError:  # files on one's own machine have no limit: their rows are streamed
        with pytest.raises(error):
            list(Source(path.name, str(path)).parts(0, 1000))
    with pytest.raises((InputValueError, InputShapeError)):  # `candor policy solve --rows`
        Parts.of_file(path, 0)


def test_a_bomb_is_scored_in_parts_of_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as stream:
        stream.write(claimed((160 << 7, 1 << 10)))
        for _ in range(160):
            stream.write(bytes(1 << 20))
    assert path.stat().st_size < 1 << 19

    def read() -> None:
        parts = Source(path.name, str(path)).parts(0, 1 << 20)
        assert sum(len(columns["x"]) for part in parts for columns in part.content) == 160 << 7

    assert most_traced(read) < 100 << 20


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("shape", [(50,), (50, 3), (50, 3, 4), (0, 3)])
def test_arrays_of_either_order_give_the_same_rows(tmp_path: Path, save: Any, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).normal(size=shape)
    texts = np.array([f"row {row}" for row in range(shape[0])], "U9")
    save(tmp_path / "rows.npz", inputs=np.asfortranarray(values), text=texts)
    batches = list(read_npz(tmp_path / "rows.npz", limit=1 << 20, batch_rows=7))
    found = [np.asarray(batch.columns["inputs"]) for batch in batches]
    np.testing.assert_array_equal(np.concatenate([np.empty((0, *shape[1:])), *found]), values)
    assert [text for batch in batches for text in batch.columns["text"]] == texts.tolist()
