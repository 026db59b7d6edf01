"""Reference rows: held-out logits and labels, in three parts that are never mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bundle import npz
from bundle.errors import BundleFormatError
from bundle.manifest import REFERENCE_FILE

PARTS = ("fit", "certify", "gate")


@dataclass(frozen=True)
class LabelledLogits:
    """Rows whose label is known.

    Attributes:
        logits: Pre-softmax scores, float32 (n, K); finite or −inf (a probability of zero).
        labels: Column of the true class, int64 (n,), in 0 … K − 1.
    """

    logits: NDArray[np.float32]
    labels: NDArray[np.int64]

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


@dataclass(frozen=True)
class Reference:
    """Held-out rows, disjoint from the training rows and from one another.

    Attributes:
        fit: Rows that the calibrator was fitted on; thresholds are chosen on them.
        certify: Rows that nothing was chosen on; they certify.
        gate: Rows that a proposal is judged on.
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
        """The bytes of `reference.npz`."""
        arrays: dict[str, NDArray[np.float32] | NDArray[np.int64]] = {}
        for name in PARTS:
            part: LabelledLogits = getattr(self, name)
            arrays[f"{name}_logits"] = part.logits
            arrays[f"{name}_labels"] = part.labels
        return npz.dump(arrays)

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Read `reference.npz`; raises BundleFormatError."""
        names = frozenset(f"{name}_{column}" for name in PARTS for column in ("logits", "labels"))
        arrays = npz.load(data, names, file=REFERENCE_FILE)
        return cls(**{name: LabelledLogits(arrays[f"{name}_logits"], arrays[f"{name}_labels"]) for name in PARTS})
