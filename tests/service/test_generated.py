"""Clients generated from the OpenAPI document, in Python and in TypeScript: they compile, and callers can use them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.service.test_imported import npz

OWN = Path(__file__).parent / "generated"
TOOLS = Path(__file__).parents[2] / "build" / "clients"
BIN = TOOLS / "bin"


def run(*command: str | Path, cwd: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment["PATH"] = f"{BIN}:{environment['PATH']}"
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture
def described(start: Any, tmp_path: Path) -> tuple[Any, Path]:
    """A service, and a folder with its document."""
    if not (TOOLS / ".made").exists():
        pytest.skip("the generators are not installed: make clients")
    service = start()
    (tmp_path / "openapi.json").write_bytes(service.http.get("/openapi.json").content)
    return service, tmp_path


def test_python(described: tuple[Any, Path], digits: Any) -> None:
    service, folder = described
    configuration = OWN / "openapi-python-client.yaml"
    generator = BIN / "openapi-python-client"
    run(generator, "generate", "--path", "openapi.json", "--output-path", "made", "--config", configuration, cwd=folder)
    rows = digits.bundle.reference.fit
    labels = np.array(digits.bundle.manifest.labels)[rows.labels]
    (folder / "rows.npz").write_bytes(npz(label=labels, logits=rows.logits))
    shutil.copy(OWN / "usage.py", folder / "made")  # a script finds the packages beside it
    run(BIN / "python", "usage.py", service.url, folder / "rows.npz", cwd=folder / "made")


def test_typescript(described: tuple[Any, Path]) -> None:
    _, folder = described
    run(TOOLS / "node_modules/.bin/openapi-typescript", "openapi.json", "-o", "schema.d.ts", cwd=folder)
    shutil.copy(OWN / "usage.ts", folder)
    run(TOOLS / "node_modules/.bin/tsc", "--strict", "--noEmit", "--target", "es2022", "usage.ts", cwd=folder)
