"""The digests of the images and the lock file speak of the same versions, and nothing that serving needs is missing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: str) -> dict[str, str]:
    text = (ROOT / "requirements" / file).read_text(encoding="utf-8")
    return {canonical(name): version for name, version in re.findall(r"^([\w.-]+)==([\w.+]+)", text, re.MULTILINE)}


@pytest.mark.parametrize("file", ["build.txt", "serve-cpu.txt", "serve-gpu.txt"])
def test_digests_are_of_the_versions_of_the_lock_file(file: str) -> None:
    lock, digests = pins("lock.txt"), pins(file)
    apart = {"pip", "setuptools"} if file == "build.txt" else set()
    assert digests
    assert set(digests) - set(lock) == apart, "run make lock, and pin what is missing"
    assert {name: version for name, version in digests.items() if name not in apart} == {
        name: lock[name] for name in digests if name not in apart
    }, "run make lock"


@pytest.mark.parametrize("runtime", ["cpu", "gpu"])
def test_everything_that_serving_needs_has_a_digest(runtime: str) -> None:
    digests = pins(f"serve-{runtime}.txt")
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["serve"], *extras["postgres"], *extras[runtime]]
    for text in wanted:
        requirement = Requirement(text)
        version = digests.get(canonical(requirement.name))
        assert version is not None, f"{requirement.name}: run make lock"
        assert requirement.specifier.contains(version), text


@pytest.mark.parametrize("file", ["build.txt", "serve-cpu.txt", "serve-gpu.txt"])
def test_every_package_has_digests(file: str) -> None:
    text = (ROOT / "requirements" / file).read_text(encoding="utf-8")
    for entry in re.split(r"\n(?=\w)", text)[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
