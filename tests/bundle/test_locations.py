"""Finding bundles."""

from __future__ import annotations

from pathlib import Path

import pytest

import bundle


def test_sorted_by_model_then_version_and_nothing_else(tmp_path: Path) -> None:
    for name in ("b/1", "a/10", "a/9", "a/.unfinished-11", "a/01", "a/0", "a/x", "A/1", ".hidden/1", "a/12.bak"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "13").touch()
    (tmp_path / "file").touch()
    found = bundle.find(tmp_path)
    assert [(location.model, location.version) for location in found] == [("a", 9), ("a", 10), ("b", 1)]
    assert found[0].path == tmp_path / "a" / "9"


def test_no_root_no_bundles(tmp_path: Path) -> None:
    assert bundle.find(tmp_path / "nowhere") == []


def test_a_root_that_is_a_bundle_is_the_only_one(tmp_path: Path, contents: bundle.BundleContents) -> None:
    single = bundle.write(tmp_path / "written", contents).rename(tmp_path / "models")
    (location,) = bundle.find(single)
    manifest = bundle.verify(single).manifest
    assert (location.model, location.version, location.path) == (manifest.model, manifest.version, single)
    assert bundle.locate(single, manifest.model, manifest.version) == location
    assert bundle.locate(tmp_path, "a", 3).path == tmp_path / "a" / "3"
    text = (single / "manifest.json").read_text()
    (single / "manifest.json").write_text(text.replace(manifest.model, "other"))
    with pytest.raises(bundle.BundleDamagedError, match="differs from what was written"):
        bundle.find(single)
