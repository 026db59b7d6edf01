"""All models of the process and the revision each one serves.

The pointer in the state names the active revision; the desired state says whether to serve the model. A revision is
loaded first, then swapped in by one assignment, so a revision that fails to load never replaces a working one. The
previous revision stays loaded until the next activation. A request keeps its revision to the end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from typing import Any

import structlog

from bundle import BundleLocation
from calibrators import Calibrator
from candor.contract.policies import Policy
from service.decisions.revision import Revision
from service.errors import (
    BundleRefusedError,
    BundleUnreachableError,
    CandorError,
    PolicyError,
    RevisionStateError,
    StateUnavailableError,
    UnknownModelError,
    UpstreamError,
    UpstreamRejectedError,
    for_clients,
)
from service.inference.batcher import LoopThread
from service.others import FOLLOW, Alone, Others
from service.serving.loading import Loader
from service.serving.model import NO_POINTER, Beside, Model
from service.serving.multilabels import MultiLabels
from service.serving.plane import Log, Plane, Served
from service.serving.policy_files import not_in_force
from service.serving.proposals import NewBundles, Proposals
from service.serving.swap import Swap
from service.settings import Settings
from service.state.challengers import ChallengerStore
from service.state.database import Database
from service.state.desired import UNSAID, Desired, DesiredStore
from service.state.guards import Watch
from service.state.monitors import MonitorStore
from service.state.pointers import Pointer
from service.state.revisions import RevisionStore
from service.state.traffic import Traffic

logger = structlog.get_logger(__name__)

_PRUNE_S = 3600.0
_MOST_FILES = 20
_FAILURES = (
    BundleRefusedError,
    BundleUnreachableError,
    PolicyError,
    RevisionStateError,
    UpstreamRejectedError,
)


class Models:
    """The models of this process.

    Args:
        settings: Settings of the service.
        database: Open state.
        log: Handed to each model's plane.
        others: Processes that must serve what this one activates.

    Attributes:
        traffic: Counts their predictions.
        multilabels: The multi-label models that some of them are labels of.
        state_problem: Why the state could not be read the last time; what is served stays.
        unwritable: Why the state, which can be read, could not be written the last time; the service is not ready then.
    """

    def __init__(self, settings: Settings, database: Database, log: Log, others: Others | None = None) -> None:
        self._settings = settings
        self._database = database
        self._store = RevisionStore(database)
        self._desired = DesiredStore(database)
        self._monitors = MonitorStore(database)
        self._challengers = ChallengerStore(database)
        self._loader = Loader(settings)
        self.traffic = Traffic(database, settings.log_sample)
        self._proposals = Proposals(settings, database, self._store, self._loader, self.traffic)
        self._log = log
        self._others = others or Alone()
        self._models: dict[str, Model] = {}
        self._limits: dict[str, Any] = {
            "max_batch_size": settings.max_batch_size,
            "max_rows": settings.max_rows_per_request,
            "max_queued_rows": settings.max_queued_rows,
            "delay_s": settings.batch_delay_s,
            "loop_thread": LoopThread(),
        }
        self.multilabels = MultiLabels(self._models, self._limits)
        self._swap = Swap(self._store, self._monitors, self._loader, self._models, log_gap=settings.log_gap)
        self._seen_at = self._pruned_at = time.monotonic()
        self.state_problem: str | None = None
        self.unwritable: str | None = None

    def start(self) -> None:
        """Load every model: its active revision, or its newest bundle if it has none.

        A model that fails keeps its problem; the others are served. If all fail, the first error is raised, unless it
        is about a server elsewhere, which `follow` tries again. Then one process of the service proposes newer bundles,
        in no more time than the proof of one may take.

        Raises:
            BundleRefusedError: A bundle is damaged or missing.
            BundleUnreachableError: No bundle can be copied from the remote folder, and none was before.
            ConfigurationError: The folder of bundles or of policies cannot be read.
            PolicyError: A policy file cannot be used.
            RevisionStateError: A revision cannot be read.
        """
        desired = self._desired.all()
        self._loader.refresh()
        locations = self._loader.find()
        failures = []
        old = set(self._store.pointers())
        for name in filter(self._is_ours, sorted({*old, *locations})):
            model = self._models[name] = self._new(name)
            model.desired = desired.get(name, UNSAID)
            self._swap.expect(model, self._challengers.of(name))
            if not model.desired.loaded:
                continue
            try:
                self._serve(model, locations.get(name, []), apart=True)
            except UpstreamError as error:
                model.failed(model.pointer, 0, first_delay_s=self._settings.poll_interval_s)
                model.problem = str(error)
                logger.error("model not served yet", model=name, error=str(error), found=error.found)
            except _FAILURES as error:
                failures.append(error)
                model.problem, model.damaged = str(error), isinstance(error, BundleRefusedError)
                logger.error("model not served", model=name, error=str(error), found=error.found)
        self._prune_copies()
        if self._others.first:
            self._name_unused_policies({*old, *locations}, old)
        if failures and not any(model.plane.served for model in self.all()):
            raise failures[0]
        if not self._models and (unreachable := self._loader.problem) is not None:
            raise BundleUnreachableError(f"No bundle can be served: {unreachable}", where="CANDOR_BUNDLES")
        if self._others.first:
            self._propose_all(locations)
        self._loader.started()

    @property
    def default(self) -> str | None:
        """Name of the model that is meant where none is named; None if there are several and no setting names one."""
        return self._settings.default_model or (next(iter(self._models)) if len(self._models) == 1 else None)

    def get(self, name: str | None) -> Model:
        """Return the model called `name`; without a name, the default model.

        Raises:
            UnknownModelError: The model does not exist, or several do and none is the default.
        """
        wanted = name or self.default
        if wanted is None or wanted not in self._models:
            raise UnknownModelError(
                f"Unknown model {wanted!r}." if wanted else "No default model.",
                where="model",
                found=wanted,
                expected=sorted(self._models),
                remedy=f"{wanted} is a multi-label model: predict at /v1/multilabel/{wanted}/predict, or name the "
                f"model of one label: {', '.join(sorted(model.name for model in labels))}."
                if wanted and (labels := self.multilabels.labels_of(wanted))
                else "Name one of these, or set CANDOR_DEFAULT_MODEL."
                if self._models
                else f"Put a bundle into {self._settings.bundles}, then POST /v1/models/<model>/load.",
            )
        return self._models[wanted]

    def all(self) -> list[Model]:
        """Return every model, by name."""
        return [self._models[name] for name in sorted(self._models)]

    def never_loaded(self) -> list[str]:
        """Return the names of models in the folder of bundles that are not loaded, in order.

        Raises:
            ConfigurationError: The folder cannot be read.
        """
        return sorted(filter(self._is_ours, self._loader.find().keys() - self._models.keys()))

    @property
    def stale_for_s(self) -> float:
        """Seconds since the last database contact."""
        return time.monotonic() - self._seen_at

    def problems(self) -> dict[str, str]:
        """Return why models do not serve their active revisions, by name; empty if all do."""
        wanted = self._settings.models or ()
        if not self._models and not wanted:
            return {"models": f"no bundle in {self._settings.bundles}"}
        problems = {name: f"no bundle in {self._settings.bundles}" for name in wanted if name not in self._models}
        problems |= {model.name: model.problem for model in self.all() if model.problem}
        if self.unwritable is not None:
            problems["state"] = self.unwritable
        limit_s = self._settings.unready_after
        if limit_s is not None and (stale_for_s := self.stale_for_s) > limit_s:
            problems["state"] = f"No database contact for {stale_for_s:.0f} s, longer than {limit_s:g} s."
        return problems

    def condition(self) -> dict[str, Any]:
        """Return what this process serves, and why it does not serve what it should, as JSON-able values."""
        return {
            "models": {model.name: model.plane.served and model.plane.served.revision.id for model in self.all()},
            "problems": self.problems(),
            "bundles": self.bundles_problem,
            "state": self.state_problem,
            "stale_for_s": self.stale_for_s,
        }

    @property
    def bundles_problem(self) -> str | None:
        """Why the remote folder of bundles could not be listed the last time; what is served stays."""
        return self._loader.problem

    def follow(self) -> None:
        """Follow changed pointers: load and swap in. A model whose load fails keeps serving its revision."""
        try:
            pointers, desired = self._store.pointers(), self._desired.all()
            voided = self._monitors.voided()
            challengers = self._challengers.all()
        except StateUnavailableError as error:
            self.state_problem = str(for_clients(error))
            logger.warning("state unavailable", stale_for_s=round(self.stale_for_s, 1), error=str(error))
            return
        self._seen_at, self.state_problem = time.monotonic(), None
        for name, pointer in pointers.items():
            if not self._is_ours(name):
                continue
            with self._swap.lock:
                if name not in self._models:  # loaded on another replica
                    self._models[name] = self._new(name)
                model = self._models[name]
            # Read before the attempt, so that a change during it triggers another attempt.
            changed = 0 if model.problem is None and model.failure is None else self._loader.last_change(name)
            beside = [one for one in challengers if one.model == name]
            try:
                self._swap.expect(model, beside)  # before the model is ready
                self._follow(model, pointer, desired.get(name, UNSAID), changed)
                self._swap.void(model, voided.get(name, {}))
                self._swap.challenge(model, beside)
            except StateUnavailableError as error:
                logger.warning("state unavailable", model=name, error=str(error))
            except CandorError as error:
                model.failed(pointer, changed, first_delay_s=self._settings.poll_interval_s)
                model.problem, model.damaged = str(error), isinstance(error, BundleRefusedError)
                logger.error("revision not loaded", model=name, revision=pointer.active, error=str(error))
            except Exception as error:
                model.failed(pointer, changed, first_delay_s=self._settings.poll_interval_s)
                model.problem, model.damaged = f"Revision {pointer.active} cannot be loaded: {error}", False
                logger.exception("revision not loaded", model=name, revision=pointer.active)

        self._begin(pointers)
        if time.monotonic() - self._pruned_at > _PRUNE_S:
            self._prune_copies()

    def load(self, name: str, *, by: str) -> NewBundles:
        """Serve a model on every replica: its active revision, or its newest bundle if it has none.

        Newer bundles become proposals. Nothing else changes if the model is already served, and nothing on an error.
        If a model stays in service although its bundle is damaged by now, the bundle is reported as refused.

        Args:
            name: The model.
            by: Actor for the audit log.

        Returns:
            The proposals made, and why others were not.

        Raises:
            UnknownModelError: Neither the state nor the folder of bundles has the model.
            BundleRefusedError: Its bundle is damaged, missing, or cannot run on this machine.
            BundleUnreachableError: Its bundle cannot be copied from the remote folder.
            PolicyError: One of its policy files cannot be used.
            RevisionStateError: Its revision cannot be read.
        """
        self._loader.refresh()
        self._open_apart(name)
        with self._swap.lock:
            locations = self._loader.find().get(name, []) if self._is_ours(name) else []
            model = self._models.get(name)
            if model is None and not locations:
                raise UnknownModelError(
                    f"Unknown model {name!r}.",
                    where="model",
                    found=name,
                    expected=sorted(self._models),
                    remedy=f"Put its bundle into {self._settings.bundles}/{name} first.",
                )
            new = model is None
            model = model or self._new(name)
            before = model.plane.served
            try:
                self._serve(model, locations)
            except BaseException:
                if new:
                    model.plane.close()
                raise
            self._models[name] = model
            model.desired = self._desired.set(name, loaded=True, by=by)
        new_bundles = self._propose(model, locations)  # without the lock: a rollback does not wait for a proof
        if before is not None:  # else its bundle was read just now
            try:
                self._loader.read(before.revision)
            except (BundleRefusedError, BundleUnreachableError) as error:
                told = f"{error} It is served from memory until the next restart."
                new_bundles.refused[before.revision.bundle_version] = told
        self._others.tell(FOLLOW)
        self._prune_copies()
        return new_bundles

    def unload(self, name: str, *, by: str) -> None:
        """Stop serving a model on every replica, after its accepted requests. Its stored data stay.

        Args:
            name: The model.
            by: Actor for the audit log.

        Raises:
            UnknownModelError: The model does not exist.
        """
        model = self.get(name)
        with self._swap.lock:
            model.desired = self._desired.set(model.name, loaded=False, by=by)
            self._swap.take_out(model)
        self._others.tell(FOLLOW)

    @contextmanager
    def prepared(self, name: str, revision: Revision) -> Iterator[Served]:
        """Load a revision for as long as the context lasts; activating it inside loads nothing again.

        The other processes are told of an activation at the end, without the lock: two that tell each other while each
        holds its own would wait for each other.

        Raises:
            BundleRefusedError: Its bundle cannot be loaded.
            RevisionStateError: It cannot be read, or the model is unloaded.
        """
        model = self.get(name)
        model.check_loaded()
        if revision.id not in model.loaded:
            self._loader.open(revision)  # before the lock: a rollback does not wait for it
        before = model.pointer
        try:
            with self._swap.lock, self._swap.pruned(model):
                model.check_loaded()
                yield self._swap.load(model, revision)
        finally:
            if model.pointer.epoch != before.epoch:
                self._others.tell(FOLLOW)

    def activate(
        self,
        name: str,
        revision_id: str,
        *,
        expected_epoch: int,
        by: str,
        reason: str | None = None,
        accepted: Sequence[str] = (),
        watch: Watch | None = None,
    ) -> Pointer:
        """Load a revision, move the pointer to it, and swap it in; see `RevisionStore.activate` for the arguments.

        Call it inside `prepared`, which tells the other processes.

        Raises:
            UnknownRevisionError: The revision does not exist.
            EpochStaleError: The pointer has moved since `expected_epoch`.
            BundleRefusedError: Its bundle cannot be loaded; nothing has changed.
            RevisionStateError: It cannot be read, is already active, or the model is unloaded.
        """
        model = self.get(name)
        with self._swap.lock, self._swap.pruned(model):
            model.check_loaded()
            self._store.check_epoch(model.name, expected_epoch)
            self._swap.load(model, self._store.get(model.name, revision_id))
            pointer = self._store.activate(
                model.name,
                revision_id,
                expected_epoch=expected_epoch,
                by=by,
                reason=reason,
                accepted=accepted,
                watch=watch,
            )
            self._swap.swap_in(model, pointer)
        return pointer

    def rollback(
        self,
        name: str,
        *,
        expected_epoch: int,
        by: str,
        reason: str | None = None,
        guard: Mapping[str, Any] | None = None,
    ) -> Pointer:
        """Move the pointer back to the previous revision, and swap it in; see `RevisionStore.rollback`.

        Raises:
            RevisionStateError: The model has no previous revision, or is unloaded.
            EpochStaleError: The pointer has moved since `expected_epoch`.
            BundleRefusedError: Its bundle cannot be loaded; nothing has changed.
        """
        model = self.get(name)
        with self._swap.lock, self._swap.pruned(model):
            model.check_loaded()
            self._store.check_epoch(model.name, expected_epoch)
            before = self._store.pointer(model.name)
            if before is not None and before.previous is not None:
                self._swap.load(model, self._store.get(model.name, before.previous))
            pointer = self._store.rollback(model.name, expected_epoch=expected_epoch, by=by, reason=reason, guard=guard)
            self._swap.swap_in(model, pointer)
        self._others.tell(FOLLOW)
        return pointer

    def beside(self, name: str) -> tuple[Beside, ...]:
        """Return a model's challengers on this process; none if the model is unknown."""
        model = self._models.get(name)
        return () if model is None else model.beside

    def loaded(self, name: str, revision: str) -> Served | None:
        """Return a loaded revision of a model; None if it is not loaded."""
        model = self._models.get(name)
        return None if model is None else model.loaded.get(revision)

    def labels_of(self, revision: Revision) -> Sequence[str] | None:
        """Return the labels of a revision, loaded or not; None if its bundle is gone."""
        return self._loader.labels(revision)

    def check_challenger(self, revision: Revision) -> AbstractContextManager[Served]:
        """Refuse, on entry, a revision that cannot be scored beside the active one; keep it loaded for the block.

        The block gets it ready to run.

        Raises:
            BundleRefusedError: Its bundle cannot be loaded.
            BundleUnreachableError: Its bundle is remote and cannot be copied.
            RevisionStateError: Its calibrator does not fit the model, or its labels differ from the active ones.
        """
        return self._swap.check(self.get(revision.model), revision)

    def challengers_changed(self, name: str) -> None:
        """Load a model's challengers here and on the other processes."""
        self._swap.challenge(self.get(name), self._challengers.of(name))
        self._others.tell(FOLLOW)

    def propose_policy(self, name: str, policy: Policy, *, by: str, by_key: str | None = None) -> Revision:
        """Propose a new or changed policy, solved with the active revision; see `Proposals.of_policy`.

        Raises:
            NotReadyError: The model has no active revision.
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
        by_key: str | None,
    ) -> Revision:
        """Propose a calibrator for other class frequencies; see `Proposals.of_prior_shift`.

        Raises:
            PolicyError: A policy that must be certified or fail cannot be certified.
        """
        with self._database.locked(f"policies/{name}"):
            return self._proposals.of_prior_shift(served, shifted, report, by=by, by_key=by_key)

    def close(self) -> None:
        """Finish the waiting requests of every plane."""
        self.stop_loading()
        self.multilabels.close()  # first: they hand over to the planes of their labels
        for model in self.all():
            model.plane.close()

    def stop_loading(self) -> None:
        """End the proofs of new bundles, so that a stop waits for none."""
        self._loader.close()

    def _open_apart(self, name: str) -> None:
        """Open the bundle that a model is to serve before anything is locked; one without a revision is proven."""
        model = self._models.get(name)
        if not self._is_ours(name) or (model is not None and model.plane.served is not None):
            return
        pointer = self._store.pointer(name)
        if pointer is not None:
            self._loader.open(self._store.get(name, pointer.active))
        elif locations := self._loader.find().get(name):
            self._loader.prove_apart(locations[-1])

    def _name_unused_policies(self, known: set[str], old: set[str]) -> None:
        """Log the policy files that decide nothing as they are: the state has the policies of a model that it knows."""
        folder = self._settings.policies
        if folder is None:
            return
        served = {model.name: model.plane.served for model in self.all() if model.name in old}
        found = not_in_force(folder, known, {name: one for name, one in served.items() if one is not None})
        for path, why, remedy in islice(found, _MOST_FILES):
            logger.warning("policy file not in force", file=str(path), why=why, remedy=remedy)

    def _prune_copies(self) -> None:
        self._pruned_at = time.monotonic()
        if not self._settings.bundle_reference.is_url:
            return
        try:
            self._loader.prune(self._store.bundles_needed())
        except StateUnavailableError as error:
            logger.warning("old copies of bundles not removed", error=str(error))

    def _new(self, name: str) -> Model:
        return Model(name, Plane(self._log, **self._limits))

    def _serve(self, model: Model, locations: Sequence[BundleLocation], *, apart: bool = False) -> None:
        with self._swap.pruned(model):  # drops the verified bundle's session if its first revision cannot be made
            pointer = self._store.pointer(model.name)
            if pointer is None:
                pointer = self._proposals.first(locations[-1], apart=apart)
            self._swap.swap_in(model, pointer)

    def _propose(self, model: Model, locations: Sequence[BundleLocation], until: float = math.inf) -> NewBundles:
        new_bundles = self._proposals.of_new_bundles(model.served, locations, until)
        model.refused = new_bundles.refused
        return new_bundles

    def _propose_all(self, locations: Mapping[str, Sequence[BundleLocation]]) -> None:
        until = time.monotonic() + self._settings.proof_timeout_s
        for model in self.all():
            if model.plane.served is not None:
                self._propose(model, locations.get(model.name, ()), until)

    def _is_ours(self, name: str) -> bool:
        return self._settings.models is None or name in self._settings.models

    def _begin(self, pointers: Mapping[str, Pointer]) -> None:
        """Try again to make the first revisions of models whose servers did not answer at the start."""
        for model in self.all():
            if model.name in pointers or model.failure is None or model.would_fail_again(NO_POINTER, 0):
                continue
            try:
                locations = self._loader.find().get(model.name, [])
                with self._swap.lock:
                    self._serve(model, locations)
                if self._others.first:
                    self._propose(model, locations)
            except CandorError as error:
                model.failed(NO_POINTER, 0, first_delay_s=self._settings.poll_interval_s)
                model.problem = str(error)
                logger.error("model not served yet", model=model.name, error=str(error))

    def _follow(self, model: Model, pointer: Pointer, desired: Desired, changed: int) -> None:
        moved = pointer.epoch != model.pointer.epoch and pointer.active not in model.loaded
        if moved and model.desired.loaded and desired.loaded and not model.would_fail_again(pointer, changed):
            with suppress(CandorError):  # told by the attempt below
                self._loader.open(self._store.get(model.name, pointer.active))
        with self._swap.lock:
            if desired.change > model.desired.change:
                model.failure = None
            if desired.change >= model.desired.change:  # else the value is older than the model's
                model.desired = desired
            if not model.desired.loaded:
                self._swap.take_out(model)
            elif model.would_fail_again(pointer, changed):
                return
            elif pointer.epoch != model.pointer.epoch or model.plane.served is None or model.problem is not None:
                self._swap.swap_in(model, pointer)
