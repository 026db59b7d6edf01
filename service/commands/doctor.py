"""`candor doctor`: check everything that a start needs, and say what to do about problems."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from service.commands.output import REFUSED, console, print_json, reporting

if TYPE_CHECKING:
    from service.settings import Settings
    from service.state.keys import ApiKey

_LITTLE_DISK_BYTES = 1_000_000_000
_SOON_US = 7 * 86_400 * 1_000_000  # keys that expire within a week are reported
_OTHER_FILES = 128  # that the service has open beside its connections
_COLOURS = {"ok": "green", "note": "yellow", "bad": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        subject: What.
        state: "ok", "note" (works, but someone may have meant it otherwise) or "bad" (the service will not start, or
            not with these settings).
        found: What was found.
        remedy: What to do about it; None where there is nothing to do.
    """

    subject: str
    state: Literal["ok", "note", "bad"]
    found: str
    remedy: str | None = None


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print the findings for scripts.")] = False) -> None:
    """Check settings, GPU, ONNX Runtime, CPUs, workers, state, keys and bundles as `candor serve` would find them.

    Changes nothing. Exits 1 if a service with these settings could not start, or could not do what they say.
    """
    from service.commands.local import settings_of

    with reporting():
        settings = settings_of({})
    findings = []
    for look in _LOOKS:
        findings += list(look(settings))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        for finding in findings:
            colour = _COLOURS[finding.state]
            remedy = f"\n[dim]{escape(finding.remedy)}[/dim]" if finding.remedy else ""
            table.add_row(f"[{colour}]{finding.state}[/{colour}]", finding.subject, f"{escape(finding.found)}{remedy}")
        console.print(table)
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(REFUSED)


