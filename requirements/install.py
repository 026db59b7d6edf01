"""Install what Candor and some of its extras require, at the versions and with the digests of lock.txt.

    python requirements/install.py [--into PYTHON] NAME...

NAME is an extra or a dependency group of pyproject.toml. Without `--into`, packages go to the Python that runs this.
Its pip is brought to the locked version first, since older ones check no digest of a package named without a version.

torch alone is installed without a digest: docs/explanation/decisions/0016-one-lock-file.md gives the reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent
LOCK = FOLDER / "lock.txt"
UNHASHED = "torch"


def locked(name: str) -> str:
    """Return a package's entry in the lock file: its version and its digests."""
    found = re.search(rf"^{name}==(?:.*\\\n)*.*\n", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        sys.exit(f"{LOCK.name} has no {name}. Run: make lock")
    return found[0]


def required(names: list[str]) -> list[str]:
    """Return the requirements of extras, with those of Candor's two distributions, and of dependency groups."""
    root = FOLDER.parent
    library, document = (tomllib.loads((folder / "pyproject.toml").read_text()) for folder in (root / "library", root))
    project, groups = document["project"], document["dependency-groups"]
    extras = project["optional-dependencies"]
    if unknown := set(names) - extras.keys() - groups.keys():
        sys.exit(f"Unknown extra: {', '.join(sorted(unknown))}. pyproject.toml has: {', '.join([*extras, *groups])}")
    always = [*library["project"]["dependencies"], *project["dependencies"]]
    own = f"{library['project']['name']}=="  # installed from this repository
    found = [text for text in always if not text.startswith(own)] if extras.keys() & set(names) else []
    return found + [text for name in names for text in (extras.get(name) or groups[name])]


def commands(names: list[str]) -> list[list[str]]:
    """Return the arguments of each `pip install`, in order."""
    wanted = required(names)
    apart = [text for text in wanted if re.match(rf"{UNHASHED}\b", text)]
    hashed = ["--require-hashes", "--constraint", str(LOCK), *wanted]  # torch is there by then, and is not looked at
    version = locked(UNHASHED).split()[0]
    return [["--no-deps", version], hashed] if apart else [hashed]


def pip(*arguments: str) -> None:
    """Run pip; end with its exit status where it fails."""
    command = [sys.executable, "-m", "pip", *arguments]
    if status := subprocess.run(command, check=False).returncode:  # noqa: S603 — of our own making
        sys.exit(status)


def main(arguments: list[str]) -> None:
    """Install."""
    into, names = (["--python", arguments[1]], arguments[2:]) if arguments[0] == "--into" else ([], arguments)
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder, "pip.txt")
        own.write_text(locked("pip"), encoding="utf-8")
        pip("install", "--quiet", "--require-hashes", "--requirement", str(own))
    for command in commands(names):
        pip(*into, "install", "--quiet", *command)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
