"""The measured table, in Markdown."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.packages import OURS, PACKAGES
from benchmarks.side_by_side.environments import versions
from benchmarks.side_by_side.rows import SIZES, Row
from benchmarks.side_by_side.turns import Cell, Cells, Options, cell_key

BEGIN, END = "<!-- side by side: begin -->", "<!-- side by side: end -->"

_NOTES = """\
- **Which results count.** Milliseconds of the fastest call of all turns. A fit of a likelihood counts if its mean NLL
  on the fitted rows is at most 1e-5 above the smallest of the row; another fit if it is within 1e-3 of ours; a metric
  if its value is within 1e-3 of ours (smooth ECE: 1e-2). Other results are in brackets, with the reason. Splines differ
  by design and may be 1e-2 apart.
- **Same inputs.** All start from the same float32 logits. Inputs of peers that take probabilities, tensors or float64
  are converted before the timing; ours starts from the logits, and all its work is timed. Metrics start from float32
  probabilities, those of netcal and probcal from float64 ones.
- **Matrix, Dirichlet**: without penalties, so that all have the same optimum; scikit-learn's is logistic regression of
  the logits or of the log-probabilities, C = 1e8. `dirichletcal` cannot be installed: its requirements are misspelt.
- **Histogram**: of class 1. Ours and probcal put (k + ½) / (n + 1) in a bin, the others k / n.
- **Spline**: ours and probmetrics cumulate (Gupta 2021), ours for the top label, probmetrics for class 1; splinecalib
  and probcal fit a penalised logistic spline and choose the penalty by cross-validation.
- **Predict**: calibrators count; a bare softmax of logits / 1.5 is shown for comparison, torch's into prepared tensors.
- **ECE**: of the top label, also for two classes. torch-uncertainty and probmetrics use torchmetrics; on (c) its value
  is 1.4e-3 from ours and from netcal's, which agree to 1e-5.
- **Debiased absolute error**: ours in closed form, uncertainty-calibration by resampling.
- **Smooth ECE**: relplot and torch-uncertainty treat the edges of [0, 1] differently; their values are 4e-3 above ours
  on (c), but count. torch-uncertainty's is of the top label, also for two classes. Ours takes prepared confidences as
  two columns."""


def table(
    rows: Sequence[Row],
    cells: Cells,
    pythons: Mapping[str, Path],
    skipped: Mapping[str, str],
    options: Options,
    command: str,
) -> str:
    """Return the part of RESULTS.md between `BEGIN` and `END`, inclusive."""
    lines = [
        BEGIN,
        "| | data | ours, ms | fastest peer, ms | ratio | goal | |",
        "|---|---|---|---|---|---|---|",
    ]
    everyone = ["| | data | peers, ms |", "|---|---|---|"]
    for row in rows:
        own = cells.get(cell_key(row, OURS, ""), Cell(missing="–"))
        peers = {
            f"{package} {variant}".strip(): cells.get(cell_key(row, package, variant), Cell(missing="–"))
            for package in pythons
            if package != OURS
            for variant in PACKAGES[package].variants(row.job, row.data)
        }
        distance = {name: _distance(row, cell, own, peers.values()) for name, cell in peers.items()}
        valid = {name: cell for name, cell in peers.items() if cell.turns and distance[name] <= 0}
        best = min(valid, key=lambda name: valid[name].milliseconds, default=None)
        ratio = valid[best].milliseconds / own.milliseconds if best else math.nan
        behind = _distance(row, own, own, peers.values())
        lines.append(
            f"| {row.shown} | {data_name(row)} | {_shown(own, row, behind)} | "
            f"{_digits(valid[best].milliseconds) + ', ' + best if best else '–'} | "
            f"{f'{ratio:.3g}×' if best and own.turns else '–'} | {_goal(row)} | {_verdict(row, own, ratio, behind)} |"
        )
        if peers:
            named = (f"{name} {_shown(cell, row, distance[name])}" for name, cell in peers.items())
            everyone.append(f"| {row.shown} | {data_name(row)} | {' · '.join(named)} |")
    return "\n".join(
        [
            *lines,
            "",
            _NOTES,
            "",
            *everyone,
            "",
            f"- Command: `{command}`; {options.rounds} turns of about {options.seconds:g} s, one process each, "
            f"threads of each: {options.threads}; {options.clock} time; one turn if a call takes longer than 10 s",
            f"- Hardware: {processor()}, {os.cpu_count()} cores; {platform.system()}. Load when the run ended: "
            f"{os.getloadavg()[0]:.1f}, including 1 of the run itself",
            f"- Ours: Python {platform.python_version()}, "
            + ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "scipy")),
            *(f"- {name}: {versions(python, name)}" for name, python in pythons.items() if name != OURS),
            *(f"- {name} was skipped: {reason}" for name, reason in skipped.items()),
            END,
        ]
    )


def data_name(row: Row) -> str:
    return f"({row.data}) {SIZES[row.data]}" if row.job != "predict_one_row" else "1 × 10"


def _distance(row: Row, cell: Cell, own: Cell, peers: Iterable[Cell]) -> float:
    """Return how far the answer is beyond the slack; 0 or less if it counts."""
    if cell.other:
        return math.inf
    if row.check == "none":
        return 0.0
    if row.check == "optimum":
        everyone = [own, *peers]
        least = min((one.nll for one in everyone if one.nll is not None), default=math.nan)
        return math.inf if cell.nll is None else cell.nll - least - row.slack
    mine, its = (own.nll, cell.nll) if row.check == "answer" else (own.value, cell.value)
    return math.inf if mine is None or its is None else abs(its - mine) - row.slack


def _shown(cell: Cell, row: Row, distance: float) -> str:
    if not cell.turns:
        return cell.missing
    text = _digits(cell.milliseconds)
    if distance <= 0:
        return text
    if not math.isfinite(distance):
        return f"({text}; {cell.other or 'not compared'})"
    what = "NLL" if row.check in ("optimum", "answer") else "value"
    return f"({text}; {what} off by {distance + row.slack:.1e})"


def _digits(milliseconds: float) -> str:
    """Return three significant digits, without an exponent."""
    places = max(0, 2 - math.floor(math.log10(milliseconds)))
    return f"{round(milliseconds, 2 - math.floor(math.log10(milliseconds))):,.{places}f}"


def _goal(row: Row) -> str:
    if row.at_most:
        return f"≤ {row.at_most * 1e3:g} µs"
    return f"≥ {row.factor:g}×" if row.factor else "–"


def _verdict(row: Row, own: Cell, ratio: float, behind: float) -> str:
    if not (row.factor or row.at_most):
        return ""
    if row.at_most:
        return "met" if own.milliseconds <= row.at_most else "missed"
    if math.isnan(ratio):
        return "no peer counts"
    return "met" if ratio >= row.factor and behind <= 0 else "missed"


def processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def write(path: Path, part: str) -> None:
    """Replace the report's part of the file."""
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(before + part + after, encoding="utf-8")
