"""Import the scores of a model that runs elsewhere: clients send them."""

from __future__ import annotations

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
from importing.rows import Rows


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
    keys, labels = class_order(rows, options.labels, None)
    options.check(labels)
    print_report(describe(rows, certify=options.shares[1]), console)
    given = rows.scores
    assert given is not None  # noqa: S101 — the command names their columns
    far = np.abs(given).max(axis=1) > LARGEST
    if far.any():
        row = int(far.argmax())
        raise RowsError(
            "The score is out of range.",
            where=rows.where(row),
            found=", ".join(f"{score:g}" for score in given[row]),
            expected=f"at most {LARGEST:.3g} in size",
        )
    kind = _scores(given, len(labels), form)
    console.print(
        f"scores: {kind.form}" + (f", centre {kind.centre:g}, scale {kind.scale:g}" * (kind.form == "margin"))
    )
    try:
        logits = kind.logits(given[:, 0] if given.shape[1] == 1 else given, len(labels))
    except RowError as error:
        raise RowsError(error.message, where=str(rows.path), found=error.found, expected=error.expected) from error
    spec = InputSpec(kind="scores", dtype="float32", shape=(len(labels),))
    record = record_of(Source("scores", rows.path.name, None), rows, options, None)
    finish(Scored(spec, logits, logits, kind.dump(), "scores", record), rows, keys, labels, options, console)


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
    if (np.abs(sums - 1) < 1e-3).all():
        return Scores(form="probabilities")
    raise AmbiguousModelError(
        "the scores lie in 0 … 1 and do not add up to 1",
        found=f"sums from {sums.min():.3g} to {sums.max():.3g}",
        expected="--form logits, or probabilities that add up to 1: divide each row by its sum, here and in requests",
    )


def _another(form: str, expected: str) -> RowsError:
    return RowsError("The form does not fit the scores.", where="--form", found=form, expected=expected)
