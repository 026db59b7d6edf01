"""`candor policy`: examine, solve and try policies on files, without a server."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from service.commands.output import REFUSED, console, print_certificates, print_json, reporting
from service.errors import ConfigurationError, PolicyError

if TYPE_CHECKING:  # numpy and scipy take long to import: verbs that need them do it themselves
    import numpy as np
    from numpy.typing import NDArray

    from service.commands.row_files import Parts
    from service.decisions.policy import Policy
    from service.decisions.rows import ScoredRows
    from service.decisions.simulate import Estimate, Simulation
    from service.decisions.solved import SolvedBand, SolvedPolicy
    from service.revision import Basis

    Source = tuple[tuple[str, ...] | None, Callable[[Policy], Parts]]

app = typer.Typer(no_args_is_help=True, help="Examine, solve and try policies on files, without a server.")

PolicyFile = Annotated[Path, typer.Argument(help="Policy in YAML or JSON.", exists=True, dir_okay=False)]
Rows = Annotated[
    Path | None,
    typer.Option(help="Rows: CSV or .npz with probability, positive and more.", exists=True, dir_okay=False),
]
BundleFolder = Annotated[
    Path | None, typer.Option(help="Bundle whose reference rows are taken instead.", exists=True, file_okay=False)
]
Look = Annotated[
    int, typer.Option(min=1, help="How many times these rows have been looked at: a file does not remember.")
]
Seed = Annotated[int, typer.Option(min=0, help="Of the split and of every draw.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for scripts.")]


@app.command()
def lint(
    file: PolicyFile, rows: Rows = None, bundle: BundleFolder = None, seed: Seed = 0, as_json: AsJson = False
) -> None:
    """Say what is wrong with a policy, and what it needs. Exits 1 when there is a problem.

    With data: bands that no row reaches, promises in each other's way, promises that these data could never certify. No
    label that certifies is read: linting is no look.
    """
    from service.decisions.lint import lint as lint_policy
    from service.policy_files import read_policy

    with reporting():
        source = _source(rows, bundle, seed)
        labels = None if source is None else source[0]
        policy = read_policy(file, labels)
        parts = None if source is None else source[1](policy)
        findings = lint_policy(
            policy,
            classes=None if labels is None else len(labels),
            fit=None if parts is None else parts.fit,
            certify_rows=0 if parts is None else len(parts.certify),
        )
    if as_json:
        print_json([finding.to_dict() for finding in findings])
    else:
        for finding in findings:
            colour = "red" if finding.level == "problem" else "dim"
            told = f"[{colour}]{finding.level}[/{colour}] {escape(finding.where)}: {escape(finding.message)}"
            console.print(told, soft_wrap=True)
            if finding.remedy:
                console.print(f"        {escape(finding.remedy)}", soft_wrap=True)
        if not findings:
            console.print("Nothing to say against it.")
    if any(finding.level == "problem" for finding in findings):
        raise typer.Exit(REFUSED)


@app.command()
def solve(
    file: PolicyFile,
    rows: Rows = None,
    bundle: BundleFolder = None,
    look: Look = 1,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Find a policy's thresholds and certify its promises. Exits 1 when a promise cannot be certified."""
    from service.policy_files import read_policy

    with reporting():
        labels, parts_of = _needed_source(rows, bundle, seed)
        policy = read_policy(file, labels)
        solved = _solve(policy, parts_of(policy), look, seed, "reference" if bundle else "traffic")
    if as_json:
        print_json(solved.to_dict())
    else:
        for value, bands in _parts(solved):
            if value is not None:
                console.print(f"[bold]segment {escape(value)}[/bold]")
            _print_bands(policy, bands)
    if not _certified(solved):
        raise typer.Exit(REFUSED)


