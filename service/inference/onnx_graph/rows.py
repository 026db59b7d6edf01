"""What most maps begin with: logits less their row's largest, its class, shares of the others, log-odds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from service.inference.onnx_graph.values import (
    Value,
    absolute,
    at_least,
    equal,
    exp,
    greater,
    greatest,
    least,
    log,
    log1p,
    row_argmax,
    row_maximum,
    row_sum,
    where,
)

# The most classes whose sum is taken in numpy's own order; beyond it the number of nodes would grow with the classes.
_FEW = 128


@dataclass(frozen=True)
class Rows:
    """Logits in a graph, and what is made of them once for all that needs it.

    Attributes:
        logits: (N, K) float64; −inf is a class that is impossible.
        classes: K.
    """

    logits: Value
    classes: int

    @cached_property
    def maxima(self) -> Value:
        """Largest logit (N, 1)."""
        return row_maximum(self.logits)

    @cached_property
    def below(self) -> Value:
        """Logits (N, K) less their row's largest."""
        return self.logits - self.maxima

    @cached_property
    def possible(self) -> Value:
        """Where logits (N, K) are not −inf."""
        return greater(self.logits, -np.inf)

    @cached_property
    def top(self) -> Value:
        """Where (N, K) the row's largest logit stands, the first of equals."""
        return equal(row_argmax(self.logits), np.arange(self.classes)[None])

    @cached_property
    def softmax(self) -> Value:
        """The plain softmax (N, K)."""
        return softmax_below(self.below)

    @cached_property
    def others(self) -> Others:
        """The classes beside each row's largest."""
        return Others.of(self)

    @cached_property
    def log_odds(self) -> Value:
        """Log-odds of each class against all others, ±inf where it is certain or impossible.

        Of class 1 alone (N, 1) with two classes, where it is z_1 − z_0 to the last bit; else (N, K).
        """
        if self.classes == 2:
            return self.logits.columns(1, 2) - self.logits.columns(0, 1)
        shares = where(self.top, 0.0, exp(self.below))
        against_rest = self.below - log1p(row_sum(shares) - shares)
        return where(self.top, -(self.others.largest + self.others.log_sum), against_rest)

    @cached_property
    def confidence(self) -> Value:
        """Largest probability (N, 1) of the plain softmax."""
        return confidence_below(self.below, self.classes)


@dataclass(frozen=True)
class Others:
    """The classes beside each row's largest, whose proportions survive where their probabilities underflow.

    Attributes:
        below: (N, K) logits less the largest of the others; −inf at the row's largest.
        largest: (N, 1) logit of the largest of the others, less the row's largest.
        possible: (N, 1) whether another class is possible.
        log_sum: (N, 1) log Σ exp(below); −inf where no other class is possible.
    """

    below: Value
    largest: Value
    possible: Value
    log_sum: Value

    @classmethod
    def of(cls, rows: Rows) -> Others:
        """The others of these rows."""
        logits = where(rows.top, -np.inf, rows.below)
        found = row_maximum(logits)
        possible = greater(found, -np.inf)
        largest = where(possible, found, 0.0)
        below = logits - largest
        return cls(below, largest, possible, log(row_sum(exp(below))))


def softmax_below(below: Value) -> Value:
    """Softmax (N, K) of logits whose row maxima are zero."""
    shares = exp(below)
    return shares / row_sum(shares)


def confidence_below(below: Value, classes: int) -> Value:
    """Largest softmax probability (N, 1) of logits (N, K) whose row maxima are zero."""
    if classes == 2:
        return 1.0 / (exp(-absolute(below.columns(0, 1) - below.columns(1, 2))) + 1.0)
    return 1.0 / row_sum_as_numpy(exp(below), classes)


def row_sum_as_numpy(value: Value, classes: int) -> Value:
    """Sum (N, 1) of each row (N, K), added up in the order in which numpy does.

    Next to one, probabilities lie close together, and a curve or a bin may begin and end between two of them: there the
    last bit of the sum decides. Where classes are many, the order is the runtime's.
    """
    if classes > _FEW:
        return row_sum(value)
    if classes < 8:
        return _one_by_one([value.columns(k, k + 1) for k in range(classes)])
    whole = classes - classes % 8
    eight = _one_by_one([value.columns(k, k + 8) for k in range(0, whole, 8)])
    first, second, third, fourth, fifth, sixth, seventh, eighth = (eight.columns(k, k + 1) for k in range(8))
    total = ((first + second) + (third + fourth)) + ((fifth + sixth) + (seventh + eighth))
    return _one_by_one([total, *(value.columns(k, k + 1) for k in range(whole, classes))])


def _one_by_one(parts: list[Value]) -> Value:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def normalised(chances: Value, rows: Rows) -> Value:
    """Divides each row of one-vs-rest chances (N, K) by its sum; a row of nothing but zeros gets its softmax."""
    sums = row_sum(chances)
    empty = equal(sums, 0.0)
    return where(empty, rows.softmax, chances / where(empty, 1.0, sums))


def sigmoids(log_odds: Value) -> tuple[Value, Value]:
    """σ(u) and σ(−u), each exact to the last digits however small."""
    tail = exp(-absolute(log_odds))
    larger = 1.0 / (tail + 1.0)
    smaller = tail * larger
    above = at_least(log_odds, 0.0)
    return where(above, larger, smaller), where(above, smaller, larger)


def confidence_replaced(below: Value, others: Others, rows: Rows, confidence: Value) -> Value:
    """Gives the class of each row's largest logit a new probability, and the others the rest in their proportions.

    Args:
        below: (N, K) logits whose proportions the others keep, −inf at the row's largest.
        others: Classes other than the largest of the row.
        rows: The logits.
        confidence: (N, 1) in [0, 1].
    """
    # Where no other class is possible, they share evenly.
    shares = exp(where(others.possible, below, where(rows.top, -np.inf, 0.0)))
    return where(rows.top, confidence, shares * ((1.0 - confidence) / row_sum(shares)))


def clipped(value: Value, low: float, high: float) -> Value:
    """The values, those outside the bounds as these."""
    return least(greatest(value, low), high)
