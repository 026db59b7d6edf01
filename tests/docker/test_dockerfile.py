"""The Dockerfile's promises that can be read off it; docker/smoke-test checks the image itself."""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
LINES = [line for line in TEXT.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
BUILDER, RUNTIME = (re.split(r"^FROM .*$", "\n".join(LINES), flags=re.MULTILINE))[1:]


def test_two_stages_on_a_base_that_can_be_chosen() -> None:
    assert LINES[0] == "ARG BASE_IMAGE=python:3.11-slim-bookworm"
    assert [line for line in LINES if line.startswith("FROM")] == [
        "FROM ${BASE_IMAGE} AS builder",
        "FROM ${BASE_IMAGE} AS runtime",
    ]


def test_every_builder_understands_it() -> None:
    assert "syntax=" not in TEXT
    assert not re.search(r"--(mount|link|chmod|security|network)\b", TEXT)
    assert "<<" not in TEXT


def test_it_installs_what_serving_needs_from_the_lock_file() -> None:
    assert re.findall(r"\.\[([\w,]+)\]", BUILDER) == ["serve,cpu"]
    assert "--constraint requirements/lock.txt" in BUILDER
    assert "torch" not in " ".join(LINES)
    assert "apt" not in " ".join(LINES)


def test_training_and_tests_never_reach_the_image() -> None:
    sources = [word for line in LINES if line.startswith("COPY") for word in line.split()[1:-1]]
    assert not any(re.match(r"\.?/?(training|tests|examples|var|\.)/?$", source) for source in sources)
    assert {"calibrators", "bundle", "service"} <= set(sources)


def test_the_build_context_is_a_list_of_what_is_copied() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    assert rules[0] == "*"
    copies = [line.split()[1:-1] for line in LINES if line.startswith("COPY") and "--from" not in line]
    assert allowed == {source for sources in copies for source in sources}
    assert all((ROOT / path).exists() for path in allowed)


def test_it_runs_as_nobody_in_particular() -> None:
    assert re.findall(r"^USER (.*)$", RUNTIME, re.MULTILINE) == ["10001:10001"]
    assert "--uid 10001" in RUNTIME
    assert RUNTIME.index("USER") < RUNTIME.index('CMD ["candor"')


def test_it_stops_when_asked_and_says_how_it_is() -> None:
    assert "STOPSIGNAL SIGTERM" in RUNTIME
    assert 'CMD ["candor", "serve"]' in RUNTIME, "a shell in between would swallow the signal"
    assert re.search(r"HEALTHCHECK .*CMD \[\"python\", .*candor-healthcheck\"\]", RUNTIME)
    assert "PYTHONUNBUFFERED=1" in RUNTIME


def test_its_variables_are_settings() -> None:
    from service.settings import Settings

    named = set(re.findall(r"\bCANDOR_(\w+)=", RUNTIME))
    assert {name.lower() for name in named} <= set(Settings.model_fields)


@pytest.mark.parametrize("name", ["healthcheck.py", "candor-state"])
def test_what_runs_beside_the_service_needs_the_standard_library_only(name: str) -> None:
    tree = ast.parse((ROOT / "docker" / name).read_text(encoding="utf-8"))
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module.split(".")[0] for module in modules} <= sys.stdlib_module_names


@pytest.mark.parametrize("name", ["smoke-test", "strip-venv", "candor-state"])
def test_scripts_can_be_run(name: str) -> None:
    assert os.access(ROOT / "docker" / name, os.X_OK)
