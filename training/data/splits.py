"""Splitting a data set into parts that share no row."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from training.errors import ConfigurationError

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Splits:
    """Row numbers of each part, int64; disjoint, together all rows.

    Attributes:
        train: The network learns from these.
        fit: Reference rows that the calibrator is fitted on.
        certify: Reference rows that certify.
        gate: Reference rows that proposals are judged on.
        feedback: All others: nothing offline sees them.
    """

    train: Rows
    fit: Rows
    certify: Rows
    gate: Rows
    feedback: Rows

    def sizes_and_digests(self) -> dict[str, tuple[int, str]]:
        """Rows and sha256 (of the row numbers, int64 little-endian) of each part, to be recorded."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: (len(rows), hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()) for name, rows in parts.items()
        }


def split(
    rows: int, *, seed: int, train_rows: int, reference_rows: int, fit_share: float, certify_share: float
) -> Splits:
    """Cut a random permutation of the rows into parts.

    Args:
        rows: Number of rows of the data set.
        seed: Seed of the permutation.
        train_rows: Rows to train on.
        reference_rows: Rows that go into the bundle.
        fit_share: Share of the reference rows for fitting.
        certify_share: Share of the reference rows for certifying; the rest are for the gate.

    Raises:
        ConfigurationError: There are not enough rows, or a part would be empty.

    Example:
        >>> parts = split(1797, seed=0, train_rows=300, reference_rows=400, fit_share=0.5, certify_share=0.45)
        >>> len(parts.fit), len(parts.certify), len(parts.gate), len(parts.feedback)
        (200, 180, 20, 1097)
    """
    if train_rows + reference_rows > rows:
        raise ConfigurationError(
            f"{train_rows} training and {reference_rows} reference rows, expected at most {rows} together"
        )
    fit, certify = round(reference_rows * fit_share), round(reference_rows * certify_share)
    sizes = (train_rows, fit, certify, reference_rows - fit - certify)
    if min(sizes) < 1:
        raise ConfigurationError(f"train, fit, certify, gate would have {sizes} rows, expected at least 1 each")
    order = np.random.default_rng(seed).permutation(rows).astype(np.int64)
    return Splits(*np.split(order, np.cumsum(sizes)))
