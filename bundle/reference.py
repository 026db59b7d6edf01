"""Reference rows: held-out logits and labels, in three parts that are never mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from bundle import npz
from bundle.errors import BundleFormatError
from bundle.manifest import REFERENCE_FILE

PARTS = ("fit", "certify", "gate")
_KINDS: Final = {"group": "i", "segment": "U", "weight": "f", "time": "i"}
OPTIONAL: Final = tuple(_KINDS)
"""Columns that reference rows of an imported model may have beside logits and labels."""


@dataclass(frozen=True)
class LabelledLogits:
    """Rows with known labels.

    Attributes:
        logits: Pre-softmax scores, float32 (n, K); finite or −inf (a probability of zero).
        labels: Column of the true class, int64 (n,), in 0 … K − 1.
        group: Number of the row's group, int64 (n,); None where each row is its own group.
        segment: The row's segment, str (n,), "" for none; None where no row has one.
        weight: The row's weight, float64 (n,), above 0; None for 1.
        time: When the row was observed, int64 (n,), microseconds since the epoch; None where unknown.
    """

    logits: NDArray[np.float32]
    labels: NDArray[np.int64]
    group: NDArray[np.int64] | None = None
    segment: NDArray[np.str_] | None = None
    weight: NDArray[np.float64] | None = None
    time: NDArray[np.int64] | None = None

    def given(self) -> dict[str, NDArray[Any]]:
        """Return the optional columns that these rows have, by name."""
        return {name: getattr(self, name) for name in OPTIONAL if getattr(self, name) is not None}

    def check(self, classes: int, where: str) -> None:
        """Raise BundleFormatError unless these are rows of a model with that many classes."""
        logits, labels = self.logits, self.labels
        if logits.dtype != np.float32 or labels.dtype != np.int64:
            raise BundleFormatError(
                f"{where}: wrong types",
                file=REFERENCE_FILE,
                found=f"{logits.dtype}, {labels.dtype}",
                expected="float32, int64",
            )
        if logits.ndim != 2 or logits.shape[1] != classes or labels.shape != logits.shape[:1]:
            raise BundleFormatError(
                f"{where}: wrong shapes",
                file=REFERENCE_FILE,
                found=f"logits {logits.shape}, labels {labels.shape}",
                expected=f"logits (n, {classes}), labels (n,)",
            )
        if np.isnan(logits).any() or np.isposinf(logits).any():
            raise BundleFormatError(f"{where}: NaN or +inf among the logits", file=REFERENCE_FILE)
        if labels.size and not (labels.min() >= 0 and labels.max() < classes):
            raise BundleFormatError(
                f"{where}: labels out of range",
                file=REFERENCE_FILE,
                found=f"{labels.min()} … {labels.max()}",
                expected=f"0 … {classes - 1}",
            )
        for name, column in self.given().items():
            if column.shape != labels.shape or column.dtype.kind != _KINDS[name]:
                raise BundleFormatError(
                    f"{where}: wrong {name}s",
                    file=REFERENCE_FILE,
                    found=f"{column.dtype} {column.shape}",
                    expected=f"kind {_KINDS[name]!r}, shape {labels.shape}",
                )
        if self.weight is not None and not ((self.weight > 0) & np.isfinite(self.weight)).all():
            raise BundleFormatError(f"{where}: a weight is not a finite number above 0", file=REFERENCE_FILE)


@dataclass(frozen=True)
class Reference:
    """Held-out rows, disjoint from the training rows and from one another.

    Attributes:
        fit: Rows for fitting the calibrator and choosing thresholds.
        certify: Rows for certification; nothing is chosen on them.
        gate: Rows for judging proposals.
    """

    fit: LabelledLogits
    certify: LabelledLogits
    gate: LabelledLogits

    def check(self, classes: int) -> None:
        """Raise BundleFormatError unless all three parts fit a model with that many classes."""
        for name in PARTS:
            part: LabelledLogits = getattr(self, name)
            part.check(classes, name)

    def dump(self) -> bytes:
        """Return the bytes of `reference.npz`."""
        arrays: dict[str, NDArray[Any]] = {}
        for name in PARTS:
            part: LabelledLogits = getattr(self, name)
            arrays[f"{name}_logits"] = part.logits
            arrays[f"{name}_labels"] = part.labels
            arrays |= {f"{name}_{column}": values for column, values in part.given().items()}
        return npz.dump(arrays)

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Read `reference.npz`; raises BundleFormatError."""
        required, optional = (
            frozenset(f"{name}_{column}" for name in PARTS for column in columns)
            for columns in (("logits", "labels"), OPTIONAL)
        )
        arrays = npz.load(data, required, file=REFERENCE_FILE, optional=optional)
        return cls(
            **{
                name: LabelledLogits(
                    arrays[f"{name}_logits"],
                    arrays[f"{name}_labels"],
                    **{column: arrays.get(f"{name}_{column}") for column in OPTIONAL},
                )
                for name in PARTS
            }
        )
