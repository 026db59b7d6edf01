"""Where a model comes from: how it was trained, or what it was imported from."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, JsonValue, model_validator

from bundle.schema import Finite, Frozen, Label, Sha256


class Architecture(Frozen):
    """The network: registry name, number of parameters, and the arguments it was built with."""

    name: str
    parameters: Annotated[int, Field(ge=0)]
    config: dict[str, JsonValue]


class Loss(Frozen):
    """The training loss and its coefficients."""

    name: str
    coefficients: dict[str, Finite] = Field(default_factory=dict)


class Part(Frozen):
    """One part of the data split: its size and the sha256 of its row numbers (int64, little-endian)."""

    rows: Annotated[int, Field(ge=0)]
    sha256: Sha256


class DataRecord(Frozen):
    """The origin of the data set.

    Attributes:
        options: Settings of its reader, by name.
        sources: sha256 of each file read, by its path in the folder of data sets.
    """

    options: dict[str, JsonValue] = Field(default_factory=dict)
    sources: dict[str, Sha256] = Field(default_factory=dict)


class PublishedWeights(Frozen):
    """Weights trained elsewhere.

    Attributes:
        file: Name of their file.
        sha256: sha256 of that file.
        mean: Subtracted from each channel by the graph, on the scale 0 … 1.
        deviation: Divisor of each channel after that, on the same scale.
    """

    file: str
    sha256: Sha256
    mean: tuple[Finite, ...]
    deviation: tuple[Finite, ...]


class TrainingRecord(Frozen):
    """Everything needed to train the network again.

    For weights trained elsewhere, `weights` replaces `loss`, `batch_size`, `optimiser` and `learning_rate`, and
    `epochs` is 0.
    """

    dataset: str
    loss: Loss | None = None
    seed: Annotated[int, Field(ge=0)]
    epochs: Annotated[int, Field(ge=0)]
    batch_size: Annotated[int, Field(ge=1)] | None = None
    optimiser: str | None = None
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    recipe: dict[str, JsonValue] = Field(default_factory=dict)
    weights: PublishedWeights | None = None
    splits: dict[str, Part]
    data: DataRecord = DataRecord()


class NativeCheck(Frozen):
    """The comparison of an imported model with the library that made it.

    Attributes:
        library: Name and version of the library.
        rows: Number of rows that both scored.
        difference: Largest absolute difference of a probability.
        tolerance: Largest difference that was allowed.
    """

    library: str
    rows: Annotated[int, Field(ge=1)]
    difference: Annotated[float, Field(ge=0)]
    tolerance: Annotated[float, Field(ge=0)]


class LabelOf(Frozen):
    """The multi-label model to which a model of one label belongs.

    Attributes:
        model: Its name; no model of its own.
        label: The label that this model predicts to be `present` or `absent`.
        labels: All of its labels, in order.
    """

    model: Annotated[str, Field(min_length=1, max_length=64)]
    label: Label
    labels: Annotated[tuple[Label, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.label not in self.labels or len(set(self.labels)) != len(self.labels):
            raise ValueError("a multi-label model has distinct labels, and this one is among them")
        return self


class ImportRecord(Frozen):
    """What a model was imported from.

    Attributes:
        format: Format of the source, such as `onnx`, `lightgbm`, `scores`.
        source: Name of its file or address.
        source_sha256: sha256 of the source's bytes; None where the model stays elsewhere.
        rows_sha256: sha256 of the file of labelled rows.
        options: Options of the import by name.
        native: Comparison with the library that made the model; None if there was none.
    """

    format: str
    source: str
    source_sha256: Sha256 | None = None
    rows_sha256: Sha256 | None = None
    options: dict[str, JsonValue] = Field(default_factory=dict)
    native: NativeCheck | None = None
