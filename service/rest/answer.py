"""Answers of /v1 as JSON. Numbers are formatted by the block: one at a time they cost several times as much."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import orjson

from service.decisions.certificates import of_segment
from service.decisions.solved import SolvedPolicy
from service.serving.plane import Answer

_NUMPY: Final = orjson.OPT_SERIALIZE_NUMPY
_BLOCK: Final = 4096  # probabilities in one call, during which no other thread runs Python
_ROW_BYTES: Final = 160
_PROBABILITY_BYTES: Final = 20


def size_of(answer: Answer) -> int:
    """Return about how many bytes `write` makes of an answer with all its probabilities."""
    return len(answer.ids) * (_ROW_BYTES + _PROBABILITY_BYTES * len(answer.served.labels))


def write(answer: Answer, top: int | None = None) -> bytes:
    """Return the body of an answer.

    Args:
        answer: Predictions of N rows.
        top: Number of probabilities to show for each row, largest first; None shows all in the order of the labels.
    """
    served = answer.served
    shown = _all(answer) if top is None else _largest(answer, top)
    labels = answer.labels.tolist()
    references = answer.per_row.references or [None] * len(labels)
    predictions = [
        {
            "prediction_id": prediction_id,
            "reference": references[row],
            "label": served.labels[labels[row]],
            "confidence": answer.confidence[row],
            "probabilities": shown[row],
            "decision": decision_of(answer, row),
        }
        for row, prediction_id in enumerate(answer.ids)
    ]
    document = {
        "model": served.revision.model,
        "revision": served.revision.id,
        "policy": None if answer.policy is None else policy_of(answer.policy, answer.per_row.segments),
        "predictions": predictions,
    }
    return orjson.dumps(document, option=_NUMPY)


def decision_of(answer: Answer, row: int) -> dict[str, Any] | None:
    """Return what the policy decided for a row, None where none decided."""
    action = answer.actions[row]
    if action is None:
        return None
    decision: dict[str, Any] = {"action": action, "label_sought": answer.sought[row]}
    if answer.policy is not None and (parts := answer.policy.parts):
        segments = answer.per_row.segments
        segment = None if segments is None else segments[row]
        decision["segment"] = segment if segment in parts else None
    if answer.sets is not None:
        decision["set"] = [answer.served.labels[place] for place in answer.sets[row].nonzero()[0]]
    return decision


def _all(answer: Answer) -> list[orjson.Fragment]:
    """Return all probabilities of each row as a JSON object."""
    template = _template(answer.served.labels)
    probabilities = answer.probabilities
    rows, classes = probabilities.shape
    step = max(1, _BLOCK // classes)
    shown: list[orjson.Fragment] = []
    for start in range(0, rows, step):
        numbers = orjson.dumps(probabilities[start : start + step].reshape(-1), option=_NUMPY)[1:-1].split(b",")
        shown += [
            orjson.Fragment(template % tuple(numbers[at : at + classes])) for at in range(0, len(numbers), classes)
        ]
    return shown


@lru_cache(maxsize=64)
def _template(labels: tuple[str, ...]) -> bytes:
    return b"{" + b",".join(orjson.dumps(label).replace(b"%", b"%%") + b":%b" for label in labels) + b"}"


def _largest(answer: Answer, top: int) -> list[dict[str, np.float32]]:
    """Return the `top` largest probabilities of each row by label, largest first, equal ones in the labels' order."""
    names = answer.served.labels
    orders = (np.argsort(-row, kind="stable")[:top] for row in answer.probabilities)
    return [
        {names[column]: row[column] for column in order}
        for row, order in zip(answer.probabilities, orders, strict=True)
    ]


def policy_of(solved: SolvedPolicy, segments: Sequence[str | None] | None) -> dict[str, Any]:
    """Return the version of the policy that decided and its certificates.

    A policy with segments adds the certificates of the segments in this request and its fallback action.
    """
    document = {"id": f"{solved.policy.id}@{solved.version}", "certified": solved.certified}
    if solved.sets:
        document["sets"] = solved.certified_sets
    if not solved.parts:
        return document
    named = dict.fromkeys(segment for segment in segments or () if segment in solved.parts)
    certified = {value: of_segment(solved.parts[value]) for value in named if value is not None}
    return document | {"fallback": solved.policy.fallback, "segments": certified}
