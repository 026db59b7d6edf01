"""Find, verify and open bundles; all revisions of a bundle share its session."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

import bundle as bundles
from bundle import Bundle, BundleError, BundleLocation
from bundle.locations import is_single
from bundle.manifest import MODEL_FILE
from bundle.processors import whole_cpus
from bundle.reader import read_manifest
from calibrators import CalibrationError, Calibrator
from service.decisions.multicalibrated import probabilities_of
from service.decisions.revision import Revision
from service.errors import BundleRefusedError, ConfigurationError, RevisionStateError
from service.inference.chain import Chain
from service.inference.cuda import cuda
from service.inference.inputs import specification
from service.inference.providers import resolve_provider
from service.inference.runtimes import Runtime, open_runtime
from service.inference.session import Session
from service.serving.copies import Copies
from service.serving.mirror import Mirror
from service.serving.plane import Served
from service.serving.proof import NICE, Proofs
from service.serving.sampling import Sample
from service.serving.verification import bundle_of, trusted_keys, verified_in_place
from service.settings import Settings
from service.state.row_cells import RowCells

logger = structlog.get_logger(__name__)


class Loader:
    """Opens the bundles of the service's folder and keeps their sessions until `keep_only` drops them.

    Args:
        settings: Names the folder, the provider and its threads.

    Raises:
        ConfigurationError: The configured provider is not available on this machine, or a trusted key cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._provider = resolve_provider(settings.provider)
        if settings.provider == "auto" and self._provider == "cpu" and cuda().built_for is not None:
            logger.warning("models run on the CPU", reason=cuda().problem, remedy=cuda().remedy)
        self._trusted = trusted_keys(settings.trusted_keys)
        self._threads = settings.threads or whole_cpus()
        reference = settings.bundle_reference
        self._folder = settings.bundle_folder
        self._pinned = reference.sha256
        self._mirror = Mirror(reference.address, self._folder) if reference.is_url else None
        self._copies = Copies(settings.bundle_cache, settings.bundle_cache_days, settings.bundle_cache_bytes)
        self._options: dict[str, Any] = {
            "provider": self._provider,
            "threads": self._threads,
            "max_batch_size": settings.max_batch_size,
            "gpu_memory_bytes": settings.gpu_memory_bytes,
            "run_timeout_s": settings.run_timeout_s,
        }
        self._proofs = Proofs(settings.proof_timeout_s, settings.proof_memory_bytes, self._options)
        self._opened: dict[str, tuple[Bundle, Runtime]] = {}
        self._samples: dict[str, Sample] = {}

    @property
    def opened(self) -> frozenset[str]:
        """Ids of the bundles whose sessions are kept."""
        return frozenset(self._opened)

    @property
    def problem(self) -> str | None:
        """Why the remote folder of bundles could not be listed the last time; None if it could, or is local."""
        return None if self._mirror is None else self._mirror.problem

    def refresh(self) -> None:
        """List the remote folder of bundles, if it is remote; see `problem`.

        Raises:
            ConfigurationError: It is a single bundle with a damaged manifest.
        """
        if self._mirror is None:
            return
        try:
            self._mirror.refresh()
        except BundleError as error:
            raise ConfigurationError(str(error), where="CANDOR_BUNDLES", remedy="Upload the bundle again.") from error
        if self._mirror.problem is not None:
            logger.error("remote bundles not listed", error=self._mirror.problem)

    def find(self) -> dict[str, list[BundleLocation]]:
        """Return the folders of bundles by model, older versions first.

        Raises:
            ConfigurationError: The folder cannot be read.
        """
        try:
            found = bundles.find(self._folder) if self._mirror is None else self._mirror.locations()
        except BundleError as error:
            raise ConfigurationError(
                str(error),
                where="CANDOR_BUNDLES",
                remedy="Grant the service's user read access (chmod -R a+rX); copy a damaged bundle again.",
            ) from error
        locations: dict[str, list[BundleLocation]] = {}
        for location in found:
            locations.setdefault(location.model, []).append(location)
        return locations

    def last_change(self, model: str) -> int:
        """Return when a model's folder of bundles last changed, in ns since the epoch; 0 without a folder."""
        if self._mirror is not None:  # its copies change with each attempt
            return 0
        root = self._folder
        folder = root if is_single(root) else root / model
        try:  # inode change times: a restored back-up keeps the old modification times
            return max(path.stat().st_ctime_ns for path in (folder, *folder.glob("*"), *folder.glob("*/*")))
        except OSError:
            return 0

    def prove(self, location: BundleLocation, *, keep: bool = False) -> Bundle:
        """Return the bundle at a location, verified: complete, in its place, its golden logits reproduced here.

        Args:
            location: Where it is.
            keep: Whether to keep the session because a revision of this bundle is served next.

        Raises:
            BundleRefusedError: The bundle fails verification.
            BundleUnreachableError: It is remote and cannot be copied.
        """
        found = self._copied(location, lambda: verified_in_place(location, self._trusted))
        if self._mirror is not None:
            self._mirror.check_unchanged(found)
        session = self._session(found)
        if keep:
            self._opened[found.id] = found, session
        return found

    def prove_apart(self, location: BundleLocation, until: float = math.inf) -> Bundle:
        """Return the bundle at a location as `prove`, with its model run in another process, within limits.

        Args:
            location: Where it is.
            until: Monotonic time in seconds at which the proof ends at the latest.

        Raises:
            BundleRefusedError: The bundle fails verification, or its proof takes too much time or memory.
            BundleUnreachableError: It is remote and cannot be copied.
        """
        found = self._copied(location, lambda: verified_in_place(location, self._trusted))
        if self._mirror is not None:
            self._mirror.check_unchanged(found)
        if found.manifest.model_file == MODEL_FILE:
            self._proofs.run(found, until)
        else:
            self._session(found)
        return found

    def started(self) -> None:
        """Let predictions go before later proofs."""
        self._proofs.nice = NICE

    def open(self, revision: Revision) -> None:
        """Open a revision's bundle, so that `serve` is quick. It needs no lock, and fails as `serve` does."""
        if revision.bundle_id not in self._opened:
            found = self.read(revision)
            opened = found, self._session(found)
            self._opened.setdefault(found.id, opened)  # of now: `keep_only` may have run since

    def read(self, revision: Revision) -> Bundle:
        """Return a revision's bundle as it is in its folder now, verified.

        Raises:
            BundleRefusedError: It is damaged, missing or a different one.
            BundleUnreachableError: It is remote and cannot be copied.
        """
        location = bundles.locate(self._folder, revision.model, revision.bundle_version)
        return self._copied(location, lambda: bundle_of(self._folder, revision, self._trusted))

    def close(self) -> None:
        """End the proofs that run."""
        self._proofs.close()

    def serve(self, revision: Revision) -> Served:
        """Load a revision, with the session that other revisions of its bundle use.

        Raises:
            BundleRefusedError: Its bundle is damaged, missing or a different one.
            BundleUnreachableError: Its bundle is remote and cannot be copied.
            RevisionStateError: Its calibrator does not fit the model.
        """
        self.open(revision)
        found, session = self._opened[revision.bundle_id]
        labels = found.manifest.labels
        with_inputs = None
        if (cells := RowCells.of(found, revision.calibrator)) is not None:
            check_inputs_kept(self._settings)
            with_inputs = partial(_with_inputs, revision.calibrator, cells)
        try:
            # The first call also makes what some calibrators need for few rows: 0.3 s for millions of points.
            blank = None if cells is None else cells.of_inputs(found.golden.inputs[:1])
            probabilities_of(revision.calibrator, np.zeros((1, len(labels)), dtype=np.float32), blank)
        except (CalibrationError, LookupError, TypeError, ValueError) as error:
            raise RevisionStateError(
                f"Revision {revision.id} of {revision.model} cannot be loaded: {error!r}",
                where=revision.id,
                expected=f"a calibrator of {len(labels)} classes",
            ) from error
        encoder = found.vocabulary or found.tokenizer or found.columns or found.scores
        return Served(
            revision,
            found,
            labels,
            found.manifest.input,
            session,
            Chain(session, revision.calibrator, with_inputs),
            revision.calibrator,
            revision.policies,
            specification(found),
            encoder,
            self._sample(found),
        )

    def labels(self, revision: Revision) -> Sequence[str] | None:
        """Return the labels in the manifest of a revision's bundle, unverified; None if only `serve` can tell."""
        if revision.bundle_id in self._opened:
            return self._opened[revision.bundle_id][0].manifest.labels
        location = bundles.locate(self._folder, revision.model, revision.bundle_version)
        try:
            return read_manifest(location.path).labels
        except BundleError:
            return None

    def keep_only(self, bundle_ids: Collection[str]) -> None:
        """Drop all other sessions; each closes after its last request."""
        self._opened = {key: opened for key, opened in self._opened.items() if key in bundle_ids}
        self._samples = {key: sample for key, sample in self._samples.items() if key in bundle_ids}

    def _sample(self, found: Bundle) -> Sample | None:
        """Return the sample that all revisions of a bundle share; None where input drift is not tested."""
        if found.profile is None or not self._settings.drift_window_s:
            return None
        return self._samples.setdefault(found.id, Sample(found.manifest.input))

    def prune(self, needed: Collection[tuple[str, int]]) -> None:
        """Remove old copies of remote bundles, but none that is needed; see `Copies.prune`.

        Args:
            needed: Model and version of each bundle that this service may open again.
        """
        self._copies.prune({bundles.locate(self._folder, *each).path for each in needed})

    def _copied(self, location: BundleLocation, verify: Callable[[], Bundle]) -> Bundle:
        """Return the verified bundle; a remote one is copied first if its copy is missing or fails."""
        if self._mirror is None:
            found = verify()
        else:
            try:
                with self._copies.reading(location.path):
                    found = verify()
            except BundleRefusedError:
                found = self._mirror.fetch(location, verify)
        if self._pinned not in (None, found.id):
            raise BundleRefusedError(
                f"Bundle {location.model}/{location.version} differs from the digest that CANDOR_BUNDLES is pinned to.",
                where="manifest.json",
                found=found.id,
                expected=self._pinned,
            )
        return found

    def _session(self, found: Bundle) -> Runtime:
        """Open a bundle's model; the labels of a multi-label model share one session of their file."""
        like = None
        if found.manifest.label_of is not None:
            opened = (other for each, other in list(self._opened.values()) if each.model_digest == found.model_digest)
            like = next((other for other in opened if isinstance(other, Session) and not other.bound), None)
        return open_runtime(found, **self._options, like=like)


