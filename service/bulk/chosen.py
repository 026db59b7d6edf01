"""The revision that scores: the active one of a state, or that of a bundle alone."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from service.decisions.revision import Revision
from service.decisions.solve import solve_on_reference
from service.decisions.solved import SolvedPolicy
from service.decisions.voided import overlaid
from service.errors import NotReadyError, UnknownModelError
from service.serving.loading import Loader
from service.serving.policy_files import read_policies
from service.settings import Settings
from service.state.database import Database
from service.state.monitors import MonitorStore
from service.state.revisions import RevisionStore


def active_revision(database_url: str, model: str | None) -> Revision:
    """Return the active revision of a model, with the certificates that alarms voided marked as the service does.

    Args:
        database_url: State of the service.
        model: Name of the model; None for the only one.

    Raises:
        UnknownModelError: The state has no such model, or several and none is named.
        ConfigurationError: The state cannot be used.
        StateUnavailableError: The database does not answer.
    """
    database = Database.open(database_url, readonly=True)
    try:
        store = RevisionStore(database)
        pointers = store.pointers()
        name = _one(pointers, model, "state")
        revision = store.get(name, pointers[name].active)
        voided = MonitorStore(database).voided().get(name, {})
    finally:
        database.close()
    return replace(revision, policies=overlaid(revision.policies, revision.model_digest, voided))


def bundled_revision(loader: Loader, settings: Settings, model: str | None) -> Revision:
    """Return what a service with an empty state would activate: a model's newest bundle, with the policies of a folder.

    Its id is `v` with the version of the bundle.

    Raises:
        UnknownModelError: The folder of bundles has no such model, or several and none is named.
        BundleRefusedError: The bundle is damaged, or cannot run on this machine.
        PolicyError: A policy file cannot be used.
        ConfigurationError: The folder of bundles or of policies does not exist.
    """
    settings.check_folders()
    loader.refresh()
    found = loader.find()
    name = _one(found, model, "folder of bundles")
    if not found[name]:
        raise NotReadyError(f"{name} has no bundle.", where=str(settings.bundle_folder))
    proven = loader.prove(found[name][-1], keep=True)
    looks: Counter[str] = Counter()
    policies: dict[str, SolvedPolicy] = {}
    for policy in read_policies(settings.policies, name, proven.manifest.labels):
        looks[policy.positive] += 1  # as the service counts them
        policies[policy.id] = solve_on_reference(
            policy, version=1, bundle=proven, calibrator=proven.calibrator, look=looks[policy.positive]
        )
    return Revision(
        id=f"v{proven.manifest.version}",
        model=name,
        bundle_id=proven.id,
        bundle_version=proven.manifest.version,
        model_digest=proven.model_digest,
        calibrator=proven.calibrator,
        policies=policies,
        parent=None,
        cause="bundle",
        by="score",
        gate="not_run",
        created_at=0,
    )


def digest_of(revision: Revision, solved: SolvedPolicy | None) -> str:
    """Return a digest of all that determines the answers: model, calibrator, and the policy as it is solved."""
    parts = [revision.bundle_id, revision.calibrator.to_dict(), solved and solved.to_dict()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _one(names: Collection[str], model: str | None, where: str) -> str:
    if model is None and len(names) == 1:
        return next(iter(names))
    if model is None or model not in names:
        raise UnknownModelError(
            f"The {where} has no model {model!r}." if model is not None else f"The {where} has {len(names)} models.",
            where="--model",
            found=model,
            expected=", ".join(sorted(names)) or "a model",
            remedy="Name one of them with --model." if names else None,
        )
    return model
