"""Multi-label models: for each label a model of two classes, absent and present, all over the same model file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bundle import BundleContents, LabelOf
from bundle.manifest import ABSENT, MODEL_NAME, PRESENT
from importing.build import Scored
from importing.class_sizes import highest_share
from importing.errors import AmbiguousModelError, ImportRefusedError, RowsError, UnsupportedModelError
from importing.examples.result import OnDemand
from importing.finish import DRY_RUN, Options, prepared, stored
from importing.printable import printable
from importing.rows import Rows
from importing.split import split

CLASSES: Final = (ABSENT, PRESENT)
KEYS: Final = ("0", "1")
_MOST: Final = 1_000


def label_columns(text: str | None) -> tuple[str, ...]:
    """Return the names of `--label-columns`, none if it is not given; raises ImportRefusedError."""
    return () if text is None else check_labels([name.strip() for name in text.split(",")])


def check_labels(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of labels; raises ImportRefusedError unless there are several, and they differ."""
    if len(set(names)) != len(names) or not 2 <= len(names) <= _MOST or "" in names:
        raise ImportRefusedError(
            "the label columns are not valid",
            found=", ".join(names)[:300],
            expected=f"2 to {_MOST:,} different names, in the order of the model's scores",
        )
    return tuple(names)


def model_name(model: str, label: str) -> str:
    """Return the name of the model of one label.

    >>> model_name("comments", "Identity hate")
    'comments--identity_hate'
    """
    return f"{model}--{re.sub('[^a-z0-9_-]+', '_', label.lower()).strip('_')}"


def of_each_label(options: Options, labels: Sequence[str]) -> list[Options]:
    """Return the options of each label's own import.

    Raises:
        ImportRefusedError: A name is not valid or twice, or a model has the name of the multi-label model.
    """
    names = [model_name(options.name, label) for label in labels]
    wrong = [
        label
        for label, name in zip(labels, names, strict=True)
        if not re.fullmatch(MODEL_NAME, name) or names.count(name) > 1 or name == f"{options.name}--"
    ]
    if wrong:
        raise ImportRefusedError(
            "labels cannot name their models",
            found=", ".join(wrong)[:300],
            expected=f"labels that give different names of at most 64 characters, such as {options.name}--toxic",
            remedy="Rename these columns, or shorten --name.",
        )
    if (options.out / options.name).exists():
        raise ImportRefusedError(
            "a model has the name of the multi-label model",
            found=str(options.out / options.name),
            expected="a name of its own: --name",
        )
    return [
        replace(
            options,
            name=name,
            labels=None,
            label_columns=(),
            label_of=LabelOf(model=options.name, label=label, labels=tuple(labels)),
            positive=PRESENT,
            policy=None if options.policy is None else options.policy.of(name),
        )
        for label, name in zip(labels, names, strict=True)
    ]


def check_rows(rows: Rows, options: Options, console: Console) -> None:
    """Report the labels of the rows, and refuse those that cannot be split: scoring takes long.

    Raises:
        RowsError: A label has no rows that have it, or none that lack it, or they cannot be split.
    """
    certify = options.shares[1]
    table = Table("label", "rows", "unknown", "present", "base rate", "certifiable precision or recall")
    for place, name in enumerate(options.label_columns):
        own, _ = rows.of_label(place, name)
        try:
            split(own, options.shares, seed=options.seed)
        except RowsError as error:
            raise RowsError(
                f"The label `{printable(name)}`: {error.message}",
                where=error.where,
                found=error.found,
                expected=error.expected,
                remedy=error.remedy,
            ) from error
        present = int(np.count_nonzero(own.label == "1"))
        table.add_row(
            escape(printable(name)),
            f"{len(own):,}",
            f"{len(rows) - len(own):,}",
            f"{present:,}",
            f"{present / len(own):.2%}",
            f"at most {highest_share(round(present * certify)):.4f}",
        )
    console.print(f"{len(rows):,} rows, {len(options.label_columns)} labels")
    console.print(table)


