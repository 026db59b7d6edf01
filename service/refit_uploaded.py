"""An uploaded labelled set as the rows of a refit, and what such rows may show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bundle import Bundle
from service.errors import LabelledSetStateError
from service.inference.offline import Scorer
from service.revision import Revision
from service.state.database import Database
from service.state.labelled import LabelledRows
from service.state.labelled_sets import ABSENT, LabelledSet, LabelledSetStore
from service.state.unlabelled import UnlabelledRows


@dataclass(frozen=True, slots=True)
class Uploaded:
    """Where a refit's rows come from, when they were uploaded.

    Attributes:
        id: The set, such as "ls1".
        sha256: Of the bytes that were uploaded.
        represents: Whether it was declared to be a random sample of the traffic; only then it certifies.
        timed: Whether its rows say when they were predicted.
    """

    id: str
    sha256: str
    represents: bool
    timed: bool

    def to_dict(self) -> dict[str, Any]:
        """Return what a report says of it."""
        return {
            "labelled_set": self.id,
            "sha256": self.sha256,
            "represents": "traffic" if self.represents else None,
        }


def load_uploaded(
    database: Database,
    model: str,
    labelled_set: str,
    revision: Revision,
    bundle: Bundle,
) -> tuple[Uploaded, LabelledRows, UnlabelledRows]:
    """Read an uploaded set, some MB at a time; the model scores its inputs.

    Its rows are all that there are: no traffic is beside them, labelled or not.

    Args:
        database: The state.
        model: The model.
        labelled_set: Id of the set.
        revision: The one in service.
        bundle: Its bundle.

    Raises:
        UnknownLabelledSetError: There is no such set.
        LabelledSetStateError: Its logits are another model file's, or its inputs or labels another model's; or it was
            deleted meanwhile.
        NonFiniteLogitsError: The model gives no finite scores for an input.
    """
    store = LabelledSetStore(database)
    found = store.get(model, labelled_set)
    _check_fits(found, revision, bundle)
    score = Scorer(bundle, where="/source/labelled_set")
    logits = np.empty((found.rows, len(bundle.manifest.labels)), dtype=np.float32)
    columns: dict[str, list[npt.NDArray[Any]]] = {}
    first = 0
    for chunk in store.chunks(found):
        values = chunk.values
        if found.kind == "inputs":
            values = score(values.astype(values.dtype.newbyteorder("="), copy=False))
        logits[first : first + len(values)] = values
        first += len(values)
        for name, column in chunk.columns.items():
            columns.setdefault(name, []).append(column)
    if first != found.rows:
        raise LabelledSetStateError(
            f"{found.id} changed while it was read.",
            where="/source/labelled_set",
            found=f"{first} rows",
            expected=f"{found.rows} rows",
            remedy="It was deleted meanwhile: upload it again.",
        )
    whole = {name: np.concatenate(parts) for name, parts in columns.items()}
    uploaded = Uploaded(found.id, found.sha256, found.represents == "traffic", timed="predicted_at" in whole)
    return uploaded, _labelled(found, logits, whole, bundle.manifest.labels), _none(len(bundle.manifest.labels))


def _check_fits(found: LabelledSet, revision: Revision, bundle: Bundle) -> None:
    names, spec = bundle.manifest.labels, bundle.manifest.input
    if found.kind == "logits" and found.model_digest != revision.model_digest:
        raise LabelledSetStateError(
            f"The logits of {found.id} are not those of the model in service.",
            where="/source/labelled_set",
            found=found.model_digest,
            expected=revision.model_digest,
            remedy="Upload what the model in service makes of the rows, or their inputs.",
        )
    if found.kind == "inputs" and (tuple(found.shape), found.dtype) != (spec.shape, spec.dtype):
        raise LabelledSetStateError(
            f"The inputs of {found.id} are not those that the model in service takes.",
            where="/source/labelled_set",
            found=f"{found.dtype} {found.shape}",
            expected=f"{spec.dtype} {list(spec.shape)}",
            remedy="Upload the rows as this model takes them.",
        )
    if unknown := [name for name, count in found.labels.items() if count and name not in names]:
        raise LabelledSetStateError(
            f"The model in service lacks labels of {found.id}.",
            where="/source/labelled_set",
            found=unknown,
            expected=list(names),
            remedy="Upload the rows with this model's labels.",
        )


def _labelled(
    found: LabelledSet, logits: npt.NDArray[np.float32], columns: dict[str, npt.NDArray[Any]], names: Sequence[str]
) -> LabelledRows:
    """Put the columns into the form in which labelled traffic comes, oldest first.

    Without a `propensity` column every row of what the set is a sample of was as likely to be in it, and was labelled.
    """
    rows = found.rows
    codes = np.array([names.index(name) if name in names else ABSENT for name in found.labels])
    propensity = columns.get("propensity", np.ones(rows))
    times = {
        name: np.where(columns[name] == ABSENT, found.created_at, columns[name])
        if name in columns
        else np.full(rows, found.created_at)
        for name in ("predicted_at", "labelled_at")
    }
    segments = np.array([*found.segments, None], dtype=np.object_)  # ABSENT, −1, is the last
    segment = segments[columns["segment"]] if "segment" in columns else np.full(rows, None, dtype=np.object_)
    order: npt.NDArray[np.intp] | slice = slice(None)  # the usual case: no copy of the logits
    if "predicted_at" in columns:
        order = np.argsort(times["predicted_at"], kind="stable")
    return LabelledRows(
        ascii_ids=np.arange(1, rows + 1).astype(np.bytes_)[order],
        logits=logits[order],
        labels=codes[columns["label"]].astype(np.int64)[order],
        cluster=columns["cluster"].astype(np.int64, copy=False)[order],
        propensity=propensity[order],
        label_sought=~np.isnan(propensity)[order],
        predicted_at=times["predicted_at"][order],
        first_labelled_at=times["labelled_at"][order],
        actions=np.full(rows, None, dtype=np.object_),
        segment=segment[order],
        pending=0,
        conflicts=0,
        unknown_labels=0,
    )


def _none(classes: int) -> UnlabelledRows:
    return UnlabelledRows(
        np.empty((0, classes), dtype=np.float32),
        np.empty(0, dtype=np.int64),
        np.empty(0, dtype=np.float64),
        np.empty(0, dtype=np.bool_),
        np.empty(0, dtype=np.object_),
        np.empty(0, dtype=np.int64),
        np.empty(0, dtype=np.object_),
    )
