"""Import the scores of a model that runs elsewhere: clients send them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from rich.console import Console

from bundle import InputSpec, RowError, Scores
from bundle.scores import LARGEST
from importing.build import Scored
from importing.class_order import class_order
from importing.columns import describe, print_report
from importing.errors import RowsError
from importing.finish import Options, Source, finish, record_of
from importing.rows import Rows


def import_score_rows(rows: Rows, options: Options, console: Console) -> None:
    """Import the scores of rows, `rows.scores`, as a bundle without a model.

    Raises:
        ImportRefusedError: The scores or the rows cannot be used; nothing was written.
    """
    keys, labels = class_order(rows, options.labels, None)
    if options.policy is not None:
        options.policy.check(labels)
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
    kind = _scores(given, len(labels))
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


def _scores(values: npt.NDArray[np.float64], classes: int) -> Scores:
    inside = bool(((values >= 0) & (values <= 1)).all())
    if values.shape[1] == 1:
        if classes != 2:
            raise RowsError(
                "One score per row requires two classes.", found=f"{classes} classes", expected="--scores p_a,p_b,p_c"
            )
        if inside:
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
    return Scores(form="probabilities" if inside and (np.abs(values.sum(axis=1) - 1) < 1e-3).all() else "logits")
