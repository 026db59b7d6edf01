"""Which revision each model serves: what the state says, what is loaded, and the swap from one to the other.

The pointer in the state names the active revision, and the desired state says whether the model should be served at
all. Whatever the pointer names is loaded first and swapped in second, by one assignment, so that a request sees one
revision from start to end and a revision that cannot be loaded never replaces one that can. The revision before stays
loaded until the next activation. A request that has its revision keeps it to its end, unloaded or not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from bundle import BundleLocation
from calibrators import Calibrator
from service.decisions.policy import Policy
from service.decisions.voided import overlaid
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
from service.inference.batcher import Arrivals
from service.loading import Loader
from service.plane import Log, Plane, Served
from service.proposals import Proposals
from service.revision import Revision
from service.settings import Settings
from service.state.database import Database
from service.state.desired import UNSAID, Desired, DesiredStore
from service.state.monitors import MonitorStore
from service.state.revisions import Pointer, RevisionStore

logger = structlog.get_logger(__name__)

# A revision that cannot be loaded is tried again after the poll interval, then twice that, and so on up to this.
LONGEST_RETRY_S = 30.0

NO_POINTER = Pointer(active="", previous=None, epoch=0)  # of a model that never was in service


@dataclass(frozen=True, slots=True)
class Failure:
    """A vain attempt to load what the state names.

    Attributes:
        epoch: Of the pointer that was followed.
        last_change: Of the model's folder of bundles, before the attempt.
        delay_s: How long nothing is tried unless one of the two changes.
        again_at: Until then, on the monotonic clock.
    """

    epoch: int
    last_change: int
    delay_s: float
    again_at: float


@dataclass(eq=False)
class Model:
    """One model: its hot path, and what is loaded for it.

    Attributes:
        name: Name of the model.
        plane: Its hot path; `plane.served` is None while nothing is in service.
        pointer: What is in service, as the state named it; `NO_POINTER` where the state names nothing yet.
        desired: Whether it should be served, as the state said last.
        loaded: Revisions that are ready to run, by id, with the certificates marked that an alarm has voided.
        voided: Keys of these certificates.
        problem: Why it does not serve what the state names, None when it does.
        damaged: Whether that is for its bundle.
        refused: Why bundles of its folder became no proposals when last tried, by version.
        failure: The last vain attempt to follow the state, None since one that was not.
    """

    name: str
    plane: Plane
    pointer: Pointer = NO_POINTER
    desired: Desired = UNSAID
    loaded: dict[str, Served] = field(default_factory=dict)
    voided: frozenset[str] = frozenset()
    problem: str | None = None
    failure: Failure | None = None
    damaged: bool = False
    refused: dict[int, str] = field(default_factory=dict)

    @property
    def refused_bundles(self) -> int:
        """How many of its bundles were refused when last tried; the one that it should serve among them."""
        return len(self.refused) + (self.problem is not None and self.damaged)

    @property
    def served(self) -> Served:
        """The revision in service."""
        served = self.plane.served
        if served is None:
            raise NotReadyError(
                f"Model {self.name} has no revision in service."
                if self.desired.loaded
                else f"Model {self.name} is unloaded.",
                remedy="Wait until /readyz answers 200."
                if self.desired.loaded
                else f"Load it: POST /v1/models/{self.name}/load",
            )
        return served


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
        self._desired = DesiredStore(database)
        self._monitors = MonitorStore(database)
        self._loader = Loader(settings)
        self._proposals = Proposals(settings, database, self._store, self._loader)
        self._log = log
        self._models: dict[str, Model] = {}
        self._arrivals = Arrivals()
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
        desired = self._desired.all()
        locations = self._loader.find()
        failures = []
        for name in sorted({*self._store.pointers(), *locations}):
            model = self._models[name] = self._new(name)
            model.desired = desired.get(name, UNSAID)
            if not model.desired.loaded:
                continue
            try:
                self._put_into_service(model, locations.get(name, []))
            except (BundleRefusedError, PolicyError, RevisionStateError) as error:
                failures.append(error)
                model.problem, model.damaged = str(error), isinstance(error, BundleRefusedError)
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
                else f"Put a bundle into {self._settings.bundles}, then POST /v1/models/<model>/load.",
            )
        return self._models[wanted]

    def all(self) -> list[Model]:
        """Return every model, by name."""
        return [self._models[name] for name in sorted(self._models)]

    def never_loaded(self) -> list[str]:
        """Return the names of models that have a bundle in the folder, and that nobody has loaded, by name.

        Raises:
            ConfigurationError: The folder cannot be read.
        """
        return sorted(self._loader.find().keys() - self._models.keys())

    @property
    def stale_for_s(self) -> float:
        """Seconds since the state was last heard of."""
        return time.monotonic() - self._seen_at

    def problems(self) -> dict[str, str]:
        """Return why models do not serve what the state names; empty when all is well."""
        if not self._models:
            return {"models": f"no bundle in {self._settings.bundles}"}
        problems = {model.name: model.problem for model in self.all() if model.problem}
        limit_s = self._settings.unready_after
        if limit_s is not None and (stale_for_s := self.stale_for_s) > limit_s:
            problems["state"] = f"The state has not been heard of for {stale_for_s:.0f} s, longer than {limit_s:g} s."
        return problems

    def follow(self) -> None:
        """Load and swap in what the state names, where it has moved on. Keeps what is in service when that fails."""
        try:
            pointers, desired = self._store.pointers(), self._desired.all()
            voided = self._monitors.voided()
        except StateUnavailableError as error:
            logger.warning("state unavailable", stale_for_s=round(self.stale_for_s, 1), error=str(error))
            return
        self._seen_at = time.monotonic()
        for name, pointer in pointers.items():
            with self._swap:
                if name not in self._models:  # loaded on another replica
                    self._models[name] = self._new(name)
                model = self._models[name]
            # Before the attempt: what changes during it is tried anew.
            changed = 0 if model.problem is None and model.failure is None else self._loader.last_change(name)
            try:
                self._follow(model, pointer, desired.get(name, UNSAID), changed)
                self._void(model, voided.get(name, frozenset()))
            except StateUnavailableError as error:
                logger.warning("state unavailable", model=name, error=str(error))
            except CandorError as error:
                self._failed(model, pointer, changed)
                model.problem, model.damaged = str(error), isinstance(error, BundleRefusedError)
                logger.error("revision not loaded", model=name, revision=pointer.active, error=str(error))
            except Exception as error:
                self._failed(model, pointer, changed)
                model.problem, model.damaged = f"Revision {pointer.active} cannot be loaded: {error}", False
                logger.exception("revision not loaded", model=name, revision=pointer.active)

    def load(self, name: str, *, by: str) -> dict[int, str]:
        """Serve a model, on every replica: what the state names, or its newest bundle where the state names nothing.

        Bundles that were added since become proposals, as at a start; of a model that is served, nothing else changes.

        Args:
            name: The model.
            by: Who wants it, for the audit log.

        Returns:
            Why newer bundles became no proposals, by version; empty when all is well.

        Raises:
            UnknownModelError: Neither the state nor the folder of bundles has such a model.
            BundleRefusedError: Its bundle is damaged, gone, or cannot run here; nothing has changed.
            PolicyError: One of its policy files cannot be used; nothing has changed.
            RevisionStateError: Its revision cannot be read; nothing has changed.
        """
        with self._swap:
            locations = self._loader.find().get(name, [])
            model = self._models.get(name)
            if model is None and not locations:
                raise UnknownModelError(
                    f"There is no model {name!r}.",
                    where="model",
                    found=name,
                    expected=sorted(self._models),
                    remedy=f"Put its bundle into {self._settings.bundles / name} first.",
                )
            new = model is None
            model = model or self._new(name)
            try:
                refused = self._put_into_service(model, locations)
            except BaseException:
                if new:
                    model.plane.close()
                raise
            self._models[name] = model
            model.desired = self._desired.set(name, loaded=True, by=by)
        return refused

    def unload(self, name: str, *, by: str) -> None:
        """Serve a model no longer, on any replica; what it has taken on is answered. Its state stays as it is.

        Args:
            name: The model.
            by: Who wants it, for the audit log.

        Raises:
            UnknownModelError: There is no such model.
        """
        model = self.get(name)
        with self._swap:
            model.desired = self._desired.set(model.name, loaded=False, by=by)
            self._take_out(model)

    def activate(
        self, name: str, revision_id: str, *, expected_epoch: int, by: str, reason: str | None = None
    ) -> Pointer:
        """Load a revision, point at it, swap it in.

        Raises:
            UnknownRevisionError: There is no such revision.
            EpochStaleError: The pointer has moved since `expected_epoch`.
            BundleRefusedError: Its bundle cannot be loaded; nothing has changed.
            RevisionStateError: It cannot be read, or is active already, or the model is unloaded.
        """
        model = self.get(name)
        with self._swap, self._pruned(model):
            _check_loaded(model)
            self._store.check_epoch(model.name, expected_epoch)
            self._load(model, self._store.get(model.name, revision_id))
            pointer = self._store.activate(model.name, revision_id, expected_epoch=expected_epoch, by=by, reason=reason)
            self._swap_in(model, pointer)
        return pointer

    def rollback(self, name: str, *, expected_epoch: int, by: str, reason: str | None = None) -> Pointer:
        """Point back at the revision before, and swap it in.

        Raises:
            RevisionStateError: There is no revision before, or the model is unloaded.
            EpochStaleError: The pointer has moved since `expected_epoch`.
            BundleRefusedError: Its bundle cannot be loaded; nothing has changed.
        """
        model = self.get(name)
        with self._swap, self._pruned(model):
            _check_loaded(model)
            self._store.check_epoch(model.name, expected_epoch)
            before = self._store.pointer(model.name)
            if before is not None and before.previous is not None:
                self._load(model, self._store.get(model.name, before.previous))
            pointer = self._store.rollback(model.name, expected_epoch=expected_epoch, by=by, reason=reason)
            self._swap_in(model, pointer)
        return pointer

    def propose_policy(self, name: str, policy: Policy, *, by: str, by_key: str | None = None) -> Revision:
        """Keep a new or changed policy as a proposal, solved with the revision in service; see `Proposals.of_policy`.

        Raises:
            NotReadyError: Nothing is in service.
            PolicyError: It names an unknown label, or must fail and cannot be certified.
        """
        model = self.get(name)
        with self._database.locked(f"policies/{model.name}"):
            return self._proposals.of_policy(model.served, policy, by=by, by_key=by_key)

    def propose_prior_shift(
        self,
        name: str,
        served: Served,
        shifted: Calibrator,
        report: dict[str, Any],
        *,
        by: str,
        by_key: str | None = None,
    ) -> Revision:
        """Keep a calibrator for other shares of the classes as a proposal; see `Proposals.of_prior_shift`.

        Raises:
            PolicyError: A policy must be certified or fail, and cannot be certified.
        """
        with self._database.locked(f"policies/{name}"):
            return self._proposals.of_prior_shift(served, shifted, report, by=by, by_key=by_key)

    def close(self) -> None:
        """Finish what waits in every plane."""
        for model in self.all():
            model.plane.close()

    def _new(self, name: str) -> Model:
        settings = self._settings
        plane = Plane(
            self._log,
            max_batch_size=settings.max_batch_size,
            max_rows=settings.max_rows_per_request,
            max_queued_rows=settings.max_queued_rows,
            delay_s=settings.batch_delay_s,
            arrivals=self._arrivals,
        )
        return Model(name, plane)

    def _put_into_service(self, model: Model, locations: Sequence[BundleLocation]) -> dict[int, str]:
        """Load what the state names, or a first revision; propose newer bundles, and return why some were refused."""
        with self._pruned(model):  # a first revision that cannot be made leaves the session that proved its bundle
            pointer = self._store.pointer(model.name)
            if pointer is None:
                pointer = self._proposals.first(locations[-1])
            self._swap_in(model, pointer)
        model.refused = self._proposals.of_new_bundles(model.served, locations)
        return model.refused

    def _follow(self, model: Model, pointer: Pointer, desired: Desired, changed: int) -> None:
        with self._swap:
            if desired.change > model.desired.change:
                model.failure = None
            if desired.change >= model.desired.change:  # else read before somebody changed it
                model.desired = desired
            if not model.desired.loaded:
                self._take_out(model)
            elif _in_vain(model.failure, pointer, changed):
                return
            elif pointer.epoch != model.pointer.epoch or model.plane.served is None or model.problem is not None:
                self._swap_in(model, pointer)

    def _failed(self, model: Model, pointer: Pointer, changed: int) -> None:
        """Note that following the pointer failed: a bundle is verified from its first byte to its last each time."""
        before = model.failure
        delay_s = self._settings.poll_interval_s
        if before is not None and (before.epoch, before.last_change) == (pointer.epoch, changed):
            delay_s = min(2 * before.delay_s, LONGEST_RETRY_S)
        model.failure = Failure(pointer.epoch, changed, delay_s, time.monotonic() + delay_s)

    def _take_out(self, model: Model) -> None:
        if model.plane.served is None and not model.loaded:
            return
        model.plane.served = None
        model.loaded = {}
        model.problem = model.failure = None
        self._let_go(model)
        logger.info("model unloaded", model=model.name)

    def _swap_in(self, model: Model, pointer: Pointer) -> None:
        with self._swap, self._pruned(model):
            if pointer.epoch < model.pointer.epoch:  # read before somebody else moved on
                return
            served = self._load(model, self._store.get(model.name, pointer.active))
            model.plane.served = served
            model.pointer = pointer
            model.problem = model.failure = None
        logger.info("revision in service", model=model.name, revision=pointer.active, epoch=pointer.epoch)

    def _load(self, model: Model, revision: Revision) -> Served:
        self._void(model, self._monitors.voided().get(model.name, frozenset()))
        if revision.id not in model.loaded:
            model.loaded[revision.id] = _marked(self._loader.serve(revision), model.voided)
        return model.loaded[revision.id]

    def _void(self, model: Model, voided: frozenset[str]) -> None:
        """Mark certificates that an alarm has voided, in all that is loaded: what is void stays so."""
        with self._swap:
            if voided <= model.voided:
                return
            model.voided |= voided
            model.loaded = {key: _marked(served, model.voided) for key, served in model.loaded.items()}
            served = model.plane.served
            if served is not None:
                model.plane.served = model.loaded.get(served.revision.id, served)
        logger.warning("certificates voided", model=model.name, voided=len(voided))

    @contextmanager
    def _pruned(self, model: Model) -> Iterator[None]:
        """Let go, at the end, of what is loaded for neither the pointer's revision nor the one before."""
        try:
            yield
        finally:
            keep = {model.pointer.active, model.pointer.previous}
            model.loaded = {key: value for key, value in model.loaded.items() if key in keep}
            self._let_go(model)

    def _let_go(self, changed: Model) -> None:
        """Close the sessions of bundles that no loaded revision needs; `changed` may not be among the models yet."""
        models = {*self.all(), changed}
        self._loader.keep_only({served.revision.bundle_id for model in models for served in model.loaded.values()})


def _marked(served: Served, voided: frozenset[str]) -> Served:
    """Return a revision that is ready to run with its voided certificates marked, itself where it has none."""
    policies = overlaid(served.policies, served.revision.model_digest, voided)
    return served if policies is served.policies else replace(served, policies=policies)


def _in_vain(failure: Failure | None, pointer: Pointer, changed: int) -> bool:
    """Return whether to follow the pointer now would only fail again."""
    return (
        failure is not None
        and (failure.epoch, failure.last_change) == (pointer.epoch, changed)
        and time.monotonic() < failure.again_at
    )


def _check_loaded(model: Model) -> None:
    if not model.desired.loaded:
        raise RevisionStateError(
            f"Model {model.name} is unloaded.",
            where="model",
            found="unloaded",
            expected="loaded",
            remedy=f"Load it first: POST /v1/models/{model.name}/load",
        )
