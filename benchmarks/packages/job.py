"""What a package is asked to do: a call to time, and how to read its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.floating]
Labels: TypeAlias = npt.NDArray[np.int64]

TEMPERATURE = 1.5
"""The true one of all data sets."""
BARE = "a bare softmax, no calibrator"


@dataclass(frozen=True)
class Job:
    """A call, and what its result says.

    Attributes:
        call: What is timed. It starts afresh at each call, from inputs of the package's own type made beforehand.
        read: Makes of the last result the calibrated probabilities, (N, K) or (N,) of class 1, or a metric's value;
            None where it is one of these.
        other: In what the question differs from that of the row; the time is shown and does not count.
    """

    call: Callable[[], Any]
    read: Callable[[Any], Any] | None = None
    other: str = ""


Maker: TypeAlias = Callable[[Floats, Labels], Job]
Jobs: TypeAlias = dict[str, dict[str, Maker]]
"""By job, such as "isotonic" or, on one data set only, "isotonic/c"; then by variant of the package's settings."""


def softmax(logits: Floats, kind: type[np.floating] = np.float64) -> Floats:
    """(N, K) probabilities of the given type; computed in it, row block by row block."""
    result = np.empty(logits.shape, kind)
    for start in range(0, len(logits), 1_000):
        part = logits[start : start + 1_000].astype(kind)
        part -= part.max(axis=1, keepdims=True)
        np.exp(part, out=part)
        result[start : start + 1_000] = part / part.sum(axis=1, keepdims=True)
    return result


def log_softmax(logits: Floats) -> Floats:
    """(N, K) float64 log-probabilities."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return wide


def margin(logits: Floats) -> Floats:
    """(N,) log-odds of class 1 of two, in the type of the logits."""
    return logits[:, 1] - logits[:, 0]


def top_label(logits: Floats, labels: Labels) -> tuple[Floats, Labels]:
    """(N,) float64 confidences, and whether the label with it is right, as 0 and 1."""
    probabilities = softmax(logits)
    return probabilities.max(axis=1), (probabilities.argmax(axis=1) == labels).astype(np.int64)


def one_for_two(logits: Floats) -> Floats:
    """Float64 probabilities: (N,) of class 1 where there are two classes, else (N, K)."""
    probabilities = softmax(logits)
    return np.ascontiguousarray(probabilities[:, 1]) if logits.shape[1] == 2 else probabilities
