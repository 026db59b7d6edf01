"""From a revision to what runs it: bundles found, verified and opened, each once for all revisions made from it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import structlog

import bundle as bundles
from bundle import Bundle, BundleError, BundleLocation
from calibrators import CalibrationError
from calibrators import from_dict as calibrator_from_dict
from service.decisions.solved import SolvedPolicy
from service.errors import ConfigurationError, PolicyError, RevisionStateError
from service.inference.chain import Chain
from service.inference.cuda import cuda
from service.inference.inputs import specification
from service.inference.providers import resolve_provider
from service.inference.session import Session
from service.inference.threads import inference_threads
from service.plane import Served
from service.revision import Revision
from service.settings import Settings
from service.verified import bundle_of, verified_in_place

logger = structlog.get_logger(__name__)


class Loader:
    """Opens the bundles of the service's folder and keeps their sessions as long as it is told to.

    Args:
        settings: Names the folder, the provider and its threads.

    Raises:
        ConfigurationError: The provider that was asked for cannot be used here.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._provider = resolve_provider(settings.provider)
        if settings.provider == "auto" and self._provider == "cpu" and cuda().built_for is not None:
            logger.warning("models run on the CPU", reason=cuda().problem, remedy=cuda().remedy)
        self._threads = inference_threads(settings.threads)
        self._opened: dict[str, tuple[Bundle, Session]] = {}

    @property
    def opened(self) -> frozenset[str]:
        """Ids of the bundles whose sessions are kept."""
        return frozenset(self._opened)

    def find(self) -> dict[str, list[BundleLocation]]:
        """Return where bundles lie, by model, older versions first.

        Raises:
            ConfigurationError: The folder cannot be read.
        """
        try:
            found = bundles.find(self._settings.bundles)
        except BundleError as error:
            raise ConfigurationError(
                str(error),
                where="CANDOR_BUNDLES",
                remedy="Let the service's user read the folder: chmod -R a+rX, or another owner.",
            ) from error
        locations: dict[str, list[BundleLocation]] = {}
        for location in found:
            locations.setdefault(location.model, []).append(location)
        return locations

    def last_change(self, model: str) -> int:
        """Return when something last changed in a model's folder of bundles, in ns since the epoch; 0 if none is there.

        Of the inodes: the times of the files may be those of a back-up that was put back.
        """
        folder = self._settings.bundles / model
        try:
            return max(path.stat().st_ctime_ns for path in (folder, *folder.glob("*"), *folder.glob("*/*")))
        except OSError:
            return 0

    def prove(self, path: Path, *, keep: bool = False) -> Bundle:
        """Return a bundle that is whole, where it belongs, and gives its golden logits here.

        Args:
            path: Its folder.
            keep: Whether a revision made from it will be served at once, with the session that proves it.

        Raises:
            BundleRefusedError: It is not.
        """
        found = verified_in_place(path)
        session = self._session(found)
        if keep:
            self._opened[found.id] = found, session
        return found

    def serve(self, revision: Revision) -> Served:
        """Make a revision ready to run, with the session that other revisions of its bundle use.

        Raises:
            BundleRefusedError: Its bundle is damaged, gone or another one.
            RevisionStateError: Its calibrator or a policy cannot be read.
        """
        if revision.bundle_id not in self._opened:
            found = bundle_of(self._settings.bundles, revision)
            self._opened[found.id] = found, self._session(found)
        found, session = self._opened[revision.bundle_id]
        labels = found.manifest.labels
        try:
            calibrator = calibrator_from_dict(revision.calibrator)
            calibrator.predict_proba(np.zeros((1, len(labels)), dtype=np.float32))
            policies = {key: SolvedPolicy.from_dict(document) for key, document in revision.policies.items()}
        except (CalibrationError, PolicyError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise RevisionStateError(
                f"Revision {revision.id} of {revision.model} cannot be loaded: {error!r}",
                where=revision.id,
                remedy="If a newer version of the service made it, update this one.",
            ) from error
        encoder = found.vocabulary or found.columns
        return Served(
            revision,
            found,
            labels,
            found.manifest.input,
            session,
            Chain(session, calibrator),
            calibrator,
            policies,
            specification(found),
            encoder,
        )

    def keep_only(self, bundle_ids: Collection[str]) -> None:
        """Let all other sessions go; each ends with the last request that it answers."""
        self._opened = {key: opened for key, opened in self._opened.items() if key in bundle_ids}

    def _session(self, found: Bundle) -> Session:
        return Session(
            found,
            provider=self._provider,
            threads=self._threads,
            max_batch_size=self._settings.max_batch_size,
            gpu_memory_bytes=self._settings.gpu_memory_bytes,
        )
