"""docker/smoke-test on a real engine; without one it must say so rather than pass."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NO_ENGINE = 77


def engine_answers() -> bool:
    return shutil.which("docker") is not None and (
        subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
    )


def test_without_an_engine_it_says_so(tmp_path: Path) -> None:
    environment = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/none.sock", "TMPDIR": str(tmp_path)}
    result = subprocess.run(
        [ROOT / "docker" / "smoke-test"], capture_output=True, text=True, env=environment, check=False
    )
    assert result.returncode == NO_ENGINE
    assert "No Docker engine" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["cpu", "postgres", "kubernetes"])
@pytest.mark.skipif(os.environ.get("CANDOR_DOCKER") != "1", reason="takes minutes: set CANDOR_DOCKER=1")
def test_the_image_does_the_main_job(mode: str) -> None:
    if not engine_answers():
        pytest.skip("no Docker engine answers here")
    command = [ROOT / "docker" / "smoke-test", mode]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
