"""Splitting a data set into parts that share no row."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from training.data.subset import stratified_order, whole_groups
from training.errors import ConfigurationError
from training.recipe import require

Rows = NDArray[np.int64]
_WHERE_ANY = ("validation", "test")  # recorded only if a run has them


@dataclass(frozen=True)
class Splits:
    """Row numbers of each part, int64; disjoint, together all rows.

    Attributes:
        train: Rows to train on.
        validation: Rows for early stopping and model selection; may be empty.
        fit: Reference rows to fit the calibrator on.
        certify: Reference rows that certify.
        gate: Reference rows to judge proposals on.
        feedback: All other rows outside the test part; unused offline.
        test: The test part, if the data set has one; for reports only.
    """

    train: Rows
    validation: Rows
    fit: Rows
    certify: Rows
    gate: Rows
    feedback: Rows
    test: Rows

    def reference(self) -> Rows:
        """Return the rows for the bundle: fit, certify, gate."""
        return np.concatenate([self.fit, self.certify, self.gate])

    def unseen(self) -> Rows:
        """Return untouched rows to report on: the test part, else the feedback rows."""
        return self.test if len(self.test) else self.feedback

    def sizes_and_digests(self) -> dict[str, tuple[int, str]]:
        """Return size and sha256 (of the row numbers, int64 little-endian) of each part, for the record."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: (len(rows), hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest())
            for name, rows in parts.items()
            if len(rows) or name not in _WHERE_ANY
        }


def split(
    labels: NDArray[np.int64],
    *,
    seed: int,
    train_rows: int | None,
    reference_rows: int,
    fit_share: float,
    certify_share: float,
    validation_rows: int = 0,
    test: range = range(0),
    stratified: bool = False,
    groups: NDArray[np.int64] | None = None,
    equal: NDArray[np.int64] | None = None,
) -> Splits:
    """Cut a random order of the rows outside the test part into parts.

    Args:
        labels: Class of every row, int64 (N,).
        seed: Seed of the order.
        train_rows: Rows to train on; None for all that the other parts leave.
        reference_rows: Rows for the bundle.
        fit_share: Share of the reference rows for fitting.
        certify_share: Share of the reference rows for certifying; the rest are for the gate.
        validation_rows: Rows for early stopping and model selection.
        test: Rows of the test part; they are in no other part.
        stratified: Whether every part has the classes in proportion; otherwise the order is random.
        groups: Group of every row, (N,): whole groups in random order are cut, nearest to the sizes. None for rows.
        equal: Number of every row's inputs, (N,): without groups, equal rows are cut as a whole. None if all differ.

    Raises:
        ConfigurationError: There are too few rows or groups, a part would be empty, or the test part shares a group.

    Example:
        >>> labels = np.zeros(1797, np.int64)
        >>> parts = split(labels, seed=0, train_rows=300, reference_rows=400, fit_share=0.5, certify_share=0.45)
        >>> len(parts.fit), len(parts.certify), len(parts.gate), len(parts.feedback)
        (200, 180, 20, 1097)
    """
    rows = np.arange(len(labels), dtype=np.int64)
    if len(test):
        rows = np.delete(rows, test)
    held_out = validation_rows + reference_rows
    if (1 if train_rows is None else train_rows) + held_out > len(rows):
        asked = f"train_rows {train_rows}, " if train_rows else ""
        asked += f"validation_rows {validation_rows}, " if validation_rows else ""
        raise ConfigurationError(
            f"{asked}reference_rows {reference_rows}: expected at most {len(rows)} together, the rows outside the test "
            "part; --train-rows 0 uses all rows that the others leave, at least one"
        )
    if train_rows is None:
        train_rows = len(rows) - held_out
    if train_rows < 1:
        raise ConfigurationError(f"train_rows is {train_rows}, expected at least 1")
    sizes = (train_rows, *_reference_sizes(reference_rows, fit_share, certify_share), validation_rows)
    cuts = np.cumsum(sizes)
    if groups is not None:
        shared = np.intersect1d(groups[rows], groups[rows_of(test)])
        if len(shared):
            raise ConfigurationError(f"{len(shared)} groups have rows in the test part and outside, expected none")
    train, fit, certify, gate, validation, rest = _cut(
        rows, labels, cuts, seed, stratified=stratified, groups=groups, equal=equal
    )
    needed = {"train": train, "fit": fit, "certify": certify, "gate": gate}
    _require_rows(needed | ({"validation": validation} if validation_rows else {}))
    return Splits(train, validation, fit, certify, gate, rest, rows_of(test))


