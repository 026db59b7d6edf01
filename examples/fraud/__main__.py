"""Fraud detection with late and selective labels, compared with a known truth. Run it with `make fraud`.

It trains a one-dimensional CNN on a table, runs the service in a separate process, and talks to it over HTTP. The
payments come from a generator with known probabilities of fraud, so that promises and estimates can be compared with
the truth. The vehicle claims are real and optional (`--data` or CANDOR_DATA). Bundles, state, log, plots and
`story.json` go to var/fraud or `--out`.

The same seed draws the same payments and trains the same network. The service draws which rows to explore and which to
use for fit, certify and gate, so figures differ a little between runs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.rule import Rule

from examples.fraud import claims
from examples.fraud.story import SMALL, Size, Story
from examples.serving import ROOT


def main() -> None:
    """Read the arguments and tell the story."""
    parser = argparse.ArgumentParser(prog="python -m examples.fraud", description="The fraud story.")
    parser.add_argument("--out", type=Path, default=ROOT / "var" / "fraud", help="Output folder; deleted first.")
    parser.add_argument("--data", type=Path, help="Folder of data sets that contains vehicle-fraud/.")
    parser.add_argument("--seed", type=int, default=1, help="Seed of payments, network and labels.")
    parser.add_argument("--small", action="store_true", help="Run with fewer payments and epochs.")
    given = parser.parse_args()
    began = time.monotonic()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    if (why := claims.missing(given.data)) is not None:
        console.print(f"[yellow]Part 3 will be left out: it needs the vehicle claims.[/yellow] [dim]{why}[/dim]")
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    Story(given.out, SMALL if given.small else Size(), given.seed, given.data, console).tell()
    console.print(Rule())
    console.print(
        f"That took {time.monotonic() - began:.0f} s. Bundles, state, log, story.json and plots are in {given.out}.\n\n"
        "Try next:\n"
        "  examples/fraud/generator.py      the generator of payments\n"
        "  examples/fraud/policies/         the policies\n"
        "  docs/explanation/statistics.md   statistics of selective labels"
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; the output folder keeps the partial results")
