"""`candor export-onnx`: a model and its calibrator as one ONNX file for other servers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from service.commands.output import console, replace_file, reporting

if TYPE_CHECKING:
    from bundle import Bundle
    from calibrators import Calibrator
    from service.decisions.revision import Revision
    from service.settings import Settings


def export_onnx(
    out: Annotated[Path, typer.Argument(help="File to write; an existing file is replaced.", dir_okay=False)],
    model: Annotated[str | None, typer.Option(help="Model; default: the default model, or the only one.")] = None,
    revision: Annotated[str | None, typer.Option(help="Revision; default: the active one.")] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(help="Folder of a bundle, exported with its own calibrator; no state is read.", exists=True),
    ] = None,
    bundles: Annotated[str | None, typer.Option(help="Folder or URL of bundles (CANDOR_BUNDLES).")] = None,
    database_url: Annotated[str | None, typer.Option(help="State of the service (CANDOR_DATABASE_URL).")] = None,
) -> None:
    """Write a model and its calibrator as one ONNX file that runs without this service.

    Reads the state and the bundles only: no service needs to run.
    """
    from service.commands.local import settings_of
    from service.errors import ConfigurationError
    from service.serving.verification import bundle_of, trusted_keys, verified

    with reporting():
        if bundle is not None and (model is not None or revision is not None):
            raise ConfigurationError(
                "A bundle's folder names its model, and its calibrator belongs to no revision.",
                where="--bundle",
                remedy="Leave out --model and --revision, or leave out --bundle.",
            )
        if bundle is not None:
            named, chosen = None, verified(bundle)
        else:
            settings = settings_of({"bundles": bundles, "database_url": database_url, "default_model": model})
            named = _revision(settings, revision)
            chosen = bundle_of(settings.bundle_folder, named, trusted_keys(settings.trusted_keys))
        written = _calibrated(chosen, named)
        replace_file(out, written)
    source = f"{named.model} {named.id}" if named else f"{chosen.manifest.model}/{chosen.manifest.version}"
    digest = hashlib.sha256(written).hexdigest()
    console.print(f"{escape(str(out))}: {escape(source)}, {len(written)} bytes, sha256 {digest}", soft_wrap=True)


def _revision(settings: Settings, wanted: str | None) -> Revision:
    from service.errors import UnknownModelError
    from service.state.database import Database
    from service.state.revisions import RevisionStore

    database = Database.open(settings.state_url, readonly=True)
    try:
        store = RevisionStore(database)
        pointers = store.pointers()
        name = settings.default_model or (next(iter(pointers)) if len(pointers) == 1 else None)
        if name is None or name not in pointers:
            raise UnknownModelError(
                f"The state has no model {name!r}." if name else "The state has several models, or none.",
                where="--model",
                found=name,
                expected=sorted(pointers),
            )
        return store.get(name, wanted or pointers[name].active)
    finally:
        database.close()


def _calibrated(bundle: Bundle, revision: Revision | None) -> bytes:
    from bundle import BundleError
    from bundle.manifest import MODEL_FILE
    from calibrators import CalibrationError
    from service.errors import BundleRefusedError, ConfigurationError, RevisionStateError

    if bundle.manifest.model_file != MODEL_FILE:
        raise ConfigurationError(
            "This bundle has no graph that a file could hold: its model runs elsewhere.",
            found=bundle.manifest.source,
            expected="a trained model",
        )
    graph = bundle.manifest.graph
    try:
        from service.inference.onnx_graph import calibrated_model
    except ImportError as error:
        raise ConfigurationError(
            "Writing an ONNX file requires the package `onnx`.",
            found=str(error),
            remedy="Install the extra `export`: pip install '.[serve,cpu,export]'.",
        ) from error
    try:
        calibrator = revision.calibrator if revision else bundle.calibrator
        metadata = _metadata(bundle, revision, calibrator)
        return calibrated_model(
            bundle.model_bytes,
            calibrator,
            len(bundle.manifest.labels),
            output=None if graph is None else graph.output,
            metadata=metadata,
        )
    except CalibrationError as error:
        raise RevisionStateError(f"This calibrator cannot be written as a graph: {error}") from error
    except BundleError as error:
        raise BundleRefusedError(f"Bundle {bundle.path}: {error}", where=error.file) from error


def _metadata(bundle: Bundle, revision: Revision | None, calibrator: Calibrator) -> dict[str, str]:
    """Return the metadata of the file; ONNX takes strings only."""
    from service.version import VERSION

    manifest = bundle.manifest
    return {
        "candor.version": VERSION,
        "candor.model": manifest.model,
        "candor.bundle_version": str(manifest.version),
        "candor.bundle_id": bundle.id,
        "candor.model_digest": bundle.model_digest,
        "candor.revision": revision.id if revision else "",
        "candor.calibrator": calibrator.name,
        "candor.calibrator_fingerprint": calibrator.fingerprint(),
        "candor.labels": json.dumps(manifest.labels, ensure_ascii=False),
    }
