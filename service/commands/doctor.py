"""`candor doctor`: looks at everything that a start needs, and says what is in the way and what to do about it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from service.commands.output import REFUSED, console, print_json, reporting

if TYPE_CHECKING:
    from service.settings import Settings

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
    """Look at GPU, driver, ONNX Runtime, processors, state and bundles as `candor serve` would find them.

    Changes nothing. Ends with 1 where something would keep the service from starting as its settings say.
    """
    from service.commands.local import settings_of

    with reporting():
        settings = settings_of({})
    findings = []
    for look in (_versions, _runtime, _gpu, _provider, _graphs, _processors, _database, _policies, _bundles):
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
    from service.state.revisions import RevisionStore

    try:
        database = Database.open(settings.database_url, readonly=True)
    except ConfigurationError as error:
        new = error.found == "no file"
        yield Finding(
            "state",
            "note" if new else "bad",
            "none yet; it is made at the first start" if new else str(error),
            None if new else error.remedy,
        )
        return
    except StateUnavailableError as error:
        yield Finding("state", "bad", str(error), error.remedy)
        return
    try:
        active = ", ".join(f"{name} {pointer.active}" for name, pointer in RevisionStore(database).pointers().items())
    finally:
        database.close()
    yield Finding("state", "ok", f"{database.engine.dialect.name}; active: {active or 'nothing yet'}")


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
