"""The manifest's schema and its checksum."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

import bundle
from bundle import manifest as manifest_module


def test_dump_and_load_are_inverse_and_stable(written: Path) -> None:
    data = (written / "manifest.json").read_bytes()
    manifest = manifest_module.load(data)
    assert manifest_module.dump(manifest) == data
    assert manifest.created_at.utcoffset() is not None


def test_a_manifest_from_before_the_data_were_recorded_still_reads(written: Path) -> None:
    document = json.loads((written / "manifest.json").read_text())
    del document["training"]["data"]
    document["checksum"] = "0" * 64
    unsigned = json.dumps(document, indent=2).encode() + b"\n"
    signed = unsigned.replace(b"0" * 64 + b'"\n}\n', hashlib.sha256(unsigned).hexdigest().encode() + b'"\n}\n')
    assert manifest_module.load(signed).training.data == bundle.DataRecord()


def test_it_is_frozen(written: Path) -> None:
    manifest = manifest_module.load((written / "manifest.json").read_bytes())
    with pytest.raises(ValidationError):
        manifest.version = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "image", "dtype": "float32", "shape": (8, 8, 1)},
        {"kind": "image", "dtype": "uint8", "shape": (8, 8)},
        {"kind": "image", "dtype": "uint8", "shape": (8, 8, 2)},
        {"kind": "image", "dtype": "uint8", "shape": (0, 8, 1)},
        {"kind": "array", "dtype": "float32", "shape": (3, 3)},
        {"kind": "array", "dtype": "float32", "shape": (3,), "resize": True},
        {"kind": "tokens", "dtype": "uint8", "shape": (16,)},
        {"kind": "sound", "dtype": "uint8", "shape": (16,)},
        {"kind": "tokens", "dtype": "int32", "shape": (16,), "extra": 1},
    ],
)
def test_inconsistent_inputs_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        bundle.InputSpec.model_validate(fields)


def test_the_other_kinds_of_input() -> None:
    assert bundle.InputSpec(kind="array", dtype="float32", shape=(30,)).shape == (30,)
    assert bundle.InputSpec(kind="tokens", dtype="int32", shape=(128,)).shape == (128,)


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff" * 10, b'"checksum": "' + b"0" * 64 + b'"\n}\n'])
def test_other_bytes_are_damage(data: bytes) -> None:
    with pytest.raises(bundle.BundleDamagedError) as caught:
        manifest_module.load(data)
    assert caught.value.file == "manifest.json"
