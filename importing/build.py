"""From a model and labelled rows to the contents of a bundle: score, split, calibrate, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bundle import (
    BundleContents,
    Columns,
    EncodedText,
    Golden,
    Graph,
    ImportRecord,
    InputSpec,
    LabelledLogits,
    LabelOf,
    Profile,
    Reference,
    Tokenizer,
    Trees,
)
from bundle.graph import ProbabilityError, Run
from bundle.reference import PARTS
from bundle.report import headline
from calibrators import CALIBRATORS, CalibrationError, Calibrator
from importing.errors import RowsError, UnsupportedModelError
from importing.examples import Values
from importing.report import make_report
from importing.rows import Rows
from importing.split import group_numbers, split

GOLDEN_ROWS = 8
_CHUNK = 512
_CHUNK_BYTES = 2**24

Progress = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Scored:
    """A model with its scores of the rows.

    Attributes:
        spec: Input of the bundle.
        values: The rows as the model takes them, (N, …).
        logits: float32 (N, K).
        content: The model file.
        source: `imported`, `scores` or `remote`.
        graph: How rows enter the graph; None for scores.
        columns: Columns of a table; None for other inputs.
        tokenizer: What makes texts the input; None for other inputs.
        texts: The texts of the rows, object (N,); None for other inputs.
        trees: The trees of the graph; None for other models.
        record: What was imported.
    """

    spec: InputSpec
    values: Values
    logits: npt.NDArray[np.float32]
    content: bytes
    source: Literal["imported", "scores", "remote"]
    record: ImportRecord
    graph: Graph | None = None
    columns: Columns | None = None
    tokenizer: Tokenizer | None = None
    texts: npt.NDArray[np.object_] | None = None
    trees: Trees | None = None


def chunk_rows(values: Values) -> int:
    """Return the number of rows to hold and score at once."""
    each: int = values[:1].nbytes
    return min(_CHUNK, max(1, _CHUNK_BYTES // max(1, each)))


def score(
    graph: Graph, run: Run, values: Values, rows: Rows, classes: int, progress: Progress
) -> npt.NDArray[np.float32]:
    """Return the model's logits (N, K) of the rows.

    Args:
        graph: How rows enter the graph.
        run: `OnnxModel.run`, or what answers like it.
        values: The rows as the graph takes them, (N, …).
        rows: The rows as they were read, to show a wrong one.
        classes: Number K of labels.
        progress: Called with the number of rows scored so far.

    Raises:
        UnsupportedModelError: The model fails, or a score is not a number.
        RowsError: A row cannot be read, or does not fit the model.
    """
    logits = np.empty((len(values), classes), np.float32)
    size = chunk_rows(values)
    for start in range(0, len(values), size):
        part = values[start : start + size]
        try:
            logits[start : start + len(part)] = graph.run(run, part, classes)
        except ProbabilityError as error:
            raise UnsupportedModelError(
                f"output {error.output!r} does not give probabilities",
                where=rows.where(start + error.row),
                found=f"{error.value:.6g}",
                expected="0 to 1",
                remedy="Export the scores as a tensor (zipmap=False)."
                if graph.output.form == "maps"
                else f"Name its form: --output {error.output}:margin for one number per row, "
                f"--output {error.output}:logits for one per class.",
            ) from error
        except ValueError as error:
            raise UnsupportedModelError(str(error)) from error
        progress(start + len(part))
    wrong = ~np.isfinite(logits).all(axis=1)
    if wrong.any():
        raise UnsupportedModelError(
            f"the model gives no finite scores for {int(wrong.sum())} of {len(values)} rows",
            where=rows.where(int(wrong.argmax())),
            found=str(logits[wrong][0].tolist())[:300],
            expected="finite scores",
        )
    return logits


def make_contents(
    scored: Scored,
    rows: Rows,
    codes: npt.NDArray[np.int64],
    *,
    name: str,
    labels: Sequence[str],
    calibrator: str,
    shares: tuple[float, float, float],
    seed: int,
    positive: str | None = None,
    label_of: LabelOf | None = None,
) -> BundleContents:
    """Split the rows, fit the calibrator, and return the contents of the bundle.

    Args:
        scored: The model with its scores.
        rows: The rows.
        codes: Label of each row as a column of the logits, int64 (N,).
        name: Name of the model.
        labels: Names of the K labels.
        calibrator: Key of `calibrators.CALIBRATORS`.
        shares: Shares of fit, certify and gate rows.
        seed: Seed of the split.
        positive: The class that matters, see `make_report`.
        label_of: The multi-label model to which it belongs; None for other models.

    Raises:
        RowsError: The rows cannot be split, or do not determine the calibrator.
    """
    places = split(rows, shares, seed=seed)
    reference = _reference(scored.logits, codes, rows, places, seed=seed)
    fitted = fit(calibrator, reference.fit, group_numbers(rows, seed)[places["fit"]])
    report = make_report(reference, fitted, labels, positive)
    golden = _golden_rows(codes)
    texts = () if scored.texts is None else tuple(map(EncodedText, scored.texts[golden].tolist(), range(len(golden))))
    return BundleContents(
        model=name,
        labels=tuple(labels),
        input=scored.spec,
        model_bytes=scored.content,
        calibrator=fitted,
        reference=reference,
        golden=Golden(scored.values[golden], scored.logits[golden], texts=texts),
        versions={each: version(each) for each in ("numpy", "onnxruntime", "candor-server")},
        metrics=headline(report),
        report=report,
        columns=scored.columns,
        profile=None if scored.columns is None else _profile(scored.columns, scored.values, rows, places, seed=seed),
        tokenizer=scored.tokenizer,
        trees=scored.trees,
        source=scored.source,
        graph=scored.graph,
        imported=scored.record,
        label_of=label_of,
    )


def _profile(
    columns: Columns, values: Values, rows: Rows, places: Mapping[str, npt.NDArray[np.int64]], *, seed: int
) -> Profile:
    counted = np.concatenate([places["certify"], places["gate"]])
    return Profile.of(
        columns,
        values[places["fit"]],
        values[counted],
        weight=None if rows.weight is None else rows.weight[counted],
        group=None if rows.group is None else group_numbers(rows, seed)[counted],
    )


def _reference(
    logits: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int64],
    rows: Rows,
    places: Mapping[str, npt.NDArray[np.int64]],
    *,
    seed: int,
) -> Reference:
    """Return the rows as reference rows; groups by number only, since names may be personal."""
    groups = None if rows.group is None else np.unique(group_numbers(rows, seed), return_inverse=True)[1]
    segments = None if rows.segment is None else np.array([value or "" for value in rows.segment], np.str_)
    columns: dict[str, Any] = {"group": groups, "segment": segments, "weight": rows.weight, "time": rows.time}
    return Reference(
        **{
            part: LabelledLogits(
                np.ascontiguousarray(logits[places[part]]),
                codes[places[part]],
                **{key: None if values is None else values[places[part]] for key, values in columns.items()},
            )
            for part in PARTS
        }
    )


def fit(name: str, rows: LabelledLogits, groups: npt.NDArray[np.int64]) -> Calibrator:
    """Fit a calibrator on fit rows; raises RowsError.

    Args:
        name: Key of `calibrators.CALIBRATORS`.
        rows: The fit rows.
        groups: Their groups, of `group_numbers`: folds keep equal rows together, as the split does.
    """
    calibrator = CALIBRATORS[name]()
    try:
        return calibrator.fit_grouped(rows.logits, rows.labels, groups, rows.weight)
    except CalibrationError as error:
        raise RowsError(
            f"The calibrator `{name}` cannot be fitted on {len(rows.labels)} rows: {error}",
            remedy="Bring more rows, or choose another calibrator, such as temperature.",
        ) from error


def _golden_rows(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the first rows of each class in turn, at most `GOLDEN_ROWS`."""
    by_class = [np.flatnonzero(codes == code)[:GOLDEN_ROWS] for code in np.unique(codes)]
    mixed = [row for turn in range(GOLDEN_ROWS) for own in by_class for row in own[turn : turn + 1]]
    return np.sort(np.array(mixed[:GOLDEN_ROWS], np.int64))
