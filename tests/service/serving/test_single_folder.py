"""A folder that is a single bundle, as KServe mounts one at /mnt/models."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import bundle as bundles
from service.errors import BundleRefusedError, ConfigurationError

from ..conftest import contents


@pytest.fixture
def models(digits: Any, tmp_path: Path) -> Path:
    return Path(shutil.copytree(digits.bundle.path, tmp_path / "mnt" / "models"))


def test_it_is_served_as_its_model_also_after_a_restart(start: Any, models: Path, digits: Any) -> None:
    first = start(bundles=models)
    assert first.http.get("/readyz").json()["models"] == {"digits": "r1"}
    assert first.http.get("/v2/models/digits/ready").status_code == 200
    assert len(first.predict(digits.images[:2])) == 2
    assert first.http.post("/v1/models/digits/load").json()["revision"] == "r1"
    first.close()
    second = start(bundles=models)
    assert second.http.get("/readyz").json()["models"] == {"digits": "r1"}
    assert len(second.predict(digits.images[:2])) == 2


def test_a_damaged_manifest_is_named(start: Any, models: Path) -> None:
    manifest = models / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"digits"', '"letters"', 1))
    with pytest.raises(ConfigurationError, match="the manifest differs from what was written"):
        start(bundles=models)


def test_any_further_file_is_refused_as_in_every_bundle(start: Any, models: Path) -> None:
    (models / "extra.txt").touch()
    with pytest.raises(BundleRefusedError, match="does not belong to the bundle"):
        start(bundles=models)


def test_another_version_in_its_place_never_replaces_the_active_one(
    start: Any, models: Path, digits: Any, tmp_path: Path
) -> None:
    start(bundles=models).close()
    bundles.write(tmp_path / "newer", contents(digits.bundle))
    second = bundles.write(tmp_path / "newer", contents(digits.bundle))
    shutil.rmtree(models)
    shutil.copytree(second, models)
    with pytest.raises(BundleRefusedError, match="names another model or version") as refused:
        start(bundles=models)
    assert (refused.value.found, refused.value.expected) == ("digits/2", "digits/1")
