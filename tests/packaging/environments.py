"""Clean environments: a new Python with built wheels and the dependencies that they declare, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
OWN = {"candor", "candor-server"}


def build_wheel(project: Path, to: Path) -> Path:
    """Build the wheel of a project in this repository."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(to), str(project)], check=True, cwd=to)
    return max(to.glob("*.whl"), key=lambda wheel: wheel.stat().st_mtime_ns)


def clean_environment(folder: Path, wheels: list[Path], *extras: str) -> Path:
    """Make an environment with wheels and what they declare; return its Python.

    Dependencies are linked from the environment that runs the tests, so that no index is needed and nothing is there
    that is not declared.

    Args:
        folder: Where to make it.
        wheels: Wheels of this repository.
        *extras: Extras of theirs.
    """
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = next((folder / "lib").glob("python*/site-packages"))
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, *map(str, wheels)], check=True, env=outside())
    own = [Distribution.at(found) for found in site.glob("candor*.dist-info")]
    for found in declared(own, set(extras)):
        tops = {file.parts[0] for file in found.files or () if ".." not in file.parts}  # scripts lie outside
        for top in tops - {"__pycache__"}:  # of all modules of one file
            (site / top).symlink_to(Path(str(found.locate_file(top))).resolve())
    return python


def outside() -> dict[str, str]:
    """Return the variables of this process without those that lead Python or Candor back into the checkout."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "CANDOR"))}


def declared(roots: list[Distribution], extras: set[str]) -> list[Distribution]:
    """Return every distribution that these declare, directly or through others, as it is installed here."""
    found: dict[tuple[str, str], Distribution] = {}
    waiting = [(root, extra) for root in roots for extra in {"", *extras}]
    while waiting:
        of, extra = waiting.pop()
        for text in of.requires or ():
            wanted = Requirement(text)
            name = canonicalize_name(wanted.name)
            if name in OWN or (wanted.marker is not None and not wanted.marker.evaluate({"extra": extra})):
                continue
            for theirs in {"", *wanted.extras}:
                if (name, theirs) not in found:
                    found[name, theirs] = distribution(name)
                    waiting.append((found[name, theirs], theirs))
    return list({dist.metadata["Name"]: dist for dist in found.values()}.values())
