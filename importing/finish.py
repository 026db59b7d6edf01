"""The last steps of every import: calibrate, report, write the bundle."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import JsonValue
from rich.console import Console
from rich.markup import escape

import bundle as bundles
from bundle import BundleContents, BundleError, ImportRecord, LabelOf, NativeCheck
from bundle.manifest import MODEL_NAME
from calibrators import CALIBRATORS
from importing.build import Scored, make_contents
from importing.class_order import SHOWN
from importing.errors import ImportRefusedError, UnsupportedModelError
from importing.order_check import check_order
from importing.policy import PolicyFile
from importing.printable import printable
from importing.report import check_positive
from importing.rows import Rows
from importing.split import check_shares, group_numbers

DRY_RUN: Final = "Dry run: nothing was written."


@dataclass(frozen=True)
class Options:
    """The options of every import; see `candor import`."""

    name: str
    labels: str | None
    calibrator: str
    shares: tuple[float, float, float]
    seed: int
    dry_run: bool
    out: Path
    allow_reversed: bool
    policy: PolicyFile | None = None
    positive: str | None = None
    label_columns: tuple[str, ...] = ()
    label_of: LabelOf | None = None
    in_python: bool = False  # messages then name arguments of `candor.import_model`

    def __post_init__(self) -> None:
        if not re.fullmatch(MODEL_NAME, self.name):
            raise ImportRefusedError(
                "the name of the model is not valid",
                found=self.name,
                expected="1 to 64 lower-case letters, digits, - and _; the first is a letter or digit",
            )
        if self.calibrator not in CALIBRATORS:
            raise UnsupportedModelError(f"unknown calibrator {self.calibrator!r}", expected=", ".join(CALIBRATORS))
        check_shares(self.shares)

    def check(self, labels: Sequence[str]) -> None:
        """Refuse a policy or a class that does not fit the labels of the model.

        Raises:
            ImportRefusedError: `positive` is not a label.
        """
        if self.policy is not None:
            self.policy.check(labels, max(1, len(self.label_columns)))
        if self.positive is not None:
            check_positive(self.positive, labels)


@dataclass(frozen=True)
class Source:
    """Where a model comes from: its format, the name of its file or class, and the sha256 of its file.

    `beside` has the sha256 of each document beside the model's file.
    """

    format: str
    name: str
    sha256: str | None
    beside: Mapping[str, str] = field(default_factory=dict)


def record_of(source: Source, rows: Rows, options: Options, check: NativeCheck | None) -> ImportRecord:
    """Return what the manifest says about an import."""
    beside: dict[str, JsonValue] = {"files": dict(source.beside)} if source.beside else {}
    return ImportRecord(
        format=source.format,
        source=source.name,
        source_sha256=source.sha256,
        rows_sha256=rows.sha256,
        options={"split": list(options.shares), "seed": options.seed, "calibrator": options.calibrator} | beside,
        native=check,
    )


def finish(
    scored: Scored, rows: Rows, keys: Sequence[str], labels: Sequence[str], options: Options, console: Console
) -> Path | None:
    """Calibrate, report, and write the bundle; return its folder, None for a dry run.

    Raises:
        ImportRefusedError: The rows do not suffice, or the bundle cannot be written.
    """
    contents = prepared(scored, rows, keys, labels, options, console)
    for key, name in (("accuracy", "accuracy"), ("nll", "log loss"), ("ece", "calibration error (ECE)")):
        before, after = (contents.metrics[f"{key}_{side}"] for side in ("before", "after"))
        console.print(f"{name}: {before:.4f} → {after:.4f}")
    positive = contents.report.get("positive")
    if positive is not None:
        told = ", ".join(
            f"{name} {positive['after'][key]['value']:.4f}"
            for key, name in (("average_precision", "average precision"), ("auroc", "AUROC"))
            if positive["after"][key]["value"] is not None
        )
        console.print(escape(printable(f"{positive['label']}: {told or 'no rows to rank'}")), soft_wrap=True)
    return stored(contents, options, console)


def prepared(
    scored: Scored, rows: Rows, keys: Sequence[str], labels: Sequence[str], options: Options, console: Console
) -> BundleContents:
    """Calibrate and report; return the contents of the bundle.

    Raises:
        ImportRefusedError: The rows do not suffice.
    """
    place = {key: column for column, key in enumerate(keys)}
    codes = np.fromiter((place[key] for key in rows.label), np.int64, len(rows))
    named = [key if key == name else f"{key} ({name})" for key, name in zip(keys, labels, strict=True)]
    shown = ", ".join(named[:SHOWN]) + ", …" * (len(named) > SHOWN)
    console.print(escape(printable(f"classes in the order of the scores: {shown}")), soft_wrap=True)
    groups = None if rows.group is None else group_numbers(rows, options.seed)
    warning = check_order(
        scored.logits,
        codes,
        keys,
        labels,
        groups=groups,
        allow_reversed=options.allow_reversed,
        fixed=options.labels is None and keys != labels,
        in_python=options.in_python,
    )
    if warning is not None:
        console.print(f"[yellow]Warning[/yellow]: {escape(printable(warning))}", soft_wrap=True)
    with console.status("calibrating"):
        contents = make_contents(
            scored,
            rows,
            codes,
            name=options.name,
            labels=labels,
            calibrator=options.calibrator,
            shares=options.shares,
            seed=options.seed,
            positive=options.positive,
            label_of=options.label_of,
        )
    sizes = {part: len(getattr(contents.reference, part).labels) for part in ("fit", "certify", "gate")}
    console.print(f"rows: {', '.join(f'{count:,} {part}' for part, count in sizes.items())}")
    for warning in contents.report["warnings"]:
        console.print(f"[yellow]Warning[/yellow]: {escape(printable(warning))}", soft_wrap=True)
    return contents


def stored(contents: BundleContents, options: Options, console: Console) -> Path | None:
    """Write the bundle and certify its policy; return its folder, None for a dry run.

    Raises:
        ImportRefusedError: The bundle cannot be written.
    """
    if options.dry_run:
        console.print(DRY_RUN)
        return None
    try:
        path = bundles.write(options.out, contents)
    except (BundleError, OSError) as error:
        raise ImportRefusedError(f"the bundle cannot be written: {error}") from error
    console.print(f"[bold green]Imported[/bold green] {escape(str(path))}")
    if options.policy is not None:
        options.policy.attach(path)
    elif (positive := contents.report.get("positive")) is not None:
        following = shlex.join(["candor", "policy", "suggest", str(path), "--positive", positive["label"]])
        console.print(f"Next: {escape(printable(following))}", soft_wrap=True)
    return path
