"""Weights of rows and classes, and what a model's logits owe to them.

A model trained with weights or drawn rows learns the class frequencies that these make, not the population's. The
difference is known: it is a constant for each class's logit, which the exported graph adds. The calibrator then starts
from the population's frequencies, and corrects what is left.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.config import TrainConfig
from training.data import Dataset
from training.errors import ConfigurationError

BALANCED = "balanced"

Rows = NDArray[np.int64]
Values = NDArray[np.float64]


def class_weights(config: TrainConfig, data: Dataset, train: Rows) -> Values | None:
    """Return the weight of each class, (K,); None without class weights.

    `balanced` gives class k the weight N / (K n_k), with n_k the weight of its training rows and N of all.

    Args:
        config: The run's settings.
        data: The data set.
        train: The training rows.

    Raises:
        ConfigurationError: A class is unknown, a weight is not a positive number, or a class has no training rows.
    """
    if not config.class_weights:
        return None
    if config.class_weights == (BALANCED,):
        mass = population(data, train)
        if not mass.all():
            raise ConfigurationError(
                f"class_weight is balanced, and the class {data.label_names[int(mass.argmin())]!r} has no training rows"
            )
        return np.asarray(mass.sum() / (len(mass) * mass))
    weights = np.ones(len(data.label_names))
    for item in config.class_weights:
        name, _, text = item.rpartition("=")
        if name not in data.label_names:
            raise ConfigurationError(
                f"class_weight is {item!r}, expected {BALANCED} alone, or CLASS=WEIGHT with one of the classes "
                f"{', '.join(data.label_names[:20])}"
            )
        try:
            weight = float(text)
        except ValueError:
            weight = np.nan
        if not 0 < weight < np.inf:
            raise ConfigurationError(f"class_weight of {name} is {text}, expected a positive number")
        weights[data.label_names.index(name)] = weight
    return weights


def row_weights(config: TrainConfig, data: Dataset, rows: Rows, like: Rows | None = None) -> Values | None:
    """Return the weight of each row in the loss, (n,), on average 1; None if all are equal.

    Args:
        config: The run's settings.
        data: The data set.
        rows: The rows.
        like: Rows whose class frequencies balance the classes; None for `rows`.
    """
    by_class = class_weights(config, data, rows if like is None else like)
    if by_class is None and data.weights is None:
        return None
    weights = np.ones(len(rows)) if data.weights is None else data.weights[rows].astype(np.float64)
    if by_class is not None:
        weights = weights * by_class[data.labels[rows]]
    return np.asarray(weights / weights.mean()) if len(rows) else weights


def chances(config: TrainConfig, data: Dataset, train: Rows) -> Values | None:
    """Return the chance of each training row to be drawn, (n,), with sum 1; None if each is taken once per epoch."""
    if config.sampling == "plain":
        return None
    counts = np.bincount(data.labels[train], minlength=len(data.label_names))
    own = 1.0 / counts[data.labels[train]]
    return np.asarray(own / own.sum())


def population(data: Dataset, rows: Rows) -> Values:
    """Return the weight of each class's rows, (K,): their number, where rows have no weights."""
    weights = None if data.weights is None else data.weights[rows]
    return np.bincount(data.labels[rows], weights, minlength=len(data.label_names)).astype(np.float64)


def adjustment(config: TrainConfig, data: Dataset, train: Rows) -> Values | None:
    """Return what the loss adds to the logits, (K,): `logit_adjustment` times the log class frequencies; None for 0.

    References:
        Menon et al. 2021, Long-tail learning via logit adjustment, section 4.2.
    """
    if not config.logit_adjustment:
        return None
    mass = np.maximum(population(data, train), 1.0)
    return np.asarray(config.logit_adjustment * np.log(mass / mass.sum()))


def class_shift(config: TrainConfig, data: Dataset, train: Rows) -> Values | None:
    """Return what brings a model's logits back to the population's class frequencies, (K,) with mean 0; None for 0.

    With W_k the weight of class k among the training rows, and M_k that in the loss (its share of the drawn rows times
    their weights), the logits lack log(W_k / M_k), beside what the loss itself added.
    """
    added = adjustment(config, data, train)
    loss_weights = row_weights(config, data, train)
    drawn = chances(config, data, train)
    alpha = config.coefficients.get("alpha", 0.0) if config.loss == "focal" else 0.0
    if class_weights(config, data, train) is None and drawn is None and added is None and not alpha:
        return None
    mass = (1.0 if loss_weights is None else loss_weights) * (1.0 / len(train) if drawn is None else drawn)
    classes = len(data.label_names)
    in_loss = np.bincount(data.labels[train], np.broadcast_to(mass, train.shape), minlength=classes)
    if alpha and classes == 2 and 0 < alpha < 1:  # the loss refuses others
        in_loss = in_loss * np.array([1.0 - alpha, alpha])
    whole = population(data, train)
    seen = whole > 0
    shift = np.zeros(classes)
    shift[seen] = np.log(whole[seen] / in_loss[seen])
    shift[seen] += 0.0 if added is None else added[seen]
    shift[seen] -= shift[seen].mean()
    return shift
