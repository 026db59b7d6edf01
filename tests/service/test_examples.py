"""The examples for clients run against a real service and do what they say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE_S

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(service: Any, *command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "CANDOR_URL": service.url, **more}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_main_job_with_curl(service: Any) -> None:
    done = run(service, EXAMPLES / "curl" / "main_job.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    one, form, base64, receipt, proposed, revisions, moved, back = map(json.loads, done.stdout.splitlines())
    assert one["predictions"][0]["label"] == "7"
    assert len(one["predictions"][0]["probabilities"]) == 2
    assert one["policy"]["id"] == "auto-read@1"
    assert [row["reference"] for row in form["predictions"]] == ["scan-1", "scan-2"]
    assert base64["predictions"][0]["probabilities"] == {}
    assert receipt["stored"] == 2  # pending or not: the log writes behind the answers
    assert (proposed["id"], revisions["items"][0]["id"], moved["active"], back["active"]) == ("r2", "r2", "r2", "r1")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_stops_where_the_service_refuses(start: Any) -> None:
    done = run(start(policies=None), EXAMPLES / "curl" / "main_job.sh")
    assert done.returncode == 22
    assert json.loads(done.stdout)["type"] == "/errors/unknown-policy"


def test_the_main_job_with_python(service: Any) -> None:
    done = run(service, sys.executable, EXAMPLES / "python" / "main_job.py")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line[0] for line in lines[:2]] == ["7", "7"]
    assert lines[2].startswith(("400 labels stored", "0 labels stored"))
    assert lines[-2].startswith("refused: ")
    assert lines[-1] == "r1 is active again"
    assert service.revisions()["active"] == "r1"


def test_many_predictions_at_once_with_python(service: Any) -> None:
    done = run(service, sys.executable, EXAMPLES / "python" / "concurrent_predictions.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "Counter({'7': 200})\n"
