"""Score predictions of earlier models with another model, from their stored inputs."""

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
    """Scoring of earlier predictions with the window's model.

    Attributes:
        input_spec: Input of that model; only rows of models with the same input can be scored again.
        add: Takes N ≥ 0 stored inputs and returns N entries that stand for their logits.
        finish: Returns logits, float32 (N, K), for N such entries, once all inputs are read.
    """

    input_spec: str
    add: Callable[[Sequence[bytes]], NDArray[Any]]
    finish: Callable[[NDArray[Any]], NDArray[np.float32]]

    def origins(self, connection: Connection, window: Window) -> list[int]:
        """Return the numbers of the origins of earlier models with the same inputs."""
        return other_origins(connection, window, self.input_spec)

    def whole_since_us(self, connection: Connection, window: Window) -> int | None:
        """Return the time from which every earlier prediction of the window has its input; None for its start.

        Earlier rows are a selection (for example, those whose label was sought), not all traffic.
        """
        return stored_since_us(connection, window, self.origins(connection, window))


def stored_since_us(connection: Connection, window: Window, made_by: Sequence[int]) -> int | None:
    """Return the time from which every prediction of some origins in a window has its input; None for its start."""
    without = (
        select(predictions.c.created_at)
        .where(predictions.c.origin.in_(made_by), *window.times())
        .where(~exists().where(inputs.c.id == predictions.c.id))
        .order_by(predictions.c.created_at.desc())
        .limit(1)
    )
    last = connection.execute(without).scalar_one_or_none()
    return None if last is None else last + 1


def with_inputs(query: Select[Any]) -> Select[Any]:
    """Return a query of predictions, restricted to those with stored inputs."""
    return query.join_from(predictions, inputs, inputs.c.id == predictions.c.id)


def other_origins(connection: Connection, window: Window, input_spec: str) -> list[int]:
    """Return the numbers of the origins of the model's other files with the same inputs."""
    query = select(origins.c.id).where(
        origins.c.model == window.model,
        origins.c.model_digest != window.model_digest,
        origins.c.input_spec == input_spec,
    )
    return list(connection.scalars(query))