@app.command()
def simulate(
    file: PolicyFile,
    against: Annotated[
        Path | None, typer.Option(help="Policy that it is compared with.", exists=True, dir_okay=False)
    ] = None,
    rows: Rows = None,
    bundle: BundleFolder = None,
    look: Look = 1,
    flips: Annotated[int, typer.Option(min=0, help="Changed rows that are named, at most.")] = 10,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Say what a policy would have done: two thirds of the rows solve it, it is tried on the others."""
    import numpy as np

    from service.decisions.simulate import simulate as simulate_policy
    from service.policy_files import read_policy

    with reporting():
        labels, parts_of = _needed_source(rows, bundle, seed)
        policy = read_policy(file, labels)
        other = None if against is None else read_policy(against, labels)
        if rows is not None and other is not None and other.positive != policy.positive:
            raise PolicyError(
                "A file of rows has the probabilities of one positive class: policies of two cannot be compared on it.",
                where="/positive",
                found=other.positive,
                expected=policy.positive,
                remedy="Compare them on a bundle, or on the server.",
            )
        parts = parts_of(policy)
        basis: Basis = "reference" if bundle else "traffic"
        solved = _solve(policy, parts, look, seed, basis)
        before = None
        if other is not None:
            theirs = parts_of(other)
            now = _solve(other, theirs, look, seed, basis)
            before = np.array(now.actions)[_decide(now, theirs.tried)]
        found = simulate_policy(
            solved,
            _decide(solved, parts.tried),
            parts.tried,
            parts.ids,
            before=before,
            most_flips=flips,
            seed=seed,
        )
    if as_json:
        print_json(found.to_dict())
    else:
        print_simulation(found)


@app.command()
def schema() -> None:
    """Print the JSON Schema of policies, for editors."""
    from service.decisions.schema import policy_schema

    print_json(policy_schema())


def print_simulation(found: Simulation) -> None:
    """Print what a simulation found, for people."""
    if found.flipped is not None:
        console.print(f"[bold]{found.flipped} of {found.rows} decisions change[/bold]")
    table = Table("action", "rows now", "rows then", box=None, pad_edge=False)
    for action, (was, will) in found.volumes.items():
        table.add_row(escape(action), "" if was is None else str(was), str(will))
    console.print(table)
    table = Table("up to", "precision", "recall", "false-positive rate", "flag rate", box=None, pad_edge=False)
    for band in found.bands:
        estimates = (band.precision, band.recall, band.false_positive_rate, band.flag_rate)
        table.add_row(escape(band.action), *map(_estimate, estimates))
    if found.bands:
        console.print(table)
        console.print(f"[dim]with 95 % intervals, from {found.labelled} labelled of {found.rows} rows[/dim]")
    for flip in found.flips:
        console.print(f"  {escape(flip.id)}: {escape(flip.before)} → {escape(flip.after)}", highlight=False)
    if found.flipped is not None and found.flipped > len(found.flips):
        console.print(f"  and {found.flipped - len(found.flips)} more (--flips)")


def _estimate(estimate: Estimate) -> str:
    low, high = estimate.interval
    value = "—" if estimate.value is None else f"{estimate.value:.4f}"
    return f"{value} ({low:.4f}–{high:.4f})"


def _source(rows: Path | None, bundle: Path | None, seed: int) -> Source | None:
    """Return the model's labels, if there is a model, and rows as a policy sees them; None where no data are named."""
    from service.commands.row_files import Parts, of_bundle

    if rows is not None and bundle is not None:
        raise _one_place("both")
    if bundle is not None:
        return of_bundle(bundle)
    if rows is None:
        return None
    parts = Parts.of_file(rows, seed)
    return None, lambda _: parts


def _needed_source(rows: Path | None, bundle: Path | None, seed: int) -> Source:
    source = _source(rows, bundle, seed)
    if source is None:
        raise _one_place("neither")
    return source


def _one_place(found: str) -> ConfigurationError:
    return ConfigurationError(
        "This needs rows from one place.",
        where="--rows",
        found=found,
        expected="--rows FILE or --bundle FOLDER",
        remedy="Name a CSV or .npz file of labelled rows, or the folder of a bundle.",
    )


def _solve(policy: Policy, parts: Parts, look: int, seed: int, basis: Basis) -> SolvedPolicy:
    from service.decisions.certify import solve as solve_policy

    return solve_policy(policy, version=1, fit=parts.fit, certify=parts.certify, look=look, basis=basis, seed=seed)


def _decide(solved: SolvedPolicy, rows: ScoredRows) -> NDArray[np.intp]:
    from service.decisions.decide import decide

    return decide(solved, rows.probability, rows.score, rows.segment)


def _parts(solved: SolvedPolicy) -> list[tuple[str | None, tuple[SolvedBand, ...]]]:
    if solved.segments:
        return [(value, part.bands) for value, part in solved.segments.items()]
    return [(None, solved.bands)]


def _certified(solved: SolvedPolicy) -> bool:
    return all(part.certified for part in solved.segments.values()) if solved.segments else not solved.review_all


def _print_bands(policy: Policy, bands: tuple[SolvedBand, ...]) -> None:
    lowest = (math.inf, math.inf)
    for band in bands:
        cut = band.threshold
        if cut is not None:
            where = (cut.probability, cut.score)
            plain = math.isinf(cut.score) or cut.score == cut.probability  # rows without scores have none to show
            tie = "" if plain else f" (among equals from a score of {cut.score:.6g})"
            none = ": no row, an earlier band takes them all" if where >= lowest else ""
            console.print(
                f"{escape(band.action)} from {cut.probability:.6f}{tie}{none}", highlight=False, soft_wrap=True
            )
            lowest = min(lowest, where)
    documents = {band.action: None if band.certificate is None else band.certificate.to_dict() for band in bands}
    print_certificates(policy.id, documents, console)
