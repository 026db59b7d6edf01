"""The manifest: the description of a bundle, in one frozen JSON document."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Final, Literal, Self

from pydantic import AwareDatetime, Field, ValidationError, model_validator

from bundle.errors import BundleDamagedError, BundleFormatError
from bundle.graph import Graph
from bundle.inputs import InputSpec
from bundle.records import Architecture, ImportRecord, LabelOf, TrainingRecord
from bundle.schema import Finite, Frozen, Label, Sha256

SCHEMA_VERSION: Final = 2
MANIFEST_FILE = "manifest.json"
SIGNATURES_FILE = "signatures.json"
"""Signatures of the manifest, beside it: signing a bundle does not change it."""
SIGSTORE_FILE = "manifest.json.sigstore.json"
"""One in Sigstore's format, also beside it."""
MODEL_FILE = "model.onnx"
CALIBRATOR_FILE = "calibrator.json"
REFERENCE_FILE = "reference.npz"
GOLDEN_FILE = "golden.npz"
REPORT_FILE = "report/report.json"
VOCABULARY_FILE = "vocabulary.json"
COLUMNS_FILE = "columns.json"
PROFILE_FILE = "profile.json"
TOKENIZER_FILE = "tokenizer.json"
TREES_FILE = "trees.npz"
SCORES_FILE = "scores.json"
UPSTREAM_FILE = "upstream.json"
MODEL_FILES = {"trained": MODEL_FILE, "imported": MODEL_FILE, "scores": SCORES_FILE, "remote": UPSTREAM_FILE}
"""The file whose digest identifies the model, by the source of the model."""
REQUIRED_FILES = (CALIBRATOR_FILE, REFERENCE_FILE, GOLDEN_FILE, REPORT_FILE)
ENCODER_FILES = {
    VOCABULARY_FILE: ("tokens",),
    COLUMNS_FILE: ("array", "tensors"),
    TOKENIZER_FILE: ("tensors",),
}
"""Files that turn a client's data into the input, with the kinds of input that they belong to."""
OPTIONAL_FILES = ENCODER_FILES | {PROFILE_FILE: ENCODER_FILES[COLUMNS_FILE], TREES_FILE: ("array",)}
MODEL_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"
ABSENT, PRESENT = "absent", "present"
"""Labels of a model of one label of a multi-label model."""
DIAGRAM_PATTERN = re.compile(r"report/[a-z0-9][a-z0-9-]{0,63}\.svg")

ModelName = Annotated[str, Field(pattern=f"^{MODEL_NAME}$")]

_UNSIGNED = "0" * 64


