"""`candor policy`: suggest, examine, solve and try policies on files; propose them to a service."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from candor import DEFAULT_URL, Client
from service.commands.output import REFUSED, complaints, console, print_certificates, print_json, print_sets, reporting
from service.commands.remote import AsJson, Key, Model, Url
from service.commands.suggestion import suggest
from service.errors import ConfigurationError, PolicyError
from service.places import in_body

if TYPE_CHECKING:  # numpy and scipy take long to import: verbs that need them do it themselves
    from candor.contract.backtests import Backtest, WeightedEstimate
    from candor.contract.certificates import SolvedBand
    from candor.contract.policies import Policy
    from candor.contract.simulation import ShareEstimate, SimulatedDecisions
    from service.commands.row_files import Parts
    from service.decisions.lint import Finding
    from service.decisions.solved import SolvedPolicy

    Source = tuple[tuple[str, ...] | None, Callable[[Policy], Parts]]

app = typer.Typer(
    no_args_is_help=True, help="Suggest, examine, solve and try policies on files; propose them to a service."
)
app.command()(suggest)

PolicyFile = Annotated[Path, typer.Argument(help="Policy in YAML or JSON.", exists=True, dir_okay=False)]
Rows = Annotated[
    Path | None,
    typer.Option(help="Rows: CSV or .npz with probability, positive and more.", exists=True, dir_okay=False),
]
BundleFolder = Annotated[
    Path | None, typer.Option(help="Bundle whose reference rows are used instead.", exists=True, file_okay=False)
]
Look = Annotated[int, typer.Option(min=1, help="Number of this look at these rows; files do not count looks.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the split and of every draw.")]


@app.command()
def lint(
    file: PolicyFile, rows: Rows = None, bundle: BundleFolder = None, seed: Seed = 0, as_json: AsJson = False
) -> None:
    """Check a policy, and say how many labelled rows it needs. Exits 1 if there is a problem.

    With data, it also finds bands that no row reaches, and promises that conflict or that these data could never
    certify. It reads no label of a certify row, so linting uses no look.
    """
    from service.decisions.lint import lint as lint_policy
    from service.serving.policy_files import read_policy

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
        print_findings(findings, console)
        if not findings:
            console.print("No problems found.")
    if any(finding.level == "problem" for finding in findings):
        raise typer.Exit(REFUSED)


@app.command()
def put(
    file: PolicyFile, url: Url = DEFAULT_URL, api_key: Key = None, model: Model = None, as_json: AsJson = False
) -> None:
    """Propose a policy to a running service, which solves it. `candor activate` then puts it into force."""
    from service.serving.policy_files import read_policy

    with reporting(), Client(url, api_key=api_key, model=model) as client:
        policy = read_policy(file)
        answer = client.put_policy(policy.id, policy.to_dict())
    if as_json:
        print_json(answer.document)
        return
    for warning in answer.warnings:
        complaints.print(f"[yellow]{escape(warning)}[/yellow]", soft_wrap=True)
    if answer.state == "active":
        console.print(f"{escape(policy.id)} is in force already, in {answer.id}")
    else:
        console.print(f"{escape(policy.id)} is proposed in {answer.id}: candor activate {answer.id}")


@app.command()
def backtest(
    file: PolicyFile,
    since: Annotated[str | None, typer.Option(help="Predictions made at or after this time (ISO 8601).")] = None,
    until: Annotated[str | None, typer.Option(help="Predictions made before this time (ISO 8601).")] = None,
    rows: Annotated[int, typer.Option(min=1, help="Maximum number of fit rows, newest first.")] = 20_000,
    against: Annotated[
        str | None, typer.Option(help="Policy whose decisions are shown beside; default: the one of the same name.")
    ] = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Replay a policy on logged predictions: solved on the earlier half, judged on the later half."""
    from service.serving.policy_files import read_policy

    with reporting(), Client(url, api_key=api_key, model=model) as client:
        policy = read_policy(file)
        found = client.backtest(policy.id, policy.to_dict(), against=against, since=since, until=until, rows=rows)
    if as_json:
        print_json(found.document)
    else:
        print_backtest(found)


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
    if not certified(solve_and_print(file, rows=rows, bundle=bundle, look=look, seed=seed, as_json=as_json)):
        raise typer.Exit(REFUSED)


