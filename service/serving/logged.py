"""What the log keeps of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

import numpy.typing as npt

from service.serving.plane import Answer
from service.state.prediction_rows import PredictionBatch

_PER_ROW: Final = {part.name for part in fields(Answer)} & {part.name for part in fields(PredictionBatch)} - {"policy"}
"""Columns that a prediction is answered with and that are logged."""


def logged_rows(answer: Answer, inputs: npt.NDArray[Any], created_at: int) -> PredictionBatch:
    """Return the rows of the log for an answer.

    Args:
        answer: The answer.
        inputs: Its inputs (N, …).
        created_at: Microseconds since the epoch, UTC.
    """
    revision = answer.served.revision
    return PredictionBatch(
        model=revision.model,
        model_digest=revision.model_digest,
        revision=revision.id,
        policy=None if answer.policy is None else f"{answer.policy.policy.id}@{answer.policy.version}",
        created_at=created_at,
        inputs=inputs,
        input_spec=answer.served.specification,
        **{name: getattr(answer, name) for name in _PER_ROW} | {"groups": _groups(answer)},
    )


def _groups(answer: Answer) -> Sequence[str | None]:
    """Return the groups of the rows. Equal scores, unlike equal inputs, are no sign of the same thing."""
    if answer.served.input.kind != "scores":
        return answer.groups
    return [own if group is None else group for own, group in zip(answer.ids, answer.groups, strict=True)]
