"""Settings of the service. Each field is the environment variable CANDOR_<NAME>."""

from __future__ import annotations

import difflib
import hashlib
import ipaddress
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    DirectoryPath,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

if TYPE_CHECKING:
    from bundle.references import Reference


_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?")

CALLBACK = "/dashboard/login/callback"
"""Path to which an identity provider sends people back."""
_OF_PROVIDER = ("oidc_client_id", "oidc_client_secret_file", "oidc_redirect_url", "oidc_audience", "oidc_scopes")
_READ_ELSEWHERE = {"CANDOR_URL", "CANDOR_API_KEY", "CANDOR_DATA"}  # by the command line, the client and the training
_SECURE = (("https", True), ("https", False), ("http", True))


def _from_json(given: object) -> object:
    from candor.contract.documents import each_name_once

    try:
        return json.loads(given, object_pairs_hook=each_name_once) if isinstance(given, str) else given
    except ValueError as error:
        raise ValueError(f'not valid JSON, such as {{"risk": ["approve"]}}: {error}') from None


def _names(given: object) -> object:
    return ([name for part in given.split(",") if (name := part.strip())] or None) if isinstance(given, str) else given


class Settings(BaseSettings):
    """Settings of one service (frozen)."""

    model_config = SettingsConfigDict(
        env_prefix="CANDOR_", env_ignore_empty=True, env_parse_none_str="none", frozen=True
    )

    host: str = Field("127.0.0.1", description="Address to listen on. An address beyond loopback requires an API key.")
    port: int = Field(8000, ge=1, le=65535, description="Port to listen on.")
    uds: Path | None = Field(
        None,
        description="Path of a Unix socket to listen on instead of host and port, for a proxy on this machine. Users "
        "who may write to it (the umask decides) may connect. Unset: none.",
    )
    insecure: bool = Field(
        False,
        description="Without an API key, also answer requests that a proxy forwards or that name another host. Then "
        "everyone who reaches the proxy is administrator. No effect once a key exists.",
    )
    grpc_port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="Port to listen on for gRPC (Open Inference Protocol; extra `grpc`). Unset: no gRPC.",
    )
    tls_cert: Path | None = Field(
        None,
        description="File with the certificate of the service and those between it and its authority (PEM). HTTP and "
        "gRPC then speak TLS 1.2 or newer alone. Read again when it changes. Unset: no TLS.",
    )
    tls_key: Path | None = Field(None, description="File with the private key of `CANDOR_TLS_CERT` (PEM, no password).")
    tls_client_ca: Path | None = Field(
        None,
        description="File with authorities (PEM): each connection then requires a client certificate of one of them, "
        "beside an API key. Unset: none is asked for.",
    )
    bundles: Annotated[str, BeforeValidator(str)] = Field(
        "var/bundles",
        description="Folder of bundles, laid out as `{model}/{version}/`, or of a single bundle: a path, a URL such "
        "as `s3://…`, or "
        "`models:/NAME@ALIAS` (MLflow). `…@sha256:…` pins a single bundle to the digest of its manifest.",
    )
    bundle_cache: Path = Field(
        Path("var/bundle-cache"), description="Folder for copies of bundles where `CANDOR_BUNDLES` is a URL."
    )
    bundle_cache_days: float = Field(
        30.0, ge=1, description="Days after which a copy there that no service has needed since is removed."
    )
    bundle_cache_bytes: PositiveInt | None = Field(
        None,
        description="Size in bytes above which the copies there that no running service needs are removed early, those "
        "not needed for longest first. Unset: no bound.",
    )
    trusted_keys: str | None = Field(
        None,
        description="Ed25519 public keys of which one must have signed each bundle (`candor bundle sign`): a file of "
        "PEM blocks, or the blocks. Unset: signatures are not checked.",
    )
    proof_timeout_s: PositiveFloat = Field(
        120.0,
        description="Maximum time in seconds in which a new bundle must open and give its golden logits, in a process "
        "of its own.",
    )
    proof_memory_bytes: PositiveInt = Field(
        8 * 1024**3,
        description="Maximum memory in bytes that a new bundle may take in that process; "
        "three quarters of what the container has left, if that is less.",
    )
    policies: Path | None = Field(
        None,
        description="Folder of policies, laid out as `{model}/{policy}.yaml`; read when a model is first activated. "
        "Unset: none.",
    )
    database_url: str = Field(
        "sqlite:///var/state.db", description="SQLAlchemy URL of the state database (SQLite or PostgreSQL)."
    )
    database_direct_url: str | None = Field(
        None,
        description="URL of the same PostgreSQL past a connection pooler in transaction mode, which delivers no "
        "notices of changes. Unset: `CANDOR_DATABASE_URL`; without notices, changes arrive with the next poll.",
    )
    database_read_url: str | None = Field(
        None,
        description="URL of a streaming replica of the same PostgreSQL, from which recalibrations read their rows. "
        "One that lags behind by more than 30 s, or does not answer, is replaced by `CANDOR_DATABASE_URL`. "
        "Unset: none.",
    )
    database_password_file: Path | None = Field(
        None, description="File that contains the PostgreSQL password, inserted into the database URLs. Unset: none."
    )
    state_disk: DirectoryPath | None = Field(
        None,
        description="Folder on PostgreSQL's disk, whose free space is then a metric, as SQLite's is. Unset: none.",
    )
    uploads: Path = Field(
        Path("var/uploads"),
        description="Folder for uploaded labelled sets until they are stored, and for a file of the log until it is at "
        "the URL of `CANDOR_LOG_SINK`; one folder per server.",
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
    models: Annotated[tuple[str, ...] | None, NoDecode, BeforeValidator(_names)] = Field(
        None,
        description="Names of the models to serve, separated by commas, in a service with `CANDOR_BACKGROUND=false`. "
        "Unset: all.",
    )
    threads: PositiveInt | None = Field(
        None,
        description="CPU threads per inference run. Unset: the CPUs available to the container divided by the workers, "
        "at least one. Refused if more than one and the threads of all workers together exceed the CPUs.",
    )
    gpu_memory_bytes: PositiveInt | None = Field(
        None, description="Maximum GPU memory per model in bytes. Unset: no limit."
    )
    max_batch_size: PositiveInt = Field(64, description="Maximum rows per inference batch.")
    max_queued_rows: PositiveInt = Field(
        1024,
        description="Maximum queued rows per model, divided among the workers; further requests get 503.",
    )
    batch_delay_s: float = Field(
        0.0, ge=0, le=1, description="Time in seconds that a free session waits for more rows."
    )
    deadline_s: PositiveFloat = Field(10.0, description="Queueing deadline in seconds; later predictions get 504.")
    run_timeout_s: PositiveFloat = Field(
        60.0,
        description="Maximum time in seconds of one inference run in this process. A longer one is ended between two "
        "nodes of the graph, and its predictions get 500. Also the time for 64 rows that a recalibration scores.",
    )

    max_body_bytes: PositiveInt = Field(
        8 * 1024 * 1024, description="Maximum request body size in bytes, enforced while the body arrives."
    )
    max_upload_bytes: PositiveInt = Field(
        1024**3,
        description="Maximum size of a labelled set in bytes, compressed and unpacked, enforced while it arrives.",
    )
    max_labelled_sets_per_key: PositiveInt = Field(
        1_000, description="Maximum number of labelled sets that the state keeps of one uploader."
    )
    max_labelled_bytes_per_key: PositiveInt = Field(
        64 * 1024**3,
        description="Maximum size in bytes, unpacked, of all labelled sets that the state keeps of one uploader.",
    )
    max_pixels: PositiveInt = Field(
        16_000_000, description="Maximum pixels per request over all its images, checked before decoding."
    )
    max_rows_per_request: PositiveInt = Field(1024, description="Maximum rows per prediction request.")

    key_requests_per_s: PositiveFloat | None = Field(
        None,
        allow_inf_nan=False,
        description="Maximum requests per second of each API key to all workers together, with bursts of one second; "
        "further requests get 429. Unset: no limit.",
    )
    key_rows_per_s: PositiveFloat | None = Field(
        None,
        allow_inf_nan=False,
        description="Maximum predicted rows per second of each API key without a rate of its own (`--rows-rate`) to "
        "all workers together, with bursts of one second. Rows count once they are answered: they delay the key's next "
        "requests (429). Unset: no limit.",
    )
    key_labels_per_day: PositiveInt = Field(
        10_000_000,
        description="Maximum labels per day (UTC) of the API keys of one name, or of a person, those of unknown "
        "predictions included, on all replicas together; further ones get 429.",
    )
    key_changes_per_day: PositiveInt = Field(
        10_000,
        description="Maximum requests per day (UTC) of the API keys of one name, or of a person, that change anything "
        "but labels and cases, such as recalibrations, policies, activations and logins, or assign a case; further "
        "ones get 429.",
    )
    client_timeout_s: PositiveFloat = Field(
        20.0,
        description="Time in seconds for a client to send the request head, to send the body (plus one second per 16 "
        "KiB), or to continue reading a response.",
    )
    oidc_issuer: str | None = Field(
        None,
        description="Issuer of the OpenID provider that people log in with, exactly as its discovery document says, "
        "such as https://login.example/realms/bank. Every request then requires a key or a person. Unset: keys alone.",
    )
    oidc_client_id: str | None = Field(
        None, description="Client id of the dashboard at the provider. Unset: people cannot log in to the dashboard."
    )
    oidc_client_secret_file: Path | None = Field(
        None, description="File with the secret of that client. Unset: a public client, which PKCE protects."
    )
    oidc_redirect_url: str | None = Field(
        None,
        description="Address of the dashboard's callback as browsers reach it, registered at the provider: "
        "https://candor.example/dashboard/login/callback.",
    )
    oidc_audience: str | None = Field(
        None,
        description="Audience of the access tokens with which people call the API, other than the client id. Unset: "
        "tokens are refused.",
    )
    oidc_scopes: Annotated[dict[str, tuple[str, ...]], NoDecode, BeforeValidator(_from_json)] = Field(
        {},
        description="Scopes of each group of people (JSON), for all models or for one: "
        '`{"fraud-desk": ["review@fraud", "read"], "risk": ["approve"]}`. Other groups may do nothing.',
    )
    oidc_groups_claim: str = Field("groups", description="Claim of a token with the groups of a person.")
    oidc_subject_claim: str = Field(
        "sub",
        description="Claim of a token with the provider's own id of a person, by which four eyes tell people apart. "
        "With Entra ID: oid, because sub differs between the dashboard and the API.",
    )
    oidc_name_claim: str = Field(
        "email",
        description="Claim of a token with the name of a person, which the audit log shows. Users must not be "
        "able to change it. With email, the token must say email_verified: true.",
    )
    oidc_requested_scopes: str = Field(
        "openid email", description="Scopes that a login asks the provider for, separated by spaces."
    )
    oidc_clock_skew_s: float = Field(
        60.0, ge=0, le=300, description="Difference in seconds that the provider's clock may have."
    )
    cors_origins: Annotated[tuple[str, ...] | None, NoDecode] = Field(
        None,
        description="Origins whose pages may call the service from a browser, exactly as the browser sends them, "
        "separated by commas: `https://app.example,https://b.example:8443`. Unset: none. Requires an API key.",
    )
    max_connections: PositiveInt = Field(
        4096,
        description="Maximum open connections over HTTP, and as many over gRPC, divided among the workers; further "
        "ones get 503 and are closed, over gRPC without an answer.",
    )
    max_connections_per_address: PositiveInt | None = Field(
        None,
        description="Maximum open connections from one address over HTTP, and as many over gRPC, divided among the "
        "workers; TLS handshakes in progress over HTTP do not count. Over gRPC, those beyond it are closed within "
        "two seconds. Unset: no such limit: behind a proxy, all connections have its address.",
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
    log_sink: str | None = Field(
        None,
        description="Folder, or URL for fsspec (`s3://…`), of a copy of the log: one Parquet file for each hour (UTC), "
        "written from the state. Unset: none.",
    )
    refit_from_sink: bool = Field(
        False,
        description="Recalibrations read the hours whose file in `CANDOR_LOG_SINK` has the rows of the database from "
        "there; labels and the other hours, from the database.",
    )
    keep_inputs: Literal["off", "sought", "all"] = Field(
        "off",
        description="Inputs to keep, for scoring by a later model and for the columns of a multicalibration: `off` "
        "none, `sought` those of predictions whose label is sought, `all` every input. "
        "Multicalibration requires `all`.",
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
    refit_cpu: Literal["idle", "low"] = Field(
        "idle",
        description="CPU priority of recalibration and upload checks: `idle` uses only CPU time that predictions "
        "leave; `low` guarantees a small share on a busy host.",
    )
    refit_ray: str | None = Field(
        None,
        description="Address of a Ray cluster, `HOST:PORT` or `auto`, on which recalibrations score the inputs of "
        "labelled sets and of earlier predictions. Unset: one CPU of the service's machine.",
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
    webhook_url: str | None = Field(
        None,
        description="URL that gets each case of the review queue when it comes, ends, or is reopened (POST, signed). "
        "Unset: no webhook.",
    )
    webhook_secret_file: Path | None = Field(
        None,
        description="File with the secret that signs webhooks, 32 characters or more; while it is rotated, the new and "
        "the old one, each in a line.",
    )
    webhook_timeout_s: PositiveFloat = Field(10.0, description="Seconds after which a delivery has failed.")
    audit_key_file: Path | None = Field(
        None,
        description="File with the ed25519 key (PEM) that signs heads of the audit log. Unset: none are exported.",
    )
    audit_export: Annotated[tuple[str, ...] | None, NoDecode, BeforeValidator(_names)] = Field(
        None,
        description="Where signed heads of the audit log go, separated by commas: `file:///path`, `syslog://host:514`, "
        "`syslog:///dev/log`, or the URL of a webhook. Unset: nowhere.",
    )
    audit_export_s: PositiveFloat = Field(3600.0, description="Interval in seconds at which heads are exported.")
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
        0.1,
        ge=0,
        le=1,
        description="Largest share of a policy's decisions that automatic activation may change; `none`: no limit.",
    )
    limit_flag_rate: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Largest share of rows that may get a policy's first action after automatic activation. Unset: no "
        "limit.",
    )
    limit_flag_rate_ratio: float | None = Field(
        3.0,
        gt=0,
        allow_inf_nan=False,
        description="Largest factor by which that share may grow in automatic activation; `none`: no limit.",
    )
    limit_probability_change: float | None = Field(
        0.1,
        ge=0,
        le=1,
        description="Largest change of a probability, in 99 % of the rows, at which automatic activation is allowed; "
        "`none`: no limit.",
    )
    limit_calibration_error: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Maximum upper bound (97.5 %) of the calibration error after a recalibration, of the predicted "
        "label and of each policy's positive class. A calibrated model meets 0.1 from 3,000 to 5,000 gate rows. Unset: "
        "no limit.",
    )
    limit_action_change: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Largest change of an action's share at which an activation needs no acceptance, and at which "
        "automatic activation is allowed.",
    )
    four_eyes: bool = Field(
        False,
        description="Require another API key to activate a proposal than the key that made it, and two keys to "
        "activate an unsigned bundle.",
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

    @model_validator(mode="after")
    def _ports(self) -> Self:
        if self.grpc_port == self.port and self.uds is None:
            raise ValueError(f"CANDOR_PORT and CANDOR_GRPC_PORT must differ: both are {self.port}")
        return self

    @model_validator(mode="after")
    def _sink(self) -> Self:
        if self.refit_from_sink and self.log_sink is None:
            raise ValueError("CANDOR_REFIT_FROM_SINK requires CANDOR_LOG_SINK")
        return self

    @model_validator(mode="after")
    def _tls(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("CANDOR_TLS_CERT and CANDOR_TLS_KEY belong together: set both, or none")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("CANDOR_TLS_CLIENT_CA requires CANDOR_TLS_CERT and CANDOR_TLS_KEY")
        return self

    @model_validator(mode="after")
    def _oidc(self) -> Self:
        given = [name for name in _OF_PROVIDER if getattr(self, name)]
        if self.oidc_issuer is None and given:
            raise ValueError(f"CANDOR_{given[0].upper()} requires CANDOR_OIDC_ISSUER")
        if self.oidc_issuer is not None and self.oidc_client_id is None and self.oidc_audience is None:
            raise ValueError("CANDOR_OIDC_ISSUER requires CANDOR_OIDC_CLIENT_ID, CANDOR_OIDC_AUDIENCE, or both")
        if (self.oidc_client_id is None) != (self.oidc_redirect_url is None):
            raise ValueError("CANDOR_OIDC_CLIENT_ID and CANDOR_OIDC_REDIRECT_URL belong together: set both, or none")
        if self.oidc_client_secret_file is not None and self.oidc_client_id is None:
            raise ValueError("CANDOR_OIDC_CLIENT_SECRET_FILE requires CANDOR_OIDC_CLIENT_ID")
        if self.oidc_audience is not None and self.oidc_audience == self.oidc_client_id:
            raise ValueError(
                "CANDOR_OIDC_AUDIENCE must differ from CANDOR_OIDC_CLIENT_ID: else tokens of logins would call the API"
            )
        if self.oidc_redirect_url is not None and urlsplit(self.oidc_redirect_url).path != CALLBACK:
            raise ValueError(f"{self.oidc_redirect_url!r} does not end with the path {CALLBACK}")
        return self

    @field_validator("oidc_issuer", "oidc_redirect_url")
    @classmethod
    def _secure(cls, url: str | None) -> str | None:
        if url is not None:
            cls._whole(url)
            if urlsplit(url).query or not is_secure(url):
                raise ValueError(f"{url!r} must be an https:// address without a query (http:// on this machine only)")
        return url

    @field_validator("oidc_scopes")
    @classmethod
    def _granted(cls, groups: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        from service.state.keys import SCOPES

        for group, granted in groups.items():
            for one in granted:
                scope, at, model = one.partition("@")
                if scope not in SCOPES or bool(at) != bool(model):
                    raise ValueError(f"{one!r} of {group!r} is not a scope ({', '.join(SCOPES)}) or SCOPE@MODEL")
        return groups

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _origins(cls, origins: object) -> object:
        listed = [one.strip() for one in origins.split(",") if one.strip()] if isinstance(origins, str) else origins
        for origin in listed if isinstance(listed, list | tuple) else ():
            if not _ORIGIN.fullmatch(str(origin)):
                raise ValueError(f"{origin!r} is not an origin such as https://app.example: no path, no wildcard")
        return listed

    @field_validator("otlp_endpoint", "webhook_url")
    @classmethod
    def _whole(cls, url: str | None) -> str | None:
        if url is not None:
            try:
                parts = urlsplit(url)
                whole = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
            except ValueError:
                whole = False
            if not whole or not url.isascii() or not url.isprintable() or " " in url:
                raise ValueError(f"{url!r} is not a URL such as https://host.example/path")
            if parts.username is not None or parts.fragment:
                raise ValueError(f"{parts.hostname}: the URL has a user, password or fragment, which it may not have")
        return url

    @field_validator("audit_export")
    @classmethod
    def _targets(cls, urls: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for url in urls or ():
            parts = urlsplit(url)
            local = not parts.netloc and parts.path.startswith("/")
            if parts.scheme in ("http", "https"):
                cls._whole(url)
            elif not (parts.scheme in ("file", "syslog") and local) and not (
                parts.scheme == "syslog" and parts.hostname and (parts.port or 1) > 0
            ):
                raise ValueError(f"{url!r} is not file:///path, syslog://host:514, syslog:///dev/log or https://…")
        return urls

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

    @field_validator("models")
    @classmethod
    def _without_background(cls, models: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        if models is not None and info.data.get("background"):
            raise ValueError("requires CANDOR_BACKGROUND=false, because recalibrations and monitors cover all models")
        return models

    @property
    def log_gap(self) -> str | None:
        """The setting by which answered predictions may lack in the log; None if it is complete."""
        if self.log_mode != "sync":
            return f"CANDOR_LOG_MODE={self.log_mode}"
        return None if self.log_sample == 1.0 else f"CANDOR_LOG_SAMPLE={self.log_sample:g}"

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

    def check_folders(self) -> None:
        """Check the local folders that the service reads.

        Raises:
            ConfigurationError: The folder of bundles or of policies does not exist.
        """
        from service.errors import ConfigurationError

        bundles = None if self.bundle_reference.is_url else self.bundle_folder
        for folder, what, where in (
            (bundles, "bundles", "CANDOR_BUNDLES"),
            (self.policies, "policies", "CANDOR_POLICIES"),
        ):
            if folder is not None and not folder.is_dir():
                raise ConfigurationError(
                    f"The folder of {what} {folder} does not exist.",
                    where=where,
                    found="a file" if folder.exists() else "nothing",
                    expected="a folder",
                    remedy="Correct the path, or create the folder.",
                )

    @property
    def direct_url(self) -> str | None:
        """`database_direct_url`, with the password of `database_password_file` where there is one.

        Raises:
            ConfigurationError: As `state_url`.
        """
        return None if self.database_direct_url is None else self.with_password(self.database_direct_url)

    @property
    def state_url(self) -> str:
        """`database_url`, with the password of `database_password_file` where there is one.

        Raises:
            ConfigurationError: The file cannot be read or is empty, or the state is not PostgreSQL.
        """
        return self.with_password(self.database_url)

    @property
    def read_url(self) -> str | None:
        """`database_read_url`, with the password likewise; None without one.

        Raises:
            ConfigurationError: As `state_url`.
        """
        return None if self.database_read_url is None else self.with_password(self.database_read_url)

    def with_password(self, url: str) -> str:
        """Return a URL with the password of `database_password_file`, where there is one.

        Raises:
            ConfigurationError: As `state_url`.
        """
        if self.database_password_file is None:
            return url
        from service.state.password import with_password

        return with_password(url, self.database_password_file)


def unknown_variables(environment: Iterable[str]) -> dict[str, str]:
    """Return the variables `CANDOR_…` that nothing reads, each with what to do about it.

    Args:
        environment: Names of variables.

    Example:
        >>> unknown_variables(["CANDOR_PORT", "CANDOR_RETENTION_DAY"])
        {'CANDOR_RETENTION_DAY': 'Did you mean CANDOR_RETENTION_DAYS?'}
    """
    from bundle.registry_login import PASSWORD, USER
    from bundle.upstream import HEADER_VARIABLE

    known = {f"CANDOR_{name}".upper() for name in Settings.model_fields} | _READ_ELSEWHERE | {USER, PASSWORD}
    found = {}
    for name in sorted(name for name in environment if name.startswith("CANDOR_") and name not in known):
        if not re.fullmatch(HEADER_VARIABLE, name):  # bundles of remote models refer to it
            near = difflib.get_close_matches(name, known, n=1)
            found[name] = f"Did you mean {near[0]}?" if near else "docs/reference/settings.md lists all settings."
    return found


def is_secure(url: str) -> bool:
    """Return whether a URL is https, or of this machine.

    >>> is_secure("https://login.example"), is_secure("http://127.0.0.1:80/x"), is_secure("http://login.example")
    (True, True, False)
    """
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (parts.scheme, is_loopback(parts.hostname or "")) in _SECURE
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Return whether `host` is reachable from this machine only.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
