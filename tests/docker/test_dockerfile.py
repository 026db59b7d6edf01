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
FROM = re.compile(r"FROM (\S+) AS (\w+)")


def stages() -> dict[str, tuple[str, list[str]]]:
    """Each stage's base and its instructions, in order."""
    found: dict[str, tuple[str, list[str]]] = {}
    for line in LINES[1:]:
        if match := FROM.fullmatch(line):
            instructions: list[str] = []
            found[match[2]] = (match[1], instructions)
        else:
            instructions.append(line)
    return found


STAGES = stages()


def whole(stage: str) -> str:
    """A stage's instructions after those of the stages that it is built on."""
    base, instructions = STAGES[stage]
    return "\n".join([whole(base), *instructions] if base in STAGES else instructions)


def test_every_stage_stands_on_a_base_that_can_be_chosen() -> None:
    assert LINES[0] == "ARG BASE_IMAGE=python:3.11-slim-bookworm"
    assert {base for base, _ in STAGES.values()} - set(STAGES) == {"${BASE_IMAGE}"}
    assert {"runtime", "gpu", "training"} <= set(STAGES)


def test_every_builder_understands_it() -> None:
    assert "syntax=" not in TEXT
    assert not re.search(r"--(mount|link|chmod|security|network)\b", TEXT)
    assert "<<" not in TEXT


def test_a_builder_that_makes_every_stage_before_its_target_makes_none_too_large() -> None:
    order = list(STAGES)
    assert order.index("runtime") < order.index("cuda") < order.index("gpu") < order.index("trainer")


@pytest.mark.parametrize(
    ("stage", "extras"),
    [
        ("cpu", "serve grpc postgres parquet text cpu"),
        ("cuda", "serve grpc postgres parquet text gpu"),
        ("trainer", "cpu train"),
        ("builder", "build"),
    ],
)
def test_packages_are_installed_by_their_digests(stage: str, extras: str) -> None:
    """requirements/install.py checks them: tests/requirements/test_locks.py."""
    installs = [line for line in STAGES[stage][1] if line.startswith("RUN") and "install" in line]
    by_lock = [line for line in installs if re.search(rf"requirements/install\.py (--into \S+ )?{extras}( |$)", line)]
    assert len(by_lock) == 1
    others = [line for line in installs if line not in by_lock and line != "RUN docker/finish-venv"]
    assert all("--no-deps --no-build-isolation ." in line for line in others), "ours, and nothing else"
    assert "apt" not in " ".join(LINES)


@pytest.mark.parametrize("stage", ["runtime", "gpu"])
def test_no_training_reaches_what_serves(stage: str) -> None:
    sources = re.findall(r"COPY --from=(\w+) (\S+)", whole(stage))
    assert [path for _, path in sources] == ["/opt/venv"]
    for made_in in ("wheel", sources[0][0]):
        copied = [line.split()[1:-1] for line in STAGES[made_in][1] if line.startswith("COPY") and "--from" not in line]
        assert "training" not in [source for each in copied for source in each]
    assert "torch" not in whole(stage)


def test_the_build_context_is_a_list_of_what_is_copied() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    assert rules[0] == "*"
    copies = [line.split()[1:-1] for line in LINES if line.startswith("COPY") and "--from" not in line]
    assert allowed == {source for sources in copies for source in sources}
    assert all((ROOT / path).exists() for path in allowed)


@pytest.mark.parametrize("stage", ["runtime", "gpu", "training"])
def test_it_runs_as_nobody_in_particular(stage: str) -> None:
    assert re.findall(r"^USER (.*)$", whole(stage), re.MULTILINE) == ["10001:10001"]
    assert "--uid 10001" in whole(stage)


@pytest.mark.parametrize("stage", ["runtime", "gpu"])
def test_it_stops_when_asked_and_says_how_it_is(stage: str) -> None:
    text = whole(stage)
    assert "STOPSIGNAL SIGTERM" in text
    assert 'CMD ["candor", "serve"]' in text, "a shell in between would swallow the signal"
    assert re.search(r"HEALTHCHECK .*CMD \[\"python\", .*candor-healthcheck\"\]", text)
    assert "PYTHONUNBUFFERED=1" in text


def test_its_variables_are_settings() -> None:
    from service.settings import Settings

    named = set(re.findall(r"\bCANDOR_(\w+)=", whole("gpu")))
    assert {name.lower() for name in named} <= set(Settings.model_fields)


@pytest.mark.parametrize("name", ["healthcheck.py", "candor-state", "scan-secrets"])
def test_what_runs_beside_the_service_needs_the_standard_library_only(name: str) -> None:
    tree = ast.parse((ROOT / "docker" / name).read_text(encoding="utf-8"))
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module.split(".")[0] for module in modules} <= sys.stdlib_module_names


@pytest.mark.parametrize("name", ["smoke-test", "finish-venv", "candor-state", "scan-secrets"])
def test_scripts_can_be_run(name: str) -> None:
    assert os.access(ROOT / "docker" / name, os.X_OK)
