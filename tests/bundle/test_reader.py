"""Damage is found, and the file it is in is named."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bundle
from bundle import manifest as manifest_module
from bundle import reader
from tests.array_files import npz


def every_file(path: Path) -> list[str]:
    return sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())


def rewrite(path: Path, name: str, data: bytes) -> None:
    """Put other bytes in a file and sign them, as a writer with a fault would."""
    (path / name).write_bytes(data)
    manifest = manifest_module.load((path / "manifest.json").read_bytes())
    files = manifest.files | {name: hashlib.sha256(data).hexdigest()}
    (path / "manifest.json").write_bytes(manifest_module.dump(manifest.model_copy(update={"files": files})))


def test_identity_digests_and_reprs(written: Path) -> None:
    read = bundle.verify(written)
    assert read.id == hashlib.sha256((written / "manifest.json").read_bytes()).hexdigest()
    assert read.model_digest == hashlib.sha256(read.model_bytes).hexdigest()
    assert len(repr(read)) < 4000


def test_one_flipped_byte_anywhere_names_its_file(written: Path) -> None:
    rng = np.random.default_rng(0)
    for name in every_file(written):
        file = written / name
        whole = file.read_bytes()
        places = range(len(whole)) if name == "manifest.json" else rng.integers(0, len(whole), 8)
        for place in places:
            damaged = bytearray(whole)
            damaged[place] ^= 1 << int(rng.integers(8))
            file.write_bytes(damaged)
            with pytest.raises(bundle.BundleDamagedError) as caught:
                bundle.verify(written)
            assert caught.value.file == name
            assert name in str(caught.value)
        file.write_bytes(whole)
    bundle.verify(written)


def test_truncated_and_missing_and_extra_files_are_named(written: Path) -> None:
    for name in every_file(written):
        file = written / name
        whole = file.read_bytes()
        file.write_bytes(whole[:-1])
        with pytest.raises(bundle.BundleDamagedError) as caught:
            bundle.verify(written)
        assert caught.value.file == name
        file.unlink()
        with pytest.raises(bundle.BundleDamagedError) as caught:
            bundle.verify(written)
        assert caught.value.file == name
        file.write_bytes(whole)
    (written / "report" / "extra.svg").write_bytes(b"<svg/>")
    with pytest.raises(bundle.BundleDamagedError) as caught:
        bundle.verify(written)
    assert caught.value.file == "report/extra.svg"


def test_links_and_pipes_are_not_followed(written: Path, tmp_path: Path) -> None:
    model = written / "model.onnx"
    outside = tmp_path / "model.onnx"
    outside.write_bytes(model.read_bytes())
    model.unlink()
    model.symlink_to(outside)
    with pytest.raises(bundle.BundleDamagedError) as caught:
        bundle.verify(written)
    assert caught.value.file == "model.onnx"
    model.unlink()
    os.mkfifo(model)
    with pytest.raises(bundle.BundleDamagedError) as caught:
        bundle.verify(written)
    assert caught.value.file == "model.onnx"


def test_each_file_is_read_once(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real: Callable[[Path, str], bytes] = reader.read_file

    def counting(path: Path, name: str) -> bytes:
        read.append(name)
        return real(path, name)

    monkeypatch.setattr(reader, "read_file", counting)
    bundle.verify(written)
    assert sorted(read) == every_file(written)


def test_a_folder_that_is_no_bundle(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(bundle.BundleDamagedError):
            bundle.verify(path)


def test_a_folder_of_very_many_files_is_given_up(written: Path) -> None:
    for number in range(300):
        (written / "report" / f"{number}.txt").touch()
    with pytest.raises(bundle.BundleDamagedError, match="too many files"):
        bundle.verify(written)


def test_an_oversized_document_is_not_read(written: Path) -> None:
    with (written / "manifest.json").open("ab") as stream:
        stream.truncate(2**24 + 1)
    with pytest.raises(bundle.BundleDamagedError, match="too large"):
        bundle.verify(written)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("calibrator.json", b"{"),
        ("calibrator.json", b"[]"),
        ("calibrator.json", b'{"method": "magic", "version": 1}'),
        ("calibrator.json", b"[" * 100_000),
        ("report/report.json", b"null"),
        ("report/report.json", b"\xff"),
        ("model.onnx", b""),
        ("model.onnx", b"\x3a\xff"),
        ("reference.npz", b"PK"),
        ("golden.npz", b""),
    ],
)
def test_signed_nonsense_is_refused_by_its_name(written: Path, name: str, data: bytes) -> None:
    rewrite(written, name, data)
    with pytest.raises(bundle.BundleFormatError) as caught:
        bundle.verify(written)
    assert caught.value.file == name


def reference_arrays() -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for part in ("fit", "certify", "gate"):
        arrays[f"{part}_logits"] = np.zeros((5, 3), np.float32)
        arrays[f"{part}_labels"] = np.arange(5) % 3
    return arrays


@pytest.mark.parametrize(
    "change",
    [
        {"fit_labels": np.full(5, 3)},
        {"fit_labels": np.full(5, -1)},
        {"fit_labels": np.zeros(4, np.int64)},
        {"fit_labels": np.zeros(5, np.int32)},
        {"certify_logits": np.zeros((5, 2), np.float32)},
        {"certify_logits": np.zeros((5, 3), np.float64)},
        {"gate_logits": np.full((5, 3), np.nan, np.float32)},
        {"gate_logits": np.full((5, 3), np.inf, np.float32)},
        {"extra": np.zeros(1)},
        {"gate_logits": np.array([[{}]], object)},
    ],
)
def test_reference_rows_that_do_not_fit_the_model(written: Path, change: dict[str, np.ndarray]) -> None:
    rewrite(written, "reference.npz", npz(**reference_arrays()))
    bundle.verify(written)
    rewrite(written, "reference.npz", npz(**(reference_arrays() | change)))
    with pytest.raises(bundle.BundleFormatError) as caught:
        bundle.verify(written)
    assert caught.value.file == "reference.npz"


def test_a_manifest_of_another_schema_is_refused_as_such(written: Path) -> None:
    file = written / "manifest.json"
    document = json.loads(file.read_bytes())
    document |= {"schema_version": 3, "checksum": "0" * 64}
    unsigned = json.dumps(document, indent=2).encode() + b"\n"
    digest = hashlib.sha256(unsigned).hexdigest().encode()
    file.write_bytes(unsigned.replace(b'"checksum": "' + b"0" * 64, b'"checksum": "' + digest))
    with pytest.raises(bundle.BundleFormatError, match="schema"):
        bundle.verify(written)


@pytest.mark.parametrize(
    "name", ["../escape", "/etc/passwd", "report/../../x.svg", "report/a/b.svg", "model.onnx.data"]
)
def test_a_manifest_that_names_other_paths_is_refused(written: Path, name: str) -> None:
    file = written / "manifest.json"
    manifest = manifest_module.load(file.read_bytes())
    file.write_bytes(manifest_module.dump(manifest.model_copy(update={"files": manifest.files | {name: "0" * 64}})))
    with pytest.raises(bundle.BundleFormatError, match="does not belong to a bundle"):
        bundle.verify(written)


def test_nothing_imports_a_framework(written: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys, pathlib, bundle, bundle.images\n"
        f"bundle.verify(pathlib.Path({str(written)!r}))\n"
        "print([name for name in ('torch', 'onnx', 'onnxruntime', 'fastapi', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
