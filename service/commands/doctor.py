"""`candor doctor`: looks at everything that a start needs, and says what is in the way and what to do about it."""

from __future__ import annotations

import difflib
import importlib.metadata
import os
import platform
import resource
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from service.commands.output import REFUSED, console, print_json, reporting

if TYPE_CHECKING:
    from service.settings import Settings
    from service.state.keys import ApiKey

_READ_ELSEWHERE = {"CANDOR_URL", "CANDOR_API_KEY"}  # by the command line and the client
_LITTLE_DISK_BYTES = 1_000_000_000
_SOON_US = 7 * 86_400 * 1_000_000  # a key that ends within a week is told of
_OTHER_FILES = 128  # that the service has open beside its connections
_COLOURS = {"ok": "green", "note": "yellow", "bad": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: What.
        state: "ok", "note" (works, but someone may have meant it otherwise) or "bad" (the service will not start, or
            not as it was told to).
        found: What was found.
        remedy: What to do about it; None where there is nothing to do.
    """

    subject: str
    state: Literal["ok", "note", "bad"]
    found: str
    remedy: str | None = None


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print the findings for scripts.")] = False) -> None:
    """Look at settings, GPU, ONNX Runtime, processors, state, keys and bundles as `candor serve` would find them.

    Changes nothing. Ends with 1 where something would keep the service from starting as its settings say.
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


def _settings(settings: Settings) -> Iterator[Finding]:
    known = {f"CANDOR_{name}".upper() for name in type(settings).model_fields} | _READ_ELSEWHERE
    for name in sorted(name for name in os.environ if name.startswith("CANDOR_") and name not in known):
        near = difflib.get_close_matches(name, known, n=1)
        remedy = f"Did you mean {near[0]}?" if near else "See docs/settings.md for what there is."
        yield Finding("settings", "note", f"{name} is set, and nothing reads it", remedy)


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
    from service.inference.threads import available_cpus, inference_threads

    threads = inference_threads(settings.threads)
    usable = available_cpus()
    text = f"{usable:g} of {os.cpu_count()} may be used, {threads} for one run"
    if threads > usable:
        yield Finding("processors", "note", text, "Lower CANDOR_THREADS, or raise the container's quota.")
    else:
        yield Finding("processors", "ok", text)


def _database(settings: Settings) -> Iterator[Finding]:
    from service.errors import ConfigurationError, StateUnavailableError
    from service.state.database import Database
    from service.state.keys import KeyStore
    from service.state.revisions import RevisionStore

    try:
        database = Database.open(settings.state_url, readonly=True)
    except ConfigurationError as error:
        new = error.found == "no file"
        yield Finding(
            "state",
            "note" if new else "bad",
            "none yet; it is made at the first start" if new else str(error),
            None if new else error.remedy,
        )
        if new:
            yield from _keys(settings, ())
        return
    except StateUnavailableError as error:
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


def _keys(settings: Settings, keys: Sequence[ApiKey]) -> Iterator[Finding]:
    from service.rest.access import is_loopback
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
        yield Finding("keys", "ok", "none; whoever is on this machine may do everything, and nobody else is answered")
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
    wanted = settings.max_connections + _OTHER_FILES
    if most != resource.RLIM_INFINITY and most < wanted:
        yield Finding(
            "open files",
            "note",
            f"{most} may be open, {settings.max_connections} connections may be made",
            f"Raise the limit (ulimit -n {wanted}), or lower CANDOR_MAX_CONNECTIONS.",
        )


def _policies(settings: Settings) -> Iterator[Finding]:
    if settings.policies is not None and not settings.policies.is_dir():
        yield Finding(
            "policies", "bad", f"there is no folder {settings.policies}", "Make it, or unset CANDOR_POLICIES."
        )


def _bundles(settings: Settings) -> Iterator[Finding]:
    from service.errors import BundleRefusedError, ConfigurationError
    from service.inference.providers import resolve_provider
    from service.loading import Loader

    try:
        provider = resolve_provider(settings.provider)
    except ConfigurationError:  # told above
        provider = "cpu"
    loader = Loader(settings.model_copy(update={"provider": provider}))
    try:
        found = loader.find()
    except ConfigurationError as error:
        yield Finding("bundles", "bad", str(error), error.remedy)
        return
    if not found:
        yield Finding("bundles", "note", f"none in {settings.bundles}", "Train one, or set CANDOR_BUNDLES.")
    for location in (one for versions in found.values() for one in versions):
        subject = f"bundle {location.model}/{location.version}"
        try:
            bundle = loader.prove(location.path)
        except BundleRefusedError as error:
            yield Finding(subject, "bad", str(error), error.remedy)
        else:
            yield Finding(subject, "ok", f"whole, and gives its golden logits; model {bundle.model_digest[:12]}")


_LOOKS = (
    _versions,
    _settings,
    _runtime,
    _gpu,
    _provider,
    _graphs,
    _processors,
    _connections,
    _database,
    _policies,
    _bundles,
)
