"""Archives of labelled rows that no reader of theirs can read are refused in the service's own words."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from service.errors import MalformedBodyError
from service.rest.uploads.npz_rows import read_npz


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
