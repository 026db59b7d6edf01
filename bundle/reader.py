"""Verifying a bundle: every file read once, every digest taken over the very bytes that are handed on."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path, PurePosixPath
from typing import Any

from bundle import external_data
from bundle.contents import Bundle
from bundle.errors import BundleDamagedError, BundleFormatError
from bundle.golden import Golden
from bundle.manifest import (
    CALIBRATOR_FILE,
    COLUMNS_FILE,
    GOLDEN_FILE,
    MANIFEST_FILE,
    MODEL_FILE,
    REFERENCE_FILE,
    REPORT_FILE,
    VOCABULARY_FILE,
    InputSpec,
    Manifest,
    load,
)
from bundle.reference import Reference
from bundle.table import Columns
from bundle.text import Vocabulary
from calibrators import CalibrationError, Calibrator, from_dict

_MAX_DOCUMENT = 2**24
_MAX_BINARY = 2**31
_MAX_FILES = 256


def verify(path: Path) -> Bundle:
    """Read a bundle and check all of it.

    The checks, in this order: the manifest's own checksum and schema; the folder holds exactly the files that the
    manifest names, all of them regular; each file's sha256; then the content: the model keeps all its values inside,
    the calibrator is one of ours, reference and golden rows fit the labels and the input, and so do a vocabulary, which
    must give the golden tokens for the golden texts, and a table's columns. Nothing is unpickled and no
    link is followed. What is not checked here is that the model *runs* and gives the golden logits: that takes a
    runtime, and is for whoever has one.

    Args:
        path: The bundle's folder.

    Returns:
        The bundle, made of the bytes that were hashed.

    Raises:
        BundleDamagedError: A file is missing, extra, unreadable, or not what was written; `file` names it.
        BundleFormatError: The files are what was written, but do not make a bundle of this schema.
    """
    listing = _listing(path)
    if MANIFEST_FILE not in listing:
        raise BundleDamagedError(f"{path} holds no bundle", file=MANIFEST_FILE, found="no such file")
    manifest_bytes = _read(path, MANIFEST_FILE)
    manifest = load(manifest_bytes)
    files = _files(path, manifest, listing - {MANIFEST_FILE})
    reference, golden = Reference.load(files[REFERENCE_FILE]), Golden.load(files[GOLDEN_FILE])
    reference.check(len(manifest.labels))
    golden.check(manifest.input, len(manifest.labels))
    external_data.refuse(files[MODEL_FILE], file=MODEL_FILE)
    vocabulary = Vocabulary.load(files[VOCABULARY_FILE]) if VOCABULARY_FILE in files else None
    columns = Columns.load(files[COLUMNS_FILE]) if COLUMNS_FILE in files else None
    check_encoders(vocabulary, columns, golden, manifest.input)
    return Bundle(
        id=hashlib.sha256(manifest_bytes).hexdigest(),
        path=path,
        manifest=manifest,
        model_bytes=files[MODEL_FILE],
        model_digest=manifest.files[MODEL_FILE],
        calibrator=_calibrator(files[CALIBRATOR_FILE]),
        reference=reference,
        golden=golden,
        report=_document(files[REPORT_FILE], REPORT_FILE),
        diagrams={PurePosixPath(name).stem: data for name, data in files.items() if name.endswith(".svg")},
        vocabulary=vocabulary,
        columns=columns,
    )


def check_encoders(vocabulary: Vocabulary | None, columns: Columns | None, golden: Golden, spec: InputSpec) -> None:
    """Raise BundleFormatError unless what encodes texts and rows fits the input and the golden examples."""
    if vocabulary is not None:
        vocabulary.check(spec)
        vocabulary.check_golden(golden)
    elif golden.texts:
        raise BundleFormatError("a golden text needs a vocabulary", file=GOLDEN_FILE, expected=VOCABULARY_FILE)
    if columns is not None:
        columns.check(spec)


def _files(path: Path, manifest: Manifest, present: set[str]) -> dict[str, bytes]:
    for name in sorted(manifest.files.keys() - present):
        raise BundleDamagedError("the file is missing", file=name, found="no such file", expected="a file")
    for name in sorted(present - manifest.files.keys()):
        raise BundleDamagedError("the file does not belong to the bundle", file=name, found="a file", expected="none")
    files = {}
    for name, expected in manifest.files.items():
        data = _read(path, name)
        found = hashlib.sha256(data).hexdigest()
        if found != expected:
            raise BundleDamagedError(
                "differs from what was written",
                file=name,
                found=f"sha256 {found}",
                expected=f"sha256 {expected}",
            )
        files[name] = data
    return files


def _listing(path: Path) -> set[str]:
    """Paths of all files below `path`; anything that is neither a file nor a folder is damage."""
    found: set[str] = set()
    folders = [""]
    while folders:
        prefix = folders.pop()
        try:
            with os.scandir(path / prefix) as entries:
                for entry in entries:
                    name = f"{prefix}{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(f"{name}/")
                    elif entry.is_file(follow_symlinks=False):
                        found.add(name)
                    else:
                        raise BundleDamagedError(
                            "no regular file", file=name, found="a link or device", expected="a file"
                        )
                    if len(found) + len(folders) > _MAX_FILES:
                        raise BundleDamagedError(
                            f"{path} holds too many files", found=f"over {_MAX_FILES}", expected="a bundle's files"
                        )
        except OSError as error:
            raise BundleDamagedError(
                f"{path / prefix} cannot be read: {error.strerror}", file=prefix or None
            ) from error
    return found


def _read(path: Path, name: str) -> bytes:
    limit = _MAX_DOCUMENT if name.endswith((".json", ".svg")) else _MAX_BINARY
    try:
        descriptor = os.open(path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            size = os.fstat(descriptor).st_size
            data = stream.read(limit + 1) if size <= limit else b""
    except OSError as error:
        raise BundleDamagedError(f"cannot be read: {error.strerror}", file=name) from error
    if size > limit or len(data) > limit:
        raise BundleDamagedError("too large", file=name, found=f"{size} bytes", expected=f"at most {limit}")
    return data


def _document(data: bytes, name: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BundleFormatError(f"no JSON: {error}", file=name) from error
    if not isinstance(document, dict):
        raise BundleFormatError("no JSON object", file=name, found=type(document).__name__, expected="object")
    return document


def _calibrator(data: bytes) -> Calibrator:
    try:
        return from_dict(_document(data, CALIBRATOR_FILE))
    except CalibrationError as error:
        raise BundleFormatError(f"the calibrator cannot be restored: {error}", file=CALIBRATOR_FILE) from error
