"""Writing a bundle: whole or absent, whatever happens in between."""

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

from bundle import external_data, locations
from bundle.contents import BundleContents
from bundle.errors import BundleFormatError
from bundle.manifest import (
    CALIBRATOR_FILE,
    COLUMNS_FILE,
    GOLDEN_FILE,
    MANIFEST_FILE,
    MODEL_FILE,
    REFERENCE_FILE,
    REPORT_FILE,
    VOCABULARY_FILE,
    Manifest,
    dump,
)
from bundle.reader import check_encoders

_UNFINISHED = ".unfinished-"


def write(root: Path, contents: BundleContents) -> Path:
    """Write a bundle as the model's next version.

    The files go to a folder with a temporary name, are flushed to the disk, and the folder is renamed into place. A
    writer that dies leaves at most such a folder, which `find` ignores and the next writer of the model removes.

    Args:
        root: Folder of bundles; made if it is not there.
        contents: What to write.

    Returns:
        The bundle's folder, `<root>/<model>/<version>`.

    Raises:
        BundleFormatError: The contents do not make a bundle; nothing was written.
        OSError: The disk refused; nothing was written.
    """
    files = _serialise(contents)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    try:
        manifest = Manifest(
            model=contents.model,
            version=1,
            labels=contents.labels,
            input=contents.input,
            files=digests,
            architecture=contents.architecture,
            training=contents.training,
            versions=contents.versions,
            metrics=contents.metrics,
            created_at=datetime.now(UTC).replace(microsecond=0),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BundleFormatError(f"these contents make no bundle: {first['loc']}: {first['msg']}") from None
    classes = len(contents.labels)
    contents.reference.check(classes)
    contents.golden.check(contents.input, classes)
    external_data.refuse(contents.model_bytes, file=MODEL_FILE)
    check_encoders(contents.vocabulary, contents.columns, contents.golden, contents.input)

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
        raise BundleFormatError(f"calibrator or report is no JSON: {error}") from error
    encoders = {VOCABULARY_FILE: contents.vocabulary, COLUMNS_FILE: contents.columns}
    return {
        MODEL_FILE: contents.model_bytes,
        REFERENCE_FILE: contents.reference.dump(),
        GOLDEN_FILE: contents.golden.dump(),
        **{name: text.encode() + b"\n" for name, text in documents.items()},
        **{name: encoder.dump() for name, encoder in encoders.items() if encoder is not None},
        **{f"report/{name}.svg": data for name, data in contents.diagrams.items()},
    }


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the kernel gives it back even when the process is killed."""
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
