"""Archives: exact round trips, and nothing taken on trust."""

from __future__ import annotations

import contextlib
import io
import pickle
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.lib import format as npy

from bundle import BundleFormatError, npz
from tests.memory import most_traced

NAMES = frozenset({"a"})


def refused(data: bytes, **limits: Any) -> str:
    with pytest.raises(BundleFormatError) as caught:
        npz.load(data, NAMES, file="x.npz", **limits)
    assert caught.value.file == "x.npz"
    return str(caught.value)


def zipped(member: bytes, name: str = "a.npy", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr(name, member)
    return buffer.getvalue()


def npy_header(**fields: object) -> bytes:
    stream = io.BytesIO()
    npy.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (1,), **fields})
    return stream.getvalue()


@given(
    npst.arrays(
        st.sampled_from([np.float32, np.float64, np.int64, np.uint8]),
        npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
    )
)
def test_round_trip_is_exact_and_the_bytes_depend_on_the_values_alone(array: np.ndarray) -> None:
    data = npz.dump({"a": array})
    assert data == npz.dump({"a": array.copy(order="F")})
    read = npz.load(data, NAMES, file="x.npz")["a"]
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)
    assert not read.flags.writeable or read.size == 0
    with np.load(io.BytesIO(data), allow_pickle=False) as theirs:
        np.testing.assert_array_equal(theirs["a"], array)


def test_objects_are_never_unpickled() -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (pytest.fail, ("a pickle was loaded",))

    member = npy_header(descr="|O") + pickle.dumps(Bomb())
    assert "npy" in refused(zipped(member)) or "type" in refused(zipped(member))


@pytest.mark.parametrize("shape", [(2**40,), (2**62, 2**62), (-1,)])
def test_a_header_that_claims_the_world_allocates_nothing(shape: tuple[int, ...]) -> None:
    archive = zipped(npy_header(shape=shape) + b"\0" * 4)
    assert most_traced(lambda: refused(archive)) < 2**20


def test_a_zip_bomb_is_refused_by_its_stated_size() -> None:
    bomb = zipped(npy_header(shape=(2**20,)) + bytes(2**22))
    assert len(bomb) < 2**14
    assert "too large" in refused(bomb, max_bytes=2**20)
    assert most_traced(lambda: refused(bomb, max_bytes=2**20)) < 2**20


def test_a_zip_that_lies_about_its_size_is_refused() -> None:
    member = npy_header(shape=(2**18,)) + bytes(2**20)
    data = bytearray(zipped(member))
    size = len(member).to_bytes(4, "little")
    small = (1000).to_bytes(4, "little")
    assert data.count(size) == 2
    refused(bytes(data.replace(size, small)), max_bytes=2**16)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x05\x06" + bytes(18),
        zipped(b"", "../a.npy"),
        zipped(b"", "a.pkl"),
        zipped(b""),
        zipped(b"\x93NUMPY\x02\x00" + bytes(20)),
        zipped(npy_header(fortran_order=True) + bytes(4)),
        zipped(npy_header() + bytes(3)),
        zipped(npy_header() + bytes(5)),
        zipped(npy_header(descr="<M8[s]") + bytes(8)),
        zipped(npy_header(descr=[("x", "<f4")]) + bytes(4)),
        zipped(npy_header(descr="|S0", shape=(0,))),
        zipped(npy_header() + bytes(4), method=zipfile.ZIP_LZMA)[:-30],
        zipped(b"\x93NUMPY\x01\x00\x03\x00({\n"),  # NumPy's parser says so with an error of Python's tokenizer
    ],
)
def test_other_archives_are_refused(data: bytes) -> None:
    refused(data)


def test_two_members_of_one_name_are_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.npy", npy_header() + bytes(4))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.npy", npy_header() + bytes(4))
    refused(buffer.getvalue())


@given(st.data())
def test_any_damage_is_accepted_or_refused(data: st.DataObject) -> None:
    whole = bytearray(npz.dump({"a": np.arange(6, dtype=np.float32)}))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BundleFormatError):
        npz.load(bytes(whole), NAMES, file="x.npz")
