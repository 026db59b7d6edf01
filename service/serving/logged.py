"""What the log keeps of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

import numpy.typing as npt

from candor.contract.policies import TOP
from service.inference.per_row import PerRow
from service.serving.plane import Answer
from service.state.prediction_rows import PredictionBatch
from service.state.reviewed import Reviewed

_LOGGED: Final = {part.name for part in fields(PredictionBatch)}
_ANSWERED: Final = _LOGGED & {part.name for part in fields(Answer)} - {"policy"}
"""Columns of an answer that are logged."""
_SAID: Final = _LOGGED & {part.name for part in fields(PerRow)} - {"references", "groups"}
"""And of what the client says of the rows."""


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
        reviewed=_reviewed(answer),
        references=answer.per_row.references or [None] * len(answer.ids),
        groups=_groups(answer),
        **{name: getattr(answer, name) for name in _ANSWERED},
        **{name: getattr(answer.per_row, name) for name in _SAID},
    )


def _reviewed(answer: Answer) -> Reviewed | None:
    """Return what the policy's review queue needs, None if it has none."""
    if answer.policy is None or (terms := answer.policy.policy.review) is None:
        return None
    policy, amounts = answer.policy.policy, answer.per_row.amounts
    if policy.positive == TOP:
        return Reviewed(policy.id, terms, 1.0 - answer.confidence, amounts, arising=answer.policy.arising)
    column = answer.served.labels.index(policy.positive)
    return Reviewed(policy.id, terms, answer.probabilities[:, column], amounts, arising=answer.policy.arising)


def _groups(answer: Answer) -> Sequence[str | None]:
    """Return the groups of the rows. Equal scores, unlike equal inputs, are no sign of the same thing."""
    groups = answer.per_row.groups or [None] * len(answer.ids)
    if answer.served.input.kind != "scores":
        return groups
    return [own if group is None else group for own, group in zip(answer.ids, groups, strict=True)]
