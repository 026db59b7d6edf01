"""The walk from a folder of images to a policy and a refit runs as docs/own-data.md has it, command by command."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from service.client import Client

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PATIENCE_S = 600  # a refit runs on time of the processors that is left over
ATTEMPTS = 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


@pytest.fixture
def environment() -> dict[str, str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CANDOR_")}
    served = {"CANDOR_PORT": str(port), "CANDOR_URL": f"http://127.0.0.1:{port}"}
    return {**kept, **served, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def commands() -> list[tuple[str, str]]:
    """Return the page's commands in order: the language, and what is to be run."""
    found = []
    for kind, text in _BLOCK.findall((ROOT / "docs/own-data.md").read_text()):
        parts = [text] if kind == "python" else re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
        found += [(kind, part) for part in parts]
    return found


def test_every_command_of_the_page_runs(folder: Path, environment: dict[str, str]) -> None:
    found = commands()
    serve = next(place for place, (_, text) in enumerate(found) if is_service(text))
    for kind, text in found[:serve]:
        done = run(kind, text, folder, environment)
        assert done.returncode == 0, told(text, done)
    for attempt in range(ATTEMPTS):  # each state draws the rows of the gate anew, and may draw some that refuse
        for file in (folder / "var/own").glob("state.db*"):
            file.unlink()
        refused = walk(found[serve:], folder, environment)
        if refused is None:
            return
        print(f"attempt {attempt + 1}: {refused}")
    pytest.fail(f"the gate refused every draw of rows:\n{refused}")


def walk(found: list[tuple[str, str]], folder: Path, environment: dict[str, str]) -> str | None:
    """Run the commands from the service on, and look at what they say; returns why the gate refused, None if not."""
    said: dict[str, str] = {}
    (_, serve), *others = found
    command = f"exec {serve.rstrip().removesuffix('&')}"
    service = subprocess.Popen(["bash", "-euc", command], cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(environment["CANDOR_URL"], service)
        for kind, text in others:
            done = run(kind, text, folder, environment)
            if "recalibrate" in text and done.returncode == 1:
                return told(text, done)
            assert done.returncode == 0, told(text, done)
            said[text.split()[1] if kind == "console" else "python"] = done.stdout
    finally:
        service.terminate()
        service.wait(_PATIENCE_S)
    actions = set(re.findall(r"'(\w+)'", said["python"]))
    assert actions  # which, is the network's matter: it is a new one each time
    assert actions <= {"allow", "block", "review"}
    assert "597 stored" in said["feedback"]
    assert "r2 is active" in said["activate"]
    return None


def is_service(text: str) -> bool:
    return text.rstrip().endswith("&")


def run(kind: str, text: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c"] if kind == "python" else ["bash", "-euc"]
    if kind == "python":
        text = text.replace("Client()", f'Client("{environment["CANDOR_URL"]}")')
    return subprocess.run(
        [*program, text], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=_PATIENCE_S
    )


def told(text: str, done: subprocess.CompletedProcess[str]) -> str:
    return f"{text}\n{done.stdout}\n{done.stderr}"


def wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + _PATIENCE_S
    with Client(url) as candor:
        while not candor.ready():
            assert process.poll() is None, "the service did not start"
            assert time.monotonic() < give_up
            time.sleep(0.05)
