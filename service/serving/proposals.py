"""Proposals from bundles, policies and prior shifts; those of recalibrations are in `service.recalibration.jobs`."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import structlog

from bundle import Bundle, BundleLocation
from calibrators import Calibrator
from candor.contract.conditions import Metric
from candor.contract.policies import Policy
from service.decisions.certificates import decides_nothing, warnings
from service.decisions.counting import seed_of
from service.decisions.multicalibrated import require_no_columns
from service.decisions.per_day import of_rows_per_day
from service.decisions.policy import check_labels, check_shared
from service.decisions.revision import Revision
from service.decisions.solve import fingerprint, row_digests, solve_on_reference
from service.decisions.solved import SolvedPolicy
from service.decisions.standing import Standing, standing
from service.decisions.voided import broken_of_bundle
from service.errors import BundleRefusedError, BundleUnreachableError, PolicyError, UpstreamError, UpstreamRejectedError
from service.serving.loading import Loader
from service.serving.plane import Served
from service.serving.policy_files import read_policies
from service.settings import Settings
from service.state.database import Database, now_us
from service.state.looks import latest, record_look, scopes_of
from service.state.monitors import MonitorStore
from service.state.pointers import Pointer
from service.state.revision_rows import Solution
from service.state.revisions import RevisionStore
from service.state.traffic import Traffic

logger = structlog.get_logger(__name__)

_REFUSED = (BundleRefusedError, BundleUnreachableError, PolicyError, UpstreamError, UpstreamRejectedError)
_OF_A_BUNDLE = (
    *("schema_version", "calibrator", "rows", "before", "after", "difference", "warnings"),
    *("test", "positive", "training"),
)
"""Parts of a bundle's report that its revision has. The service alone says what a gate or a recalibration found."""

EVERY_ROW_SEEN = 0  # reference rows never become fresh again


@dataclass(frozen=True, slots=True)
class NewBundles:
    """What came of the bundles that are newer than the active one and were not known.

    Attributes:
        proposed: Revisions made of them, by version.
        refused: Why others were left out (refused, or a policy cannot be solved on them), by version.
    """

    proposed: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)


