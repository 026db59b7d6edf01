"""Splitting a data set into parts that share no row."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from training.data.subset import stratified_order
from training.errors import ConfigurationError

Rows = NDArray[np.int64]
_WHERE_ANY = ("validation", "test")  # recorded only where a run has them


@dataclass(frozen=True)
class Splits:
    """Row numbers of each part, int64; disjoint, together all rows.

    Attributes:
        train: The network learns from these.
        validation: Training is stopped and models are chosen by these; may be empty.
        fit: Reference rows that the calibrator is fitted on.
        certify: Reference rows that certify.
        gate: Reference rows that proposals are judged on.
        feedback: All others outside the test part: nothing offline sees them.
        test: The test part, where the data set has one; a report's last word, and never anything else.
    """

    train: Rows
    validation: Rows
    fit: Rows
    certify: Rows
    gate: Rows
    feedback: Rows
    test: Rows

    def reference(self) -> Rows:
        """The rows that go into the bundle: fit, certify, gate."""
        return np.concatenate([self.fit, self.certify, self.gate])

    def unseen(self) -> Rows:
        """Rows to report on that nothing was trained, chosen or fitted on: the test part, else the feedback rows."""
        return self.test if len(self.test) else self.feedback

    def sizes_and_digests(self) -> dict[str, tuple[int, str]]:
        """Rows and sha256 (of the row numbers, int64 little-endian) of each part, to be recorded."""
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
) -> Splits:
    """Cut a random order of the rows outside the test part into parts.

    Args:
        labels: Class of every row, int64 (N,).
        seed: Seed of the order.
        train_rows: Rows to train on; None for all that the other parts leave.
        reference_rows: Rows that go into the bundle.
        fit_share: Share of the reference rows for fitting.
        certify_share: Share of the reference rows for certifying; the rest are for the gate.
        validation_rows: Rows to stop and to choose by.
        test: Rows that the makers set apart; they are in no other part.
        stratified: Whether every part gets the classes in proportion; a plain random order if not.

    Raises:
        ConfigurationError: There are not enough rows, or a part would be empty.

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
            f"{asked}reference_rows {reference_rows}: expected at most {len(rows)} together, as many as there are "
            "outside a test part; --train-rows 0 takes all that the others leave, at least one"
        )
    if train_rows is None:
        train_rows = len(rows) - held_out
    if train_rows < 1:
        raise ConfigurationError(f"train_rows is {train_rows}, expected at least 1")
    sizes = (train_rows, *_reference_sizes(reference_rows, fit_share, certify_share), validation_rows)
    order = _order(labels[rows], seed, stratified=stratified)
    train, fit, certify, gate, validation, rest = np.split(rows[order], np.cumsum(sizes))
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
) -> Splits:
    """Cut rows that a network trained elsewhere has never seen into reference rows and others.

    They are those of the test part, and the rows outside count as training rows; where there is no test part, they are
    all rows.

    Args:
        labels: Class of every row, int64 (N,).
        seed: Seed of the order.
        reference_rows: Rows that go into the bundle.
        fit_share: Share of the reference rows for fitting.
        certify_share: Share of the reference rows for certifying; the rest are for the gate.
        test: Rows that the makers set apart.
        stratified: Whether every part gets the classes in proportion; a plain random order if not.

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
            f"reference_rows is {reference_rows}, expected at most {len(rows)}, as many as the network has never seen"
        )
    sizes = _reference_sizes(reference_rows, fit_share, certify_share)
    order = _order(labels[rows], seed, stratified=stratified)
    fit, certify, gate, rest = np.split(rows[order], np.cumsum(sizes))
    none = rows_of(range(0))
    return Splits(seen, none, fit, certify, gate, rest, none)


def _reference_sizes(rows: int, fit_share: float, certify_share: float) -> tuple[int, int, int]:
    """Rows that fit, certify, and are the gate's."""
    fit, certify = round(rows * fit_share), round(rows * certify_share)
    sizes = (fit, certify, rows - fit - certify)
    if min(sizes) < 1:
        raise ConfigurationError(
            f"reference_rows {rows} would be {fit} to fit, {certify} to certify and {sizes[2]} for the gate, expected "
            "at least 1 each; more rows, or another fit_share and certify_share, give each some"
        )
    return sizes


def _order(labels: NDArray[np.int64], seed: int, *, stratified: bool) -> Rows:
    random = np.random.default_rng(seed)
    return stratified_order(labels, random) if stratified else random.permutation(len(labels))


def rows_of(numbers: range) -> Rows:
    """A range as row numbers, int64."""
    return np.asarray(numbers, np.int64).reshape(-1)
