"""Both distributions, installed in clean environments: the library beside anything, the server elsewhere."""

from __future__ import annotations

import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

import bundle as bundles
from tests.ports import free_port
from tests.waiting import until

from .environments import ROOT, build_wheel, clean_environment, outside

EXPORTED = ROOT / "tests" / "service" / "exported"
LIBRARY = """
import importlib.util, sys
import numpy as np
import service  # a package of the user's own
from calibrators import Temperature
from calibrators.metrics import expected_calibration_error
from candor import AsyncClient, Client

assert service.MINE == "mine"
for absent in ("bundle", "importing", "training", "fastapi", "onnxruntime", "sqlalchemy", "torch"):
    assert importlib.util.find_spec(absent) is None, absent
logits = np.array([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 0.0]], dtype=np.float32)
labels = np.array([0, 1, 1, 0])
probabilities = Temperature().fit(logits, labels).predict_proba(logits)
assert 0 <= expected_calibration_error(probabilities, labels) <= 1
with Client(sys.argv[1]) as client:
    print(client.predict(np.zeros((1, 8, 8, 1), dtype=np.uint8)).predictions[0].label)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT / "library", tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("server"))


def top_level(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" not in name}


def test_both_have_one_version() -> None:
    library, server = (tomllib.loads((folder / "pyproject.toml").read_text()) for folder in (ROOT / "library", ROOT))
    version = library["project"]["version"]
    assert server["project"]["version"] == version
    assert f"candor=={version}" in server["project"]["dependencies"]


def test_each_package_is_in_one_distribution(library: Path, server: Path) -> None:
    assert top_level(library) == {"candor", "calibrators"}
    assert top_level(server) == {"bundle", "importing", "service", "training"}


def test_both_carry_the_licence(library: Path, server: Path) -> None:
    for wheel in (library, server):
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("/licenses/LICENSE"))
            assert archive.read(name) == (ROOT / "LICENSE").read_bytes()


@pytest.fixture(scope="module")
def installed(library: Path, server: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with both wheels and what `serve`, `cpu` and `import` declare."""
    folder = tmp_path_factory.mktemp("installed")
    python = clean_environment(folder / "environment", [library, server], "serve", "cpu", "import")
    torch = [python, "-I", "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is not None)"]
    subprocess.run(torch, cwd=folder, check=True)
    return python


@pytest.fixture(scope="module")
def served(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that was installed from wheels and runs outside the checkout."""
    folder = tmp_path_factory.mktemp("served")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [installed.parent / "candor", "serve", "--port", str(port), "--bundles", ROOT / "examples" / "bundles"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, cwd=folder, env=outside(), stderr=log) as process,
    ):
        try:
            until(lambda: process.poll() is not None or ready(url))
            assert process.poll() is None, log.read_text()
            yield url
        finally:
            process.terminate()


def ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def test_the_server_serves_an_example_bundle_outside_the_checkout(served: str) -> None:
    image = (ROOT / "examples" / "seven.png").read_bytes()
    answer = httpx.post(f"{served}/predict", content=image, headers={"content-type": "image/png"}, timeout=60)
    assert answer.json()["predictions"][0]["label"] == "7"
    assert httpx.get(f"{served}/dashboard", timeout=60, follow_redirects=True).status_code == 200  # templates are in it


def test_a_model_is_imported_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    rows = random.normal(size=(400, 3)) * [30, 6, 10]
    labels = rows[:, 0] / 30 + rows[:, 1] / 6 + random.normal(size=400) > 0
    table = np.column_stack([rows, labels])
    np.savetxt(tmp_path / "rows.csv", table, "%.9g", ",", header="amount,hour,age,fraud", comments="")
    command = [installed.parent / "candor", "import", "lightgbm", EXPORTED / "lightgbm.txt", "--name", "payments"]
    command += ["--validation", "rows.csv", "--label", "fraud", "--calibrator", "temperature", "--out", "bundles"]
    done = subprocess.run(command, cwd=tmp_path, env=outside(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record = bundles.verify(tmp_path / "bundles" / "payments" / "1").manifest.imported
    assert record is not None
    assert record.native is not None  # by LightGBM itself
    assert (record.format, record.native.rows) == ("lightgbm", 400)


def test_the_library_installs_beside_a_package_called_service(library: Path, served: str, tmp_path: Path) -> None:
    python = clean_environment(tmp_path / "environment", [library])
    site = next((tmp_path / "environment").glob("lib/python*/site-packages"))
    (site / "service").mkdir()
    (site / "service" / "__init__.py").write_text('MINE = "mine"\n')
    done = subprocess.run(
        [python, "-I", "-c", LIBRARY, served], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in {str(digit) for digit in range(10)}
