"""`candor import`: bring a model that others trained, or its scores alone, as a bundle."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from importing import command_options as option
from importing.child import INTERRUPTED, continue_in_child, interrupt_once
from importing.errors import ImportRefusedError, SlowModelError, UnsupportedModelError
from importing.limits import SHARE, bounded_memory
from importing.policy import PolicyFile
from importing.printable import printable

REFUSED = 2
_STOPS = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
console = Console(emoji=False)
complaints = Console(stderr=True, emoji=False)

app = typer.Typer(
    no_args_is_help=True,
    help="Import a model that others trained, or its scores alone, as a bundle.",
    epilog="Exit codes: 0 done, 1 a promise of --policy is not certified, 2 usage, or the model, its rows or "
    "the policy cannot be used.",
)


def _file_command(file_format: str, described: str) -> None:
    """Add the command that imports models of one file format."""

    @app.command(file_format, help=f"Import {described}.")
    def import_file(
        context: typer.Context,
        model: option.ModelFile,
        name: option.Name,
        validation: option.Validation,
        images_table: option.ImagesTable = None,
        label: option.Label = None,
        label_columns: option.LabelColumns = None,
        labels: option.Labels = None,
        group: option.Group = None,
        segment: option.Segment = None,
        time: option.BookedAt = None,
        weight: option.Weight = None,
        drop: option.Drop = None,
        columns: option.Order = None,
        categories: option.Categories = None,
        inputs: option.Inputs = None,
        output: option.Output = None,
        calibrator: option.CalibratorName = "auto",
        split: option.Split = "0.5,0.45,0.05",
        split_column: option.SplitColumn = None,
        allow_reversed: option.AllowReversed = False,
        native: option.Native = None,
        refuse_unknown: option.RefuseUnknown = False,
        tokenizer: option.TokenizerFile = None,
        text: option.TextColumn = None,
        max_length: option.MaxLength = None,
        sha256: option.Digest = None,
        seed: option.Seed = 0,
        positive: option.Positive = None,
        policy: option.PolicyOption = None,
        dry_run: option.DryRun = False,
        out: option.Out = Path("var/bundles"),
    ) -> None:
        from importing.finish import Options
        from importing.mlflow import model_of
        from importing.references import digests, fetched
        from importing.rows import read_rows
        from importing.steps import import_model_file

        wanted = policy_of(context, policy, name, out)
        with refusing(), fetched(model, file_format, console) as (path, pinned):
            shares = shares_of(split)
            several = several_labels(label_columns, labels, positive)
            given = (name, labels, calibrator, shares, seed, dry_run, out, allow_reversed, wanted, positive)
            options = Options(*given, label_columns=several)
            read = partial(
                read_rows,
                validation,
                label=label,
                marks=several,
                group=group,
                segment=segment,
                part=split_column,
                time=time,
                weight=weight,
                drop=drop or (),
                images=images_table,
            )
            library, file = model_of(path) if file_format == "mlflow" else (file_format, None)
            import_model_file(
                path if file is None else path / file,
                library,
                read,
                options,
                console,
                order=order_of(columns),
                categories=categories,
                inputs=inputs or (),
                output=output,
                native=native,
                refuse_unknown=refuse_unknown,
                tokenizer=tokenizer,
                text=text,
                max_length=max_length,
                sha256=one_digest(pinned, sha256),
                beside=digests(path),
            )


for each, words in {
    "onnx": "an ONNX file as it is",
    "huggingface": "a text or image classifier that optimum exported to a folder",
    "lightgbm": "LightGBM's model.txt",
    "xgboost": "XGBoost's model.json or model.ubj",
    "catboost": "CatBoost's model.cbm",
    "sklearn": "a scikit-learn model that skops saved",
    "mlflow": "a model that MLflow saved as ONNX, LightGBM, XGBoost, CatBoost or scikit-learn (skops)",
}.items():
    _file_command(each, words)


@app.command("scores")
def import_scores(
    context: typer.Context,
    rows: option.RowsFile,
    name: option.Name,
    label: Annotated[str | None, typer.Option(help="Column of the true class.")] = None,
    label_columns: option.LabelColumns = None,
    score: Annotated[str | None, typer.Option(help="Column of one score per row, larger for the second class.")] = None,
    scores: Annotated[str | None, typer.Option(help="Columns of a score per class: p_genuine,p_fraud.")] = None,
    form: Annotated[
        option.ScoreForm | None, typer.Option(help="What the scores are. Default: found by their values.")
    ] = None,
    labels: option.Labels = None,
    group: option.Group = None,
    segment: option.Segment = None,
    time: option.BookedAt = None,
    weight: option.Weight = None,
    calibrator: option.CalibratorName = "auto",
    split: option.Split = "0.5,0.45,0.05",
    split_column: option.SplitColumn = None,
    allow_reversed: option.AllowReversed = False,
    seed: option.Seed = 0,
    positive: option.Positive = None,
    policy: option.PolicyOption = None,
    dry_run: option.DryRun = False,
    out: option.Out = Path("var/bundles"),
) -> None:
    """Import scores alone: clients send the scores, and Candor calibrates and decides."""
    from importing.finish import Options
    from importing.rows import read_rows
    from importing.scores import import_score_rows

    wanted = policy_of(context, policy, name, out)
    with refusing():
        names = [score] if score else (scores or "").split(",")
        if (score is None) == (scores is None):
            raise ImportRefusedError("scores are missing, or given twice", expected="either --score or --scores")
        shares = shares_of(split)
        several = several_labels(label_columns, labels, positive)
        given = (name, labels, calibrator, shares, seed, dry_run, out, allow_reversed, wanted, positive)
        options = Options(*given, label_columns=several)
        found = read_rows(
            rows,
            label=label,
            marks=several,
            group=group,
            segment=segment,
            part=split_column,
            time=time,
            weight=weight,
            scores=names,
            columns=(),
        )
        import_score_rows(found, options, console, None if form is None else form.value)


@app.command("server")
def import_server(
    context: typer.Context,
    address: Annotated[str, typer.Argument(help="The model: http://HOST:PORT/v2/models/NAME[/versions/VERSION].")],
    name: option.Name,
    validation: option.Validation,
    images_table: option.ImagesTable = None,
    label: option.Label = None,
    labels: option.Labels = None,
    group: option.Group = None,
    segment: option.Segment = None,
    time: option.BookedAt = None,
    weight: option.Weight = None,
    drop: option.Drop = None,
    columns: option.Order = None,
    categories: option.Categories = None,
    inputs: option.Inputs = None,
    output: option.Output = None,
    header: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VARIABLE: a header whose value is in CANDOR_HEADER_…. Repeat for more."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that a request may take.", min=0.001, max=600)] = 5.0,
    on_change: Annotated[
        option.OnChange, typer.Option(help="If the model there changes: refuse predictions, or only alarm.")
    ] = option.OnChange.refuse,
    calibrator: option.CalibratorName = "auto",
    split: option.Split = "0.5,0.45,0.05",
    split_column: option.SplitColumn = None,
    allow_reversed: option.AllowReversed = False,
    refuse_unknown: option.RefuseUnknown = False,
    seed: option.Seed = 0,
    positive: option.Positive = None,
    policy: option.PolicyOption = None,
    dry_run: option.DryRun = False,
    out: option.Out = Path("var/bundles"),
) -> None:
    """Import a model that stays on its server, which speaks the Open Inference Protocol (V2)."""
    from importing.finish import Options, Source
    from importing.rows import read_rows
    from importing.server import ServerModel
    from importing.steps import import_graph

    wanted = policy_of(context, policy, name, out)
    with refusing():
        shares = shares_of(split)
        options = Options(name, labels, calibrator, shares, seed, dry_run, out, allow_reversed, wanted, positive)
        headers = {key: variable for key, _, variable in (text.partition("=") for text in header or ())}
        read = partial(
            read_rows,
            validation,
            label=label,
            group=group,
            segment=segment,
            part=split_column,
            time=time,
            weight=weight,
            drop=drop or (),
            images=images_table,
        )
        import_graph(
            ServerModel(address, headers=headers, timeout_s=timeout, on_change=on_change.value),
            read,
            options,
            console,
            source=Source("open-inference", address, None),
            converted=None,
            native=None,
            order=order_of(columns),
            categories=categories,
            inputs=inputs or (),
            output=output,
            refuse_unknown=refuse_unknown,
        )


def policy_of(context: typer.Context, file: Path | None, name: str, out: Path) -> PolicyFile | None:
    """Return the policy of `--policy`; the application gives what reads it as `context.obj`."""
    made: PolicyFile | None = None if file is None else context.obj(file, name, out)
    return made


def several_labels(columns: str | None, labels: str | None, positive: str | None) -> tuple[str, ...]:
    """Return the names of `--label-columns`, none if it is not given; raises ImportRefusedError."""
    from importing.labels import label_columns

    for option_name, value in (("--labels", labels), ("--positive", positive)):
        if columns is not None and value is not None:
            raise ImportRefusedError(
                f"{option_name} belongs to models of one label per row",
                found=value,
                expected="no such option: each label is absent or present",
            )
    return label_columns(columns)


def one_digest(pinned: str | None, option: str | None) -> str | None:
    """Return the digest of the reference or of `--sha256`; raises ImportRefusedError."""
    if option is not None and re.fullmatch(r"[0-9a-f]{64}", option) is None:
        raise ImportRefusedError("not a valid digest", where="--sha256", found=option, expected="64 hex digits")
    if pinned and option and pinned != option:
        raise ImportRefusedError("the model is pinned to two digests", found=pinned, expected=option)
    return option or pinned


def shares_of(text: str) -> tuple[float, float, float]:
    """Return the shares of `--split`; raises ImportRefusedError."""
    try:
        fit, certify, gate = map(float, text.split(","))
    except ValueError:
        raise ImportRefusedError(
            "cannot read the option --split", found=text, expected="three shares, such as 0.5,0.45,0.05"
        ) from None
    return fit, certify, gate


def order_of(path: Path | None) -> list[str] | None:
    """Return the names in the file of `--columns`; raises ImportRefusedError."""
    from importing.documents import read_json

    if path is None:
        return None
    names: list[str] = read_json(path, "columns", list)
    if not all(isinstance(name, str) for name in names):
        raise ImportRefusedError("the file of columns is not a list of names", where=str(path))
    return names


@contextmanager
def refusing() -> Iterator[None]:
    """Bound the memory, print an error of the import, and end with its exit status."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt_once)  # most modules are imported
    try:
        with bounded_memory():
            yield
    except MemoryError:
        complaints.print(f"[bold red]Refused[/bold red]: More than {SHARE:.0%} of this machine's memory is required.")
        raise typer.Exit(REFUSED) from None
    except SlowModelError as error:
        complain(error)
        os._exit(REFUSED)  # the model's thread would crash an ordinary end
    except ImportRefusedError as error:
        complain(error)
        raise typer.Exit(REFUSED) from None
    except KeyboardInterrupt:
        complaints.print("Interrupted. Nothing was written.")
        os._exit(INTERRUPTED)  # as above


def complain(error: ImportRefusedError) -> None:
    """Print why an import is refused."""
    said = printable(error.sentence, kept="\n")
    address = re.match(r"[a-z0-9]+://", said)  # its letters stay as they are
    message = said if address else said[:1].upper() + said[1:]
    complaints.print(f"[bold red]Refused[/bold red]: {escape(message)}", soft_wrap=True)
    for key in ("where", "found", "expected", "remedy"):
        value = getattr(error, key)
        if value is not None:
            value = printable(value, kept="\n")
            complaints.print(f"  [dim]{key}:[/dim] {escape(value)}", soft_wrap=True)


def isolate() -> None:
    """Continue in a child process; the parent reports a crash as a refusal, and ends with the child's exit status."""
    status = continue_in_child()
    if status is None:
        return
    if status < 0 and -status not in _STOPS:
        killed = -status == signal.SIGKILL
        complain(
            UnsupportedModelError(
                "the import was killed, probably because memory ran out"
                if killed
                else "the model or the rows crash the import",
                found=f"signal {signal.Signals(-status).name}",
                remedy=None
                if killed
                else "Export the model again, or write the rows anew, and load it only where a crash does no harm.",
            )
        )
        status = REFUSED
    sys.exit(status if status >= 0 else 128 - status)
