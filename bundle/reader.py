"""Verifying a bundle: every file is read once, and its digest is taken over the same bytes that are returned."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path, PurePosixPath
from typing import Any

from bundle import external_data, functions
from bundle.contents import Bundle
from bundle.errors import BundleDamagedError, BundleFormatError
from bundle.golden import Golden
from bundle.inputs import InputSpec
from bundle.manifest import (
    CALIBRATOR_FILE,
    COLUMNS_FILE,
    GOLDEN_FILE,
    MANIFEST_FILE,
    MODEL_FILE,
    PROFILE_FILE,
    REFERENCE_FILE,
    REPORT_FILE,
    SCORES_FILE,
    SIGNATURES_FILE,
    SIGSTORE_FILE,
    TOKENIZER_FILE,
    TREES_FILE,
    UPSTREAM_FILE,
    VOCABULARY_FILE,
    Manifest,
    load,
)
from bundle.profile import Profile
from bundle.reference import Reference
from bundle.scores import Scores
from bundle.table import Columns
from bundle.text import Vocabulary
from bundle.tokenizer import MAX_BYTES, Tokenizer
from bundle.trees import Trees
from bundle.upstream import Upstream
from calibrators import CalibrationError, Calibrator, from_dict

_MAX_DOCUMENT = 2**24
_MAX_BINARY = 2**31
_MAX_BYTES = {TOKENIZER_FILE: MAX_BYTES}
MAX_FILES = 256


def verify(path: Path) -> Bundle:
    """Read a bundle and check all of it.

    The checks, in this order: the manifest's own checksum and schema; the folder contains exactly the files in the
    manifest, and at most signatures beside them (see `bundle.signatures`), all of them regular; each file's sha256;
    then the content: the model is self-contained, the calibrator is a known method, and reference rows, golden rows,
    vocabulary or tokenizer (which must give the golden tokens for the golden texts), columns and their profile, and
    trees fit the labels and the input. Nothing is unpickled and no link is followed.
    Running the model on the golden inputs requires a runtime and is left to the caller.

    Args:
        path: The bundle's folder.

    Returns:
        The bundle, from the bytes that were hashed.

    Raises:
        BundleDamagedError: A file is missing, unexpected, unreadable or altered; `file` names it.
        BundleFormatError: The files are as written, but not a valid bundle of this schema.
    """
    listing = _listing(path)
    if MANIFEST_FILE not in listing:
        raise BundleDamagedError(f"{path} does not contain a bundle", file=MANIFEST_FILE, found="no such file")
    manifest_bytes = read_file(path, MANIFEST_FILE)
    manifest = load(manifest_bytes)
    files = _files(path, manifest, listing - {MANIFEST_FILE, SIGNATURES_FILE, SIGSTORE_FILE})
    reference, golden = Reference.load(files[REFERENCE_FILE]), Golden.load(files[GOLDEN_FILE], manifest.input)
    reference.check(len(manifest.labels))
    golden.check(manifest.input, len(manifest.labels))
    model_file = manifest.model_file
    if model_file == MODEL_FILE:
        external_data.refuse(files[MODEL_FILE], file=MODEL_FILE)
        functions.refuse(files[MODEL_FILE], file=MODEL_FILE)
    vocabulary = Vocabulary.load(files[VOCABULARY_FILE]) if VOCABULARY_FILE in files else None
    columns = Columns.load(files[COLUMNS_FILE]) if COLUMNS_FILE in files else None
    tokenizer = Tokenizer(files[TOKENIZER_FILE], manifest.input) if TOKENIZER_FILE in files else None
    check_encoders(vocabulary, columns, tokenizer, golden, manifest.input)
    profile = Profile.load(files[PROFILE_FILE]) if PROFILE_FILE in files else None
    if profile is not None:
        profile.check(columns)
    trees = Trees.load(files[TREES_FILE]) if TREES_FILE in files else None
    if trees is not None:
        trees.check(manifest.graph, golden, len(manifest.labels))
    return Bundle(
        id=hashlib.sha256(manifest_bytes).hexdigest(),
        path=path,
        manifest=manifest,
        model_bytes=files[model_file],
        model_digest=manifest.files[model_file],
        calibrator=_calibrator(files[CALIBRATOR_FILE]),
        reference=reference,
        golden=golden,
        report=_document(files[REPORT_FILE], REPORT_FILE),
        diagrams={PurePosixPath(name).stem: data for name, data in files.items() if name.endswith(".svg")},
        vocabulary=vocabulary,
        columns=columns,
        profile=profile,
        tokenizer=tokenizer,
        trees=trees,
        scores=Scores.load(files[SCORES_FILE]) if model_file == SCORES_FILE else None,
        upstream=Upstream.load(files[UPSTREAM_FILE]) if model_file == UPSTREAM_FILE else None,
    )


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in a bundle's folder; the other files are not verified.

    Raises:
        BundleDamagedError: It is missing, unreadable or altered.
        BundleFormatError: It has another schema.
    """
    return load(read_file(path, MANIFEST_FILE))


