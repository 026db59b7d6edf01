"""Writing a bundle: whole or not at all, even if interrupted."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from bundle import external_data, functions, locations
from bundle.contents import BundleContents
from bundle.errors import BundleFormatError
from bundle.manifest import (
    CALIBRATOR_FILE,
    COLUMNS_FILE,
    GOLDEN_FILE,
    MANIFEST_FILE,
    MODEL_FILE,
    MODEL_FILES,
    PROFILE_FILE,
    REFERENCE_FILE,
    REPORT_FILE,
    TOKENIZER_FILE,
    TREES_FILE,
    VOCABULARY_FILE,
    Manifest,
    dump,
)
from bundle.reader import check_encoders

_UNFINISHED = ".unfinished-"


def write(root: Path, contents: BundleContents) -> Path:
    """Write a bundle as the model's next version.

    The files are written to a temporary folder and flushed to the disk; then the folder is renamed. A killed writer
    leaves at most the temporary folder, which `find` ignores and the model's next writer removes.

    Args:
        root: Folder of bundles; created if missing.
        contents: The contents.

    Returns:
        The bundle's folder, `<root>/<model>/<version>`.

    Raises:
        BundleFormatError: The contents are not a valid bundle; nothing was written.
        OSError: Writing failed; nothing was written.
    """
    files = _serialise(contents)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    try:
        manifest = Manifest(
            model=contents.model,
            version=1,
            labels=contents.labels,
            input=contents.input,
            source=contents.source,
            graph=contents.graph,
            files=digests,
            architecture=contents.architecture,
            training=contents.training,
            imported=contents.imported,
            label_of=contents.label_of,
            versions=contents.versions,
            metrics=contents.metrics,
            created_at=datetime.now(UTC).replace(microsecond=0),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BundleFormatError(f"the contents are not a valid bundle: {first['loc']}: {first['msg']}") from None
    classes = len(contents.labels)
    contents.reference.check(classes)
    contents.golden.check(contents.input, classes)
    if manifest.model_file == MODEL_FILE:
        external_data.refuse(contents.model_bytes, file=MODEL_FILE)
        functions.refuse(contents.model_bytes, file=MODEL_FILE)
    check_encoders(contents.vocabulary, contents.columns, contents.tokenizer, contents.golden, contents.input)
    if contents.profile is not None:
        contents.profile.check(contents.columns)
    if contents.trees is not None:
        contents.trees.check(contents.graph, contents.golden, classes)

    folder = root / contents.model
    folder.mkdir(parents=True, exist_ok=True)
    with _only_writer(folder):
        for leftover in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(leftover)
        version = max(locations.versions(folder), default=0) + 1
        files[MANIFEST_FILE] = dump(manifest.model_copy(update={"version": version}))
        unfinished = folder / f"{_UNFINISHED}{version}"
        try:
            unfinished.mkdir()
            for name, data in files.items():
                _write_file(unfinished / name, data)
            for directory in (unfinished / "report", unfinished):
                _sync_directory(directory)
            target = folder / str(version)
            unfinished.rename(target)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        for directory in (folder, root):
            _sync_directory(directory)
    return target


def _serialise(contents: BundleContents) -> dict[str, bytes]:
    try:
        documents = {
            CALIBRATOR_FILE: json.dumps(contents.calibrator.to_dict(), indent=2, allow_nan=False),
            REPORT_FILE: json.dumps(contents.report, indent=2, allow_nan=False, ensure_ascii=False),
        }
    except (TypeError, ValueError) as error:
        raise BundleFormatError(f"calibrator or report cannot be written as JSON: {error}") from error
    documented = {
        VOCABULARY_FILE: contents.vocabulary,
        COLUMNS_FILE: contents.columns,
        PROFILE_FILE: contents.profile,
        TOKENIZER_FILE: contents.tokenizer,
        TREES_FILE: contents.trees,
    }
    return {
        MODEL_FILES[contents.source]: contents.model_bytes,
        REFERENCE_FILE: contents.reference.dump(),
        GOLDEN_FILE: contents.golden.dump(),
        **{name: text.encode() + b"\n" for name, text in documents.items()},
        **{name: part.dump() for name, part in documented.items() if part is not None},
        **{f"report/{name}.svg": data for name, data in contents.diagrams.items()},
    }


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the kernel releases it even if the process is killed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
