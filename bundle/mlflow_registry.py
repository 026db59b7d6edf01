"""Models and bundles in MLflow's registry. mlflow-skinny fetches them, with no bound on sizes or the time of files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from bundle.errors import BundleDamagedError, BundleError, RemoteError
from bundle.references import MLFLOW
from bundle.remote import within

_ALIAS = re.compile(r"models:/(?P<name>[^/@]+)@(?P<alias>[^/@]+)")
_T = TypeVar("_T")


def resolved(address: str) -> str:
    """Return an address with the version that its alias names now; an address without an alias as it is.

    Raises:
        RemoteError: mlflow-skinny is not installed, or the registry cannot be reached or does not know the alias.
    """
    found = _ALIAS.fullmatch(address)
    if found is None:
        return address
    client = _asked(address, "mlflow", lambda mlflow: mlflow.MlflowClient())
    version = within(
        address, lambda: _asked(address, "mlflow", lambda _: client.get_model_version_by_alias(*found.groups()).version)
    )
    return f"{MLFLOW}{found['name']}/{version}"


def names(address: str) -> list[str]:
    """List the files and folders at the top of a version, sorted; raises RemoteError as `resolved`."""

    def listed(artifacts: Any) -> list[str]:
        return sorted(entry.path for entry in artifacts.list_artifacts(artifact_uri=address))

    return within(address, lambda: _asked(address, "mlflow.artifacts", listed))


def read(address: str, name: str, *, limit: int) -> bytes:
    """Return a file at the top of a version.

    Raises:
        BundleDamagedError: The version does not have the file, or it exceeds `limit` bytes.
        RemoteError: As `resolved`.
    """
    top = names(address)
    if name not in top:
        raise BundleDamagedError("no such file", file=name, found=", ".join(top[:10]) or "no files")
    with TemporaryDirectory() as folder:
        path = within(address, lambda: download(f"{address}/{name}", Path(folder)))
        if path.stat().st_size > limit:
            raise BundleDamagedError("too large", file=name, expected=f"at most {limit} bytes")
        return path.read_bytes()


def download(address: str, folder: Path) -> Path:
    """Fetch a version, or `/FILE` of it, into a folder, and return its path there; raises RemoteError as `resolved`."""

    def fetched(artifacts: Any) -> Path:
        return Path(artifacts.download_artifacts(artifact_uri=address, dst_path=str(folder)))

    return _asked(address, "mlflow.artifacts", fetched)


def _asked(address: str, module: str, call: Callable[[Any], _T]) -> _T:
    try:
        library = import_module(module)
    except ImportError as error:
        raise RemoteError(
            f"{MLFLOW} requires another package", found=str(error), expected="pip install mlflow-skinny"
        ) from error
    # Without an address MLflow makes a database of its own in the current folder.
    if not os.environ.get("MLFLOW_REGISTRY_URI") and not import_module("mlflow").is_tracking_uri_set():
        raise RemoteError(
            f"MLflow cannot fetch {address}: the address of its server is not set",
            found="neither MLFLOW_TRACKING_URI nor MLFLOW_REGISTRY_URI",
            expected="MLFLOW_TRACKING_URI=https://mlflow.example, or a folder",
        )
    try:
        return call(library)
    except BundleError:
        raise
    except Exception as error:  # its stores raise exceptions of many types
        raise RemoteError(
            f"MLflow cannot fetch {address}",
            found=f"{type(error).__name__}: {error}"[:500],
            expected="a registered model of this name, version or alias in MLFLOW_REGISTRY_URI or MLFLOW_TRACKING_URI",
        ) from error
