"""Run commands of `candor-train` one after another: imports take a process of Ray's environment most of its time.

Each line of input is a folder and what is typed, each line of output `ended` with the exit status and what
was printed, as JSON.
"""

from __future__ import annotations

import json
import os
import sys

from typer.testing import CliRunner

from training.cli import app

if __name__ == "__main__":
    for line in sys.stdin:
        folder, typed = json.loads(line)
        os.chdir(folder)
        done = CliRunner().invoke(app, typed)
        print("ended", json.dumps([done.exit_code, done.stdout, done.stderr]), flush=True)
