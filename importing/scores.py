"""Import the scores of a model that runs elsewhere: clients send them."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
from rich.console import Console

from bundle import InputSpec, RowError, Scores
from bundle.scores import LARGEST, Form
from importing.build import Scored
from importing.class_order import class_order
from importing.columns import describe, print_report
from importing.errors import AmbiguousModelError, RowsError
from importing.finish import Options, Source, finish, record_of
from importing.labels import CLASSES, check_rows, finish_labels
from importing.rows import Rows
from importing.suspicions import score_warnings

_STRAY = 0.01  # share of scores outside 0 … 1 up to which they may be mistakes among probabilities
_SUM = 1e-3


def import_score_rows(rows: Rows, options: Options, console: Console, form: Form | None = None) -> None:
    """Import the scores of rows, `rows.scores`, as a bundle without a model.

    Args:
        rows: The rows.
        options: What every import is told.
        console: Where the steps are told.
        form: What the scores are; None to find it by their values.

    Raises:
        ImportRefusedError: The scores or the rows cannot be used; nothing was written.
    """
    if options.label_columns:
        _import_labels(rows, options, console, form)
        return
    keys, labels = class_order(rows, options.labels, None)
    options.check(labels)
    print_report(describe(rows, certify=options.shares[1]), console)
    spec, kind, logits = _scored(rows, console, form, len(labels))
    record = record_of(Source("scores", rows.path.name, None), rows, options, None)
    finish(Scored(spec, logits, logits, kind.dump(), "scores", record), rows, keys, labels, options, console)


def _import_labels(rows: Rows, options: Options, console: Console, form: Form | None) -> None:
    given, count = rows.scores, len(options.label_columns)
    assert given is not None  # noqa: S101 — the command names their columns
    if given.shape[1] != count:
        raise RowsError(
            "The rows have another number of scores than labels.",
            found=f"{given.shape[1]} columns of scores",
            expected=f"{count}, one per label",
        )
    options.check(CLASSES)
    check_rows(rows, options, console)
    record = record_of(Source("scores", rows.path.name, None), rows, options, None)

    def of_label(place: int, known: Rows, _: npt.NDArray[np.int64]) -> Scored:
        assert known.scores is not None  # noqa: S101 — as above
        names = known.score_names[place : place + 1]
        known = dataclasses.replace(known, scores=known.scores[:, [place]], score_names=names)
        spec, kind, logits = _scored(known, console, form, len(CLASSES))
        return Scored(spec, logits, logits, kind.dump(), "scores", record)

    finish_labels(rows, options, console, of_label)


def _scored(
    rows: Rows, console: Console, form: Form | None, classes: int
) -> tuple[InputSpec, Scores, npt.NDArray[np.float32]]:
    """Return the input of the bundle, what its scores are, and the logits of the rows."""
    given = rows.scores
    assert given is not None  # noqa: S101 — the command names their columns
    far = np.abs(given) > LARGEST
    if far.any():
        raise RowsError(
            "The score is out of range.",
            where=_first(rows, far),
            found=f"{given[far][0]:g}",
            expected=f"at most {LARGEST:.3g} in size",
        )
    outside = (given < 0) | (given > 1)
    if form is None and given.shape[1] == 1 and 0 < outside.sum() <= _STRAY * len(given):
        raise AmbiguousModelError(
            f"{int(outside.sum()):,} of {len(given):,} scores {'is' if outside.sum() == 1 else 'are'} outside 0 … 1",
            where=_first(rows, outside),
            found=f"{given[outside][0]:g}",
            expected="--form positive (probabilities: correct these rows) or --form margin (any other scores)",
        )
    kind = _scores(given, classes, form)
    console.print(
        f"scores: {kind.form}" + (f", centre {kind.centre:g}, scale {kind.scale:g}" * (kind.form == "margin"))
    )
    try:
        logits = kind.logits(given[:, 0] if given.shape[1] == 1 else given, classes)
    except RowError as error:
        sums = np.abs(given.sum(axis=1) - 1) > _SUM
        where = _first(rows, outside) if outside.any() else rows.where(int(sums.argmax()))
        raise RowsError(error.message, where=where, found=error.found, expected=error.expected) from error
    for warning in score_warnings(rows):
        console.print(f"[yellow]Warning[/yellow]: {warning}", soft_wrap=True)
    return InputSpec(kind="scores", dtype="float32", shape=(classes,)), kind, logits


def _first(rows: Rows, wrong: npt.NDArray[np.bool_]) -> str:
    """Return where the first wrong score stands, of a mask (N, S)."""
    row, place = np.argwhere(wrong)[0].tolist()
    return rows.where(row, rows.score_names[place])


def _scores(values: npt.NDArray[np.float64], classes: int, form: Form | None) -> Scores:
    inside = bool(((values >= 0) & (values <= 1)).all())
    if values.shape[1] == 1:
        if classes != 2:
            raise RowsError(
                "One score per row requires two classes.", found=f"{classes} classes", expected="--scores p_a,p_b,p_c"
            )
        if form in ("probabilities", "logits"):
            raise _another(form, "positive or margin: one score per row")
        if form == "positive" or (inside and form is None):
            return Scores(form="positive")
        middle = float(np.median(values))
        if values.min() == values.max():
            raise RowsError("All scores are equal.", found=f"{middle:g}", expected="scores that tell rows apart")
        return Scores(form="margin", centre=middle, scale=float(values.std()))
    if values.shape[1] != classes:
        raise RowsError(
            "The rows have another number of scores than classes.",
            found=f"{values.shape[1]} columns of scores",
            expected=f"{classes}, one per class",
        )
    if form is not None:
        if form in ("positive", "margin"):
            raise _another(form, "probabilities or logits: a score per class")
        return Scores(form=form)
    sums = values.sum(axis=1)
    if not inside:
        return Scores(form="logits")
    if (np.abs(sums - 1) < _SUM).all():
        return Scores(form="probabilities")
    raise AmbiguousModelError(
        "the scores lie in 0 … 1 and do not add up to 1",
        found=f"sums from {sums.min():.3g} to {sums.max():.3g}",
        expected="--form logits, or probabilities that add up to 1: divide each row by its sum, here and in requests",
    )


def _another(form: str, expected: str) -> RowsError:
    return RowsError("The form does not fit the scores.", where="--form", found=form, expected=expected)