def _with_inputs(
    calibrator: Calibrator, cells: RowCells, logits: NDArray[np.float32], inputs: NDArray[Any]
) -> NDArray[np.float32]:
    return probabilities_of(calibrator, logits, cells.of_inputs(inputs))


def check_inputs_kept(settings: Settings) -> None:
    """Raise RevisionStateError where a calibrator that reads columns would find none in logged rows."""
    if settings.log_mode == "off":
        return
    if settings.keep_inputs != "all":
        raise RevisionStateError(
            "The calibrator `multicalibration` reads columns, which logged rows have only with CANDOR_KEEP_INPUTS=all.",
            where="CANDOR_KEEP_INPUTS",
            found=settings.keep_inputs,
            expected="all",
            remedy="Set it for the whole service, or use another calibrator.",
        )
    if settings.inputs_days is not None and settings.inputs_days * 86_400 <= settings.monitor_maturity_s:
        raise RevisionStateError(
            "The calibrator `multicalibration` reads columns, and inputs are deleted before monitors count their rows.",
            where="CANDOR_INPUTS_DAYS",
            found=settings.inputs_days,
            expected=f"more than CANDOR_MONITOR_MATURITY_S, {settings.monitor_maturity_s / 86_400:g} days",
            remedy="Keep inputs longer, or use another calibrator.",
        )
