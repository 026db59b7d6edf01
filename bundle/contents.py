"""The contents of a bundle, before writing and after verification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bundle.golden import Golden
from bundle.graph import Graph
from bundle.inputs import InputSpec
from bundle.manifest import Manifest
from bundle.profile import Profile
from bundle.records import Architecture, ImportRecord, LabelOf, TrainingRecord
from bundle.reference import Reference
from bundle.scores import Scores
from bundle.table import Columns
from bundle.text import Vocabulary
from bundle.tokenizer import Tokenizer
from bundle.trees import Trees
from bundle.upstream import Upstream
from calibrators import Calibrator


@dataclass(frozen=True)
class BundleContents:
    """The input of `bundle.write`, which adds version, digests and time.

    Attributes:
        model: Name of the model.
        labels: Class names in the order of the logits' columns.
        input: Specification of one example.
        model_bytes: The ONNX model; for scores and remote models the bytes of `scores.json` or `upstream.json`.
        calibrator: The fitted calibrator.
        reference: Held-out rows.
        golden: Inputs with the logits that the model must give.
        versions: Versions of the packages that made the bundle.
        metrics: Headline metrics by name.
        report: The report document, JSON-able.
        diagrams: SVG bytes by name (`reliability-before` …), written as `report/<name>.svg`.
        vocabulary: Turns texts into tokens; only for token inputs.
        columns: Turns a table's rows into arrays; only for tables.
        profile: Distribution of the columns in the reference rows; only for tables.
        tokenizer: Turns texts into tensors; only for text models that came with one.
        trees: The trees of the model, which say why; only for forests whose leaves add up to log-odds.
        source: `trained`, `imported`, `scores` or `remote`.
        graph: How examples enter the graph; None where it takes `input`, and for scores.
        architecture: The network; trained models only.
        training: How it was trained; trained models only.
        imported: What it was imported from; all but trained models.
        label_of: The multi-label model to which it belongs; None for other models.
    """

    model: str
    labels: tuple[str, ...]
    input: InputSpec
    model_bytes: bytes
    calibrator: Calibrator
    reference: Reference
    golden: Golden
    versions: dict[str, str]
    metrics: dict[str, float]
    report: dict[str, Any]
    diagrams: Mapping[str, bytes] = field(default_factory=dict)
    vocabulary: Vocabulary | None = None
    columns: Columns | None = None
    profile: Profile | None = None
    tokenizer: Tokenizer | None = None
    trees: Trees | None = None
    source: Literal["trained", "imported", "scores", "remote"] = "trained"
    graph: Graph | None = None
    architecture: Architecture | None = None
    training: TrainingRecord | None = None
    imported: ImportRecord | None = None
    label_of: LabelOf | None = None


@dataclass(frozen=True)
class Bundle:
    """A bundle with every byte verified.

    Attributes:
        id: sha256 of `manifest.json`, hex.
        path: The folder it was read from.
        manifest: Its manifest.
        model_bytes: The model file (ONNX, or the document of scores or of an upstream), the bytes that were hashed.
        model_digest: sha256 of `model_bytes`, hex.
        calibrator: The fitted calibrator.
        reference: Held-out rows.
        golden: Inputs with the logits that the model must give.
        report: The report document.
        diagrams: SVG bytes by name.
        vocabulary: Turns texts into tokens; None if the bundle has none.
        columns: Turns a table's rows into arrays; None if the bundle has none.
        profile: Distribution of the columns in the reference rows; None if the bundle has none.
        tokenizer: Turns texts into tensors; None if the bundle has none.
        trees: The trees of the model; None if the bundle has none.
        scores: What the scores of clients are; None unless the model's source is `scores`.
        upstream: The server that runs the model; None unless the model's source is `remote`.
        signed_by: Id of the trusted key that signed it; None if signatures were not checked.
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
    profile: Profile | None = field(default=None, repr=False)
    tokenizer: Tokenizer | None = field(default=None, repr=False)
    trees: Trees | None = field(default=None, repr=False)
    scores: Scores | None = None
    upstream: Upstream | None = None
    signed_by: str | None = None
