"""Models and what they serve."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from candor.contract.documents import Answer


class ModelTensor(Answer):
    """One of several tensors that make one example."""

    name: str
    dtype: str
    shape: tuple[int, ...] = Field(description="Shape without the batch axis; empty for one value.")
    length: int = Field(description="Maximum characters of a text.")


class ModelInput(Answer):
    """One example as the model takes it, without the batch axis."""

    kind: Literal["image", "array", "tokens", "tensors", "scores"]
    dtype: Literal["uint8", "float32", "float64", "int32", "record"]
    shape: tuple[int, ...]
    resize: bool = Field(description="Whether images of another size are resized or refused.")
    tensors: tuple[ModelTensor, ...] = Field((), description="The named tensors of one example; empty for other kinds.")


class ModelColumn(Answer):
    """One column of a table."""

    name: str
    kind: Literal["number", "category", "text"]
    categories: tuple[str, ...] | None = Field(description="Known values, the first 1,000; null if any are accepted.")
    category_count: int | None = Field(description="Number of known values; null if any are accepted.")
    on_missing: Literal["accept", "refuse"] = Field(description="What happens to a row without a value.")
    on_unknown: Literal["accept", "refuse"] = Field(description="What happens to a row with another value.")


class Model(Answer):
    """A model and what it serves. A model that serves nothing has no fields from `bundle` to `policies`."""

    model: str
    loaded: bool = Field(description="Whether the model is to be served.")
    epoch: int = Field(description="Number of activations and rollbacks so far; they expect it as If-Match.")
    revision: str | None = Field(description="Served revision; null for none.")
    bundle: int | None = Field(None, description="Version of the bundle.")
    provider: str | None = Field(None, description="What computes: `cpu`, `cuda` …")
    labels: tuple[str, ...] = ()
    input: ModelInput | None = None
    columns: tuple[str, ...] | None = Field(None, description="Column names of a model for table rows; null otherwise.")
    scores: Literal["scores", "probabilities", "logits"] | None = Field(
        None, description="Field of a request with the scores of a model that others run; null for other models."
    )
    texts: bool = Field(False, description="Whether the model takes texts: its bundle has a vocabulary or a tokenizer.")
    column_types: tuple[ModelColumn, ...] | None = Field(
        None, description="Types and rules of these columns, in the same order; null for other models."
    )
    policies: tuple[str, ...] = Field((), description="Ids of the policies in force.")
    problem: str | None = Field(description="Why the model does not serve its active revision; null when it does.")
    proposed: dict[str, str] = Field(
        {}, description="After a load: revisions proposed for newer bundles, by version of the bundle."
    )
    refused: dict[str, str] = Field(
        {},
        description="After a load: bundles that were not accepted, with the reason, by version; also the served "
        "one if it is damaged by now.",
    )


class ModelPage(Answer):
    """All models."""

    items: tuple[Model, ...]
    default: str | None = Field(
        default=None, description="The model of paths that name none; null if there are several and none is set."
    )
