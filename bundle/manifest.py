"""The manifest: what a bundle is, in one frozen JSON document."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Final, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from bundle.errors import BundleDamagedError, BundleFormatError

SCHEMA_VERSION: Final = 1
MANIFEST_FILE = "manifest.json"
MODEL_FILE = "model.onnx"
CALIBRATOR_FILE = "calibrator.json"
REFERENCE_FILE = "reference.npz"
GOLDEN_FILE = "golden.npz"
REPORT_FILE = "report/report.json"
VOCABULARY_FILE = "vocabulary.json"
COLUMNS_FILE = "columns.json"
REQUIRED_FILES = (MODEL_FILE, CALIBRATOR_FILE, REFERENCE_FILE, GOLDEN_FILE, REPORT_FILE)
OPTIONAL_FILES = {VOCABULARY_FILE: "tokens", COLUMNS_FILE: "array"}  # with the kind of input that they belong to
MODEL_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"
DIAGRAM_PATTERN = re.compile(r"report/[a-z0-9][a-z0-9-]{0,63}\.svg")

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ModelName = Annotated[str, Field(pattern=f"^{MODEL_NAME}$")]
Label = Annotated[str, Field(min_length=1, max_length=256)]
Finite = Annotated[float, Field(allow_inf_nan=False)]

_UNSIGNED = "0" * 64


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class InputSpec(_Frozen):
    """One example as the graph takes it, without the batch axis.

    Attributes:
        kind: `image` (uint8, shape (H, W, C) with C 1 or 3), `array` (float32, (F,)) or `tokens` (int32, (L,)).
        dtype: The graph's input type; fixed by `kind`.
        shape: Shape of one example.
        resize: Whether an encoded image of another size is resized to (H, W) or refused.

    Example:
        >>> InputSpec(kind="image", dtype="uint8", shape=(8, 8, 1)).shape
        (8, 8, 1)
    """

    kind: Literal["image", "array", "tokens"]
    dtype: Literal["uint8", "float32", "int32"]
    shape: tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...]
    resize: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        dtype, axes = {"image": ("uint8", 3), "array": ("float32", 1), "tokens": ("int32", 1)}[self.kind]
        if self.dtype != dtype or len(self.shape) != axes:
            raise ValueError(f"input kind {self.kind!r} needs dtype {dtype} and {axes} axes in shape")
        if self.kind == "image" and self.shape[2] not in (1, 3):
            raise ValueError(f"an image has 1 or 3 channels, not {self.shape[2]}")
        if self.resize and self.kind != "image":
            raise ValueError("only images can be resized")
        return self


class Architecture(_Frozen):
    """The network: registry name, number of parameters, and the arguments it was built with."""

    name: str
    parameters: Annotated[int, Field(ge=0)]
    config: dict[str, JsonValue]


class Loss(_Frozen):
    """The loss that was minimised and its coefficients."""

    name: str
    coefficients: dict[str, Finite] = {}


class Part(_Frozen):
    """One part of the data split: how many rows, and the sha256 of their row numbers (int64, little-endian)."""

    rows: Annotated[int, Field(ge=0)]
    sha256: Sha256


class DataRecord(_Frozen):
    """What the data set was made of.

    Attributes:
        options: What was asked of its reader, by name.
        sources: sha256 of each file that was read, by its path in the folder of data sets.
    """

    options: dict[str, JsonValue] = {}
    sources: dict[str, Sha256] = {}


class PublishedWeights(_Frozen):
    """Weights that were trained elsewhere.

    Attributes:
        file: Name of the file that held them.
        sha256: Of that file.
        mean: What the graph subtracts from each channel first, as they expect it, on the scale 0 … 1.
        deviation: What it then divides each channel by, on the same scale.
    """

    file: str
    sha256: Sha256
    mean: tuple[Finite, ...]
    deviation: tuple[Finite, ...]


class TrainingRecord(_Frozen):
    """How the network came about: enough to do it again.

    Of weights that were trained elsewhere, `weights` tells in place of `loss`, `batch_size`, `optimiser` and
    `learning_rate`, and `epochs` is 0.
    """

    dataset: str
    loss: Loss | None = None
    seed: Annotated[int, Field(ge=0)]
    epochs: Annotated[int, Field(ge=0)]
    batch_size: Annotated[int, Field(ge=1)] | None = None
    optimiser: str | None = None
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    recipe: dict[str, JsonValue] = {}
    weights: PublishedWeights | None = None
    splits: dict[str, Part]
    data: DataRecord = DataRecord()


class Manifest(_Frozen):
    """What a bundle is.

    Attributes:
        schema_version: Version of this schema; another one is refused.
        model: Name of the model, the folder above the version's.
        version: Version of the model, counted from 1.
        labels: Class names in the order of the logits' columns; distinct, at least two.
        input: One example as the graph takes it.
        files: sha256 of every other file of the bundle, by path.
        architecture: The network.
        training: How it was trained.
        versions: Versions of what made the bundle, by package.
        metrics: Headline metrics by name; the report has them with their context.
        created_at: When the bundle was written, UTC.
        checksum: sha256 of the manifest's own bytes with this field's digits as zeros.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    model: ModelName
    version: Annotated[int, Field(ge=1)]
    labels: Annotated[tuple[Label, ...], Field(min_length=2)]
    input: InputSpec
    files: dict[str, Sha256]
    architecture: Architecture
    training: TrainingRecord
    versions: dict[str, str]
    metrics: dict[str, Finite]
    created_at: AwareDatetime
    checksum: Sha256 = _UNSIGNED

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels must be distinct")
        missing = [name for name in REQUIRED_FILES if name not in self.files]
        if missing:
            raise ValueError(f"files lacks {', '.join(missing)}")
        strange = [
            name
            for name in self.files
            if name not in REQUIRED_FILES
            and OPTIONAL_FILES.get(name) != self.input.kind
            and not DIAGRAM_PATTERN.fullmatch(name)
        ]
        if strange:
            raise ValueError(f"files names {strange[0]!r}, which is no file of a bundle")
        return self


def dump(manifest: Manifest) -> bytes:
    """The manifest as JSON bytes, its checksum set to that of these very bytes."""
    unsigned = manifest.model_copy(update={"checksum": _UNSIGNED}).model_dump_json(indent=2).encode() + b"\n"
    head, _, tail = unsigned.rpartition(_UNSIGNED.encode())
    return head + hashlib.sha256(unsigned).hexdigest().encode() + tail


def load(data: bytes) -> Manifest:
    """Parse a manifest and check its checksum.

    Args:
        data: The bytes of `manifest.json`.

    Raises:
        BundleDamagedError: The bytes are not those that `dump` gave.
        BundleFormatError: They are, but of another schema version.
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
            f"the manifest does not follow schema version {SCHEMA_VERSION}: {where}: {first['msg']}", file=MANIFEST_FILE
        ) from None
