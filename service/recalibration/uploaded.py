"""An uploaded labelled set as the rows of a recalibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bundle import Bundle
from service.decisions.revision import Revision
from service.decisions.rows import Rows
from service.errors import LabelledSetStateError
from service.inference.offline import Scoring
from service.places import Place, in_body
from service.state.database import Database
from service.state.inputs import type_name
from service.state.labelled_sets import ABSENT, Kind, LabelledSet, LabelledSetStore
from service.state.row_cells import RowCells
from service.times import iso


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The source of uploaded rows.

    Attributes:
        id: Id of the set, such as "ls1".
        sha256: Hash of the uploaded bytes.
        represents: Whether it is declared to be a random sample of the traffic; only then it certifies.
        timed: Whether its rows have prediction times.
        rows: Number of rows.
        kind: "inputs", which the service scored, or "logits", which are as uploaded.
        by: Name of the key that uploaded it.
        by_key: Prefix of that key, or the id of a person; None without one.
        at_us: Time of the upload, in microseconds since the epoch.
    """

    id: str
    sha256: str
    represents: bool
    timed: bool
    rows: int
    kind: Kind
    by: str
    by_key: str | None
    at_us: int

    def to_dict(self) -> dict[str, Any]:
        """Return the source for a report."""
        return {
            "labelled_set": self.id,
            "sha256": self.sha256,
            "represents": "traffic" if self.represents else None,
            "rows": self.rows,
            "kind": self.kind,
            "uploaded_by": self.by,
            "uploaded_by_key": self.by_key,
            "uploaded_at": iso(self.at_us),
        }


def load_uploaded(
    database: Database,
    model: str,
    labelled_set: str,
    revision: Revision,
    bundle: Bundle,
    scoring: Callable[[Bundle, Place], AbstractContextManager[Scoring]],
    cells: RowCells | None,
) -> tuple[Uploaded, Rows]:
    """Read an uploaded set, a few MB at a time; the model scores its inputs.

    All its rows are labelled, and no traffic is added.

    Args:
        database: The state.
        model: The model.
        labelled_set: Id of the set.
        revision: The active revision.
        bundle: Its bundle.
        scoring: Opens what scores inputs, from the bundle and the field of the request that named the rows.
        cells: Reads columns of the inputs; None for a calibrator that needs none.

    Raises:
        UnknownLabelledSetError: The set does not exist.
        LabelledSetStateError: Its logits, inputs or labels do not match the active model; or it was deleted meanwhile.
        NonFiniteLogitsError: The model's scores of an input are not finite.
    """
    store = LabelledSetStore(database)
    found = store.get(model, labelled_set)
    _check_fits(found, revision, bundle)
    if cells is not None and found.kind == "logits":
        raise LabelledSetStateError(
            f"{found.id} has logits only, and the calibrator reads columns of the rows.",
            where=in_body("source", "labelled_set"),
            found="logits",
            expected="inputs",
            remedy="Upload the inputs of these rows.",
        )
    parts: list[npt.NDArray[Any]] = []
    columns: dict[str, list[npt.NDArray[Any]]] = {}
    with nullcontext() if found.kind == "logits" else scoring(bundle, in_body("source", "labelled_set")) as score:
        for chunk in store.chunks(found):
            values = chunk.values
            parts.append(
                values if score is None else score.add(values.astype(values.dtype.newbyteorder("="), copy=False))
            )
            if cells is not None:
                columns.setdefault("cells", []).append(cells.of_inputs(values))
            for name, column in chunk.columns.items():
                columns.setdefault(name, []).append(column)
        if (first := sum(map(len, parts))) != found.rows:
            raise LabelledSetStateError(
                f"{found.id} changed while it was read.",
                where=in_body("source", "labelled_set"),
                found=f"{first} rows",
                expected=f"{found.rows} rows",
                remedy="It was deleted meanwhile. Upload it again.",
            )
        joined = np.concatenate(parts)
        logits = joined.astype(np.float32, copy=False) if score is None else score.finish(joined)
    whole = {name: np.concatenate(parts) for name, parts in columns.items()}
    uploaded = Uploaded(
        id=found.id,
        sha256=found.sha256,
        represents=found.represents == "traffic",
        timed="predicted_at" in whole,
        rows=found.rows,
        kind=found.kind,
        by=found.by,
        by_key=found.by_key,
        at_us=found.created_at,
    )
    return uploaded, _rows(found, logits, whole, bundle.manifest.labels)


def _check_fits(found: LabelledSet, revision: Revision, bundle: Bundle) -> None:
    names, spec = bundle.manifest.labels, bundle.manifest.input
    if found.kind == "logits" and found.model_digest != revision.model_digest:
        raise LabelledSetStateError(
            f"The logits of {found.id} are not from the active model.",
            where=in_body("source", "labelled_set"),
            found=found.model_digest,
            expected=revision.model_digest,
            remedy="Upload the active model's logits of these rows, or their inputs.",
        )
    if found.kind == "inputs" and (tuple(found.shape), found.dtype) != (spec.shape, type_name(spec.numpy)):
        raise LabelledSetStateError(
            f"The inputs of {found.id} do not match the active model.",
            where=in_body("source", "labelled_set"),
            found=f"{found.dtype} {found.shape}",
            expected=f"{type_name(spec.numpy)} {list(spec.shape)}",
            remedy="Upload rows in the form that this model requires.",
        )
    if unknown := [name for name, count in found.labels.items() if count and name not in names]:
        raise LabelledSetStateError(
            f"The active model lacks labels of {found.id}.",
            where=in_body("source", "labelled_set"),
            found=unknown,
            expected=list(names),
            remedy="Upload the rows with this model's labels.",
        )


def _rows(
    found: LabelledSet, logits: npt.NDArray[np.float32], columns: dict[str, npt.NDArray[Any]], names: Sequence[str]
) -> Rows:
    """Return the set's rows, oldest first.

    Without a `propensity` column all rows have the same chance of being in the set, and all are labelled.
    """
    codes = np.array([names.index(name) if name in names else ABSENT for name in found.labels], dtype=np.int64)
    propensity = columns.get("propensity", np.ones(found.rows))
    times: dict[str, Any] = {
        name: np.where(columns[name] == ABSENT, found.created_at, columns[name])
        if name in columns
        else np.broadcast_to(np.int64(found.created_at), found.rows)
        for name in ("predicted_at", "labelled_at")
    }
    segments = np.array([*found.segments, None], dtype=np.object_)  # ABSENT, −1, selects the last entry
    rows = Rows(
        logits=logits,
        label=codes[columns["label"]],
        group=columns["group"].astype(np.int64, copy=False),
        propensity=propensity,
        sought=~np.isnan(propensity),
        labelled=~np.isnan(propensity),
        cells=columns.get("cells"),
        segment=segments[columns.get("segment", np.broadcast_to(ABSENT, found.rows))],
        **times,
    )
    # Sets usually have no times; then the logits are not copied.
    return rows.take(np.argsort(rows.predicted_at, kind="stable")) if "predicted_at" in columns else rows
