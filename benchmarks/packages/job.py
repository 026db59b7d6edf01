"""A package's job: a call to time, and how to read its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.floating]
Labels: TypeAlias = npt.NDArray[np.int64]

TEMPERATURE = 1.5
"""The true temperature of all data sets."""
BARE = "a bare softmax, no calibrator"


@dataclass(frozen=True)
class Job:
    """A call and how to read its result.

    Attributes:
        call: The timed function. Each call starts anew, from prepared inputs of the package's own type.
        read: Converts the last result to calibrated probabilities, (N, K) or (N,) of class 1, or to a metric's value;
            None if it is already one of these.
        other: How the job differs from the row's; then the time is shown but does not count.
    """

    call: Callable[[], Any]
    read: Callable[[Any], Any] | None = None
    other: str = ""


Maker: TypeAlias = Callable[[Floats, Labels], Job]
Jobs: TypeAlias = dict[str, dict[str, Maker]]
"""By job, such as "isotonic" or, on one data set only, "isotonic/c"; then by variant of the package's settings."""


def softmax(logits: Floats, kind: type[np.floating] = np.float64) -> Floats:
    """Return (N, K) probabilities, computed in the given type in blocks of rows."""
    result = np.empty(logits.shape, kind)
    for start in range(0, len(logits), 1_000):
        part = logits[start : start + 1_000].astype(kind)
        part -= part.max(axis=1, keepdims=True)
        np.exp(part, out=part)
        result[start : start + 1_000] = part / part.sum(axis=1, keepdims=True)
    return result


def label_probabilities(probabilities: Floats, labels: Labels) -> Floats:
    """Return (N,) the probability of each row's label, from (N, K) or (N,) of class 1."""
    wide = np.asarray(probabilities, np.float64).reshape(len(labels), -1)
    if wide.shape[1] == 1:
        return np.where(labels == 1, wide[:, 0], 1 - wide[:, 0])
    return wide[np.arange(len(labels)), labels]


def log_softmax(logits: Floats) -> Floats:
    """Return (N, K) float64 log-probabilities."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return wide


def margin(logits: Floats) -> Floats:
    """Return (N,) log-odds of class 1 of two, in the type of the logits."""
    return logits[:, 1] - logits[:, 0]


def top_label(logits: Floats, labels: Labels) -> tuple[Floats, Labels]:
    """Return (N,) float64 confidences, and whether each top label is right (0 or 1)."""
    probabilities = softmax(logits)
    return probabilities.max(axis=1), (probabilities.argmax(axis=1) == labels).astype(np.int64)


def one_for_two(logits: Floats) -> Floats:
    """Return float64 probabilities: (N,) of class 1 for two classes, else (N, K)."""
    probabilities = softmax(logits)
    return np.ascontiguousarray(probabilities[:, 1]) if logits.shape[1] == 2 else probabilities
