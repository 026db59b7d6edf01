"""Answers of the Open Inference Protocol (/v2)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from candor.contract.documents import Answer


class TensorParameters(Answer):
    """Where the values of an output tensor are."""

    binary_data_size: int = Field(ge=0, description="Size in bytes of the tensor after the JSON, in place of `data`.")


class OutputTensor(Answer):
    """An output tensor, with its values in `data` or behind the JSON."""

    name: Literal["logits", "probabilities", "confidence", "decision", "set"]
    datatype: Literal["FP32", "BOOL", "BYTES"]
    shape: tuple[int, ...]
    parameters: TensorParameters | None = None
    data: tuple[float | bool | str | None, ...] | None = Field(
        None, description="Values in row-major order, flat; null for a logit of minus infinity."
    )


class ResponseParameters(Answer):
    """What is known of the answer beside its tensors."""

    prediction_ids: str = Field(description="Prediction id of each row for feedback, separated by commas.")
    policy: str | None = Field(None, description="Policy that decided, with its version; missing without a policy.")


class InferenceResponse(Answer):
    """Outputs for N rows."""

    model_name: str
    model_version: str = Field(description="Number of the revision that answered.")
    id: str | None = Field(None, description="As in the request.")
    parameters: ResponseParameters
    outputs: tuple[OutputTensor, ...]


class InferenceError(Answer):
    """An error."""

    error: str


class ServerLive(Answer):
    """Whether the server is running."""

    live: bool


class ServerReady(Answer):
    """Whether all models serve their active revision."""

    ready: bool


class ModelReady(Answer):
    """Whether a model is ready."""

    name: str
    version: str
    ready: bool


class ServerMetadata(Answer):
    """The server and the extensions of the protocol that it has."""

    name: str
    version: str
    extensions: tuple[str, ...]


class TensorMetadata(Answer):
    """Name, datatype and shape of a tensor."""

    name: str
    datatype: str
    shape: tuple[int, ...] = Field(description="−1 is the number of rows.")


class ModelMetadata(Answer):
    """A model and its tensors."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


class ConfiguredTensor(Answer):
    """A tensor in Triton's format, without the axis of the rows."""

    name: str
    data_type: str
    format: str | None = Field(None, description="Of an input.")
    dims: tuple[int, ...]


class SpecificVersions(Answer):
    """Versions by number."""

    versions: tuple[int, ...]


class VersionPolicy(Answer):
    """Versions that are loaded."""

    specific: SpecificVersions


class InstanceGroup(Answer):
    """Where a model runs."""

    name: str
    kind: Literal["KIND_CPU", "KIND_GPU"]
    count: int


class DynamicBatching(Answer):
    """How long a batch waits."""

    max_queue_delay_microseconds: int = Field(ge=0)


class StringValue(Answer):
    """A parameter of a configuration."""

    string_value: str


class ConfigurationParameters(Answer):
    """Parameters of a configuration."""

    labels: StringValue = Field(description="Labels, as JSON.")


class ModelConfiguration(Answer):
    """The configuration of a model in Triton's format."""

    name: str
    platform: str
    backend: str
    version_policy: VersionPolicy
    max_batch_size: int = Field(description="Maximum rows per request.")
    input: tuple[ConfiguredTensor, ...]
    output: tuple[ConfiguredTensor, ...]
    instance_group: tuple[InstanceGroup, ...]
    dynamic_batching: DynamicBatching
    parameters: ConfigurationParameters


class Duration(Answer):
    """How often something happened, and how long it took."""

    count: int = Field(ge=0)
    ns: int = Field(ge=0, description="Total nanoseconds.")


class InferenceDurations(Answer):
    """Times of all requests."""

    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration
    cache_hit: Duration
    cache_miss: Duration


class BatchDurations(Answer):
    """Times of all runs with one number of rows."""

    batch_size: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


class VersionStatistics(Answer):
    """Counts and times of one version."""

    name: str
    version: str
    last_inference: int = Field(ge=0, description="Milliseconds since the epoch; 0 before the first.")
    inference_count: int = Field(ge=0, description="Rows.")
    execution_count: int = Field(ge=0, description="Runs of the model.")
    inference_stats: InferenceDurations
    batch_stats: tuple[BatchDurations, ...]


class Statistics(Answer):
    """Counts since the start of this replica."""

    model_stats: tuple[VersionStatistics, ...]


class RepositoryEntry(Answer):
    """A version of a model, or a model without any."""

    name: str
    version: str
    state: Literal["READY", "UNAVAILABLE"]
    reason: str


class Done(Answer):
    """An empty object."""
