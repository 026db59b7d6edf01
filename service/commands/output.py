"""Output of the command line, and exit codes of its errors."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Column, Table

from candor import ApiError, UnexpectedAnswerError, UnreachableError
from candor.contract.certificates import Certificate, SetCertificate
from candor.contract.documents import Answer
from candor.contract.recalibration import Recalibration
from candor.contract.traffic import SegmentMix, TrafficChange
from service.errors import CandorError, ConfigurationError

REFUSED, USAGE, UNREACHABLE, CLIENT_ERROR, SERVER_ERROR = 1, 2, 3, 4, 5
INTERRUPTED = 130  # as shells say it of Ctrl-C

_METRICS = (
    ("nll", "log loss (nats)"),
    ("brier", "Brier score"),
    ("accuracy", "accuracy"),
    ("refinement_auroc", "refinement (AUROC)"),
    ("debiased_calibration_error", "squared calibration error"),
)

_UNBROKEN = 1_000  # columns: what is piped into a file or a program is not squeezed into a terminal's width


# What a terminal obeys instead of showing it. Others write names and reasons.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def shown(text: str) -> str:
    """Return a text with what a terminal would obey replaced by `\ufffd`."""
    return _OBEYED.sub("\ufffd", text)


class _Console(Console):
    """A console that shows control characters in texts as `\ufffd`. rich's own colours are not in texts."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of something to print."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(shown(text), style)


def _console(stderr: bool) -> Console:
    out = _Console(stderr=stderr)
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = _UNBROKEN
    return out


console = _console(stderr=False)
complaints = _console(stderr=True)


def counted(number: int, what: str) -> str:
    """Return a number of things.

    >>> counted(1, "label"), counted(0, "label")
    ('1 label', '0 labels')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def run(command: Callable[[], None]) -> None:
    """Run a command line; an interrupt and an unexpected error have exit codes of their own."""
    try:
        command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception:  # noqa: BLE001 — an unexpected error must not look like "the answer is no"
        traceback.print_exc()
        sys.exit(SERVER_ERROR)


@contextmanager
def reporting() -> Iterator[None]:
    """Turn errors into a few plain lines on standard error and an exit code."""
    try:
        yield
    except (UnreachableError, UnexpectedAnswerError) as error:
        remedy = "Start one with [bold]make serve[/bold], or set CANDOR_URL."
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            remedy = "Check its certificate. SSL_CERT_FILE names the file of the authorities to trust."
        complaints.print(f"[red]{escape(str(error))}[/red]\n{remedy}", soft_wrap=True)
        raise typer.Exit(UNREACHABLE) from None
    except ApiError as error:
        _complain(error.problem.get("title"), str(error), error.problem)
        raise typer.Exit(SERVER_ERROR if error.status >= 500 else CLIENT_ERROR) from None
    except CandorError as error:
        _complain(
            error.title, str(error), {key: getattr(error, key) for key in ("where", "found", "expected", "remedy")}
        )
        raise typer.Exit(USAGE) from None
    except ValueError as error:
        complaints.print(f"[red]{escape(str(error))}[/red]", soft_wrap=True)
        raise typer.Exit(USAGE) from None


def _complain(title: str | None, message: str, details: Mapping[str, Any]) -> None:
    complaints.print(f"[bold red]{escape(title or 'Error')}[/bold red]: {escape(message)}", soft_wrap=True)
    for key in ("where", "found", "expected", "remedy"):
        if details.get(key) is not None:
            complaints.print(f"  [dim]{key}:[/dim] {escape(_spelled(details[key]))}", soft_wrap=True)


def _spelled(value: Any) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)


def print_json(document: Any) -> None:
    """Print a document for scripts."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    sys.stdout.write(_OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def print_line(answer: Answer, text: str, as_json: bool) -> None:
    """Print an answer as one line, or as its document."""
    if as_json:
        print_json(answer.document)
    else:
        console.print(escape(text))


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Give a file under a temporary name. At the end it gets its own name; on an error it is deleted.

    Missing folders above it are made.

    Raises:
        ConfigurationError: The file cannot be written.
    """
    from bundle.whole_file import whole_file  # the package needs NumPy, most commands do not

    try:
        with whole_file(path) as file:
            yield file
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}", where=str(path)) from error


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically.

    Raises:
        ConfigurationError: The file cannot be written.
    """
    with replacing(path) as file:
        file.write(content)


def whole_column(name: str) -> Column:
    """Return a column that is never cut off, since people copy its cells."""
    return Column(name, no_wrap=True, overflow="ignore")