def check_encoders(
    vocabulary: Vocabulary | None,
    columns: Columns | None,
    tokenizer: Tokenizer | None,
    golden: Golden,
    spec: InputSpec,
) -> None:
    """Raise BundleFormatError unless vocabulary, columns and tokenizer fit the input and the golden examples."""
    texts = vocabulary or tokenizer
    if texts is not None:
        texts.check(spec)
        texts.check_golden(golden)
    elif golden.texts:
        expected = f"{VOCABULARY_FILE} or {TOKENIZER_FILE}"
        raise BundleFormatError("a golden text requires a vocabulary", file=GOLDEN_FILE, expected=expected)
    if columns is not None:
        columns.check(spec)
        if tokenizer is not None:
            raise BundleFormatError(
                "the tensors have two sources", found=f"{COLUMNS_FILE} and {TOKENIZER_FILE}", expected="one of them"
            )


def _files(path: Path, manifest: Manifest, present: set[str]) -> dict[str, bytes]:
    for name in sorted(manifest.files.keys() - present):
        raise BundleDamagedError("the file is missing", file=name, found="no such file", expected="a file")
    for name in sorted(present - manifest.files.keys()):
        raise BundleDamagedError("the file does not belong to the bundle", file=name, found="a file", expected="none")
    files = {}
    for name, expected in manifest.files.items():
        data = read_file(path, name)
        found = hashlib.sha256(data).hexdigest()
        if found != expected:
            raise BundleDamagedError(
                "differs from what was written", file=name, found=f"sha256 {found}", expected=f"sha256 {expected}"
            )
        files[name] = data
    return files


def _listing(path: Path) -> set[str]:
    """Return the paths of all files below `path`; raises BundleDamagedError for anything but files and folders."""
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
                            "not a regular file", file=name, found="a link or device", expected="a file"
                        )
                    if len(found) + len(folders) > MAX_FILES:
                        raise BundleDamagedError(
                            f"{path} contains too many files", found=f"over {MAX_FILES}", expected="a bundle's files"
                        )
        except OSError as error:
            raise BundleDamagedError(
                f"{path / prefix} cannot be read: {error.strerror}", file=prefix or None
            ) from error
    return found


def limit_of(name: str) -> int:
    """Return the maximum size in bytes of a bundle's file."""
    return _MAX_DOCUMENT if name.endswith((".json", ".svg")) else _MAX_BINARY


def read_file(path: Path, name: str) -> bytes:
    """Return one file in a bundle's folder, unverified; raises BundleDamagedError."""
    limit = _MAX_BYTES.get(name) or (_MAX_DOCUMENT if name.endswith((".json", ".svg")) else _MAX_BINARY)
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
        raise BundleFormatError(f"not valid JSON: {error}", file=name) from error
    if not isinstance(document, dict):
        raise BundleFormatError("not a JSON object", file=name, found=type(document).__name__, expected="object")
    return document


def _calibrator(data: bytes) -> Calibrator:
    try:
        return from_dict(_document(data, CALIBRATOR_FILE))
    except CalibrationError as error:
        raise BundleFormatError(f"the calibrator cannot be restored: {error}", file=CALIBRATOR_FILE) from error
