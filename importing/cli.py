"""`candor import`: bring a model that others trained, or its scores alone, as a bundle."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from importing.child import continue_in_child
from importing.errors import ImportRefusedError, UnsupportedModelError
from importing.limits import SHARE, bounded_memory
from importing.policy import PolicyFile

REFUSED = 2
_STOPS = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
console = Console()
complaints = Console(stderr=True)

app = typer.Typer(
    no_args_is_help=True,
    help="Import a model that others trained, or its scores alone, as a bundle.",
    epilog="Exit codes: 0 done, 1 a promise of --policy is not certified, 2 usage, or the model, its rows or "
    "the policy cannot be used.",
)

ModelFile = Annotated[
    str,
    typer.Argument(
        help="The model's file, or the folder of huggingface and mlflow: a path, a URL (s3://, gs://, hf://, oci://, "
        "https://) or models:/NAME@ALIAS; pinned with …@sha256:DIGEST.",
    ),
]
Digest = Annotated[str | None, typer.Option("--sha256", help="sha256 that the model's file must have.")]
RowsFile = Annotated[Path, typer.Argument(help="Labelled rows: CSV, Parquet or NDJSON.", exists=True, dir_okay=False)]
Name = Annotated[str, typer.Option(help="Name of the model in the service.")]
Validation = Annotated[
    Path,
    typer.Option(help="Labelled rows, unseen in training: CSV, Parquet, NDJSON, .npz or an image folder."),
]
Label = Annotated[str | None, typer.Option(help="Column of the true class; none for an image folder.")]
Labels = Annotated[
    str | None, typer.Option(help="Classes in the order of the model's scores, renamed: 0=genuine,1=fraud.")
]
Group = Annotated[str | None, typer.Option(help="Column of groups: rows that belong together, such as a card's.")]
Segment = Annotated[str | None, typer.Option(help="Column of segments that get certificates of their own.")]
BookedAt = Annotated[str | None, typer.Option("--time", help="Column of times.")]
Weight = Annotated[str | None, typer.Option(help="Column of weights.")]
Drop = Annotated[list[str] | None, typer.Option(help="Column that is not an input. Repeat for more.")]
Order = Annotated[
    Path | None, typer.Option("--columns", help="JSON list: names of the columns in the order of the model's input.")
]
Categories = Annotated[
    Path | None, typer.Option(help="JSON object: categories by column, in the order of their codes from 0.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", help="NAME:layout=NCHW,scale=0.0039,mean=0.5 0.5 0.5,std=0.2 0.2 0.2,size=224x224."),
]
Output = Annotated[
    str | None, typer.Option(help="NAME[:FORM] of the output: logits, probabilities, positive, margin or maps.")
]
CalibratorName = Annotated[str, typer.Option("--calibrator", help="Calibrator, or auto to choose one.")]
Split = Annotated[str, typer.Option(help="Shares of fit, certify and gate rows.")]
SplitColumn = Annotated[str | None, typer.Option(help="Column that says fit, certify or gate.")]
Native = Annotated[
    Path | None, typer.Option(help="The model as its own library saved it, to compare the answers.", exists=True)
]
RefuseUnknown = Annotated[bool, typer.Option(help="Refuse rows with unknown categories; by default they are counted.")]
TokenizerFile = Annotated[
    Path | None,
    typer.Option("--tokenizer", help="tokenizer.json of a text model in ONNX.", exists=True, dir_okay=False),
]
TextColumn = Annotated[str | None, typer.Option(help="Column of the texts, where the rows have more inputs.")]
MaxLength = Annotated[
    int | None,
    typer.Option(min=1, max=100_000, help="Tokens per text, where the graph takes any number. Default: 128."),
]
AllowReversed = Annotated[
    bool, typer.Option("--allow-reversed", help="Accept scores that rank the second class below the first.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the split.")]
PolicyOption = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        help="Policy in YAML or JSON: linted first, certified on the bundle, and put into CANDOR_POLICIES or the "
        "folder `policies` beside --out.",
        exists=True,
        dir_okay=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what was found and write nothing.")]
Out = Annotated[Path, typer.Option(help="Folder of bundles.", file_okay=False)]


class OnChange(StrEnum):
    """What predictions get once a model on a server has changed."""

    refuse = "refuse"
    alarm = "alarm"


def _file_command(file_format: str, described: str) -> None:
    """Add the command that imports models of one file format."""

    @app.command(file_format, help=f"Import {described}.")
    def import_file(
        context: typer.Context,
        model: ModelFile,
        name: Name,
        validation: Validation,
        label: Label = None,
        labels: Labels = None,
        group: Group = None,
        segment: Segment = None,
        time: BookedAt = None,
        weight: Weight = None,
        drop: Drop = None,
        columns: Order = None,
        categories: Categories = None,
        inputs: Inputs = None,
        output: Output = None,
        calibrator: CalibratorName = "auto",
        split: Split = "0.5,0.45,0.05",
        split_column: SplitColumn = None,
        allow_reversed: AllowReversed = False,
        native: Native = None,
        refuse_unknown: RefuseUnknown = False,
        tokenizer: TokenizerFile = None,
        text: TextColumn = None,
        max_length: MaxLength = None,
        sha256: Digest = None,
        seed: Seed = 0,
        policy: PolicyOption = None,
        dry_run: DryRun = False,
        out: Out = Path("var/bundles"),
    ) -> None:
        from importing.finish import Options
        from importing.mlflow import model_of
        from importing.references import fetched
        from importing.rows import read_rows
        from importing.steps import import_model_file

        wanted = policy_of(context, policy, name, out)
        with refusing(), fetched(model, file_format, console) as (path, pinned):
            options = Options(name, labels, calibrator, shares_of(split), seed, dry_run, out, allow_reversed, wanted)
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
            )


for each, words in {
    "onnx": "an ONNX file as it is",
    "huggingface": "a text or image classifier that optimum exported to a folder",
    "lightgbm": "LightGBM's model.txt",
    "xgboost": "XGBoost's model.json or model.ubj",
    "catboost": "CatBoost's model.cbm",
    "sklearn": "a scikit-learn model that skops saved",
    "mlflow": "a model that MLflow saved as ONNX, LightGBM, XGBoost or CatBoost",
}.items():
    _file_command(each, words)


@app.command("scores")
def import_scores(
    context: typer.Context,
    rows: RowsFile,
    name: Name,
    label: Annotated[str, typer.Option(help="Column of the true class.")],
    score: Annotated[str | None, typer.Option(help="Column of one score per row, larger for the second class.")] = None,
    scores: Annotated[str | None, typer.Option(help="Columns of a score per class: p_genuine,p_fraud.")] = None,
    labels: Labels = None,
    group: Group = None,
    segment: Segment = None,
    time: BookedAt = None,
    weight: Weight = None,
    calibrator: CalibratorName = "auto",
    split: Split = "0.5,0.45,0.05",
    split_column: SplitColumn = None,
    allow_reversed: AllowReversed = False,
    seed: Seed = 0,
    policy: PolicyOption = None,
    dry_run: DryRun = False,
    out: Out = Path("var/bundles"),
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
        options = Options(name, labels, calibrator, shares_of(split), seed, dry_run, out, allow_reversed, wanted)
        found = read_rows(
            rows,
            label=label,
            group=group,
            segment=segment,
            part=split_column,
            time=time,
            weight=weight,
            scores=names,
            columns=(),
        )
        import_score_rows(found, options, console)


@app.command("server")
def import_server(
    context: typer.Context,
    address: Annotated[str, typer.Argument(help="The model: http://HOST:PORT/v2/models/NAME[/versions/VERSION].")],
    name: Name,
    validation: Validation,
    label: Label = None,
    labels: Labels = None,
    group: Group = None,
    segment: Segment = None,
    time: BookedAt = None,
    weight: Weight = None,
    drop: Drop = None,
    columns: Order = None,
    categories: Categories = None,
    inputs: Inputs = None,
    output: Output = None,
    header: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VARIABLE: a header whose value is in CANDOR_HEADER_…. Repeat for more."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that a request may take.", min=0.001, max=600)] = 5.0,
    on_change: Annotated[
        OnChange, typer.Option(help="Predictions once the model there has changed: refuse them, or only alarm.")
    ] = OnChange.refuse,
    calibrator: CalibratorName = "auto",
    split: Split = "0.5,0.45,0.05",
    split_column: SplitColumn = None,
    allow_reversed: AllowReversed = False,
    refuse_unknown: RefuseUnknown = False,
    seed: Seed = 0,
    policy: PolicyOption = None,
    dry_run: DryRun = False,
    out: Out = Path("var/bundles"),
) -> None:
    """Import a model that stays on its server, which speaks the Open Inference Protocol (V2)."""
    from importing.finish import Options, Source
    from importing.rows import read_rows
    from importing.server import ServerModel
    from importing.steps import import_graph

    wanted = policy_of(context, policy, name, out)
    with refusing():
        options = Options(name, labels, calibrator, shares_of(split), seed, dry_run, out, allow_reversed, wanted)
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
    try:
        with bounded_memory():
            yield
    except MemoryError:
        complaints.print(f"[bold red]Refused[/bold red]: More than {SHARE:.0%} of this machine's memory is required.")
        raise typer.Exit(REFUSED) from None
    except ImportRefusedError as error:
        complain(error)
        raise typer.Exit(REFUSED) from None
    except KeyboardInterrupt:
        complaints.print("Interrupted. Nothing was written.")
        sys.exit(130)


def complain(error: ImportRefusedError) -> None:
    """Print why an import is refused."""
    message = re.sub(r"(?<![.?])$", ".", error.message[:1].upper() + error.message[1:], count=1)
    complaints.print(f"[bold red]Refused[/bold red]: {escape(message)}", soft_wrap=True)
    for key in ("where", "found", "expected", "remedy"):
        value = getattr(error, key)
        if value is not None:
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
                "the import was killed, probably because memory ran out" if killed else "the model crashes the import",
                found=f"signal {signal.Signals(-status).name}",
                remedy=None if killed else "Export the model again, and load it only where a crash does no harm.",
            )
        )
        status = REFUSED
    sys.exit(status if status >= 0 else 128 - status)
