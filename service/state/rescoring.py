"""Predictions of earlier models whose inputs were kept, in the scores of another model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, exists, select

from service.state.tables import inputs, origins, predictions
from service.state.window import Window


@dataclass(frozen=True, slots=True)
class Rescoring:
    """How earlier predictions get the scores of the model that a window names.

    Attributes:
        input_spec: What that model takes; only rows of models that took the same can be scored again.
        score: Gives logits, float32 (N, K), for N stored inputs, N ≥ 0.
    """

    input_spec: str
    score: Callable[[Sequence[bytes]], NDArray[np.float32]]

    def origins(self, connection: Connection, window: Window) -> list[int]:
        """Return the numbers of the origins of earlier models that took the same inputs."""
        return other_origins(connection, window, self.input_spec)

    def whole_since_us(self, connection: Connection, window: Window) -> int | None:
        """Return the time from which on every earlier prediction of the window has its input; None for its start.

        Rows from before are a selection, of those whose label was sought say, and say nothing of all traffic.
        """
        without = (
            select(predictions.c.created_at)
            .where(predictions.c.origin.in_(self.origins(connection, window)), *window.times())
            .where(~exists().where(inputs.c.id == predictions.c.id))
            .order_by(predictions.c.created_at.desc())
            .limit(1)
        )
        last = connection.execute(without).scalar_one_or_none()
        return None if last is None else last + 1


def with_inputs(query: Select[Any]) -> Select[Any]:
    """Return a query of predictions as one of those whose inputs were kept, with the inputs in place of the logits."""
    columns = [inputs.c.content if column is predictions.c.logits else column for column in query.selected_columns]
    return query.with_only_columns(*columns).join_from(predictions, inputs, inputs.c.id == predictions.c.id)


def other_origins(connection: Connection, window: Window, input_spec: str) -> list[int]:
    """Return the numbers of the origins of a window's model, but of other model files, that took the same inputs."""
    query = select(origins.c.id).where(
        origins.c.model == window.model,
        origins.c.model_digest != window.model_digest,
        origins.c.input_spec == input_spec,
    )
    return list(connection.scalars(query))
