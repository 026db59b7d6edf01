"""Run the tests that need a GPU: those marked `gpu`."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from typing import Any

from benchmarks.gpu.bench import Bench, LeftOutError
from benchmarks.serving.servers import ROOT


def run(bench: Bench) -> dict[str, Any]:
    """Return how many passed, and which were skipped and why."""
    bench.say("pytest -m gpu")
    report = bench.folder / "tests.xml"
    report.unlink(missing_ok=True)
    # Naming the files saves collecting thousands of other tests.
    files = [str(path) for path in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.gpu" in path.read_text("utf-8")]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", f"--junitxml={report}", *files]
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"pytest -m gpu ended with {done.returncode}")
    cases = list(ET.parse(report).iter("testcase"))
    skipped = [(case.get("name"), found.get("message")) for case in cases for found in case.iter("skipped")]
    if len(skipped) == len(cases):
        raise LeftOutError(f"{len(cases)} tests skipped: {bench.host.reason or skipped[0][1]}")
    return {"passed": len(cases) - len(skipped), "skipped": skipped}
