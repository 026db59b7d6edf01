"""Every command of the tutorials on own data runs: from images, a table or a model to a policy and a recalibration."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from candor import Client
from tests.ports import free_port
from tests.waiting import PATIENCE_S, PROMPT_REFITS, until

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
REAL = "The same with a real table\n"
ATTEMPTS = 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


@pytest.fixture
def environment() -> dict[str, str]:
    port = free_port()
    # Without COLUMNS, which pytest's processes set for themselves.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CANDOR_", "COLUMNS"))}
    served = {"CANDOR_PORT": str(port), "CANDOR_URL": f"http://127.0.0.1:{port}"}
    return {**kept, **served, **PROMPT_REFITS, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def commands(page: str, *, real: bool = False) -> list[tuple[str, str]]:
    """Return the page's commands in order: the language, and what is to be run; `real` are those with a real table."""
    story, _, rest = (ROOT / "docs/tutorials" / page).read_text().partition(REAL)
    found = []
    for kind, text in _BLOCK.findall(rest if real else story):
        parts = [text] if kind == "python" else re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
        found += [(kind, part) for part in parts]
    return found


@pytest.mark.parametrize(
    ("page", "state", "labels"),
    [("own-images.md", "own", 597), ("own-table.md", "table", 6000), ("own-model.md", "payments", 8997)],
)
def test_every_command_of_the_page_runs(
    page: str, state: str, labels: int, folder: Path, environment: dict[str, str]
) -> None:
    found = commands(page)
    serve = next(place for place, (_, text) in enumerate(found) if is_service(text))
    for kind, text in found[:serve]:
        done = run(kind, text, folder, environment)
        assert done.returncode == 0, told(text, done)
    for attempt in range(ATTEMPTS):  # each state draws the rows of the gate anew, and may draw some that refuse
        for file in (folder / "var" / state).glob("state.db*"):
            file.unlink()
        refused = walk(found[serve:], labels, folder, environment)
        if refused is None:
            return
        print(f"attempt {attempt + 1}: {refused}")
    pytest.fail(f"the gate refused every draw of rows:\n{refused}")


def test_the_order_that_the_page_asks_about_is_the_first_of_the_file(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "examples/own_table.py", tmp_path], check=True)
    with (tmp_path / "incoming.csv").open(newline="") as file:
        first = next(csv.DictReader(file))
    sent = re.search(r"-d '(\{.*?\})'", (ROOT / "docs/tutorials/own-table.md").read_text(), re.DOTALL)
    assert sent is not None
    asked = json.loads(sent[1])
    assert asked["references"] == [first.pop("order")]
    assert {name: str(value) for name, value in asked["inputs"][0].items()} == first


@pytest.mark.skipif("CANDOR_TEST_DATA" not in os.environ, reason="requires the edits of 2015 in CANDOR_TEST_DATA")
def test_the_commands_with_a_real_table_run(folder: Path, environment: dict[str, str]) -> None:
    edits = Path(os.environ["CANDOR_TEST_DATA"]) / "edits"
    if not edits.is_dir():
        pytest.skip(f"{edits} is not there")
    said = []
    service = None
    try:
        for kind, text in commands("own-model.md", real=True):
            local = re.sub(r"https://raw\S+features_reverted\.(\w+)\.\S+", rf"file://{edits}/\1.tsv.bz2", text)
            local = local.replace("8001", environment["CANDOR_PORT"])
            if is_service(text):
                service = begin(local, folder, environment)
                continue
            done = run(kind, local, folder, environment)
            assert done.returncode == 0, told(text, done)
            said.append(done.stdout)
    finally:
        if service is not None:
            service.terminate()
            service.wait(PATIENCE_S)
    imported, suggested, answered = said[-3:]
    page = (ROOT / "docs/tutorials/own-model.md").read_text()
    assert "  certified      patrol: block, precision of at least 40%" in imported
    printed = imported.partition("\nrows: ")[2].splitlines()[1:]
    printed += [line for line in suggested.splitlines() if line.startswith("#")]
    assert [line for line in printed if f"    {line}\n" not in page] == []
    assert json.loads(answered)["predictions"][0]["decision"]["action"] == "block"


def walk(found: list[tuple[str, str]], labels: int, folder: Path, environment: dict[str, str]) -> str | None:
    """Run the commands from the service on and check their output; return why the gate refused, None if it passed."""
    said: dict[str, str] = {}
    (_, serve), *others = found
    service = begin(serve, folder, environment)
    try:
        for kind, text in others:
            done = run(kind, text, folder, environment)
            if "recalibrate" in text and done.returncode == 1:
                return told(text, done)
            assert done.returncode == 0, told(text, done)
            said[text.split()[1] if kind == "console" else "python"] = done.stdout
    finally:
        service.terminate()
        service.wait(PATIENCE_S)
    counted = said["python"] if "python" in said else said["predict"].partition("\n")[2].partition("\n")[0]
    actions = set(re.findall(r"'?(\w+)'?:? [\d,]+", counted))
    assert actions  # which, is the network's matter: it is a new one each time
    assert actions <= {"allow", "block", "review"}
    assert f"{labels} stored" in said["feedback"]
    assert "r2 is active" in said["activate"]
    return None


def begin(serve: str, folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the service of the page, and wait until it is ready."""
    command = f"exec {serve.rstrip().removesuffix('&')}"
    service = subprocess.Popen(["bash", "-euc", command], cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(environment["CANDOR_URL"], service)
    except BaseException:
        service.kill()
        raise
    return service


def is_service(text: str) -> bool:
    return text.rstrip().endswith("&")


def run(kind: str, text: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c"] if kind == "python" else ["bash", "-euc"]
    if kind == "python":
        text = text.replace("Client()", f'Client("{environment["CANDOR_URL"]}")')
    text = text.replace("http://127.0.0.1:8000", environment["CANDOR_URL"])
    return subprocess.run(
        [*program, text], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def told(text: str, done: subprocess.CompletedProcess[str]) -> str:
    return f"{text}\n{done.stdout}\n{done.stderr}"


def wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    with Client(url) as candor:
        until(lambda: candor.ready() or process.poll() is not None)
    assert process.poll() is None, "the service did not start"