class Proposals:
    """Makes proposals, and the first revision of a model.

    Args:
        settings: Names the folder of policies.
        database: Open state.
        store: Its revisions.
        loader: Opens bundles.
        traffic: Counts the rows of a day.
    """

    def __init__(
        self, settings: Settings, database: Database, store: RevisionStore, loader: Loader, traffic: Traffic
    ) -> None:
        self._settings = settings
        self._database = database
        self._store = store
        self._loader = loader
        self._traffic = traffic

    def first(self, location: BundleLocation, *, apart: bool) -> Pointer:
        """Return a model's pointer; without one, make and activate a bundle's first revision.

        Args:
            location: Where the bundle is.
            apart: Whether to prove it in another process first.

        Raises:
            BundleRefusedError: The bundle is damaged, or cannot run on this machine.
            PolicyError: One of the model's policy files cannot be used.
        """
        name = location.model
        with self._database.locked(f"bundles/{name}"):
            pointer = self._store.pointer(name)
            if pointer is not None:
                return pointer
            if apart:
                self._loader.prove_apart(location)
            proven = self._loader.prove(location, keep=True)
            policies = read_policies(self._settings.policies, name, proven.manifest.labels)
            numbered = [(policy, self._store.new_policy_version(name, policy.id), None) for policy in policies]
            revision = self._from_bundle(proven, numbered, parent=None)
            return self._store.activate(name, revision.id, expected_epoch=None, by="start")

    def of_new_bundles(self, active: Served, locations: Sequence[BundleLocation], until: float) -> NewBundles:
        """Propose each unknown bundle newer than the active one, with the active policies.

        Args:
            active: The active revision.
            locations: The model's bundles.
            until: Monotonic time in seconds; what is not proven by then is refused this time.
        """
        name = active.revision.model
        newer = [location for location in locations if location.version > active.revision.bundle_version]
        new = NewBundles()
        if not newer:
            return new
        policies = [(solved.policy, solved.version, solved.rows_per_day) for solved in active.policies.values()]
        with self._database.locked(f"bundles/{name}"):
            known = self._store.bundle_versions(name)
            for location in newer:
                if location.version in known:
                    continue
                try:
                    proven = self._loader.prove_apart(location, until)
                    revision = self._from_bundle(proven, policies, parent=active.revision.id)
                    new.proposed[location.version] = revision.id
                    logger.info("new bundle proposed", model=name, version=location.version, revision=revision.id)
                except _REFUSED as error:
                    logger.error("new bundle not proposed", model=name, version=location.version, error=str(error))
                    new.refused[location.version] = str(error)
        return new

    def of_policy(self, active: Served, policy: Policy, *, by: str, by_key: str | None = None) -> Revision:
        """Propose a new or changed policy, solved on the active bundle's reference rows.

        A policy that is already solved with the active calibrator costs no second look: the active revision or the
        waiting proposal is returned. Promises that it leaves as they are keep their certificates, and cost no look
        either. Reference rows never certify a promise that an alarm has voided.

        Raises:
            PolicyError: It names an unknown label, or must be certified or fail and cannot be certified.
        """
        revision = active.revision
        if policy.id in active.policies and active.policies[policy.id].policy == policy:
            return revision
        void = self._broken(revision).get(policy.positive, {})
        before = active.policies.get(policy.id)
        # A changed policy keeps the measured rows of a day; a recalibration measures them anew.
        day = None if before is None or before.policy.rows_per_day is not None else before.rows_per_day
        day = day or self._rows_per_day(revision.model, policy, None)
        wanted = of_rows_per_day(policy, day)
        known = self._solution(revision, wanted)
        if known is not None and _relies_on_reference(SolvedPolicy.from_dict(known.policies[policy.id]), void):
            known = None
        if known is not None and known.parent == revision.id and known.cause == "policy":
            return self._store.get(revision.model, known.id)
        if known is not None:
            solved = SolvedPolicy.from_dict(known.policies[policy.id])
        else:
            check_labels(policy, active.labels)
            check_shared(policy, active.bundle.manifest.sharing)
            version = self._store.new_policy_version(revision.model, policy.id)
            stays = {} if before is None else standing(before, wanted)
            solved = self._solve(
                policy, version, active.bundle, revision.calibrator, broken=void, stays=stays, rows_per_day=day
            )
        return self._store.propose(
            revision,
            calibrator=revision.calibrator,
            policies={**revision.policies, policy.id: solved},
            cause="policy",
            by=by,
            by_key=by_key,
            gate="not_run",
            report={"summary": f"Policy {policy.id}@{solved.version}, {_how(solved)}."},
        )

    def of_prior_shift(
        self, active: Served, shifted: Calibrator, report: dict[str, Any], *, by: str, by_key: str | None
    ) -> Revision:
        """Propose a calibrator for other class frequencies, with the active policies solved for it.

        Args:
            active: The active revision.
            shifted: Its calibrator, adapted.
            report: Report of the revision.
            by: Actor who proposes it.
            by_key: Prefix of the actor's API key.

        Raises:
            PolicyError: A policy that must be certified or fail cannot be certified.
        """
        revision = active.revision
        broken = self._broken(revision)
        return self._store.propose(
            revision,
            calibrator=shifted,
            policies={
                key: self._solve(
                    solved.policy,
                    solved.version,
                    active.bundle,
                    shifted,
                    broken=broken.get(solved.policy.positive, {}),
                    rows_per_day=self._rows_per_day(revision.model, solved.policy, solved.rows_per_day),
                )
                for key, solved in active.policies.items()
            },
            cause="prior_shift",
            by=by,
            by_key=by_key,
            gate="not_run",
            report=report,
        )

    def _broken(self, active: Revision) -> Mapping[str, Mapping[Metric, str]]:
        """Return the metrics that the traffic has broken while the bundle was active, by positive class."""
        voided = MonitorStore(self._database).voided().get(active.model, {})
        made = (solution.policies for solution in self._store.solutions(active.model, active.bundle_id))
        return broken_of_bundle(made, active.model_digest, voided)

    def _rows_per_day(self, model: str, policy: Policy, in_force: int | None) -> int | None:
        """Return the rows of a day, measured if the policy needs that, else those in force; None if unknown."""
        if not policy.lacks_rows_per_day:
            return None
        return self._traffic.rows_per_day(model, now_us()) or in_force

    def _solution(self, active: Revision, policy: Policy) -> Solution | None:
        """Return the newest solution of this exact policy with the active bundle and calibrator.

        Args:
            active: The active revision.
            policy: The policy, with the rows of a day where it needs them.
        """
        calibrator = active.calibrator.to_dict()
        for solution in self._store.solutions(active.model, active.bundle_id):
            document = solution.policies.get(policy.id)
            if document is None or solution.calibrator != calibrator:
                continue
            solved = SolvedPolicy.from_dict(document)
            if solved.policy.measured(solved.rows_per_day) == policy:
                return solution
        return None

    def _from_bundle(
        self, proven: Bundle, policies: Sequence[tuple[Policy, int, int | None]], parent: str | None
    ) -> Revision:
        """Propose a bundle with policies, their versions, and the rows of a day that they rest on so far."""
        calibrator = proven.calibrator
        return self._store.propose(
            model=proven.manifest.model,
            bundle_id=proven.id,
            bundle_version=proven.manifest.version,
            model_digest=proven.model_digest,
            calibrator=calibrator,
            policies={
                policy.id: self._solve(
                    policy,
                    version,
                    proven,
                    calibrator,
                    rows_per_day=self._rows_per_day(proven.manifest.model, policy, in_force),
                )
                for policy, version, in_force in policies
            },
            parent=parent,
            cause="bundle",
            by="start",
            gate="not_run",
            report={key: proven.report[key] for key in _OF_A_BUNDLE if key in proven.report}
            | ({} if proven.signed_by is None else {"signed_by": proven.signed_by}),
        )

    def _solve(
        self,
        policy: Policy,
        version: int,
        proven: Bundle,
        calibrator: Calibrator,
        *,
        broken: Mapping[Metric, str] = MappingProxyType({}),
        stays: Standing = MappingProxyType({}),
        rows_per_day: int | None = None,
    ) -> SolvedPolicy:
        check_labels(policy, proven.manifest.labels)
        check_shared(policy, proven.manifest.sharing)
        of_rows_per_day(policy, rows_per_day)  # a refusal uses no look
        require_no_columns(calibrator)
        if policy.segments is not None and proven.reference.certify.segment is None:  # this costs no look
            solved = solve_on_reference(
                policy, version=version, bundle=proven, calibrator=calibrator, look=1, stays=stays
            )
            if why := warnings(solved):
                logger.warning("segments not certified", model=proven.manifest.model, policy=policy.id, why=why)
            return solved
        if stays and len(stays) == policy.claims:  # nothing is left to test
            return solve_on_reference(
                policy,
                version=version,
                bundle=proven,
                calibrator=calibrator,
                look=1,
                broken=broken,
                stays=stays,
                rows_per_day=rows_per_day,
            )
        # Scoped by positive class, not by policy: the same promise under another id is not a first look.
        groups, reference = row_digests(proven.reference.certify), fingerprint(proven.reference.certify)
        look = latest(
            record_look(
                self._database,
                proven.manifest.model,
                proven.model_digest,
                rows="certify",
                basis="reference",
                scope=scope,
                earliest_row_us=EVERY_ROW_SEEN,
                at=now_us(),
                groups=groups,
                reference=reference,
            )
            for scope in scopes_of(policy)
        )
        seed = seed_of(int.from_bytes(self._database.secret[:8], "little"), look.ordinal)
        return solve_on_reference(
            policy,
            version=version,
            bundle=proven,
            calibrator=calibrator,
            look=look.number,
            seed=seed,
            broken=broken,
            stays=stays,
            spent=look.spent,
            rows_per_day=rows_per_day,
        )


def _relies_on_reference(solved: SolvedPolicy, metrics: Container[Metric]) -> bool:
    """Return whether the bundle's reference rows certify one of these metrics for a policy."""
    parts = [solved.bands, *(part.bands for part in (solved.segments or {}).values())]
    certificates = (band.certificate for bands in parts for band in bands if band.certificate is not None)
    return any(one.valid and one.basis == "reference" and one.metric in metrics for one in certificates)


def _how(solved: SolvedPolicy) -> str:
    if solved.segments and decides_nothing(solved):
        return "all rows get the fallback until a recalibration on labelled traffic certifies its segments"
    return "solved on the bundle's reference rows"
