"""Selected classes, selected rows, and a test part for data sets without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from training.data.dataset import Dataset, Rows
from training.errors import ConfigurationError


def of_classes(data: Dataset, classes: Sequence[str]) -> Dataset:
    """Return the examples of these classes alone, numbered in the order given.

    Raises:
        ConfigurationError: A class is unknown or named twice, or there are fewer than two.
    """
    unknown = [name for name in classes if name not in data.label_names]
    if unknown:
        raise ConfigurationError(
            f"{data.name} has no class {unknown[0]!r}, expected some of: {', '.join(data.label_names)}"
        )
    if len(set(classes)) != len(classes) or len(classes) < 2:
        raise ConfigurationError(f"classes are {', '.join(classes)}, expected two or more, distinct")
    numbers = np.full(len(data.label_names), -1, np.int64)
    numbers[[data.label_names.index(name) for name in classes]] = np.arange(len(classes))
    chosen = data.select(np.flatnonzero(numbers[data.labels] >= 0))
    return replace(
        chosen, name=f"{data.name}:{','.join(classes)}", labels=numbers[chosen.labels], label_names=tuple(classes)
    )


def with_test_rows(data: Dataset, rows: int, *, seed: int) -> Dataset:
    """Return the same examples with some rows set apart for testing at the end: classes in proportion.

    Groups and equal rows stay whole.

    Args:
        data: A data set without a test part.
        rows: Number of rows to set apart.
        seed: Seed of the choice.

    Raises:
        ConfigurationError: The data set has a test part, or too few rows.
    """
    if len(data.test):
        raise ConfigurationError(
            f"{data.name} already has a test part of {len(data.test)} rows; test_rows requires a data set without"
        )
    if not 0 < rows < len(data):
        raise ConfigurationError(f"test_rows is {rows}, expected 1 … {len(data) - 1}")
    random = np.random.default_rng(seed)
    order = stratified_order(data.labels, random)
    if data.together is not None:
        order, cuts = whole_groups(data.together, np.array([rows]), order)
        rows = int(cuts[0])
        if not 0 < rows < len(data):
            raise ConfigurationError("test_rows would leave a part empty, since groups and equal rows stay whole")
    kept, apart = np.sort(order[rows:]), np.sort(order[:rows])
    rows_in_order = np.concatenate([kept, apart])
    return replace(
        data,
        inputs=data.inputs_of(rows_in_order),
        labels=data.labels[rows_in_order],
        weights=None if data.weights is None else data.weights[rows_in_order],
        groups=None if data.groups is None else data.groups[rows_in_order],
        equal=None if data.equal is None else data.equal[rows_in_order],
        texts=None if data.texts is None else data.texts[rows_in_order],
        test=range(len(kept), len(data)),
    )


def of_rows(data: Dataset, rows: int, *, seed: int) -> Dataset:
    """Return this many rows outside the test part, classes in proportion, and the complete test part.

    Args:
        data: A data set.
        rows: Rows to keep outside the test part.
        seed: Seed of the choice.

    Raises:
        ConfigurationError: There are too few rows.
    """
    others = data.outside_test()
    if not 0 < rows <= len(others):
        raise ConfigurationError(f"rows is {rows}, expected 1 … {len(others)}")
    order = stratified_order(data.labels[others], np.random.default_rng(seed))
    return data.select(np.concatenate([others[order[:rows]], np.asarray(data.test, np.int64)]))


def whole_groups(groups: NDArray[np.int64], cuts: NDArray[np.int64], order: Rows) -> tuple[Rows, NDArray[np.int64]]:
    """Return an order of the rows with whole groups, and where to cut it.

    Args:
        groups: Group of each row, (N,).
        cuts: Ascending places of cuts, 0 … N.
        order: Random order of the rows, (N,): groups follow in that of their first rows.

    Returns:
        A permutation of 0 … N − 1, int64, and the ends of groups nearest to the cuts; between two different cuts lies a
        group as long as there are enough.
    """
    _, first, numbers = np.unique(groups, return_index=True, return_inverse=True)
    rank = np.argsort(order)[first][numbers]
    order = np.argsort(rank, kind="stable")
    ends = np.append(0, np.flatnonzero(np.diff(rank[order], append=-1)) + 1)
    wanted = np.diff(cuts, prepend=0) > 0
    chosen = [0]
    for place, cut in enumerate(cuts.tolist()):
        nearest = int(np.abs(ends - cut).argmin())
        # Each part with rows has a group, and leaves one for each part after it.
        most = len(ends) - 1 - int(wanted[place + 1 :].sum())
        chosen.append(min(max(nearest, chosen[-1] + int(wanted[place])), max(most, chosen[-1])))
    return order, ends[chosen[1:]]


def stratified_order(labels: NDArray[np.int64], random: np.random.Generator) -> Rows:
    """Return a random order of the rows in which every stretch has the classes in proportion, up to one or two rows.

    The i-th of a class's n rows, in random order, gets a random place in the i-th of n equal parts of [0, 1); all rows
    are sorted by their places.

    Args:
        labels: int64 (N,).
        random: Source of randomness.

    Returns:
        A permutation of 0 … N − 1, int64.
    """
    shuffled = random.permutation(len(labels)).astype(np.int64)
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.bincount(labels)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = (rank + random.random(len(labels))) / np.repeat(counts, counts)
    return by_class[np.argsort(places, kind="stable")]