class Manifest(Frozen):
    """The description of a bundle.

    Attributes:
        schema_version: Version of this schema. Version 1 had trained models only.
        model: Name of the model, the folder above the version's.
        version: Version of the model, counted from 1.
        source: `trained` by Candor; `imported` with its graph as it came; `scores`, sent by the client; or `remote`,
            served elsewhere.
        labels: Class names in the order of the logits' columns; distinct, at least two.
        input: Specification of one example.
        graph: How examples enter the graph; None where it takes `input` and gives `logits`, as trained networks do.
        files: sha256 of every other file of the bundle, by path.
        architecture: The network; trained models only.
        training: How it was trained; trained models only.
        imported: What it was imported from; None for trained models.
        label_of: The multi-label model to which it belongs; None for other models.
        versions: Versions of the packages that made the bundle.
        metrics: Headline metrics by name; the report gives their context.
        created_at: Time of writing, UTC.
        checksum: sha256 of the manifest's own bytes with zeros in this field.
    """

    schema_version: Literal[1, 2] = SCHEMA_VERSION
    model: ModelName
    version: Annotated[int, Field(ge=1)]
    source: Literal["trained", "imported", "scores", "remote"] = "trained"
    labels: Annotated[tuple[Label, ...], Field(min_length=2)]
    input: InputSpec
    graph: Graph | None = None
    files: dict[str, Sha256]
    architecture: Architecture | None = None
    training: TrainingRecord | None = None
    imported: ImportRecord | None = None
    label_of: LabelOf | None = None
    versions: dict[str, str]
    metrics: dict[str, Finite]
    created_at: AwareDatetime
    checksum: Sha256 = _UNSIGNED

    @property
    def model_file(self) -> str:
        """Name of the file whose digest identifies the model."""
        return MODEL_FILES[self.source]

    @property
    def sharing(self) -> int:
        """Number of labels that share the delta of their policies: those of its multi-label model, else 1."""
        return 1 if self.label_of is None else len(self.label_of.labels)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels must be distinct")
        self._check_source()
        if self.label_of is not None and self.labels != (ABSENT, PRESENT):
            raise ValueError(f"a model of one label has the labels {ABSENT} and {PRESENT}")
        required = (self.model_file, *REQUIRED_FILES)
        missing = [name for name in required if name not in self.files]
        if missing:
            raise ValueError(f"files lacks {', '.join(missing)}")
        strange = [
            name
            for name in self.files
            if name not in required
            and self.input.kind not in OPTIONAL_FILES.get(name, ())
            and not DIAGRAM_PATTERN.fullmatch(name)
        ]
        if strange:
            raise ValueError(f"files names {strange[0]!r}, which does not belong to a bundle")
        return self

    def _check_source(self) -> None:
        trained = self.source == "trained"
        if self.schema_version == 1 and not trained:
            raise ValueError(f"schema version 1 has no source {self.source!r}")
        if (self.training is not None, self.architecture is not None, self.imported is not None) != (
            trained,
            trained,
            not trained,
        ):
            raise ValueError("a trained model requires `training` and `architecture`, all others `imported`")
        if not trained and (self.graph is not None) != (self.source in ("imported", "remote")):
            raise ValueError("imported and remote models require `graph`, and scores have none")
        if (self.input.kind == "scores") != (self.source == "scores"):
            raise ValueError("input kind 'scores' belongs to source 'scores', and to no other")
        if self.source == "scores" and self.input.shape != (len(self.labels),):
            raise ValueError(f"scores of shape {self.input.shape} for {len(self.labels)} labels")
        if self.graph is not None:
            self.graph.check(self.input, len(self.labels))


def dump(manifest: Manifest) -> bytes:
    """Return the manifest as JSON bytes, with their checksum."""
    unsigned = manifest.model_copy(update={"checksum": _UNSIGNED}).model_dump_json(indent=2).encode() + b"\n"
    head, _, tail = unsigned.rpartition(_UNSIGNED.encode())
    return head + hashlib.sha256(unsigned).hexdigest().encode() + tail


def load(data: bytes) -> Manifest:
    """Parse a manifest and check its checksum.

    Args:
        data: The bytes of `manifest.json`.

    Raises:
        BundleDamagedError: The bytes differ from what `dump` returned.
        BundleFormatError: The document has another schema version.
    """
    claimed = re.search(rb'"checksum": "([0-9a-f]{64})"\n}\n\Z', data)
    if claimed is None:
        raise BundleDamagedError(
            "the manifest has no checksum at its end", file=MANIFEST_FILE, expected='"checksum": "<64 hex digits>"'
        )
    start, end = claimed.span(1)
    actual = hashlib.sha256(data[:start] + _UNSIGNED.encode() + data[end:]).hexdigest()
    if actual.encode() != claimed[1]:
        raise BundleDamagedError(
            "the manifest differs from what was written",
            file=MANIFEST_FILE,
            found=f"sha256 {actual}",
            expected=f"sha256 {claimed[1].decode()}",
        )
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise BundleFormatError(
            f"the manifest does not follow schema versions 1 to {SCHEMA_VERSION}: {where}: {first['msg']}",
            file=MANIFEST_FILE,
        ) from None