def split_held_out(
    labels: NDArray[np.int64],
    *,
    seed: int,
    reference_rows: int,
    fit_share: float,
    certify_share: float,
    test: range = range(0),
    stratified: bool = False,
    groups: NDArray[np.int64] | None = None,
    equal: NDArray[np.int64] | None = None,
) -> Splits:
    """Cut the rows that a network trained elsewhere has never seen into reference rows and others.

    They are the test part, and all other rows count as training rows; without a test part, they are all rows.

    The arguments are those of `split`.

    Raises:
        ConfigurationError: There are not enough rows, or a part would be empty.

    Example:
        >>> labels = np.zeros(60_000, np.int64)
        >>> parts = split_held_out(
        ...     labels, seed=0, reference_rows=4000, fit_share=0.5, certify_share=0.45, test=range(50_000, 60_000)
        ... )
        >>> len(parts.train), len(parts.reference()), len(parts.unseen())
        (50000, 4000, 6000)
    """
    rows = rows_of(test if len(test) else range(len(labels)))
    seen = np.delete(np.arange(len(labels), dtype=np.int64), rows)
    if reference_rows > len(rows):
        raise ConfigurationError(
            f"reference_rows is {reference_rows}, expected at most {len(rows)} (rows the network has not seen)"
        )
    sizes = _reference_sizes(reference_rows, fit_share, certify_share)
    fit, certify, gate, rest = _cut(
        rows, labels, np.cumsum(sizes), seed, stratified=stratified, groups=groups, equal=equal
    )
    _require_rows({"fit": fit, "certify": certify, "gate": gate})
    none = rows_of(range(0))
    return Splits(seen, none, fit, certify, gate, rest, none)


def _reference_sizes(rows: int, fit_share: float, certify_share: float) -> tuple[int, int, int]:
    """Return the numbers of fit, certify and gate rows."""
    fit, certify = round(rows * fit_share), round(rows * certify_share)
    sizes = (fit, certify, rows - fit - certify)
    if min(sizes) < 1:
        raise ConfigurationError(
            f"reference_rows {rows} would give {fit} fit, {certify} certify and {sizes[2]} gate rows, expected at "
            "least 1 of each; use more rows, or set reference_rows, fit_share and certify_share"
        )
    return sizes


def _cut(
    rows: Rows,
    labels: NDArray[np.int64],
    cuts: Rows,
    seed: int,
    *,
    stratified: bool,
    groups: NDArray[np.int64] | None,
    equal: NDArray[np.int64] | None,
) -> list[Rows]:
    """Return the pieces of an order of these rows."""
    require("stratified", stratified, not stratified or groups is None, "false where rows have groups")
    random = np.random.default_rng(seed)
    order = stratified_order(labels[rows], random) if stratified else random.permutation(len(rows))
    together = equal if groups is None else groups
    if together is not None:
        order, cuts = whole_groups(together[rows], cuts, order)
    return np.split(rows[order], cuts)


def _require_rows(parts: Mapping[str, Rows]) -> None:
    for name, part in parts.items():
        if not len(part):
            raise ConfigurationError(
                f"the {name} part would be empty, since groups stay whole, and there are too few groups; without a "
                "`group` column, equal rows are one group"
            )


def rows_of(numbers: range) -> Rows:
    """Return a range as row numbers, int64."""
    return np.asarray(numbers, np.int64).reshape(-1)
