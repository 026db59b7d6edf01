"""A virtual environment for each peer, kept in a cache folder."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.packages import PACKAGES

_VERSIONS = """
import importlib.metadata as metadata
for name in ({name!r}, "numpy", "scipy", "scikit-learn", "torch"):
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        pass
"""


class NotInstalledError(Exception):
    """An environment could not be installed; the message is pip's last."""


def interpreters(cache: Path, names: Iterable[str]) -> tuple[dict[str, Path], dict[str, str]]:
    """Return an interpreter per package, and why others have none; create missing environments."""
    found, skipped = {}, {}
    for name in names:
        try:
            found[name] = interpreter(cache, name, PACKAGES[name].install)
        except NotInstalledError as error:
            skipped[name] = str(error)
    return found, skipped


def interpreter(cache: Path, name: str, install: Sequence[str]) -> Path:
    """Return the interpreter of an environment; create it if necessary.

    Args:
        cache: Folder of environments.
        name: Name of the environment.
        install: Arguments of pip; empty for the current interpreter.

    Raises:
        NotInstalledError: pip failed.
    """
    if not install:
        return Path(sys.executable)
    python = cache / name / "bin" / "python"
    done, wanted = cache / name / "installed.txt", "\n".join(install)
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        print(f"installing {name} into {python.parents[1]}", file=sys.stderr)
        if not python.exists():
            venv.create(cache / name, with_pip=True)
        pip = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", *install], capture_output=True, text=True, check=False
        )
        if pip.returncode != 0:
            raise NotInstalledError((pip.stderr.strip().splitlines() or ["pip failed"])[-1][:160])
        done.write_text(wanted, encoding="utf-8")
    return python


def versions(python: Path, name: str) -> str:
    """Return versions such as ``netcal 1.4.0, numpy 2.4.6``."""
    done = subprocess.run([python, "-c", _VERSIONS.format(name=name)], capture_output=True, text=True, check=False)
    return ", ".join(dict.fromkeys(done.stdout.splitlines()))
