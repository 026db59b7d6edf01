"""Test and measure training and serving on an NVIDIA GPU, and write benchmarks/GPU.md, in less than 20 minutes.

    make gpu
    make gpu GPU_FLAGS=--fresh

Parts: the tests marked `gpu`; ResNet-18 trained on images of CIFAR's shape; LeNet-5, ResNet-18 and ResNet-50 with each
provider of ONNX Runtime, in batches of 1 to 128, compared with the CPU; the same over HTTP. A part that is complete is
not run again: an interrupted run continues. Outcomes are in build/gpu, beside the log of each part.

Without a GPU it is a rehearsal: all parts run on the CPU at small sizes as far as they can, and the report is
build/gpu/rehearsal/GPU.md. What this machine lacks is left out, with the reason. Exit status: 0 if nothing failed, 1 if
a part failed, 2 if the GPU cannot be used, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.host import UnusableError, find
from benchmarks.gpu.part import COMPLETE, FAILED, LEFT_OUT, PARTS
from benchmarks.gpu.report import report
from benchmarks.gpu.runner import Report, run
from benchmarks.serving.servers import ROOT

_FOLDER = ROOT / "build" / "gpu"
_REPORT = ROOT / "benchmarks" / "GPU.md"
_COLOURS = {COMPLETE: "green", LEFT_OUT: "yellow", FAILED: "bold red"}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fresh", action="store_true", help="run complete parts again")
    parser.add_argument(
        "--only", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="PART", help="parts to run"
    )
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what runs is stopped
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        # In a process of its own, which ends: a GPU in exclusive mode has room for one.
        with get_context("spawn").Pool(1) as process:
            host = process.apply(find)
    except UnusableError as error:
        console.print(f"[bold red]error[/] {escape(str(error))}")
        return 2
    rehearsal = host.gpu is None
    bench = Bench(_FOLDER / "rehearsal" if rehearsal else _FOLDER, host)
    path = bench.folder / _REPORT.name if rehearsal else _REPORT
    console.print(f"[yellow]Rehearsal on the CPU[/]: {escape(str(host.reason))}" if rehearsal else f"GPU: {host.gpu}")
    try:
        with _progress(console, len(chosen.only)) as working:
            outcomes = run(bench, chosen.only, fresh=chosen.fresh, working=working)
    except KeyboardInterrupt:
        console.print("[bold red]interrupted[/]; the same command continues with the part that was running")
        return 130
    for name, outcome in outcomes.items():
        status, reason = outcome["status"], outcome.get("reason", "")
        console.print(f"  [{_COLOURS[status]}]{status:9}[/] {name:22} {outcome['seconds']:6.1f} s  {escape(reason)}")
    path.write_text(report(outcomes, host, " ".join(["python -m benchmarks.gpu", *sys.argv[1:]])), encoding="utf-8")
    console.print(f"Report: {path.relative_to(ROOT)}")
    return int(any(outcome["status"] == FAILED for outcome in outcomes.values()))


@contextmanager
def _progress(console: Console, parts: int) -> Iterator[Report]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[part]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[doing]}", markup=False),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as shown:
        task = shown.add_task("", total=parts, part="", doing="")
        seen: list[str] = []

        def working(name: str, doing: str) -> None:
            if name not in seen:
                seen.append(name)
                if not console.is_terminal:
                    console.print(name)
            shown.update(task, completed=len(seen) - 1, part=name, doing=doing[:80])

        yield working


if __name__ == "__main__":
    sys.exit(main())
