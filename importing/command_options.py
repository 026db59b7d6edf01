"""The options that commands of `candor import` share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

ModelFile = Annotated[
    str,
    typer.Argument(
        help="The model's file, or the folder of huggingface and mlflow: a path, a URL (s3://, gs://, hf://, oci://, "
        "https://) or models:/NAME@ALIAS; pinned with …@sha256:DIGEST.",
    ),
]
Digest = Annotated[str | None, typer.Option("--sha256", help="Expected SHA-256 of the model's file.")]
RowsFile = Annotated[Path, typer.Argument(help="Labelled rows: CSV, Parquet or NDJSON.", exists=True, dir_okay=False)]
Name = Annotated[str, typer.Option(help="Name of the model in the service.")]
Validation = Annotated[
    Path,
    typer.Option(help="Labelled rows, unseen in training: CSV, Parquet, NDJSON, .npz or an image folder."),
]
ImagesTable = Annotated[
    Path | None,
    typer.Option(
        help="Table with the columns that --group, --segment, --time, --weight or --split-column name for an image "
        "folder; its column `file` has the path of each image in the folder.",
        exists=True,
        dir_okay=False,
    ),
]
Label = Annotated[str | None, typer.Option(help="Column of the true class; none for an image folder.")]
LabelColumns = Annotated[
    str | None,
    typer.Option(
        help="Multi-label models: columns of labels that a row has (1) or lacks (0) independently, in the order of the "
        "model's scores: toxic,threat,insult. An empty cell is unknown.",
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(help="Classes in the order of the model's scores, renamed: 0=genuine,1=fraud, or as a JSON object."),
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
    Path | None,
    typer.Option(
        help="JSON object: categories by column, in the order of their codes from 0. CatBoost: those that rows lack."
    ),
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
TextColumn = Annotated[
    str | None, typer.Option(help="Column of the texts. Required if the rows have other columns, too.")
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=100_000,
        help="Tokens per text, if the graph takes any number. Default: what the folder of huggingface says, at most "
        "512; with --tokenizer 128.",
    ),
]
AllowReversed = Annotated[
    bool, typer.Option("--allow-reversed", help="Accept classes in an order that the rows contradict.")
]
Positive = Annotated[
    str | None,
    typer.Option(help="Class whose precision and recall are reported; of two classes, the rarer one by default."),
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


class ScoreForm(StrEnum):
    """What the scores of `candor import scores` are."""

    positive = "positive"
    margin = "margin"
    probabilities = "probabilities"
    logits = "logits"


class OnChange(StrEnum):
    """What predictions get once a model on a server has changed."""

    refuse = "refuse"
    alarm = "alarm"