def finish_labels(
    rows: Rows, options: Options, console: Console, scored: Callable[[int, Rows, np.ndarray], Scored]
) -> Path | None:
    """Calibrate and report each label, then write the bundles of all; return the first's folder, None for a dry run.

    Args:
        rows: The rows, with `marks`.
        options: The options of the import.
        console: Where the steps are printed.
        scored: Returns the scores of a label, given its place, its rows and their positions.

    Raises:
        ImportRefusedError: The rows do not suffice, or a bundle cannot be written.
    """
    made: list[tuple[BundleContents, Options]] = []
    for place, own in enumerate(of_each_label(options, options.label_columns)):
        name = options.label_columns[place]
        known, positions = rows.of_label(place, name)
        console.print(f"label {escape(printable(name))}:", soft_wrap=True)
        try:
            made.append((prepared(scored(place, known, positions), known, KEYS, CLASSES, own, console), own))
        except AmbiguousModelError as error:
            raise AmbiguousModelError(
                f"label `{printable(name)}`: {error.message}",
                expected="label columns in the order of the model's scores",
                remedy="Correct the order of --label-columns. If it is right and the model ranks so badly, confirm it "
                "with --allow-reversed.",
            ) from error
    return store_labels(made, options, console)


def store_labels(made: Sequence[tuple[BundleContents, Options]], options: Options, console: Console) -> Path | None:
    """Write the bundles of all labels, once all are made; return the first's folder, None for a dry run.

    A policy that one label cannot certify does not keep it from the others.
    """
    _print_report([contents for contents, _ in made], console)
    if options.dry_run:
        console.print(DRY_RUN)
        return None
    paths, failed = [], None
    for contents, own in made:
        try:
            paths.append(stored(contents, own, console))
        except typer.Exit as error:  # the bundle is written, its policy is not certified
            failed = error
    if failed is not None:
        raise failed
    console.print(
        f"Multi-label model {escape(options.name)}: POST /v1/multilabel/{options.name}/predict answers all labels.",
        soft_wrap=True,
    )
    return paths[0]


def subset(scored: Scored, positions: np.ndarray, **changed: Any) -> Scored:
    """Return a model with its scores of some of the rows."""
    if len(positions) == len(scored.values):
        return replace(scored, **changed)
    values = scored.values
    texts = None if scored.texts is None else scored.texts[positions]
    made = OnDemand(len(positions), lambda places: values[positions[places]])
    return replace(scored, values=made, texts=texts, **changed)


def places_of(labels: Sequence[str], known: Sequence[str] | None) -> tuple[tuple[int, ...], int]:
    """Return the column of each label among the model's scores, and the number of these.

    Args:
        labels: Labels in the order of the scores, or of any order if the model knows them.
        known: The labels that the model knows, in the order of its scores; None if it knows none.

    Raises:
        UnsupportedModelError: The model knows others.
    """
    if known is None or not set(labels) & set(known):
        return tuple(range(len(labels))), len(labels)
    if strays := [label for label in labels if label not in known]:
        raise UnsupportedModelError(
            "the model has other labels than the rows",
            found=", ".join(strays)[:300],
            expected=", ".join(known)[:300],
            remedy="Name the label columns as the model names its labels.",
        )
    return tuple(known.index(label) for label in labels), len(known)


def _print_report(made: Sequence[BundleContents], console: Console) -> None:
    for contents in made:
        fitted, metrics = contents.report["calibrator"], contents.metrics
        method = fitted.get("calibrator", fitted)["method"]
        after = contents.report["positive"]["after"]
        areas = ", ".join(
            f"{name} {after[key]['value']:.4f}"
            for key, name in (("average_precision", "average precision"), ("auroc", "AUROC"))
            if after[key]["value"] is not None
        )
        console.print(
            escape(
                f"{printable(cast('LabelOf', contents.label_of).label)} ({method}): "
                f"log loss {metrics['nll_before']:.4f} → {metrics['nll_after']:.4f}, "
                f"ECE {metrics['ece_before']:.4f} → {metrics['ece_after']:.4f} "
                f"(95 % of calibrated models: below {metrics['ece_null_q95_after']:.4f})"
                f"{areas and f', {areas}'}"
            ),
            soft_wrap=True,
        )
