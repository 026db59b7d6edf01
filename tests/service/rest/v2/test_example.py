"""The example with Triton's client runs as a person would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from service.state.keys import KeyStore
from tests.waiting import PATIENCE_S, until

EXAMPLE = Path(__file__).parents[4] / "examples" / "tritonclient" / "infer.py"


def run(service: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, EXAMPLE, "--url", service.url.removeprefix("http://"), "--policy", "auto-read"]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=os.environ | environment
    )


def test_it_reads_the_seven_with_and_without_a_key(service: Any) -> None:
    done = run(service)
    assert done.returncode == 0, done.stderr
    assert "digits, versions ['1']: UINT8 [-1, 8, 8, 1]" in done.stdout
    first, second = (float(share) for share in re.findall(r"^  \w+: ([\d.]+)%$", done.stdout, re.MULTILINE)[:2])
    assert first >= second
    assert re.search(r"^  7: ", done.stdout, re.MULTILINE)
    assert re.search(r"^  decision: (accept|review)$", done.stdout, re.MULTILINE)
    assert service.runtime.log.flush()
    item = {"reference": "noise-31", "label": "7", "source": "reviewer"}
    assert service.http.post("/feedback", json={"items": [item]}).json()["stored"] == 1
    key = KeyStore(service.runtime.database).create("reader", ["predict"])[1]
    until(lambda: service.http.get("/v2").status_code == 401)  # until the first key has been noticed
    assert run(service, CANDOR_API_KEY=key).returncode == 0
    refused = run(service)
    assert refused.returncode != 0
    assert "requires an API key" in refused.stderr
