"""Swap from one loaded revision to another."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import structlog

from bundle import Columns
from service.decisions.revision import Revision
from service.decisions.voided import overlaid
from service.errors import BundleRefusedError, CandorError, RevisionStateError
from service.inference.inputs import Beyond
from service.places import in_body
from service.serving.loading import Loader
from service.serving.model import LONGEST_RETRY_S, Beside, Model
from service.serving.plane import Served
from service.state.challengers import Challenger
from service.state.monitors import MonitorStore
from service.state.pointers import Pointer
from service.state.revisions import RevisionStore

logger = structlog.get_logger(__name__)


class Swap:
    """Loads a revision, then swaps it in by one assignment: a request sees one revision from start to end.

    Args:
        revisions: Store of revisions.
        monitors: Store of voided certificates.
        loader: Loads revisions.
        models: All models by name; the owner changes this mapping.
        log_gap: The setting by which the log may lack rows; None if it is complete.

    Attributes:
        lock: Held around every change of loaded or active revisions.
    """

    def __init__(
        self,
        revisions: RevisionStore,
        monitors: MonitorStore,
        loader: Loader,
        models: Mapping[str, Model],
        *,
        log_gap: str | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self._store = revisions
        self._monitors = monitors
        self._loader = loader
        self._models = models
        self._log_gap = log_gap

    def challenge(self, model: Model, wanted: Sequence[Challenger]) -> None:
        """Load a model's challengers and let go of others. One that fails has a problem; nothing else changes."""
        if not wanted and not model.beside:
            return
        self.expect(model, wanted)
        with self.lock:
            active = model.plane.served
            known = {one.challenger: one for one in model.beside}
            bundle = "" if active is None else active.revision.bundle_id
            beside = tuple(
                kept
                if (kept := known.get(one)) is not None and kept.active == bundle and not self._again(model, kept)
                else self._beside(model, one, bundle)
                for one in (wanted if active is not None else ())
            )
            if beside != model.beside:
                model.beside = beside
                model.beyond = model.beyond._replace(carried=_carried(active, beside))
                self._let_go(model)

    def expect(self, model: Model, wanted: Sequence[Challenger]) -> None:
        """Accept rows with the columns of challengers, whatever is active and even before their bundles are loaded."""
        model.beyond = Beyond(frozenset().union(*(one.columns for one in wanted)), model.beyond.carried)

    @contextmanager
    def check(self, model: Model, revision: Revision) -> Iterator[Served]:
        """Yield a revision, loaded, or refuse it beside the active one: see `Loader.serve` and `check_labels`.

        Its session is kept for the block, which may make it a challenger, and let go if nothing uses it then.
        """
        try:
            with self.lock:
                served = self._load_beside(model.served, revision)
            yield served
        finally:
            with self.lock:
                self._let_go(model)

    def _again(self, model: Model, kept: Beside) -> bool:
        """Return whether a challenger with a problem is to be loaded again."""
        if kept.problem is None:
            return False
        return time.monotonic() >= kept.again_at or self._loader.last_change(model.name) != kept.last_change

    def _beside(self, model: Model, challenger: Challenger, active: str) -> Beside:
        changed = self._loader.last_change(model.name)  # before the attempt
        try:
            revision = self._store.get(model.name, challenger.revision)
            served = None if revision.bundle_id == active else self._load_beside(model.served, revision)
            if served is not None and revision.model_digest == model.served.revision.model_digest:
                served = None  # its session is let go
        except Exception as error:
            refused = isinstance(error, _OtherLabelsError)
            # Another attempt would read the whole bundle again. A remote folder does not show its changes.
            lasting = refused or (changed and isinstance(error, BundleRefusedError))
            named = {"model": model.name, "challenger": challenger.name}
            logger.warning(
                "challenger not loaded", **named, error=str(error), exc_info=not isinstance(error, CandorError)
            )
            again_at = math.inf if lasting else time.monotonic() + LONGEST_RETRY_S
            return Beside(challenger, active, None, str(error), refused, changed, again_at)
        logger.info("challenger loaded", model=model.name, challenger=challenger.name, revision=revision.id)
        return Beside(challenger, active, served)

    def _load_beside(self, active: Served, revision: Revision) -> Served:
        """Load a revision unless its manifest has other labels than the active one."""
        labels = self._loader.labels(revision)
        if labels is not None:
            check_labels(active, revision.id, labels)
        served = self._loader.serve(revision)
        check_labels(active, revision.id, served.labels)
        return served

    def take_out(self, model: Model) -> None:
        """Unload all revisions of a model."""
        if model.plane.served is None and not model.loaded:
            return
        model.plane.served = None
        model.loaded = {}
        model.beside = ()
        model.problem = model.failure = None
        self._let_go(model)
        logger.info("model unloaded", model=model.name)

    def swap_in(self, model: Model, pointer: Pointer) -> None:
        """Serve the revision that a pointer names, unless the model already follows a newer pointer."""
        with self.lock, self.pruned(model):
            if pointer.epoch < model.pointer.epoch:
                return
            served = self.load(model, self._store.get(model.name, pointer.active))
            model.plane.served = served
            model.pointer = pointer
            model.problem = model.failure = None
        logger.info("revision active", model=model.name, revision=pointer.active, epoch=pointer.epoch)
        queues = sorted(name for name, solved in served.policies.items() if solved.policy.review is not None)
        if queues and self._log_gap is not None:
            logger.warning(
                "cases may be missing",
                model=model.name,
                policies=queues,
                reason=self._log_gap,
                remedy="CANDOR_LOG_MODE=sync and CANDOR_LOG_SAMPLE=1",
            )

    def load(self, model: Model, revision: Revision) -> Served:
        """Return a revision ready to run; load it if necessary."""
        self.void(model, self._monitors.voided().get(model.name, {}))
        if revision.id not in model.loaded:
            model.loaded[revision.id] = _marked(self._loader.serve(revision), model.voided)
        return model.loaded[revision.id]

    def void(self, model: Model, voided: Mapping[str, str]) -> None:
        """Mark voided certificates in all loaded revisions; a voided certificate stays voided."""
        with self.lock:
            if voided.keys() <= model.voided.keys():
                return
            model.voided = {**voided, **model.voided}
            model.loaded = {key: _marked(served, model.voided) for key, served in model.loaded.items()}
            served = model.plane.served
            if served is not None:
                model.plane.served = model.loaded.get(served.revision.id, served)
        logger.warning("certificates voided", model=model.name, voided=len(voided))

    @contextmanager
    def pruned(self, model: Model) -> Iterator[None]:
        """Unload, on exit, all revisions except the active and the previous one."""
        try:
            yield
        finally:
            keep = {model.pointer.active, model.pointer.previous}
            model.loaded = {key: value for key, value in model.loaded.items() if key in keep}
            self._let_go(model)

    def _let_go(self, changed: Model) -> None:
        """Close sessions that no loaded revision uses; `changed` may not be among the models yet."""
        models = {*self._models.values(), changed}
        loaded = [served for model in models for served in model.loaded.values()]
        loaded += [one.served for model in models for one in model.beside if one.served is not None]
        self._loader.keep_only({served.revision.bundle_id for served in loaded})


