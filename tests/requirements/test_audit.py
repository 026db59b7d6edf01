"""requirements/audit.py: what is known is said, what could not be asked is not called clean."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "requirements" / "audit.py"


@pytest.fixture(scope="module")
def audit() -> Any:
    specification = importlib.util.spec_from_file_location("audit", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def component(name: str, *licences: str) -> dict[str, Any]:
    entries = [
        {"expression": text} if " " in text and ":" not in text else {"license": {"name": text}} for text in licences
    ]
    return {"name": name, "version": "1", "licenses": entries}


@pytest.mark.parametrize(
    ("name", "licences", "fine"),
    [
        ("a", ["MIT"], True),
        ("a", ["BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0"], True),
        ("a", ["GPL-3.0-only OR MIT"], True),
        ("a", ["GPL-3.0-only AND MIT"], False),
        ("a", ["(GPL-3.0-only OR MIT) AND LGPL-3.0-only"], False),
        ("a", ["License :: OSI Approved :: BSD License"], True),
        ("a", ["Some licence of our own"], False),
        ("a", ["MIT", "AGPL-3.0-only"], False),
        ("a", [], False),
        ("a", ["MPL-2.0"], False),
        ("certifi", ["MPL-2.0"], True),
        ("certifi", ["GPL-3.0-only"], False),
        ("protobuf", [], True),
    ],
)
def test_licences(audit: Any, name: str, licences: list[str], fine: bool) -> None:
    complaints = audit.judge_licences({"components": [component(name, *licences)]})
    assert (complaints == []) is fine
    assert all(name in complaint for complaint in complaints)


def test_vulnerabilities(audit: Any) -> None:
    known = {"id": "PYSEC-1", "fix_versions": ["2"], "aliases": []}
    report = {
        "dependencies": [
            {"name": "good", "version": "1", "vulns": []},
            {"name": "bad", "version": "1", "vulns": [known]},
            {"name": "absent", "skip_reason": "not found"},
        ]
    }
    assert audit.judge_vulnerabilities(report) == (["bad 1: PYSEC-1, fixed in 2"], ["absent"])


@pytest.mark.parametrize("strict", [False, True])
def test_without_network_it_says_that_nothing_was_audited(strict: bool) -> None:
    environment = {**os.environ, "HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    command = [sys.executable, str(SCRIPT), "vulnerabilities", *(["--strict"] if strict else [])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == int(strict), done.stderr
    assert "NOT AUDITED" in (done.stderr if strict else done.stdout)


def test_the_verdict_is_the_exit_code(tmp_path: Path) -> None:
    for licence, code in (("MIT", 0), ("GPL-3.0-only", 1)):
        (tmp_path / "sbom.json").write_text(json.dumps({"components": [component("a", licence)]}))
        command = [sys.executable, str(SCRIPT), "licences", str(tmp_path / "sbom.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code
        assert code == 0 or "GPL-3.0-only" in done.stderr
