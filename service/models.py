"""Which revision each model serves: what the state says, what is loaded, and the swap from one to the other.

The pointer in the state names the active revision. Whatever it names is loaded first and swapped in second, by one
assignment, so that a request sees one revision from start to end and a revision that cannot be loaded never replaces
one that can. The revision before stays loaded until the next activation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import structlog

import bundle as bundles
from bundle import Bundle, BundleError, BundleLocation
from calibrators import CalibrationError
from calibrators import from_dict as calibrator_from_dict
from service.decisions.decide import SolvedPolicy
from service.decisions.policy import Policy
from service.errors import (
    BundleRefusedError,
    CandorError,
    ConfigurationError,
    NotReadyError,
    PolicyError,
    RevisionStateError,
    StateUnavailableError,
    UnknownModelError,
)
from service.inference.session import Session
from service.plane import Log, Plane, Served
from service.policy_files import read_policies
from service.revision import Revision
from service.settings import Settings
from service.solve import solve_on_reference
from service.state.database import Database, now_us
from service.state.revisions import Pointer, RevisionStore, Solution

logger = structlog.get_logger(__name__)

EVERY_ROW_SEEN = 0  # reference rows never become fresh again
NO_POINTER = Pointer(active="", previous=None, epoch=0)  # of a model that never was in service


@dataclass(eq=False)
class Model:
    """One model: its hot path, and what is loaded for it.

    Attributes:
        name: Name of the model.
        plane: Its hot path; `plane.served` is None while nothing is in service.
        pointer: What is in service, as the state named it; `NO_POINTER` where the state names nothing yet.
        loaded: Revisions that are ready to run, by id.
        problem: Why it does not serve what the state names, None when it does.
    """

    name: str
    plane: Plane
    pointer: Pointer
    loaded: dict[str, Served] = field(default_factory=dict)
    problem: str | None = None

    @property
    def served(self) -> Served:
        """The revision in service."""
        if self.plane.served is None:
            raise NotReadyError(
                f"Model {self.name} has no revision in service.", remedy="Wait until /readyz answers 200."
            )
        return self.plane.served


class Models:
    """The models of this process.

    Args:
        settings: Settings of the service.
        database: Open state.
        log: Handed to each model's plane.
    """

    def __init__(self, settings: Settings, database: Database, log: Log) -> None:
        self._settings = settings
        self._database = database
        self._store = RevisionStore(database)
        self._log = log
        self._models: dict[str, Model] = {}
        self._sessions: dict[str, tuple[Bundle, Session]] = {}
        self._swap = threading.RLock()
        self._seen_at = time.monotonic()

    def start(self) -> None:
        """Put every model into service: what the state names, or the newest bundle where the state is empty.

        A model that cannot be served keeps its problem, and the others are served.

        Raises:
            BundleRefusedError: No model can be served, and the first one's active or first bundle is damaged or gone.
            ConfigurationError: The folder of bundles cannot be read, or the folder of policies is not there.
            PolicyError: No model can be served, and a policy file of the first one cannot be used.
            RevisionStateError: No model can be served, and the first one's revision cannot be read.
        """
        folder = self._settings.policies
        if folder is not None and not folder.is_dir():
            raise ConfigurationError(
                f"There is no folder of policies {folder}.", where="CANDOR_POLICIES", expected="a folder"
            )
        pointers = self._store.pointers()
        locations: dict[str, list[BundleLocation]] = {}
        for location in self._find():
            locations.setdefault(location.model, []).append(location)
        failures = []
        for name in sorted({*pointers, *locations}):
            model = self._models[name] = Model(name, self._plane(), pointers.get(name, NO_POINTER))
            try:
                self._put_into_service(model, locations.get(name, []))
            except (BundleRefusedError, PolicyError, RevisionStateError) as error:
                failures.append(error)
                model.problem = str(error)
                logger.error("model not in service", model=name, error=str(error))
        if failures and not any(model.plane.served for model in self.all()):
            raise failures[0]

    def get(self, name: str | None) -> Model:
        """Return the model called `name`; without a name the default one.

        Raises:
            UnknownModelError: There is no such model, or no default among several.
        """
        wanted = name or self._settings.default_model
        if wanted is None and len(self._models) == 1:
            return next(iter(self._models.values()))
        if wanted is None or wanted not in self._models:
            raise UnknownModelError(
                f"There is no model {wanted!r}." if wanted else "There is no default model.",
                where="model",
                found=wanted,
                expected=sorted(self._models),
                remedy="Name one of these in the path, or set CANDOR_DEFAULT_MODEL."
                if self._models
                else f"Put a bundle into {self._settings.bundles} and restart.",
            )
        return self._models[wanted]

    def all(self) -> list[Model]:
        """Return every model, by name."""
        return [self._models[name] for name in sorted(self._models)]

    @property
    def stale_for_s(self) -> float:
        """Seconds since the state was last heard of."""
        return time.monotonic() - self._seen_at

    def problems(self) -> dict[str, str]:
        """Return why models do not serve what the state names; empty when all is well."""
        if not self._models:
            return {"models": f"no bundle in {self._settings.bundles}"}
        return {model.name: model.problem for model in self.all() if model.problem}

    def bundle(self, served: Served) -> Bundle:
        """Return the verified bundle behind a loaded revision."""
        return self._sessions[served.revision.bundle_id][0]

    def follow(self) -> None:
        """Load and swap in what the state names, where it has moved on. Keeps what is in service when that fails."""
        try:
            pointers = self._store.pointers()
        except StateUnavailableError as error:
            logger.warning("state unavailable", stale_for_s=round(self.stale_for_s, 1), error=str(error))
            return
        self._seen_at = time.monotonic()
        for name, pointer in pointers.items():
            model = self._models.get(name)
            if model is None or (pointer.epoch == model.pointer.epoch and model.problem is None):
                continue
            try:
                self._swap_in(model, pointer)
            except StateUnavailableError as error:
                logger.warning("state unavailable", model=name, error=str(error))
            except CandorError as error:
                model.problem = str(error)
                logger.error("revision not loaded", model=name, revision=pointer.active, error=str(error))
            except Exception as error:
                model.problem = f"Revision {pointer.active} cannot be loaded: {error}"
                logger.exception("revision not loaded", model=name, revision=pointer.active)

    def activate(
        self, name: str, revision_id: str, *, expected_epoch: int, by: str, reason: str | None = None
    ) -> Pointer:
        """Load a revision, point at it, swap it in.

        Raises:
            UnknownRevisionError: There is no such revision.
            EpochStaleError: The pointer has moved since `expected_epoch`.
            BundleRefusedError: Its bundle cannot be loaded; nothing has changed.
            RevisionStateError: It cannot be read, or is active already.
        """
        model = self.get(name)
        with self._swap, self._pruned(model):
            self._store.check_epoch(model.name, expected_epoch)
            self._load(model, self._store.get(model.name, revision_id))
            pointer = self._store.activate(model.name, revision_id, expected_epoch=expected_epoch, by=by, reason=reason)
            self._swap_in(model, pointer)
        return pointer

    def rollback(self, name: str, *, expected_epoch: int, by: str, reason: str | None = None) -> Pointer:
        """Point back at the revision before, and swap it in.

        Raises:
            RevisionStateError: There is no revision before.
            EpochStaleError: The pointer has moved since `expected_epoch`.
            BundleRefusedError: Its bundle cannot be loaded; nothing has changed.
        """
        model = self.get(name)
        with self._swap, self._pruned(model):
            self._store.check_epoch(model.name, expected_epoch)
            before = self._store.pointer(model.name)
            if before is not None and before.previous is not None:
                self._load(model, self._store.get(model.name, before.previous))
            pointer = self._store.rollback(model.name, expected_epoch=expected_epoch, by=by, reason=reason)
            self._swap_in(model, pointer)
        return pointer

    def propose_policy(self, name: str, policy: Policy, *, by: str) -> Revision:
        """Solve a new or changed policy on the reference rows of the bundle in service and keep it as a proposal.

        What has been solved with the calibrator in service is not solved again, since that would cost a look: a policy
        that is in force answers with the revision in service, one that waits with its proposal.

        Raises:
            PolicyError: It names an unknown label, or must fail and cannot be certified.
        """
        model = self.get(name)
        with self._database.locked(f"policies/{model.name}"):
            served = model.served
            if policy.id in served.policies and served.policies[policy.id].policy == policy:
                return served.revision
            known = self._solution(served.revision, policy)
            if known is not None and known.parent == served.revision.id and known.cause == "policy":
                return self._store.get(model.name, known.id)
            if known is not None:
                solved = SolvedPolicy.from_dict(known.policies[policy.id])
            else:
                bundle = self.bundle(served)
                policy.check_labels(bundle.manifest.labels)
                version = self._store.new_policy_version(model.name, policy.id)
                solved = self._solve(policy, version, bundle, served.revision.calibrator)
            return self._store.propose(
                model=model.name,
                bundle_id=served.revision.bundle_id,
                bundle_version=served.revision.bundle_version,
                model_digest=served.revision.model_digest,
                calibrator=served.revision.calibrator,
                policies={**served.revision.policies, policy.id: solved.to_dict()},
                parent=served.revision.id,
                cause="policy",
                by=by,
                gate="not_run",
                created_at=now_us(),
                report={"summary": f"Policy {policy.id}@{solved.version}, solved on the bundle's reference rows."},
            )

    def _solution(self, active: Revision, policy: Policy) -> Solution | None:
        """Return the newest revision in which this very policy is solved with the active bundle and calibrator."""
        wanted = policy.to_dict()
        for solution in self._store.solutions(active.model, active.bundle_id):
            solved = solution.policies.get(policy.id)
            if solved is not None and solved["policy"] == wanted and solution.calibrator == active.calibrator:
                return solution
        return None

    def close(self) -> None:
        """Finish what waits in every plane."""
        for model in self.all():
            model.plane.close()

    def _plane(self) -> Plane:
        settings = self._settings
        return Plane(
            self._log,
            max_batch_size=settings.max_batch_size,
            max_rows=settings.max_rows_per_request,
            max_queued_rows=settings.max_queued_rows,
            delay_s=settings.batch_delay_s,
        )

    def _put_into_service(self, model: Model, locations: list[BundleLocation]) -> None:
        """Load what the state names; where it names nothing, make a first revision, unless another replica has."""
        pointer = model.pointer
        if pointer == NO_POINTER:
            with self._database.locked(f"bundles/{model.name}"):
                pointer = self._store.pointer(model.name) or self._first_activation(locations[-1])
        self._swap_in(model, pointer)
        self._propose_new_bundles(model, locations)

    def _swap_in(self, model: Model, pointer: Pointer) -> None:
        with self._swap, self._pruned(model):
            if pointer.epoch < model.pointer.epoch:  # read before somebody else moved on
                return
            served = self._load(model, self._store.get(model.name, pointer.active))
            model.plane.served = served
            model.pointer = pointer
            model.problem = None
        logger.info("revision in service", model=model.name, revision=pointer.active, epoch=pointer.epoch)

    @contextmanager
    def _pruned(self, model: Model) -> Iterator[None]:
        """Let go, at the end, of what is loaded for neither the pointer's revision nor the one before."""
        try:
            yield
        finally:
            keep = {model.pointer.active, model.pointer.previous}
            model.loaded = {key: value for key, value in model.loaded.items() if key in keep}
            in_use = {served.revision.bundle_id for other in self.all() for served in other.loaded.values()}
            self._sessions = {key: value for key, value in self._sessions.items() if key in in_use}

    def _load(self, model: Model, revision: Revision) -> Served:
        """Make a revision ready, sharing the session with revisions of the same bundle."""
        if revision.id in model.loaded:
            return model.loaded[revision.id]
        if revision.bundle_id not in self._sessions:
            verified = self._verify(self._settings.bundles / revision.model / str(revision.bundle_version))
            if verified.id != revision.bundle_id:
                raise BundleRefusedError(
                    f"Bundle {verified.path} is not the one that revision {revision.id} was made from.",
                    where="manifest.json",
                    found=verified.id,
                    expected=revision.bundle_id,
                    remedy="Put the original folder back; a changed model belongs into a new version.",
                )
            self._open_session(verified)
        verified, session = self._sessions[revision.bundle_id]
        labels = verified.manifest.labels
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
        served = Served(revision, labels, verified.manifest.input, session, calibrator, policies)
        model.loaded[revision.id] = served
        return served

    def _find(self) -> list[BundleLocation]:
        try:
            return bundles.find(self._settings.bundles)
        except BundleError as error:
            raise ConfigurationError(
                str(error),
                where="CANDOR_BUNDLES",
                remedy="Let the service's user read the folder: chmod -R a+rX, or another owner.",
            ) from error

    def _verify(self, path: Path) -> Bundle:
        try:
            verified = bundles.verify(path)
        except BundleError as error:
            raise BundleRefusedError(
                f"Bundle {path} is refused: {error}",
                where=getattr(error, "file", None),
                remedy="Restore the folder from where it was exported; nothing in it may change.",
            ) from error
        manifest = verified.manifest
        if (path.parent.name, path.name) != (manifest.model, str(manifest.version)):
            raise BundleRefusedError(
                f"Bundle {path} is refused: its manifest names another model or version.",
                where="manifest.json",
                found=f"{manifest.model}/{manifest.version}",
                expected=f"{path.parent.name}/{path.name}",
                remedy="Move it to the folder that its manifest names.",
            )
        return verified

    def _open_session(self, verified: Bundle) -> Session:
        session = Session(verified, provider=self._settings.provider, threads=self._settings.threads)
        self._sessions[verified.id] = (verified, session)
        return session

    def _first_activation(self, location: BundleLocation) -> Pointer:
        verified = self._verify(location.path)
        self._open_session(verified)  # a bundle that fails its golden inputs must not become a revision
        name = location.model
        policies = read_policies(self._settings.policies, name, verified.manifest.labels)
        numbered = [(policy, self._store.new_policy_version(name, policy.id)) for policy in policies]
        first = self._propose_bundle(verified, numbered, parent=None)
        return self._store.activate(name, first.id, expected_epoch=None, by="start")

    def _propose_new_bundles(self, model: Model, locations: list[BundleLocation]) -> None:
        """Turn each bundle newer than the active one, and not yet known, into a proposal with the active policies."""
        active = model.served
        newer = [location for location in locations if location.version > active.revision.bundle_version]
        if not newer:
            return
        policies = [(solved.policy, solved.version) for solved in active.policies.values()]
        with self._database.locked(f"bundles/{model.name}"):
            known = self._store.bundle_versions(model.name)
            for location in newer:
                if location.version in known:
                    continue
                try:
                    verified = self._verify(location.path)
                    # Proven now, loaded when it is activated: a model that cannot run here is no proposal.
                    Session(verified, provider=self._settings.provider, threads=self._settings.threads)
                    revision = self._propose_bundle(verified, policies, parent=active.revision.id)
                    logger.info("new bundle proposed", model=model.name, version=location.version, revision=revision.id)
                except (BundleRefusedError, PolicyError) as error:
                    logger.error(
                        "new bundle not proposed", model=model.name, version=location.version, error=str(error)
                    )

    def _propose_bundle(self, verified: Bundle, policies: list[tuple[Policy, int]], parent: str | None) -> Revision:
        calibrator = verified.calibrator.to_dict()
        return self._store.propose(
            model=verified.manifest.model,
            bundle_id=verified.id,
            bundle_version=verified.manifest.version,
            model_digest=verified.model_digest,
            calibrator=calibrator,
            policies={
                policy.id: self._solve(policy, version, verified, calibrator).to_dict() for policy, version in policies
            },
            parent=parent,
            cause="bundle",
            by="start",
            gate="not_run",
            created_at=now_us(),
            report=verified.report,
        )

    def _solve(self, policy: Policy, version: int, verified: Bundle, calibrator: dict[str, object]) -> SolvedPolicy:
        policy.check_labels(verified.manifest.labels)
        # By the positive class, not by the policy: another id for the same promise is no fresh look.
        look = self._store.expose(
            verified.manifest.model,
            verified.model_digest,
            rows="certify",
            basis="reference",
            scope=policy.positive,
            earliest_row_us=EVERY_ROW_SEEN,
            at=now_us(),
        )
        return solve_on_reference(
            policy, version=version, bundle=verified, calibrator=calibrator_from_dict(calibrator), look=look
        )
