"""A bundle is whole or absent."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bundle
from bundle import writer

HALF_WAY = """
import sys
from pathlib import Path
sys.path[:0] = [{tests!r}]
from conftest import make_contents
from bundle import writer

real = writer._write_file
def slow(path, data):
    real(path, data)
    if path.name == "golden.npz":
        print("half", flush=True)
        sys.stdin.read()
writer._write_file = slow
writer.write(Path({root!r}), make_contents())
"""


def test_versions_count_up_and_content_survives(tmp_path: Path, contents: bundle.BundleContents) -> None:
    paths = [bundle.write(tmp_path, contents) for _ in range(3)]
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == ["shapes/1", "shapes/2", "shapes/3"]
    read = bundle.verify(paths[1])
    assert read.manifest.version == 2
    assert read.manifest.labels == contents.labels
    assert read.model_bytes == contents.model_bytes
    assert read.calibrator.to_dict() == contents.calibrator.to_dict()
    assert read.report == contents.report
    assert read.diagrams == contents.diagrams
    for part in ("fit", "certify", "gate"):
        np.testing.assert_array_equal(getattr(read.reference, part).logits, getattr(contents.reference, part).logits)
        np.testing.assert_array_equal(getattr(read.reference, part).labels, getattr(contents.reference, part).labels)
    np.testing.assert_array_equal(read.golden.inputs, contents.golden.inputs)
    np.testing.assert_array_equal(read.golden.logits, contents.golden.logits)
    assert read.golden.encoded == contents.golden.encoded


def test_a_killed_writer_leaves_nothing_to_find_and_the_next_one_cleans_up(
    tmp_path: Path, contents: bundle.BundleContents
) -> None:
    code = HALF_WAY.format(tests=str(Path(__file__).parent), root=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    with process:
        assert process.stdout.readline() == "half\n"
        assert list((tmp_path / "shapes").iterdir())
        process.send_signal(signal.SIGKILL)
    assert bundle.find(tmp_path) == []
    path = bundle.write(tmp_path, contents)
    assert [entry.name for entry in (tmp_path / "shapes").iterdir()] == ["1"]
    assert bundle.verify(path).manifest.version == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_failing_writer_leaves_nothing(
    tmp_path: Path, contents: bundle.BundleContents, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    real = writer._write_file

    def failing(path: Path, data: bytes) -> None:
        real(path, data)
        if path.name == "golden.npz":
            raise error

    monkeypatch.setattr(writer, "_write_file", failing)
    with pytest.raises(type(error) if isinstance(error, OSError) else KeyboardInterrupt):
        bundle.write(tmp_path, contents)
    assert list((tmp_path / "shapes").iterdir()) == []


def test_writers_at_once_get_versions_of_their_own(tmp_path: Path, contents: bundle.BundleContents) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: bundle.write(tmp_path, contents), range(8)))
    assert sorted(int(path.name) for path in paths) == list(range(1, 9))
    assert all(bundle.verify(path).manifest.version == int(path.name) for path in paths)


def test_contents_that_make_no_bundle_are_refused_before_anything_is_written(
    tmp_path: Path, contents: bundle.BundleContents
) -> None:
    golden = bundle.Golden(contents.golden.inputs, contents.golden.logits * np.float32("nan"))
    bad: list[dict[str, Any]] = [
        {"model": "../escape"},
        {"labels": ("a", "a", "b")},
        {"labels": ("a", "b")},
        {"metrics": {"nll": float("nan")}},
        {"report": {"nll": float("inf")}},
        {"report": {"nll": object()}},
        {"diagrams": {"../../escape": b""}},
        {"input": bundle.InputSpec(kind="image", dtype="uint8", shape=(4, 4, 1))},
        {"golden": golden},
        {"model_bytes": b"no model"},
    ]
    for change in bad:
        with pytest.raises(bundle.BundleFormatError):
            bundle.write(tmp_path / "root", replace(contents, **change))
    assert not (tmp_path / "root").exists()
