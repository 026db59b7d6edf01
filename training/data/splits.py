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
    if train_rows is None:
        train_rows = len(rows) - validation_rows - reference_rows
    if train_rows + validation_rows + reference_rows > len(rows):
        validating = f" {validation_rows} validation" if validation_rows else ""
        raise ConfigurationError(
            f"{train_rows} training,{validating} and {reference_rows} reference rows, "
            f"expected at most {len(rows)} together"
        )
    fit, certify = round(reference_rows * fit_share), round(reference_rows * certify_share)
    sizes = (train_rows, fit, certify, reference_rows - fit - certify)
    if min(sizes) < 1:
        raise ConfigurationError(f"train, fit, certify, gate would have {sizes} rows, expected at least 1 each")
    random = np.random.default_rng(seed)
    order = stratified_order(labels[rows], random) if stratified else random.permutation(len(rows))
    train, first, second, third, validation, rest = np.split(rows[order], np.cumsum((*sizes, validation_rows)))
    return Splits(train, validation, first, second, third, rest, rows_of(test))


def rows_of(numbers: range) -> Rows:
    """A range as row numbers, int64."""
    return np.asarray(numbers, np.int64).reshape(-1)