def print_recalibration(answer: Recalibration, out: Console) -> None:
    """Print a recalibration for people."""
    gate, metrics, rows = answer.gate, answer.metrics, answer.rows
    colour = "green" if gate.passed else "yellow"
    out.print(f"[bold {colour}]{escape(answer.summary)}[/bold {colour}]")
    table = Table("on the gate rows", f"{answer.base} (active)", "recalibrated", "", box=None, pad_edge=False)
    for key, name in _METRICS:
        metric = metrics[key]
        before = _with_interval(metric.before, metric.interval_before)
        after = _with_interval(metric.after, metric.interval_after)
        moved = metric.difference_interval
        table.add_row(name, before, after, f"difference: {moved[0]:+.4f} to {moved[1]:+.4f}" if moved else "")
    ece = metrics["ece"]
    table.add_row("ECE, 15 bins", f"{ece.before:.4f}", f"{ece.after:.4f}", "")
    nulls = [f"{null.mean:.4f}, 95 % below {null.q95:.4f}" if null else "" for null in (ece.null_before, ece.null)]
    table.add_row("  if it were calibrated", *nulls, "")
    out.print(table)
    groups = [part for part in answer.calibration if part.column is not None]
    if groups:
        table = Table(
            "column", "value", "rows", "ECE before", "after", "if it were calibrated", box=None, pad_edge=False
        )
        for one in groups:
            eces = (f"{one.before.ece:.4f}", f"{one.after.ece:.4f}", f"95 % below {one.after.null_q95:.4f}")
            table.add_row(*map(escape, (one.column or "", one.value or "", f"{one.rows:,}", *eces)))
        out.print(table)
    for warning in answer.warnings:
        out.print(f"[yellow]Warning[/yellow]: {escape(warning)}", soft_wrap=True)
    out.print("[dim]in brackets, and of the difference: 95 % intervals[/dim]")
    squared = metrics["debiased_calibration_error"]
    if min(squared.before or 0, squared.after or 0) < 0:
        out.print("[dim]the squared calibration error is an estimate less its noise, so it may lie below 0[/dim]")
    out.print(
        f"gate: {gate.mode}, look {gate.attempt} at alpha {gate.alpha:.4g}; log-loss difference "
        f"{gate.difference:+.4f}, upper bound {gate.upper:+.4f}\n"
        f"rows: {rows.fit} fit, {rows.certify} certify, {rows.gate} gate, {rows.pending} pending"
    )
    for policy, change in answer.decisions.policies.items():
        counts = ", ".join(f"{name} {n.before} → {n.after}" for name, n in change.actions.items())
        out.print(f"policy {policy}: {change.flipped} of {rows.gate} decisions change ({counts})")
    for policy, solved in answer.policies.items():
        print_certificates(policy, solved.certified, out, decides=not solved.review_all)
        for part in solved.segments.values():
            print_certificates(policy, part.certified, out, decides=not part.uses_fallback)
        print_sets(policy, solved.sets, out)
        for note in solved.notes:
            out.print(f"  {escape(note)}")
    if answer.revision:
        out.print(f"revision {answer.revision}: {answer.state}")


def print_traffic(change: TrafficChange, out: Console) -> None:
    """Print what an activation does to recent predictions for people."""
    if change.not_compared is not None:
        out.print(f"[dim]no prediction was replayed: {escape(change.not_compared)}[/dim]", soft_wrap=True)
    table = Table(whole_column("policy"), "segment", "action", "now", "then", box=None, pad_edge=False)
    for policy, whole in change.policies.items():
        for mix in (whole, *whole.segments):
            segment = "" if not isinstance(mix, SegmentMix) else mix.segment or "all other"
            for action, share in mix.actions.items():
                table.add_row(*map(escape, (policy, segment, action)), f"{share.before:.1%}", f"{share.after:.1%}")
    if change.policies:
        out.print(table)
        out.print(f"[dim]on the newest {change.rows:,} predictions[/dim]")
    for said in change.exceeds:
        out.print(f"[yellow]{escape(said)}[/yellow]", soft_wrap=True)


def _with_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None:
        return "—"
    return rf"{value:.4f} \[{interval[0]:.4f}, {interval[1]:.4f}]" if interval else f"{value:.4f}"


def print_certificates(
    policy: str, certified: Mapping[str, Certificate | None], out: Console, *, decides: bool = False
) -> None:
    """Print the certificates of a policy's actions, and why others are missing.

    Args:
        policy: Its id.
        certified: Certificates by action.
        out: Where to.
        decides: Whether thresholds decide even where they lack a certificate.
    """
    for action, certificate in certified.items():
        if certificate is None:
            continue
        bound = (
            f"at most {100 * (certificate.at_most or 0):g}%"
            if certificate.at_least is None
            else f"at least {100 * certificate.at_least:g}%"
        )
        segment = certificate.segment
        of = "" if segment is None else f"segment {segment}, "
        promise = f"{policy}: {of}{action}, {certificate.metric.replace('_', ' ')} of {bound}"
        if certificate.rows_per_day is not None:
            promise += f", {certificate.per_day:,} of {certificate.rows_per_day:,} rows per day"
        if certificate.valid:
            counted = "flagged" if certificate.metric == "flag_rate" else f"error{'s' * (certificate.errors != 1)}"
            wrong = f", {100 * certificate.wrong_labels:g}% of labels may be wrong" if certificate.wrong_labels else ""
            out.print(
                f"  [green]certified[/green]      {escape(promise)} ({certificate.errors} {counted} in "
                f"{certificate.n} {certificate.basis} rows, delta {certificate.delta:.3g}{wrong})"
            )
        else:
            out.print(f"  [yellow]not certified[/yellow]  {escape(promise)}: {escape(certificate.reason or '')}")
            if decides:
                continue
            rows = "every row to review" if segment is None else f"every row of {escape(segment)} to the fallback"
            out.print(f"                 while {escape(policy)} is in force like this, it sends {rows}")


def print_sets(policy: str, sets: Mapping[str, SetCertificate], out: Console) -> None:
    """Print the certificates of a policy's prediction sets by segment, "" for all rows."""
    for segment, one in sets.items():
        of = f"segment {segment}, " if segment else ""
        each = " of each label" if one.per_class else ""
        promise = f"{policy}: {of}prediction sets, coverage of at least {100 * one.coverage:g}%{each}"
        if not one.valid:
            out.print(
                f"  [yellow]not certified[/yellow]  {escape(promise)}: {escape(one.reason or '')}", soft_wrap=True
            )
            out.print("                 every set has every label")
            continue
        size = "" if one.size is None else f"; {one.size:.3g} labels a set on average"
        shown = f"{one.n} {one.basis} rows, delta {one.delta:.3g}{size}"
        out.print(f"  [green]certified[/green]      {escape(promise)} ({shown})", soft_wrap=True)
        if one.always:
            out.print(f"                 in every set: {escape(', '.join(one.always))}", soft_wrap=True)
