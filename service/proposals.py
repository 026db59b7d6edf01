"""New revisions from bundles and policies; refits make theirs in `service.jobs`."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import structlog

from bundle import Bundle, BundleLocation
from calibrators import Calibrator
from calibrators import from_dict as calibrator_from_dict
from service.decisions.certificates import decides_nothing, warnings
from service.decisions.conditions import Metric
from service.decisions.policy import Policy
from service.decisions.solved import SolvedPolicy
from service.decisions.voided import broken_for
from service.errors import BundleRefusedError, PolicyError
from service.loading import Loader
from service.plane import Served
from service.policy_files import read_policies
from service.revision import Revision
from service.settings import Settings
from service.solve import solve_on_reference
from service.state.database import Database, now_us
from service.state.revisions import Pointer, RevisionStore, Solution

logger = structlog.get_logger(__name__)

EVERY_ROW_SEEN = 0  # reference rows never become fresh again


class Proposals:
    """Makes proposals, and the first revision of a model.

    Args:
        settings: Names the folder of policies.
        database: Open state.
        store: Its revisions.
        loader: Opens bundles.
    """

    def __init__(self, settings: Settings, database: Database, store: RevisionStore, loader: Loader) -> None:
        self._settings = settings
        self._database = database
        self._store = store
        self._loader = loader

    def first(self, location: BundleLocation) -> Pointer:
        """Return the pointer of a model that may have none: a bundle's first revision, unless another replica has one.

        Raises:
            BundleRefusedError: The bundle is damaged, or cannot run here.
            PolicyError: One of the model's policy files cannot be used.
        """
        name = location.model
        with self._database.locked(f"bundles/{name}"):
            pointer = self._store.pointer(name)
            if pointer is not None:
                return pointer
            proven = self._loader.prove(location.path, keep=True)
            policies = read_policies(self._settings.policies, name, proven.manifest.labels)
            numbered = [(policy, self._store.new_policy_version(name, policy.id)) for policy in policies]
            revision = self._from_bundle(proven, numbered, parent=None)
            return self._store.activate(name, revision.id, expected_epoch=None, by="start")

    def of_new_bundles(self, active: Served, locations: Sequence[BundleLocation]) -> dict[int, str]:
        """Turn each bundle newer than the active one, and not yet known, into a proposal with the active policies.

        Returns:
            Why some were left out (refused, or a policy cannot be solved on them), by version.
        """
        name = active.revision.model
        newer = [location for location in locations if location.version > active.revision.bundle_version]
        refused: dict[int, str] = {}
        if not newer:
            return refused
        policies = [(solved.policy, solved.version) for solved in active.policies.values()]
        with self._database.locked(f"bundles/{name}"):
            known = self._store.bundle_versions(name)
            for location in newer:
                if location.version in known:
                    continue
                try:
                    proven = self._loader.prove(location.path)
                    revision = self._from_bundle(proven, policies, parent=active.revision.id)
                    logger.info("new bundle proposed", model=name, version=location.version, revision=revision.id)
                except (BundleRefusedError, PolicyError) as error:
                    logger.error("new bundle not proposed", model=name, version=location.version, error=str(error))
                    refused[location.version] = str(error)
        return refused

    def of_policy(self, active: Served, policy: Policy, *, by: str, by_key: str | None = None) -> Revision:
        """Solve a new or changed policy on the reference rows of the active bundle and keep it as a proposal.

        What has been solved with the active calibrator is not solved again, since that would cost a look: a policy
        that is in force answers with the active revision, one that waits with its proposal. What an alarm has shown
        of the traffic, the reference rows certify neither anew nor from before.

        Raises:
            PolicyError: It names an unknown label, or must fail and cannot be certified.
        """
        revision = active.revision
        if policy.id in active.policies and active.policies[policy.id].policy == policy:
            return revision
        void = broken_for(active.policies.values(), policy.positive)
        known = self._solution(revision, policy)
        if known is not None and _relies_on_reference(SolvedPolicy.from_dict(known.policies[policy.id]), void):
            known = None
        if known is not None and known.parent == revision.id and known.cause == "policy":
            return self._store.get(revision.model, known.id)
        if known is not None:
            solved = SolvedPolicy.from_dict(known.policies[policy.id])
        else:
            policy.check_labels(active.labels)
            version = self._store.new_policy_version(revision.model, policy.id)
            solved = self._solve(policy, version, active.bundle, revision.calibrator, broken=void)
        return self._store.propose(
            model=revision.model,
            bundle_id=revision.bundle_id,
            bundle_version=revision.bundle_version,
            model_digest=revision.model_digest,
            calibrator=revision.calibrator,
            policies={**revision.policies, policy.id: solved.to_dict()},
            parent=revision.id,
            cause="policy",
            by=by,
            by_key=by_key,
            gate="not_run",
            created_at=now_us(),
            report={"summary": f"Policy {policy.id}@{solved.version}, {_how(solved)}."},
        )

    def of_prior_shift(
        self, active: Served, shifted: Calibrator, report: dict[str, Any], *, by: str, by_key: str | None
    ) -> Revision:
        """Keep a calibrator for other shares of the classes as a proposal, with the active policies solved for it.

        Args:
            active: The revision in service.
            shifted: Its calibrator, adapted.
            report: What was found.
            by: Who proposes it.
            by_key: The prefix of their key.

        Raises:
            PolicyError: A policy must be certified or fail, and cannot be certified.
        """
        revision, document = active.revision, shifted.to_dict()
        return self._store.propose(
            model=revision.model,
            bundle_id=revision.bundle_id,
            bundle_version=revision.bundle_version,
            model_digest=revision.model_digest,
            calibrator=document,
            policies={
                key: self._solve(
                    solved.policy,
                    solved.version,
                    active.bundle,
                    document,
                    broken=broken_for(active.policies.values(), solved.policy.positive),
                ).to_dict()
                for key, solved in active.policies.items()
            },
            parent=revision.id,
            cause="prior_shift",
            by=by,
            by_key=by_key,
            gate="not_run",
            created_at=now_us(),
            report=report,
        )

    def _solution(self, active: Revision, policy: Policy) -> Solution | None:
        """Return the newest revision in which this very policy is solved with the active bundle and calibrator."""
        for solution in self._store.solutions(active.model, active.bundle_id):
            solved = solution.policies.get(policy.id)
            if (
                solved is not None
                and Policy.from_dict(solved["policy"]) == policy
                and solution.calibrator == active.calibrator
            ):
                return solution
        return None

    def _from_bundle(self, proven: Bundle, policies: list[tuple[Policy, int]], parent: str | None) -> Revision:
        calibrator = proven.calibrator.to_dict()
        return self._store.propose(
            model=proven.manifest.model,
            bundle_id=proven.id,
            bundle_version=proven.manifest.version,
            model_digest=proven.model_digest,
            calibrator=calibrator,
            policies={
                policy.id: self._solve(policy, version, proven, calibrator).to_dict() for policy, version in policies
            },
            parent=parent,
            cause="bundle",
            by="start",
            gate="not_run",
            created_at=now_us(),
            report=proven.report,
        )

    def _solve(
        self,
        policy: Policy,
        version: int,
        proven: Bundle,
        calibrator: dict[str, object],
        *,
        broken: Mapping[Metric, str] = MappingProxyType({}),
    ) -> SolvedPolicy:
        policy.check_labels(proven.manifest.labels)
        from_document = calibrator_from_dict(calibrator)
        if policy.segments is not None:  # reference rows are of none, so that none is looked at
            solved = solve_on_reference(policy, version=version, bundle=proven, calibrator=from_document, look=1)
            if why := warnings(solved):
                logger.warning("segments not certified", model=proven.manifest.model, policy=policy.id, why=why)
            return solved
        # By the positive class, not by the policy: another id for the same promise is no fresh look.
        look = self._store.expose(
            proven.manifest.model,
            proven.model_digest,
            rows="certify",
            basis="reference",
            scope=policy.positive,
            earliest_row_us=EVERY_ROW_SEEN,
            at=now_us(),
        )
        return solve_on_reference(
            policy, version=version, bundle=proven, calibrator=from_document, look=look, broken=broken
        )


def _relies_on_reference(solved: SolvedPolicy, metrics: Container[Metric]) -> bool:
    """Return whether the bundle's reference rows certify one of these metrics for a policy."""
    certificates = (band.certificate for band in solved.bands if band.certificate is not None)
    return any(one.valid and one.basis == "reference" and one.metric in metrics for one in certificates)


def _how(solved: SolvedPolicy) -> str:
    if solved.segments and decides_nothing(solved):
        return "all rows to the fallback until a refit on labelled traffic certifies its segments"
    return "solved on the bundle's reference rows"
