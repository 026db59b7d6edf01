"""What goes into a bundle, and what comes out of a verified one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bundle.golden import Golden
from bundle.manifest import Architecture, InputSpec, Manifest, TrainingRecord
from bundle.reference import Reference
from bundle.table import Columns
from bundle.text import Vocabulary
from calibrators import Calibrator


@dataclass(frozen=True)
class BundleContents:
    """Everything that `bundle.write` puts into a folder; version, digests and time are its own.

    Attributes:
        model: Name of the model.
        labels: Class names in the order of the logits' columns.
        input: One example as the graph takes it.
        model_bytes: The ONNX model: `input` → `logits` (N, K), dynamic N, preprocessing inside.
        calibrator: The fitted calibrator.
        reference: Held-out rows.
        golden: Inputs with the logits they must give.
        architecture: The network.
        training: How it was trained.
        versions: Versions of what made the bundle.
        metrics: Headline metrics by name.
        report: The report document, JSON-able.
        diagrams: SVG bytes by name (`reliability-before` …), written as `report/<name>.svg`.
        vocabulary: What makes tokens of texts, where the input is tokens.
        columns: What makes an array of a table's row, where the input is one.
    """

    model: str
    labels: tuple[str, ...]
    input: InputSpec
    model_bytes: bytes
    calibrator: Calibrator
    reference: Reference
    golden: Golden
    architecture: Architecture
    training: TrainingRecord
    versions: dict[str, str]
    metrics: dict[str, float]
    report: dict[str, Any]
    diagrams: Mapping[str, bytes] = field(default_factory=dict)
    vocabulary: Vocabulary | None = None
    columns: Columns | None = None


@dataclass(frozen=True)
class Bundle:
    """A bundle whose every byte was checked.

    Attributes:
        id: sha256 of `manifest.json`, hex.
        path: The folder it was read from.
        manifest: What it says of itself.
        model_bytes: The ONNX model, the very bytes that were hashed.
        model_digest: sha256 of `model_bytes`, hex.
        calibrator: The fitted calibrator.
        reference: Held-out rows.
        golden: Inputs with the logits they must give.
        report: The report document.
        diagrams: SVG bytes by name.
        vocabulary: What makes tokens of texts; None where the bundle has none.
        columns: What makes an array of a table's row; None where the bundle has none.
    """

    id: str
    path: Path
    manifest: Manifest
    model_bytes: bytes = field(repr=False)
    model_digest: str
    calibrator: Calibrator
    reference: Reference = field(repr=False)
    golden: Golden = field(repr=False)
    report: dict[str, Any] = field(repr=False)
    diagrams: Mapping[str, bytes] = field(repr=False)
    vocabulary: Vocabulary | None = field(default=None, repr=False)
    columns: Columns | None = field(default=None, repr=False)
