"""`candor models | load | unload` against a running service: what they print, and their exit codes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import bundle as bundles

from ..conftest import Digits, InThread, Spawn, contents


@pytest.fixture
def service(start: Callable[..., InThread], digits: Digits, tmp_path: Path) -> InThread:
    """Two models, digits and letters."""
    root = Path(shutil.copytree(digits.root, tmp_path / "bundles"))
    bundles.write(root, contents(digits.bundle, model="letters"))
    return start(bundles=root, default_model="digits")


def test_out_of_service_and_back(spawn: Spawn, service: InThread) -> None:
    listed = spawn.run("models", url=service.url)
    assert (listed.returncode, listed.stderr) == (0, "")
    rows = {line.split()[0]: line.split() for line in listed.stdout.splitlines()[1:]}
    assert rows["digits"][:5] == ["digits", "served", "r1", "1", "cpu"]
    assert rows["letters"][1] == "served"
    assert "auto-read" in listed.stdout

    gone = spawn.run("unload", "letters", url=service.url)
    assert (gone.returncode, gone.stdout) == (0, "letters is unloaded\n")
    assert service.http.post("/v1/models/letters/predict", json={"inputs": []}).status_code == 503
    listed = spawn.run("models", url=service.url)
    assert "unloaded" in next(line for line in listed.stdout.splitlines() if line.startswith("letters"))

    back = spawn.run("load", "letters", url=service.url)
    assert (back.returncode, back.stdout) == (0, "letters is served: r1, of bundle 1\n")
    documents = json.loads(spawn.run("models", "--json", url=service.url).stdout)["items"]
    assert [(model["model"], model["loaded"], model["revision"]) for model in documents] == [
        ("digits", True, "r1"),
        ("letters", True, "r1"),
    ]
    assert json.loads(spawn.run("unload", "letters", "--json", url=service.url).stdout)["loaded"] is False


def test_a_load_names_the_proposals_of_newer_bundles_and_what_they_certify(
    spawn: Spawn, service: InThread, digits: Digits
) -> None:
    bundles.write(service.runtime.settings.bundle_folder, contents(digits.bundle))
    done = spawn.run("load", "digits", url=service.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("digits is served: r1, of bundle 1\nbundle 2 is proposed as r2: candor activate r2\n")
    # The rows of bundle 1 again, so a second look at them, with a smaller part of delta.
    assert "  not certified  auto-read: accept, precision of at least 95%: " in done.stdout
    assert "while auto-read is in force like this, it sends every row to review\n" in done.stdout


def test_a_newer_bundle_that_is_refused_is_named_and_the_exit_code_is_1(
    spawn: Spawn, service: InThread, digits: Digits
) -> None:
    root = service.runtime.settings.bundle_folder
    bad = bundles.write(root, contents(digits.bundle))
    (bad / "model.onnx").write_bytes(b"nothing")
    done = spawn.run("load", "digits", url=service.url)
    assert (done.returncode, done.stdout) == (1, "digits is served: r1, of bundle 1\n")
    assert "bundle 2 was refused" in done.stderr
    assert "model.onnx" in done.stderr


def test_a_load_says_that_the_bundle_in_service_is_damaged_by_now(spawn: Spawn, service: InThread) -> None:
    file = service.runtime.settings.bundle_folder / "digits/1/calibrator.json"
    file.write_text("{}")
    done = spawn.run("load", "digits", url=service.url)
    assert (done.returncode, done.stdout) == (1, "digits is served: r1, of bundle 1\n")
    assert "bundle 1 was refused" in done.stderr
    assert "calibrator.json" in done.stderr
    assert "served from memory until the next restart" in done.stderr
    assert service.http.get("/readyz").status_code == 200


def test_other_exit_codes(spawn: Spawn, service: InThread) -> None:
    for verb in ("load", "unload"):
        refused = spawn.run(verb, "nobody", url=service.url)
        assert (refused.returncode, refused.stdout) == (4, "")
        assert "digits" in refused.stderr
        assert spawn.run(verb).returncode == 2
        assert verb in spawn.run("--help").stdout
    for arguments in (("models",), ("load", "digits"), ("unload", "digits")):
        assert spawn.run(*arguments, url="http://127.0.0.1:1").returncode == 3
