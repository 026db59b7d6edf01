"""One lock file: whatever installs takes versions and digests from it, and nothing that is wanted is missing."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
DOCUMENT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = DOCUMENT["project"]["optional-dependencies"]
NAMES = [*EXTRAS, *DOCUMENT["dependency-groups"]]
LOCK = (ROOT / "requirements" / "lock.txt").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^(?:[a-z].*\\\n)(?:.*\\\n)*.*\n", LOCK, re.MULTILINE)


@pytest.fixture(scope="module")
def install() -> ModuleType:
    specification = importlib.util.spec_from_file_location("install", ROOT / "requirements" / "install.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def pins() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([\w.+]+)", LOCK, re.MULTILINE):
        found.setdefault(canonical(name), []).append(version)
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_is_wanted_is_locked(install: ModuleType, name: str) -> None:
    locked = pins()
    for text in install.required([name]):
        requirement = Requirement(text)
        versions = locked.get(canonical(requirement.name), [])
        assert versions, f"{requirement.name}: run make lock"
        assert all(requirement.specifier.contains(version) for version in versions), text


def test_every_package_has_digests() -> None:
    assert len(ENTRIES) == len(re.findall(r"^[^\s#]", LOCK, re.MULTILINE)), "an entry is not a version with digests"
    for entry in ENTRIES:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


def test_no_entry_names_an_address_or_a_path() -> None:
    assert not re.search(r"://|^-|\s@\s", LOCK, re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_files_are_checked_by_their_digests(install: ModuleType, name: str) -> None:
    *apart, last = install.commands([name])
    assert last[:3] == ["--require-hashes", "--constraint", str(ROOT / "requirements" / "lock.txt")]
    assert apart == ([["--no-deps", f"torch=={pins()['torch'][0]}"]] if name == "train" else [])


def test_an_entry_is_taken_whole(install: ModuleType) -> None:
    assert install.locked("pip") in ENTRIES
    assert install.locked("torch") in ENTRIES


def test_what_is_not_there_is_named(install: ModuleType) -> None:
    with pytest.raises(SystemExit, match="Unknown extra: cppu"):
        install.required(["serve", "cppu"])
