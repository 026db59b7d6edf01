"""Bundles of a remote folder: listed at the start and at each load, copied when one is needed.

All other code reads the local copies, which are verified like every bundle. What is served does not need the remote.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

import bundle as bundles
from bundle import Bundle, BundleError, BundleLocation, RemoteError, remote
from bundle.copying import copy, pinned, remote_manifest
from bundle.manifest import MANIFEST_FILE, MODEL_NAME
from bundle.references import MLFLOW, OCI
from service.errors import BundleRefusedError, BundleUnreachableError

logger = structlog.get_logger(__name__)

_MODEL = re.compile(MODEL_NAME)
_VERSION = re.compile(r"[1-9][0-9]{0,8}")


class Mirror:
    """Local copies of the bundles in a remote folder.

    Args:
        address: URL of a folder of bundles, or of a single one, which `oci://` and `models:/` always name.
        folder: Where the copies are, as `<model>/<version>/`.

    Attributes:
        problem: Why the remote folder could not be listed the last time; None if it could.
    """

    def __init__(self, address: str, folder: Path) -> None:
        self.problem: str | None = None
        self._address = address.rstrip("/")
        self._folder = folder
        self._sources: dict[tuple[str, int], str] = {}
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """List the remote folder. If it cannot be reached, `problem` says why.

        Raises:
            BundleError: The folder is a single bundle with a damaged manifest.
        """
        try:
            self._sources = self._listed()
        except RemoteError as error:
            self.problem = str(error)
        else:
            self.problem = None

    def locations(self) -> list[BundleLocation]:
        """Return the bundles of the remote folder, copied or not; of one that cannot be reached, the copies."""
        if self.problem is not None:
            return bundles.find(self._folder)
        return sorted(bundles.locate(self._folder, model, version) for model, version in self._sources)

    def fetch(self, location: BundleLocation, verify: Callable[[], Bundle]) -> Bundle:
        """Copy a bundle and return it, verified; a damaged copy is replaced once the new one is complete.

        Processes that need the same bundle at once wait for the first one, which copies it for all of them.

        Args:
            location: Where the copy belongs.
            verify: Verifies the copy.

        Raises:
            BundleRefusedError: The remote bundle is damaged, missing, or another one.
            BundleUnreachableError: It cannot be reached, or there is no space for it.
        """
        named = location.model, location.version
        try:
            if named not in self._sources:  # written after the last listing
                self.refresh()
            if named not in self._sources:
                raise self._missing(location)
            with self._alone(location) as unfinished:
                try:
                    return verify()  # another process has copied it meanwhile
                except BundleRefusedError:
                    pass
                source = self._sources[named]
                manifest, data = remote_manifest(source)
                if (manifest.model, manifest.version) != named:
                    raise BundleRefusedError(
                        f"Bundle {source} is refused: its manifest names another model or version.",
                        where=MANIFEST_FILE,
                        found=f"{manifest.model}/{manifest.version}",
                        expected=f"{location.model}/{location.version}",
                    )
                copy(source, manifest, data, unfinished)
                if location.path.exists():
                    shutil.rmtree(location.path)
                unfinished.rename(location.path)
        except (RemoteError, OSError) as error:
            raise BundleUnreachableError(
                f"Bundle {location.model}/{location.version} cannot be copied from {self._address}: {error}",
                remedy="Check the remote folder, the network and the disk. The service tries again.",
            ) from error
        except BundleError as error:
            raise BundleRefusedError(
                f"Bundle {location.model}/{location.version} in {self._address} is refused: {error}",
                where=error.file,
                remedy="Upload the bundle again, as it was exported.",
            ) from error
        logger.info("bundle copied", model=location.model, version=location.version, bundles=self._address)
        return verify()

    def check_unchanged(self, found: Bundle) -> None:
        """Refuse a copy of a bundle that has since been replaced by another one under the same version.

        Raises:
            BundleRefusedError: The remote manifest is another one.
        """
        named = found.manifest.model, found.manifest.version
        if self.problem is not None or named not in self._sources:
            return
        try:
            _, data = remote_manifest(self._sources[named])
        except BundleError as error:
            logger.warning("remote bundle not compared", model=named[0], version=named[1], error=str(error))
            return
        if (digest := hashlib.sha256(data).hexdigest()) != found.id:
            raise BundleRefusedError(
                f"Bundle {named[0]}/{named[1]} in {self._address} differs from its copy {found.path}.",
                where=MANIFEST_FILE,
                found=digest,
                expected=found.id,
                remedy="Export a changed model as a new version. To serve it nevertheless, delete the copy.",
            )

    def _listed(self) -> dict[tuple[str, int], str]:
        top = [MANIFEST_FILE] if self._address.startswith((MLFLOW, OCI)) else remote.names(self._address)
        if MANIFEST_FILE in top:
            source = pinned(self._address)
            manifest, _ = remote_manifest(source)
            return {(manifest.model, manifest.version): source}
        return {
            (model, int(version)): f"{self._address}/{model}/{version}"
            for model in top
            if _MODEL.fullmatch(model)
            for version in remote.names(f"{self._address}/{model}")
            if _VERSION.fullmatch(version)
        }

    def _missing(self, location: BundleLocation) -> Exception:
        if self.problem is not None:
            return RemoteError(self.problem)
        return BundleError("the remote folder does not have it", file=f"{location.model}/{location.version}")

    @contextmanager
    def _alone(self, location: BundleLocation) -> Iterator[Path]:
        """Yield a new folder beside the copy, which is gone afterwards; no other thread or process copies meanwhile."""
        model = location.path.parent
        model.mkdir(parents=True, exist_ok=True)
        unfinished = model / f".unfinished-{location.version}"
        with self._lock:
            descriptor = os.open(model, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir()
                yield unfinished
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
                os.close(descriptor)