def _versions(settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    from service.version import VERSION

    yield Finding("candor", "ok", f"{VERSION} on Python {platform.python_version()}, {platform.platform()}")


def _settings(settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    from service.settings import unknown_variables

    for name, remedy in unknown_variables(os.environ).items():
        yield Finding("settings", "note", f"{name} is set but unknown", remedy)


def _runtime(settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    import onnxruntime

    from service.inference import cuda

    wheels = cuda.cuda().wheels
    text = ", ".join(f"{name} {version}" for name, version in wheels.items())
    if len(wheels) > 1:
        yield Finding(
            "ONNX Runtime",
            "bad",
            f"{text}: two packages with the same files, of which {onnxruntime.__version__} came last",
            f"pip uninstall {' '.join(wheels)}, then install one of the extras `cpu` and `gpu`.",
        )
    else:
        yield Finding("ONNX Runtime", "ok", text or onnxruntime.__version__)


def _gpu(settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    from service.inference import cuda

    driver = cuda.cuda().driver
    if driver.problem is None:
        yield Finding("GPU", "ok", f"{', '.join(driver.devices)}; the driver runs CUDA {driver.cuda} at most")
    else:
        yield Finding("GPU", "note", driver.problem)


def _provider(settings: Settings) -> Iterator[Finding]:
    from service.errors import ConfigurationError
    from service.inference import cuda
    from service.inference.providers import resolve_provider

    found = cuda.cuda()
    try:
        provider = resolve_provider(settings.provider)
    except ConfigurationError as error:
        yield Finding("provider", "bad", str(error), error.remedy)
        return
    text = f"{provider} (CANDOR_PROVIDER={settings.provider})"
    if provider == "cuda":
        yield Finding("provider", "ok", f"{text}, ONNX Runtime made for CUDA {found.built_for}")
    elif settings.provider == "auto" and (found.built_for or found.driver.problem is None):
        # A GPU without its package, or the package without a GPU: half of what a GPU needs is here.
        yield Finding("provider", "note", f"{text}: {found.problem}", found.remedy)
    else:
        yield Finding("provider", "ok", text)


def _graphs(settings: Settings) -> Iterator[Finding]:
    from service.errors import ConfigurationError
    from service.inference.providers import resolve_provider

    try:
        yield Finding("onnx", "ok", f"{importlib.metadata.version('onnx')}, for calibrators as graphs")
    except importlib.metadata.PackageNotFoundError:
        try:
            needed = resolve_provider(settings.provider) == "cuda"
        except ConfigurationError:
            needed = True
        yield Finding(
            "onnx",
            "bad" if needed else "ok",
            "not installed; a GPU and `candor export-onnx` need it",
            "Install the extra `gpu`, or `export` on a CPU." if needed else None,
        )


def _processors(settings: Settings) -> Iterator[Finding]:
    from bundle.processors import available_cpus
    from service.errors import ConfigurationError
    from service.inference.providers import resolve_provider
    from service.workers.plan import share_of, workers_of

    usable = available_cpus()
    try:
        workers = workers_of(settings, resolve_provider(settings.provider))
        threads = share_of(settings, workers).threads or 1
    except ConfigurationError as error:
        yield Finding("processors", "bad", f"{error} {error.found}", error.remedy)
        return
    text = f"{usable:g} of {os.cpu_count()} may be used, {threads} for one run"
    if workers > 1:
        text += f" of each of {workers} workers"
    if workers > max(1, usable):  # of one thread each
        remedy = "Lower CANDOR_WORKERS, or raise the container's quota."
        yield Finding("processors", "note", f"{text}: more workers than processors", remedy)
    else:
        yield Finding("processors", "ok", text)


def _workers(settings: Settings) -> Iterator[Finding]:
    from service.errors import ConfigurationError
    from service.inference.providers import resolve_provider
    from service.workers.plan import workers_of

    try:
        provider = resolve_provider(settings.provider)
    except ConfigurationError:  # told above
        return
    workers = workers_of(settings, provider)
    text = f"{workers} (CANDOR_WORKERS={settings.workers})"
    if provider != "cuda":
        yield Finding("workers", "ok", text)
    elif workers == 1:
        yield Finding("workers", "ok", f"{text}: a GPU runs one large batch faster than several small ones")
    else:
        yield Finding(
            "workers",
            "note",
            f"{text}: on a GPU each has a copy of every model and takes turns with the others",
            "Set CANDOR_WORKERS=1, unless reading requests is what takes the time.",
        )


def _database(settings: Settings) -> Iterator[Finding]:
    from service.errors import ConfigurationError, NoStateError, OldStateError, StateUnavailableError
    from service.state.database import Database, one_server_only, parse
    from service.state.keys import KeyStore
    from service.state.revisions import RevisionStore

    try:
        if not settings.background and parse(settings.state_url).get_backend_name() == "sqlite":
            raise one_server_only("CANDOR_BACKGROUND")
        database = Database.open(settings.state_url, readonly=True)
    except NoStateError:
        yield Finding("state", "note", "none yet; it is made at the first start")
        yield from _keys(settings, ())
        return
    except OldStateError as error:
        text = f"{error.found}; the next start updates it to {error.expected}"
        yield Finding("state", "note", text, "Back up the state first: only the back-up leads back.")
        return
    except (ConfigurationError, StateUnavailableError) as error:
        yield Finding("state", "bad", str(error), error.remedy)
        return
    try:
        pointers, keys = RevisionStore(database).pointers(), KeyStore(database).list()
        path = database.engine.url.database if database.engine.dialect.name == "sqlite" else None
    finally:
        database.close()
    active = ", ".join(f"{name} {pointer.active}" for name, pointer in pointers.items())
    yield Finding("state", "ok", f"{database.engine.dialect.name}; active: {active or 'nothing yet'}")
    if path is not None and (free := shutil.disk_usage(Path(path).resolve().parent).free) < _LITTLE_DISK_BYTES:
        yield Finding("disk", "note", f"{free / 1e9:.1f} GB free for the state", "Make room, or set a retention.")
    yield from _keys(settings, keys)


def _further_databases(settings: Settings) -> Iterator[Finding]:
    """Look at the databases beside the state. A service does without them while they do not answer."""
    read_from, next_poll = "recalibrations read from CANDOR_DATABASE_URL", "changes arrive with the next poll"
    yield from _further_database("CANDOR_DATABASE_READ_URL", lambda: settings.read_url, read_from)
    yield from _further_database("CANDOR_DATABASE_DIRECT_URL", lambda: settings.direct_url, next_poll)


def _further_database(setting: str, url_of: Callable[[], str | None], without: str) -> Iterator[Finding]:
    from service.errors import ConfigurationError, StateUnavailableError
    from service.state.database import Database, parse

    try:
        if (url := url_of()) is not None:
            parse(url, setting, ["postgresql"])
            Database.open(url, readonly=True).close()
            yield Finding(setting, "ok", "answers")
    except ConfigurationError as error:
        yield Finding(setting, "bad", str(error), error.remedy or f"Expected: {error.expected}.")
    except StateUnavailableError as error:
        yield Finding(setting, "note", f"{error} Until it answers, {without}.", error.remedy)


def _log_sink(settings: Settings) -> Iterator[Finding]:
    from bundle import RemoteError
    from bundle.remote import file_system

    if settings.log_sink is not None and "://" in settings.log_sink:
        try:
            file_system(settings.log_sink)
        except RemoteError as error:
            yield Finding("log sink", "bad", f"CANDOR_LOG_SINK: {error}")


def _keys(settings: Settings, keys: Sequence[ApiKey]) -> Iterator[Finding]:
    from service.settings import is_loopback
    from service.state.database import now_us
    from service.times import iso

    now = now_us()
    valid = [key for key in keys if key.valid_at(now)]
    if not valid and not is_loopback(settings.host):
        yield Finding(
            "keys",
            "bad",
            f"none is valid, and without one the service does not listen on {settings.host}",
            "candor keys create --name ops --scope admin",
        )
    elif not keys:
        yield Finding("keys", "ok", "none: local users may do everything, and remote requests are refused")
    elif not any("admin" in key.scopes for key in valid):
        yield Finding("keys", "note", "no valid one has the scope admin", "candor keys create --name ops --scope admin")
    else:
        yield Finding("keys", "ok", f"{len(valid)} valid")
    for key in valid:
        if key.expires_at is not None and key.expires_at - now < _SOON_US:
            text = f"{key.prefix} ({key.name}) expires at {iso(key.expires_at)[:19]}"
            yield Finding("keys", "note", text, f"candor keys rotate {key.prefix}")


def _connections(settings: Settings) -> Iterator[Finding]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = settings.max_connections * (1 if settings.grpc_port is None else 2)
    wanted = connections + _OTHER_FILES
    if most != resource.RLIM_INFINITY and most < wanted:
        yield Finding(
            "open files",
            "note",
            f"{most} may be open, {connections} connections may be made",
            f"Raise the limit (ulimit -n {wanted}), or lower CANDOR_MAX_CONNECTIONS.",
        )


def _folders(settings: Settings) -> Iterator[Finding]:
    folders = {"CANDOR_UPLOADS": settings.uploads}
    if settings.log_sink is not None and "://" not in settings.log_sink:
        folders["CANDOR_LOG_SINK"] = Path(settings.log_sink)
    for name, folder in folders.items():
        there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            remedy = f"Grant user {os.getuid()} write access to {there}, or set another folder."
            yield Finding("folders", "bad", f"{name}: {folder} cannot be written", remedy)
    if settings.uds is not None and not os.access(settings.uds.absolute().parent, os.W_OK | os.X_OK):
        remedy = f"Create {settings.uds.absolute().parent}, and grant user {os.getuid()} write access to it."
        yield Finding("folders", "bad", f"CANDOR_UDS: {settings.uds} cannot be made", remedy)


def _audit_key(settings: Settings) -> Iterator[Finding]:
    from service.errors import ConfigurationError
    from service.state.audit_heads import key_of

    if settings.audit_key_file is not None or settings.audit_export:
        try:
            key_of(settings.audit_key_file)
        except ConfigurationError as error:
            yield Finding("audit key", "bad", f"{error}", error.remedy)


def _files(settings: Settings) -> Iterator[Finding]:
    from service.errors import ConfigurationError
    from service.state.password import secrets_of
    from service.workers.tls import Certificates

    if settings.policies is not None and not settings.policies.is_dir():
        yield Finding(
            "policies", "bad", f"folder {settings.policies} does not exist", "Create it, or unset CANDOR_POLICIES."
        )
    try:
        if settings.webhook_url is not None:
            secrets_of(settings.webhook_secret_file)
    except ConfigurationError as error:
        yield Finding("webhook", "bad", str(error), error.remedy or f"Check {error.where}.")
    try:
        certificates = Certificates.of(settings)
    except ConfigurationError as error:
        yield Finding("TLS", "bad", str(error), f"Check {error.where}.")
        return
    now = datetime.now(UTC)
    if certificates is not None and (problem := certificates.invalid(now)):
        yield Finding("TLS", "bad", f"{problem} Clients refuse the certificate.", "Renew it.")
    elif certificates is not None and (problem := certificates.invalid(now + timedelta(microseconds=_SOON_US))):
        yield Finding("TLS", "note", problem, "Renew it: the service reads it again.")


def _bundles(settings: Settings) -> Iterator[Finding]:
    from service.errors import BundleRefusedError, ConfigurationError, UpstreamError, UpstreamRejectedError
    from service.inference.providers import resolve_provider
    from service.serving.loading import Loader

    try:
        provider = resolve_provider(settings.provider)
    except ConfigurationError:  # told above
        provider = "cpu"
    yield from _remote_bundles(settings)
    # What is local is checked as it is; nothing is copied.
    pin = settings.bundle_reference.sha256
    local = str(settings.bundle_folder) + (f"@sha256:{pin}" if pin else "")
    try:
        loader = Loader(settings.model_copy(update={"provider": provider, "bundles": local, "threads": 1}))
    except ConfigurationError as error:
        yield Finding("trusted keys", "bad", str(error), error.remedy)
        return
    try:
        found = loader.find()
    except ConfigurationError as error:
        yield Finding("bundles", "bad", str(error), error.remedy)
        return
    if not found and not settings.bundle_reference.is_url:
        if settings.bundle_folder.is_dir():
            yield Finding("bundles", "note", f"none in {settings.bundle_folder}", "Train one, or set CANDOR_BUNDLES.")
        else:
            text = f"folder {settings.bundle_folder} does not exist"
            yield Finding("bundles", "bad", text, "Create it, or set CANDOR_BUNDLES.")
    known = f"one of: {', '.join(sorted(found)) or 'none found'}"
    if settings.default_model not in (None, *found) and not settings.bundle_reference.is_url:
        text = f"{settings.default_model} (CANDOR_DEFAULT_MODEL) is not in {settings.bundle_folder}"
        yield Finding("default model", "bad", text, f"Set it to {known}.")
    missing = set(settings.models or ()) - found.keys()
    if missing and not settings.bundle_reference.is_url:
        text = f"{', '.join(sorted(missing))} (CANDOR_MODELS) not in {settings.bundle_folder}: the service is not ready"
        yield Finding("models", "bad", text, f"Name {known}.")
    for location in (one for versions in found.values() for one in versions):
        subject = f"bundle {location.model}/{location.version}"
        try:
            bundle = loader.prove(location)
        except (BundleRefusedError, UpstreamError, UpstreamRejectedError) as error:
            yield Finding(subject, "bad", f"{error} {error.found or ''}".strip(), error.remedy)
        else:
            yield Finding(subject, "ok", f"whole, and gives its golden logits; model {bundle.model_digest[:12]}")


def _remote_bundles(settings: Settings) -> Iterator[Finding]:
    from bundle import BundleError
    from service.serving.mirror import Mirror

    if not settings.bundle_reference.is_url:
        return
    mirror = Mirror(settings.bundle_reference.address, settings.bundle_folder)
    try:
        mirror.refresh()
    except BundleError as error:
        yield Finding("remote bundles", "bad", str(error), "Upload the bundle again.")
        return
    found = mirror.locations()
    copied = sum(location.path.is_dir() for location in found)
    if mirror.problem is None:
        yield Finding("remote bundles", "ok", f"{len(found)}, {copied} of them copied to {settings.bundle_folder}")
    else:
        text = f"{mirror.problem}; {copied} copies in {settings.bundle_folder}"
        yield Finding(
            "remote bundles", "note" if copied else "bad", text, "Check the URL, the network and the credentials."
        )


_LOOKS = (
    _versions,
    _settings,
    _runtime,
    _gpu,
    _provider,
    _graphs,
    _processors,
    _workers,
    _connections,
    _database,
    _further_databases,
    _log_sink,
    _folders,
    _audit_key,
    _files,
    _bundles,
)
