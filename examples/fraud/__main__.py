"""Fraud, where labels come late and only for some, told against a known truth. Run it with `make fraud`.

Everything is real: a one-dimensional CNN trained here on a table, the service in a process of its own, HTTP between
them. The payments are drawn by a generator that knows each one's probability of fraud, so that what is promised and
what is estimated can be held against the truth. The vehicle claims are real; they take part where their file is
(`--data` or CANDOR_DATA). Bundles, state, log, plots and `story.json` go to var/fraud, or where `--out` says.

The same seed draws the same payments and trains the same network. Which rows are explored, and which of them fit,
certify and gate, the service draws for itself, so that its figures differ a little from run to run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.rule import Rule

from examples.fraud.story import SMALL, Size, Story
from examples.serving import ROOT


def main() -> None:
    """Read the arguments and tell the story."""
    parser = argparse.ArgumentParser(prog="python -m examples.fraud", description="The fraud story.")
    parser.add_argument("--out", type=Path, default=ROOT / "var" / "fraud", help="Folder that is made anew.")
    parser.add_argument("--data", type=Path, help="Folder of data sets with vehicle-fraud/ in it.")
    parser.add_argument("--seed", type=int, default=1, help="Of payments, network and labels.")
    parser.add_argument("--small", action="store_true", help="Less of everything.")
    given = parser.parse_args()
    began = time.monotonic()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    Story(given.out, SMALL if given.small else Size(), given.seed, given.data, console).tell()
    console.print(Rule())
    console.print(
        f"That took {time.monotonic() - began:.0f} s. Bundles, state, log, story.json and plots are in {given.out}.\n\n"
        "Try next:\n"
        "  examples/fraud/generator.py              where the truth comes from\n"
        "  examples/fraud/policies/                 what the policies say\n"
        "  docs/statistics.md                       what is promised about labels that exist only for some"
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; the out folder holds what there was")
