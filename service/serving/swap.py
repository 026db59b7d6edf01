"""Swap from one loaded revision to another."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import structlog

from service.decisions.revision import Revision
from service.decisions.voided import overlaid
from service.serving.loading import Loader
from service.serving.model import Model
from service.serving.plane import Served
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

    Attributes:
        lock: Held around every change of loaded or active revisions.
    """

    def __init__(
        self, revisions: RevisionStore, monitors: MonitorStore, loader: Loader, models: Mapping[str, Model]
    ) -> None:
        self.lock = threading.RLock()
        self._store = revisions
        self._monitors = monitors
        self._loader = loader
        self._models = models

    def take_out(self, model: Model) -> None:
        """Unload all revisions of a model."""
        if model.plane.served is None and not model.loaded:
            return
        model.plane.served = None
        model.loaded = {}
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

    def load(self, model: Model, revision: Revision) -> Served:
        """Return a revision ready to run; load it if necessary."""
        self.void(model, self._monitors.voided().get(model.name, frozenset()))
        if revision.id not in model.loaded:
            model.loaded[revision.id] = _marked(self._loader.serve(revision), model.voided)
        return model.loaded[revision.id]

    def void(self, model: Model, voided: frozenset[str]) -> None:
        """Mark voided certificates in all loaded revisions; a voided certificate stays voided."""
        with self.lock:
            if voided <= model.voided:
                return
            model.voided |= voided
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
        self._loader.keep_only({served.revision.bundle_id for model in models for served in model.loaded.values()})


def _marked(served: Served, voided: frozenset[str]) -> Served:
    """Return a loaded revision with its voided certificates marked; the same object if none is voided."""
    policies = overlaid(served.policies, served.revision.model_digest, voided)
    return served if policies is served.policies else replace(served, policies=policies)
