"""Predictions first labelled by given feedback requests, as numpy columns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from service.state.feedback import TARGETS_PER_QUERY
from service.state.tables import feedback, origins, predictions


@dataclass(frozen=True, slots=True)
class FirstLabels:
    """N predictions with their first labels.

    Attributes:
        unknown: Targets (by_reference, key) without a known prediction.
        ids: N prediction ids.
        revision: N ids of the predicting revisions.
        digest: N digests of their models.
        named: N labels as sent.
        predicted: int64 (N,): index of the predicted label.
        confidence: float32 (N,): its probability.
        logits: N rows of float32, little-endian.
        propensity: float64 (N,): probability that the label is sought, nan if unknown.
        sought: bool (N,): whether the label was sought.
        delay_s: float64 (N,): seconds from the prediction to the receipt of the label.
    """

    unknown: list[tuple[int, str]]
    ids: list[str]
    revision: NDArray[np.str_]
    digest: NDArray[np.str_]
    named: NDArray[np.str_]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float32]
    logits: list[bytes]
    propensity: NDArray[np.float64]
    sought: NDArray[np.bool_]
    delay_s: NDArray[np.float64]


def first_labels(
    connection: Connection, model: str, batches: Collection[int], targets: Collection[tuple[int, str]]
) -> FirstLabels:
    """Return the predictions among these targets that one of some feedback requests labelled first.

    Each prediction is returned for at most one request.

    Args:
        connection: Inside a read transaction.
        model: The model.
        batches: Numbers of the requests.
        targets: Distinct (0, prediction id) or (1, reference).
    """
    # Separate queries: for a join SQLite would scan all predictions of the model.
    query = select(origins.c.id, origins.c.revision, origins.c.model_digest).where(origins.c.model == model)
    made_here = {origin: (revision, digest) for origin, revision, digest in connection.execute(query)}
    rows: dict[str, tuple[object, ...]] = {}
    found: set[tuple[int, str]] = set()
    for by_reference, name in enumerate((predictions.c.id, predictions.c.reference)):
        keys = [key for kind, key in targets if kind == by_reference]
        for start in range(0, len(keys), TARGETS_PER_QUERY):
            about = select(*_COLUMNS).where(name.in_(keys[start : start + TARGETS_PER_QUERY]))
            for *row, origin in connection.execute(about):
                if origin in made_here:
                    key, reference, *_ = row
                    rows[key] = (*row, *made_here[origin])
                    found.add((by_reference, reference if by_reference else key))
    firsts = _firsts(connection, model, rows)
    ours = [(*row, *firsts[key][2:]) for key, row in rows.items() if key in firsts and firsts[key][0] in batches]
    columns = list(zip(*ours, strict=True)) if ours else [()] * (len(_COLUMNS) + 3)
    ids, _, created_at, predicted, confidence, logits, propensity, sought, revision, digest, named, received = columns
    return FirstLabels(
        unknown=[target for target in targets if target not in found],
        ids=list(ids),
        revision=np.array(revision, np.str_),
        digest=np.array(digest, np.str_),
        named=np.array(named, np.str_),
        predicted=np.array(predicted, np.int64),
        confidence=np.array(confidence, np.float32),
        logits=list(logits),
        propensity=np.array(propensity, np.float64),
        sought=np.array(sought, np.bool_),
        delay_s=(np.array(received, np.int64) - np.array(created_at, np.int64)) / 1e6,
    )


_COLUMNS = (
    predictions.c.id,
    predictions.c.reference,
    predictions.c.created_at,
    predictions.c.label,
    predictions.c.confidence,
    predictions.c.logits,
    predictions.c.propensity,
    predictions.c.sought,
    predictions.c.origin,
)


def _firsts(
    connection: Connection, model: str, rows: dict[str, tuple[object, ...]]
) -> dict[str, tuple[int, int, str, int]]:
    """Return the (batch, position, label, received_at) of each prediction's first label, by prediction id."""
    by_reference: dict[object, list[str]] = {}
    for key, (_, reference, *_rest) in rows.items():
        if reference is not None:
            by_reference.setdefault(reference, []).append(key)
    firsts: dict[str, tuple[int, int, str, int]] = {}
    for kind, names in ((0, list(rows)), (1, list(by_reference))):
        for start in range(0, len(names), TARGETS_PER_QUERY):
            query = select(*_LABEL).where(
                feedback.c.model == model,
                feedback.c.by_reference == kind,
                feedback.c.target.in_(names[start : start + TARGETS_PER_QUERY]),
            )
            for target, *label in connection.execute(query):
                for key in by_reference[target] if kind else (target,):
                    firsts[key] = min(firsts.get(key, tuple(label)), tuple(label))
    return firsts


_LABEL = (
    feedback.c.target,
    feedback.c.batch,
    feedback.c.position,
    feedback.c.label,
    feedback.c.received_at,
)