class _OtherLabelsError(RevisionStateError):
    """A challenger has other labels than the active revision."""


def check_labels(active: Served, revision: str, labels: Sequence[str]) -> None:
    """Raise RevisionStateError unless a revision has the labels of the active one, in the same order."""
    if tuple(labels) != tuple(active.labels):
        raise _OtherLabelsError(
            f"Revision {revision} has other labels than the active one, or the same in another order.",
            where=in_body("revision"),
            found=list(labels),
            expected=list(active.labels),
            remedy="Export the model with the labels of the active revision, in their order.",
        )


def _carried(active: Served | None, beside: Sequence[Beside]) -> frozenset[str]:
    """Return the columns that rows keep for challengers, since the inputs of the active revision do not tell them."""
    carried: set[str] = set()
    encoder = None if active is None else active.encoder
    if active is not None and isinstance(encoder, Columns):
        for theirs in (one.served.encoder for one in beside if one.served is not None):
            if isinstance(theirs, Columns):
                carried |= encoder.untold(theirs) if active.input.kind == "array" else theirs.kinds.keys()
    return frozenset(carried)


def _marked(served: Served, voided: Mapping[str, str]) -> Served:
    """Return a loaded revision with its voided certificates marked; the same object if none is voided."""
    policies = overlaid(served.policies, served.revision.model_digest, voided)
    return served if policies is served.policies else replace(served, policies=policies)
