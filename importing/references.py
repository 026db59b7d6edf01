"""Where the model of an import lies: a path, a URL, or a version in MLflow's registry; fetched, and pinned to a digest.

What is fetched lies in a temporary folder, which is gone at the end of the import.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from bundle import BundleError, mlflow_registry, remote
from bundle.references import MLFLOW, OCI, Reference, shown
from bundle.registry import Artifact
from importing.errors import ModelReferenceError
from importing.limits import MAX_BYTES
from importing.mlflow import MAX_MLMODEL, MLMODEL_FILE, model_of

MAX_FILES = 64
"""Maximum files of a model's folder."""

SUFFIXES = {
    "onnx": (".onnx",),
    "lightgbm": (".txt",),
    "xgboost": (".json", ".ubj"),
    "catboost": (".cbm",),
    "sklearn": (".skops",),
}
"""Endings of the names of model files by format."""


_BESIDE = (MLMODEL_FILE, "config.json", "tokenizer.json", "tokenizer_config.json", "preprocessor_config.json")


def digests(folder: Path) -> dict[str, str]:
    """Return the sha256 of each document in a model's folder that an import reads; empty for a file."""
    found = {}
    for name in _BESIDE:
        if (folder / name).is_file():
            with (folder / name).open("rb") as stream:
                found[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


@contextmanager
def fetched(text: str, file_format: str, console: Console) -> Iterator[tuple[Path, str | None]]:
    """Yield the local path of a model, and the digest that it is pinned to.

    Args:
        text: A path, a URL or `models:/NAME@ALIAS`, each also with `@sha256:DIGEST`.
        file_format: Format of the model; of `huggingface` and `mlflow` it is a folder.
        console: Where progress is shown.

    Raises:
        ModelReferenceError: It does not exist, or cannot be fetched completely.
    """
    with TemporaryDirectory(prefix="candor-import-") as folder:
        path, digest = _fetch(text, file_format, Path(folder), console)
        yield path, digest


def _fetch(text: str, file_format: str, folder: Path, console: Console) -> tuple[Path, str | None]:
    try:
        reference = Reference.parse(text)
        address = reference.address
        if address.startswith(MLFLOW):
            return mlflow_registry.download(address, folder), reference.sha256
        if not reference.is_url:
            return Path(address), reference.sha256
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        if address.startswith(OCI):
            with Progress(*columns, console=console, transient=True) as bar:
                return _pulled(address, file_format, folder, bar), None
        target = folder / (PurePosixPath(unquote(urlsplit(address).path)).name or "model")
        files = {"huggingface": _exported, "mlflow": _logged}.get(file_format, _single)
        with Progress(*columns, console=console, transient=True) as bar:
            files(address, target, bar)
    except BundleError as error:
        raise ModelReferenceError(
            error.message, where=error.file or shown(text), found=error.found, expected=error.expected
        ) from error
    return target, reference.sha256


def _single(url: str, target: Path, bar: Progress, *, limit: int = MAX_BYTES) -> None:
    task = bar.add_task(target.name, total=None)
    target.parent.mkdir(parents=True, exist_ok=True)
    remote.fetch(url, target, limit=limit, step=lambda done: bar.update(task, completed=done))


def _pulled(address: str, file_format: str, folder: Path, bar: Progress) -> Path:
    """Fetch the artifact of a registry; return its folder, or the only file in it that may be the model."""
    task = bar.add_task(address.rpartition("/")[2], total=None)
    found = Artifact(address).pull(folder, limit=MAX_BYTES, step=lambda done: bar.update(task, completed=done))
    if file_format in ("huggingface", "mlflow"):
        return found
    files = sorted(file for file in found.rglob("*") if file.is_file())
    models = [file for file in files if file.suffix in SUFFIXES[file_format]] if len(files) > 1 else files
    if len(models) != 1:
        raise ModelReferenceError(
            "the artifact does not have one file that may be the model",
            where=address,
            found=", ".join(str(file.relative_to(found)) for file in files[:10]) or "no files",
            expected=f"one file *{' or *'.join(SUFFIXES[file_format])}",
        )
    return models[0]


def _exported(url: str, target: Path, bar: Progress) -> None:
    """Fetch what an import reads of a folder of optimum: documents and graphs, never pickled weights."""
    top = remote.names(url)
    below = [f"onnx/{name}" for name in remote.names(f"{url.rstrip('/')}/onnx")] if "onnx" in top else []
    graphs = [name for name in (*top, *below) if name.endswith(".onnx")]
    usual = [name for name in ("model.onnx", "onnx/model.onnx") if name in graphs]
    wanted = [name for name in top if name.endswith(".json")] + (usual[:1] or graphs)
    if len(wanted) > MAX_FILES:
        raise ModelReferenceError(
            "the folder has too many files", found=str(len(wanted)), expected=f"at most {MAX_FILES}"
        )
    for name in wanted:
        _single(f"{url.rstrip('/')}/{name}", target / name, bar)


def _logged(url: str, target: Path, bar: Progress) -> None:
    """Fetch what an import reads of a folder of MLflow."""
    _single(f"{url.rstrip('/')}/{MLMODEL_FILE}", target / MLMODEL_FILE, bar, limit=MAX_MLMODEL)
    _, name = model_of(target)
    _single(f"{url.rstrip('/')}/{name}", target / name, bar)
