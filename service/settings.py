"""Everything an operator can set, typed; each field is the environment variable CANDOR_<NAME>."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Settings of one service process (frozen)."""

    model_config = SettingsConfigDict(env_prefix="CANDOR_", frozen=True)

    host: str = Field("127.0.0.1", description="Address to listen on; anything beyond loopback needs an API key.")
    port: int = Field(8000, ge=1, le=65535, description="Port to listen on.")
    bundles: Path = Field(Path("var/bundles"), description="Folder of bundles, `{model}/{version}/` in it.")
    policies: Path | None = Field(
        None, description="Folder of policies, `{model}/{policy}.yaml` in it; read when a model is first activated."
    )
    database_url: str = Field(
        "sqlite:///var/state.db", description="SQLAlchemy URL of the state (SQLite or PostgreSQL)."
    )
    database_password_file: Path | None = Field(
        None, description="File with PostgreSQL's password, which goes into the URL of the state."
    )
    uploads: Path = Field(
        Path("var/uploads"),
        description="Folder where uploaded labelled sets lie until they are stored; one for each server.",
    )
    default_model: str | None = Field(
        None, description="Model behind /predict, /feedback and /recalibrate; may be left out where there is only one."
    )

    provider: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where the model runs. `cuda` that is not there is an error at start."
    )
    threads: PositiveInt | None = Field(
        None,
        description="Threads of one run on the CPU; unset: the processors that the container may use, less one.",
    )
    gpu_memory_bytes: PositiveInt | None = Field(
        None, description="GPU memory that one model may take at most; unset: what there is."
    )
    max_batch_size: PositiveInt = Field(32, description="Rows that one inference run takes at most.")
    max_queued_rows: PositiveInt = Field(1024, description="Rows that may wait for each model; above it 503.")
    batch_delay_s: float = Field(0.0, ge=0, le=1, description="How long a free session waits for more rows.")
    deadline_s: PositiveFloat = Field(10.0, description="A prediction that has not started by then is dropped (504).")

    max_body_bytes: PositiveInt = Field(8 * 1024 * 1024, description="Largest request body, checked while it arrives.")
    max_upload_bytes: PositiveInt = Field(
        1024**3, description="Largest labelled set, as it comes and as it unpacks, checked while it arrives."
    )
    max_pixels: PositiveInt = Field(
        16_000_000, description="Pixels that a request's images may have together, checked before one is decoded."
    )
    max_rows_per_request: PositiveInt = Field(1024, description="Rows that one predict request may carry.")

    key_requests_per_s: PositiveFloat | None = Field(
        None, description="Requests a second of each API key, a second's worth at once; above it 429. Unset: no limit."
    )
    client_timeout_s: PositiveFloat = Field(
        20.0,
        description="How long a client may take to send a request's head, its body (a second more for every 16 KiB), "
        "or to read on in an answer.",
    )
    max_connections: PositiveInt = Field(
        4096, description="Connections at a time; further ones are answered 503 and closed."
    )

    log_capacity: PositiveInt = Field(
        100_000, description="Predictions that may wait for the log writer; above it they are dropped and counted."
    )
    log_mode: Literal["background", "sync", "off"] = Field(
        "background",
        description="`background` answers without waiting for the log; `sync` answers when a prediction is durable "
        "(503 if it is not by the deadline); `off` logs nothing.",
    )
    log_sample: float = Field(
        1.0, gt=0, le=1, description="Share of the groups whose predictions are logged; a group is logged whole or not."
    )
    keep_inputs: Literal["off", "sought", "all"] = Field(
        "off",
        description="Whose inputs are kept, to be scored again by a later model: `off` nobody's, `sought` those whose "
        "label is sought, `all`.",
    )
    retention_days: PositiveFloat | None = Field(
        None,
        description="Age at which predictions are deleted, with their inputs and labels, and labels that name none; "
        "unset: never.",
    )
    inputs_days: PositiveFloat | None = Field(
        None, description="Age at which kept inputs are deleted; unset: with their predictions."
    )
    poll_interval_s: PositiveFloat = Field(0.5, description="How often the active revision and the keys are looked up.")

    unready_after: PositiveFloat | None = Field(
        None,
        description="Seconds without word of the state after which /readyz answers 503; unset: never, since a moment "
        "without the database would then take every replica out of service.",
    )

    refit_min_rows: PositiveInt = Field(60, description="Labelled rows below which a refit is refused outright.")
    refit_max_labels: PositiveInt = Field(
        1_000_000, description="Labels that a refit reads; of more, those of the newest predictions."
    )
    refit_timeout_s: PositiveFloat = Field(600.0, description="A refit that takes longer is stopped.")
    child_priority: Literal["idle", "low"] = Field(
        "idle",
        description="Refits and checks of uploads run on what time of the processors predictions leave over (`idle`), "
        "or get a small share of a host that is always busy (`low`).",
    )
    gate_alpha: float = Field(
        0.05, gt=0, lt=0.5, description="Error budget of the gate; attempt k gets alpha/(k(k+1))."
    )
    gate_margin: float = Field(0.002, ge=0, description="Harm in nats that a non-inferior refit may have.")
    monitor_interval_s: PositiveFloat = Field(60.0, description="How often monitors look for labels that are due.")
    monitor_maturity_s: float = Field(
        604_800.0,
        ge=0,
        description="How old a prediction is when monitors count it, with the label that it has by then.",
    )
    monitor_window_s: PositiveFloat = Field(604_800.0, description="Span of the traffic that estimates are about.")
    monitor_alpha: float = Field(
        0.05, gt=0, lt=1, description="Probability of any false alarm, ever, of each kind of monitor of a model."
    )
    monitor_tolerance: float = Field(
        0.02, ge=0.001, lt=0.5, description="Miscalibration within which the calibration alarm stays silent."
    )
    alarm_refit: Literal["off", "propose"] = Field(
        "off", description="What the calibration alarm does besides: nothing, or start a refit that ends as a proposal."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="From which level on the service's own lines are written to standard error."
    )
    access_log: float = Field(
        0.0, ge=0, le=1, description="Share of prediction requests that get a line in the log; all others always do."
    )
    otlp_endpoint: str | None = Field(
        None, description="OTLP/HTTP collector that traces go to, such as http://collector:4318; unset: no traces."
    )
    trace_share: float = Field(
        1.0, ge=0, le=1, description="Share of traces that begin here and are kept; a client's own decision wins."
    )
    limit_unidentified: float = Field(
        0.05, ge=0, le=1, description="Share of rows that no label stands for, at which a refit may go unattended."
    )
    limit_missing: float = Field(
        0.05, ge=0, le=1, description="Share of labels that were sought and have not come, likewise."
    )
    limit_flipped: float | None = Field(
        None, ge=0, le=1, description="Largest share of a policy's decisions that a refit may change; unset: any."
    )
    limit_flag_rate: float | None = Field(
        None, ge=0, le=1, description="Largest share of rows that a refit may give a policy's first action; unset: any."
    )
    limit_flag_rate_ratio: float | None = Field(
        None, gt=0, description="How many times as many rows a refit may give that action as before; unset: any."
    )
    limit_probability_change: float | None = Field(
        None, ge=0, le=1, description="How far a refit may move a probability in 99 % of the rows; unset: any."
    )
    four_eyes: bool = Field(
        False, description="A proposal may be activated only with another API key than the one that made it."
    )
    drain_timeout_s: PositiveFloat = Field(10.0, description="How long a stop waits for requests in flight.")

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
