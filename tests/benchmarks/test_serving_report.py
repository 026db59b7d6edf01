"""The report on serving: what its rates leave out is said, and a turn without answers does not end it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.results_file import replace
from benchmarks.serving import report
from benchmarks.serving.turns import Options, Turns, key


def turn(per_s: float, **changes: Any) -> dict[str, Any]:
    answered = {"refused_per_s": 0.0, "broken": 0, "p50_ms": 1.0, "p99_ms": 2.0, "processor_us": 100.0}
    return {"per_s": per_s, **answered, **changes}


def part(turns: Turns) -> str:
    return report.part(turns, {}, {}, Options(1, 1.0, "wrk", (), (), 1, None), "the command")


def test_faults_are_in_it_and_turns_without_answers_are_not(tmp_path: Path) -> None:
    nothing = turn(0.0, p50_ms=0.0, p99_ms=0.0, broken=64, refused_per_s=12.0, processor_us=None)
    turns = {
        key("closed", "Candor", "npy", 64): [turn(1000.0)],
        key("closed", "KServe", "V2 JSON", 64): [nothing, turn(500.0), turn(700.0)],
        key("closed", "MLServer", "V2 JSON", 64): [nothing],
        key("eager", 64, 256): [turn(100.0, refused_per_s=9000.0)],
    }
    text = part(turns)
    assert "| Candor, npy | – | – | 1,000 | 2.00 | 100 |" in text
    assert "| KServe, V2 JSON | – | – | 500 | 2.00 | 100 |" in text
    assert "- closed, KServe, V2 JSON, 64: 64 broken, 12 refused per second" in text
    assert "9,000 refused" not in text
    file = tmp_path / "RESULTS.md"
    file.write_text("# Results\n")
    replace(file, report.PART, text)
    replace(file, report.PART, part({key("closed", "Candor", "npy", 64): [turn(1000.0)]}))
    assert file.read_text().startswith("# Results\n\n## Serving\n\n<!-- serving: begin -->\n")
    assert "No connection broke" in file.read_text()
    assert "KServe, V2 JSON |" not in file.read_text()
