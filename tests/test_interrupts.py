"""Ctrl-C in the first second of a command, while its modules are imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest

SCRIPTS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["scripts"]


IMPORT = ["import", "onnx", "model.onnx", "--name", "mine", "--validation", "."]


@pytest.mark.parametrize(
    ("command", "words", "last"),
    [*((command, ["--help"], "typer") for command in sorted(SCRIPTS)), ("candor", IMPORT, "scipy")],  # in a child
)
def test_an_interrupt_is_quiet_while_modules_are_imported(command: str, words: list[str], last: str) -> None:
    module, _, function = SCRIPTS[command].partition(":")
    code = f"import os, {module}; os.write(2, b'started\\n'); {module}.{function}()"
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-c", code, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    assert process.stderr is not None
    with process:
        said = iter(process.stderr)
        assert "started\n" in said
        assert any(line.split()[-1] == last for line in said)  # a line for each module that is imported
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        rest = list(said)
    told = [line for line in rest if not line.startswith("import time:")]
    assert (process.returncode, told) == (130, [])


@pytest.mark.parametrize("command", sorted(SCRIPTS))
def test_nothing_large_is_imported_before_interrupts_are_handled(command: str) -> None:
    module = SCRIPTS[command].partition(":")[0]
    code = f"import sys; before = set(sys.modules); import {module}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = {name.partition(".")[0] for name in done.stdout.split()}
    own = {"service", "training"}
    assert packages - own <= set(sys.stdlib_module_names), packages
    assert sum(name.partition(".")[0] in own for name in done.stdout.split()) == 2  # the package and its __main__
