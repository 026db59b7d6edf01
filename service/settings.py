"""Settings of the service. Each field is the environment variable CANDOR_<NAME>."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

if TYPE_CHECKING:
    from bundle.references import Reference


class Settings(BaseSettings):
    """Settings of one service (frozen)."""

    model_config = SettingsConfigDict(env_prefix="CANDOR_", frozen=True)

    host: str = Field("127.0.0.1", description="Address to listen on. An address beyond loopback requires an API key.")
    port: int = Field(8000, ge=1, le=65535, description="Port to listen on.")
    uds: Path | None = Field(
        None,
        description="Path of a Unix socket to listen on instead of host and port, for a proxy on this machine. Users "
        "who may write to it (the umask decides) may connect. Unset: none.",
    )
    grpc_port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="Port to listen on for gRPC (Open Inference Protocol; extra `grpc`). Unset: no gRPC.",
    )
    bundles: Annotated[str, BeforeValidator(str)] = Field(
        "var/bundles",
        description="Folder of bundles, laid out as `{model}/{version}/`, or of a single bundle: a path, or a URL such "
        "as `s3://…`. `…@sha256:…` pins a single bundle to the digest of its manifest.",
    )
    bundle_cache: Path = Field(
        Path("var/bundle-cache"), description="Folder for copies of bundles where `CANDOR_BUNDLES` is a URL."
    )
    bundle_cache_days: float = Field(
        30.0, ge=1, description="Days after which a copy there that no service has needed since is removed."
    )
    policies: Path | None = Field(
        None,
        description="Folder of policies, laid out as `{model}/{policy}.yaml`; read when a model is first activated. "
        "Unset: none.",
    )
    database_url: str = Field(
        "sqlite:///var/state.db", description="SQLAlchemy URL of the state database (SQLite or PostgreSQL)."
    )
    database_password_file: Path | None = Field(
        None, description="File that contains the PostgreSQL password, inserted into the database URL. Unset: none."
    )
    uploads: Path = Field(
        Path("var/uploads"),
        description="Folder for uploaded labelled sets until they are stored; one folder per server.",
    )
    default_model: str | None = Field(
        None, description="Model that answers /predict, /feedback and /recalibrate. Optional with a single model."
    )

    provider: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Device that runs the model. `cuda` without a usable GPU is an error at start."
    )
    workers: PositiveInt | Literal["auto"] = Field(
        1,
        description="Processes that answer requests behind the port; `auto`: one per available CPU, and one on a GPU.",
    )
    background: bool = Field(
        True,
        description="Run recalibrations, monitors, retention and schema updates in this service. `false` leaves them "
        "to `candor worker`, waits for its schema updates, and requires PostgreSQL.",
    )
    threads: PositiveInt | None = Field(
        None,
        description="CPU threads per inference run. Unset: the CPUs available to the container divided by the workers, "
        "less one. Refused if the threads of all workers together exceed the CPUs.",
    )
    gpu_memory_bytes: PositiveInt | None = Field(
        None, description="Maximum GPU memory per model in bytes. Unset: no limit."
    )
    max_batch_size: PositiveInt = Field(32, description="Maximum rows per inference batch.")
    max_queued_rows: PositiveInt = Field(
        1024,
        description="Maximum queued rows per model, divided among the workers; further requests get 503.",
    )
    batch_delay_s: float = Field(
        0.0, ge=0, le=1, description="Time in seconds that a free session waits for more rows."
    )
    deadline_s: PositiveFloat = Field(10.0, description="Queueing deadline in seconds; later predictions get 504.")

    max_body_bytes: PositiveInt = Field(
        8 * 1024 * 1024, description="Maximum request body size in bytes, enforced while the body arrives."
    )
    max_upload_bytes: PositiveInt = Field(
        1024**3,
        description="Maximum size of a labelled set in bytes, compressed and unpacked, enforced while it arrives.",
    )
    max_pixels: PositiveInt = Field(
        16_000_000, description="Maximum pixels per request over all its images, checked before decoding."
    )
    max_rows_per_request: PositiveInt = Field(1024, description="Maximum rows per prediction request.")

    key_requests_per_s: PositiveFloat | None = Field(
        None,
        description="Maximum requests per second of each API key to all workers together, with bursts of one second; "
        "further requests get 429. Unset: no limit.",
    )
    client_timeout_s: PositiveFloat = Field(
        20.0,
        description="Time in seconds for a client to send the request head, to send the body (plus one second per 16 "
        "KiB), or to continue reading a response.",
    )
    max_connections: PositiveInt = Field(
        4096,
        description="Maximum open connections, divided among the workers; further connections get 503 and are closed.",
    )

    log_capacity: PositiveInt = Field(
        100_000,
        description="Maximum predictions that wait for the log, divided among the workers; further predictions are "
        "dropped from the log and counted.",
    )
    log_mode: Literal["background", "sync", "off"] = Field(
        "background",
        description="`background` answers without waiting for the log; `sync` answers when the prediction is durable "
        "(503 if it is not by the deadline); `off` logs nothing.",
    )
    log_sample: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of groups whose predictions are logged; a group is logged as a whole or not at all.",
    )
    keep_inputs: Literal["off", "sought", "all"] = Field(
        "off",
        description="Inputs to keep for scoring by a later model: `off` none, `sought` those of predictions whose "
        "label is sought, `all` every input.",
    )
    retention_days: PositiveFloat | None = Field(
        None,
        description="Age in days at which predictions are deleted with their inputs and labels, and labels without a "
        "prediction. Unset: never.",
    )
    inputs_days: PositiveFloat | None = Field(
        None, description="Age in days at which kept inputs are deleted. Unset: with their predictions."
    )
    poll_interval_s: PositiveFloat = Field(
        0.5, description="Interval in seconds at which the active revision and the API keys are read again."
    )

    unready_after: PositiveFloat | None = Field(
        None,
        description="Time in seconds without database contact after which /readyz answers 503. Unset: never, because "
        "a short database outage would otherwise take every replica out of service.",
    )

    refit_min_rows: PositiveInt = Field(60, description="Minimum labelled rows for a recalibration.")
    refit_max_labels: PositiveInt = Field(
        1_000_000,
        description="Maximum labels that a recalibration reads; with more, it reads those of the newest predictions.",
    )
    refit_timeout_s: PositiveFloat = Field(600.0, description="Time limit of a recalibration in seconds.")
    child_priority: Literal["idle", "low"] = Field(
        "idle",
        description="CPU priority of recalibration and upload checks: `idle` uses only idle CPU; `low` guarantees a "
        "small share on a busy host.",
    )
    gate_alpha: float = Field(0.05, gt=0, lt=0.5, description="Error budget of the gate; look k uses alpha/(k(k+1)).")
    gate_margin: float = Field(
        0.002, ge=0, description="Maximum harm of a non-inferior recalibration, in nats of log loss."
    )
    monitor_interval_s: PositiveFloat = Field(
        60.0, description="Interval in seconds at which monitors read newly mature labels."
    )
    monitor_maturity_s: float = Field(
        604_800.0,
        ge=0,
        description="Age in seconds at which monitors count a prediction, with the label it has by then.",
    )
    monitor_window_s: PositiveFloat = Field(
        604_800.0, description="Time span in seconds of the traffic that estimates describe."
    )
    monitor_alpha: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="Probability that a monitor ever raises a false alarm, per model and kind of monitor.",
    )
    monitor_tolerance: float = Field(
        0.02, ge=0.001, lt=0.5, description="Miscalibration that the calibration alarm tolerates."
    )
    drift_window_s: float = Field(
        86_400.0,
        ge=0,
        description="Time span in seconds of the traffic that one test of input drift reads. 0 turns the tests off.",
    )
    drift_psi: PositiveFloat = Field(
        0.1, description="Minimum population stability index of a column in the alarm of input drift."
    )
    upstream_interval_s: PositiveFloat = Field(
        60.0,
        description="Interval in seconds at which models that run on other servers are compared with their bundles.",
    )
    alarm_refit: Literal["off", "propose"] = Field(
        "off",
        description="Action on a calibration alarm: `off` only raises it; `propose` also starts a recalibration that "
        "ends as a proposal.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Minimum level of service logs (written to standard error)."
    )
    access_log: float = Field(
        0.0, ge=0, le=1, description="Share of prediction requests written to the log; all other requests always are."
    )
    otlp_endpoint: str | None = Field(
        None, description="OTLP/HTTP collector for traces, such as http://collector:4318. Unset: no traces."
    )
    trace_share: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of traces to keep among those that start here; a client's own sampling decision takes "
        "precedence.",
    )
    triton_metrics: bool = Field(
        False, description="Whether /metrics also counts inference under Triton's names (`nv_inference_…`)."
    )
    limit_unidentified: float = Field(
        0.05, ge=0, le=1, description="Largest share of unidentified traffic at which automatic activation is allowed."
    )
    limit_missing: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Largest share of sought labels still missing at which automatic activation is allowed.",
    )
    limit_flipped: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Maximum share of a policy's decisions that a recalibration may change. Unset: no limit.",
    )
    limit_flag_rate: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Maximum share of rows that may get a policy's first action after a recalibration. Unset: no "
        "limit.",
    )
    limit_flag_rate_ratio: float | None = Field(
        None, gt=0, description="Maximum growth factor of that share in a recalibration. Unset: no limit."
    )
    limit_probability_change: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Maximum change of a probability in 99 % of the rows in a recalibration. Unset: no limit.",
    )
    four_eyes: bool = Field(
        False, description="Require another API key to activate a proposal than the key that made it."
    )
    stop_delay_s: float = Field(
        0.0,
        ge=0,
        description="Time in seconds that a stop still accepts connections while /readyz answers 503 and each response "
        "closes its connection, so that load balancers and clients go elsewhere.",
    )
    drain_timeout_s: PositiveFloat = Field(
        10.0, description="Time in seconds that a stop then waits for requests in flight."
    )

    @field_validator("bundles")
    @classmethod
    def _readable(cls, bundles: str) -> str:
        if "://" not in bundles and "@sha256:" not in bundles:
            return bundles  # the packages that read bundles take a while to import
        from bundle import BundleError
        from bundle.references import Reference

        try:
            found = Reference.parse(bundles)
        except BundleError as error:
            raise ValueError(str(error)) from error
        if found.is_url and "?" in found.address:
            raise ValueError("the URL of a folder has no query")
        return bundles

    @property
    def bundle_reference(self) -> Reference:
        """`bundles`: its path or URL, and the digest that it is pinned to."""
        from bundle.references import Reference

        return Reference.parse(self.bundles)

    @property
    def bundle_folder(self) -> Path:
        """Local folder of bundles: `bundles` itself, or the copies of a remote folder, each in a folder of its own."""
        reference = self.bundle_reference
        if not reference.is_url:
            return Path(reference.address)
        return self.bundle_cache / hashlib.sha256(reference.address.encode()).hexdigest()[:16]

    @property
    def state_url(self) -> str:
        """`database_url`, with the password of `database_password_file` where there is one.

        Raises:
            ConfigurationError: The file cannot be read or is empty, or the state is not PostgreSQL.
        """
        if self.database_password_file is None:
            return self.database_url
        from service.state.password import with_password

        return with_password(self.database_url, self.database_password_file)
