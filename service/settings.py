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
    max_pixels: PositiveInt = Field(
        16_000_000, description="Pixels that a request's images may have together, checked before one is decoded."
    )
    max_rows_per_request: PositiveInt = Field(1024, description="Rows that one predict request may carry.")

    log_capacity: PositiveInt = Field(
        100_000, description="Predictions that may wait for the log writer; above it they are dropped and counted."
    )
    poll_interval_s: PositiveFloat = Field(0.5, description="How often the active revision and the keys are looked up.")

    refit_min_rows: PositiveInt = Field(60, description="Labelled rows below which a refit is refused outright.")
    refit_timeout_s: PositiveFloat = Field(600.0, description="A refit that takes longer is stopped.")
    gate_alpha: float = Field(
        0.05, gt=0, lt=0.5, description="Error budget of the gate; attempt k gets alpha/(k(k+1))."
    )
    gate_margin: float = Field(0.002, ge=0, description="Harm in nats that a non-inferior refit may have.")
    drain_timeout_s: PositiveFloat = Field(10.0, description="How long a stop waits for requests in flight.")
