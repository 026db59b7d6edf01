"""The inputs that fuzzing found worth keeping: one archive for each target, in the repository.

python -m tests.hardening.fuzz.corpus image /tmp/fuzz/image     # keeps what of a folder reaches other lines

Of what was there before and what is new, the smallest inputs stay that reach a line of code from a line from which no
smaller one does.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import warnings
import zipfile
from collections.abc import Hashable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.hardening.fuzz.targets import TARGETS

CORPUS: Final = Path(__file__).parents[1] / "corpus"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_TRACED: Final = ("/service/", "/bundle/", "/PIL/", "/zipfile", "/numpy/lib/", "/email/", "/csv", "/json/")


def read_corpus(target: str) -> list[bytes]:
    """Return the inputs that are kept of a target; none where there is no archive."""
    path = CORPUS / f"{target}.zip"
    if not path.is_file():
        return []
    with zipfile.ZipFile(path) as archive:
        return [archive.read(info) for info in archive.infolist()]


def reduced(target: str, inputs: Iterable[bytes]) -> list[bytes]:
    """Return the smallest inputs of a target that go, together, every way that one of them goes."""
    kept: list[bytes] = []
    gone: set[Hashable] = set()
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        ways = _ways(target, data)
        if not ways <= gone:
            gone |= ways
            kept.append(data)
    return kept


def _ways(target: str, data: bytes) -> set[Hashable]:
    """Return which line follows on which, in our code and in the parsers that it calls."""
    ways: set[Hashable] = set()

    def trace(frame: FrameType, _: str, __: Any) -> Any:
        name = frame.f_code.co_filename
        if not any(part in name for part in _TRACED):
            return None
        last = frame.f_lineno

        def line(frame: FrameType, _: str, __: Any) -> Any:
            nonlocal last
            ways.add((name, last, frame.f_lineno))
            last = frame.f_lineno
            return line

        return line

    sys.settrace(trace)
    try:
        TARGETS[target](data)
    finally:
        sys.settrace(None)
    return ways


def write_corpus(target: str, inputs: Iterable[bytes]) -> Path:
    """Keep inputs of a target, each once and by its digest; equal inputs give equal bytes."""
    CORPUS.mkdir(exist_ok=True)
    named = {hashlib.sha256(data).hexdigest()[:16]: data for data in inputs}
    path = CORPUS / f"{target}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(named):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, named[name])
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    found = [file.read_bytes() for file in sorted(arguments.folder.iterdir())]
    path = write_corpus(arguments.target, reduced(arguments.target, [*found, *read_corpus(arguments.target)]))
    print(f"{path}: {len(read_corpus(arguments.target))} inputs, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