def solve_and_print(
    file: Path,
    *,
    rows: Path | None = None,
    bundle: Path | None = None,
    look: int = 1,
    seed: int = 0,
    as_json: bool = False,
) -> SolvedPolicy:
    """Solve a policy as `solve` does, and return what was found."""
    from service.serving.policy_files import read_policy

    with reporting():
        labels, parts_of = _needed_source(rows, bundle, seed)
        policy = read_policy(file, labels)
        solved = _solve(policy, parts_of(policy), look, seed)
    if as_json:
        print_json(solved.to_dict())
    else:
        for value, bands in _parts(solved):
            if value is not None:
                console.print(f"[bold]segment {escape(value)}[/bold]")
            _print_bands(policy, bands)
        if policy.segments is not None:
            console.print(f"[bold]all other[/bold]\n{escape(policy.fallback)} for every row")
        print_sets(policy.id, solved.sets, console)
    return solved


@app.command()
def simulate(
    file: PolicyFile,
    against: Annotated[Path | None, typer.Option(help="Policy to compare with.", exists=True, dir_okay=False)] = None,
    rows: Rows = None,
    bundle: BundleFolder = None,
    look: Look = 1,
    flips: Annotated[int, typer.Option(min=0, help="Maximum number of changed rows to list.")] = 10,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Show what a policy would have done: two thirds of the rows solve it, the others test it."""
    from service.decisions.simulate import simulate as simulate_policy
    from service.serving.policy_files import read_policy

    with reporting():
        labels, parts_of = _needed_source(rows, bundle, seed)
        policy = read_policy(file, labels)
        other = None if against is None else read_policy(against, labels)
        if rows is not None and other is not None and other.positive != policy.positive:
            raise PolicyError(
                "A file of rows has the probabilities of one positive class; it cannot compare policies of two.",
                where=in_body("positive"),
                found=other.positive,
                expected=policy.positive,
                remedy="Compare them on a bundle, or on the server.",
            )
        parts = parts_of(policy)
        solved = _solve(policy, parts, look, seed)
        before = None
        if other is not None:
            theirs = parts_of(other)
            before = _solve(other, theirs, look, seed), theirs.tried
        found = simulate_policy(solved, parts.tried, before=before, most_flips=flips, seed=seed)
    if as_json:
        print_json(found.document)
    else:
        print_simulation(found)


@app.command()
def schema() -> None:
    """Print the JSON Schema of policies, for editors."""
    from candor.contract.policies import policy_schema

    print_json(policy_schema())


def print_findings(findings: Iterable[Finding], out: Console) -> None:
    """Print the findings about a policy for people."""
    for finding in findings:
        colour = "red" if finding.level == "problem" else "dim"
        told = f"[{colour}]{finding.level}[/{colour}] {escape(finding.where)}: {escape(finding.message)}"
        out.print(told, soft_wrap=True)
        if finding.remedy:
            out.print(f"        {escape(finding.remedy)}", soft_wrap=True)


def print_simulation(found: SimulatedDecisions) -> None:
    """Print a simulation for people."""
    decisions = found.decisions
    if decisions.flipped is not None:
        console.print(f"[bold]{decisions.flipped} of {found.rows} decisions change[/bold]")
    table = Table("action", "rows now", "rows then", box=None, pad_edge=False)
    for action, volume in found.actions.items():
        table.add_row(escape(action), "" if volume.before is None else str(volume.before), str(volume.after))
    console.print(table)
    table = Table("up to", "precision", "recall", "false-positive rate", "flag rate", box=None, pad_edge=False)
    for band in found.expected:
        estimates = (band.precision, band.recall, band.false_positive_rate, band.flag_rate)
        table.add_row(escape(band.action), *map(_estimate, estimates))
    if found.expected:
        console.print(table)
        console.print(f"[dim]with 95 % intervals, from {found.labelled} labelled of {found.rows} rows[/dim]")
    for flip in decisions.flips:
        console.print(f"  {escape(flip.id)}: {escape(flip.before)} → {escape(flip.after)}", highlight=False)
    if decisions.flipped is not None and decisions.flipped > len(decisions.flips):
        console.print(f"  and {decisions.flipped - len(decisions.flips)} more (--flips)")


def print_backtest(found: Backtest) -> None:
    """Print a backtest for people."""
    console.print(
        f"[bold]{found.judged} rows judged from {found.judged_from or 'no time'}[/bold]; thresholds from "
        f"{found.solving} earlier rows. {found.labelled} labelled, {found.awaited} labels awaited.",
        highlight=False,
        soft_wrap=True,
    )
    for warning in found.warnings:
        complaints.print(f"[yellow]{escape(warning)}[/yellow]")
    if found.review_all:
        complaints.print("[yellow]The earlier rows certify too little: every row would go to review.[/yellow]")
    table = Table("", "in force", "this policy", box=None, pad_edge=False)
    before = {} if found.now is None else found.now.actions
    for action in dict.fromkeys([*before, *found.then.actions]):
        table.add_row(escape(action), str(before.get(action, 0)), str(found.then.actions.get(action, 0)))
    for name in ("caught", "missed", "precision", "prevented", "lost", "friction"):
        sides = ("—" if side is None else _of_backtest(getattr(side, name)) for side in (found.now, found.then))
        table.add_row(name, *sides)
    console.print(table)
    table = Table("from", "rows", "not identified", "caught", "precision", "prevented", box=None, pad_edge=False)
    for point in found.lower:
        estimates = (_of_backtest(one) for one in (point.caught, point.precision, point.prevented))
        table.add_row(f"{point.probability:.4g}", str(point.rows), str(point.unidentified), *estimates)
    console.print(table)
    if found.unidentified:
        console.print(
            f"[dim]Labels of {found.unidentified} rows are never sought: no estimate covers them. "
            "Explore a share.[/dim]",
            soft_wrap=True,
        )


def _of_backtest(estimate: WeightedEstimate) -> str:
    if estimate.value is None:
        return "—"
    value = f"{estimate.value:,.4g}"
    return value if estimate.interval is None else f"{value} ({estimate.interval[0]:,.4g}–{estimate.interval[1]:,.4g})"


def _estimate(estimate: ShareEstimate) -> str:
    low, high = estimate.interval
    value = "—" if estimate.value is None else f"{estimate.value:.4f}"
    return f"{value} ({low:.4f}–{high:.4f})"


def _source(rows: Path | None, bundle: Path | None, seed: int) -> Source | None:
    """Return the labels of the model, if any, and the scored rows; None without data."""
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
        "Name exactly one source of rows.",
        where="--rows",
        found=found,
        expected="--rows FILE or --bundle FOLDER",
        remedy="Name a CSV or .npz file of labelled rows, or the folder of a bundle.",
    )


def _solve(policy: Policy, parts: Parts, look: int, seed: int) -> SolvedPolicy:
    from service.decisions.certify import solve as solve_policy
    from service.decisions.solve import solve_on_reference

    if (bundle := parts.bundle) is not None:
        return solve_on_reference(policy, version=1, bundle=bundle, calibrator=bundle.calibrator, look=look, seed=seed)
    if policy.set is not None:
        raise PolicyError(
            "A file of rows has the probability of one label; a prediction set needs those of all labels.",
            where=in_body("set"),
            found="--rows",
            expected="--bundle FOLDER",
            remedy="Solve the policy on a bundle, or remove `set`.",
        )
    return solve_policy(policy, version=1, fit=parts.fit, certify=parts.certify, look=look, basis="traffic", seed=seed)


def _parts(solved: SolvedPolicy) -> list[tuple[str | None, tuple[SolvedBand, ...]]]:
    if solved.segments:
        return [(value, part.bands) for value, part in solved.segments.items()]
    return [(None, solved.bands)]


def certified(solved: SolvedPolicy) -> bool:
    """Return whether every promise of a policy is certified."""
    bands = all(part.certified for part in solved.segments.values()) if solved.segments else not solved.review_all
    return bands and all(one.valid for one in solved.sets.values())


def _print_bands(policy: Policy, bands: tuple[SolvedBand, ...]) -> None:
    lowest = (math.inf, math.inf)
    for band in bands:
        if band.threshold is not None:
            probability, score = band.threshold.pair
            plain = math.isinf(score) or score == probability  # rows without scores have none to show
            tie = "" if plain else f" (among equals from a score of {score:.6g})"
            none = ": no row, an earlier band takes them all" if (probability, score) >= lowest else ""
            console.print(f"{escape(band.action)} from {probability:.6f}{tie}{none}", highlight=False, soft_wrap=True)
            lowest = min(lowest, band.threshold.pair)
    certified = {band.action: band.certificate for band in bands if band.certificate}
    print_certificates(policy.id, certified, console)
