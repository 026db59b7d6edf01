"""What is to be watched of a revision in service, and how a cohort of its predictions comes to the monitors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from service.decisions.rows import ScoredRows
from service.decisions.solved import SolvedPolicy
from service.decisions.voided import Claim, claims, key_of
from service.monitoring.calibration import CalibrationMonitor
from service.monitoring.certificate import CertificateMonitor
from service.plane import Served
from service.refit import RefitRequest
from service.solve import scored
from service.state.monitors import Counted, StoredMonitor, Watched
from service.state.recent import NO_LABEL, RecentRows

CALIBRATION = "calibration"
_UNSET_LEVEL, _UNSET_SINCE = 0.5, 0  # until the state gives the monitor its place


@dataclass(frozen=True, slots=True)
class Subject:
    """One statement about the traffic.

    Attributes:
        watched: Its names.
        document: Of a monitor of it that has counted nothing yet.
        policy: Whose certificate it is; None of the calibration.
        segment: The part of the traffic that it is about; None for all of it.
    """

    watched: Watched
    document: dict[str, Any]
    policy: SolvedPolicy | None = None
    segment: str | None = None


def subjects(served: Served, tolerance: float) -> list[Subject]:
    """Return what is to be watched: the calibration, and each certificate that stands.

    Args:
        served: The revision in service, its voided certificates marked.
        tolerance: Miscalibration that is nothing to alarm for.
    """
    of = json.dumps([served.revision.model_digest, served.revision.calibrator], sort_keys=True)
    return [_calibration(served, tolerance, of), *_certificates(served, of)]


def name_of(policy: str, action: str, segment: str | None) -> str:
    """Return what people call the monitor of a certificate."""
    return "/".join([policy, action] if segment is None else [policy, action, segment])


def _calibration(served: Served, tolerance: float, of: str) -> Subject:
    floor = min((_floor(solved) for solved in served.policies.values()), default=1.0)
    document = CalibrationMonitor(tolerance=tolerance, floor=floor, level=_UNSET_LEVEL, since=_UNSET_SINCE).to_dict()
    return Subject(Watched("calibration", CALIBRATION, _digest(of, document)), document)


def _certificates(served: Served, of: str) -> Iterator[Subject]:
    digest = served.revision.model_digest
    for solved in served.policies.values():
        for claim in claims(solved):
            document = _document(solved, claim)
            if document is None:
                continue
            key = key_of(solved, claim.action, claim.segment, claim.certificate, model_digest=digest)
            name = name_of(solved.policy.id, claim.action, claim.segment)
            watched = Watched("certificate", name, _digest(of, document, key), key)
            yield Subject(watched, document, solved, claim.segment)


def _document(solved: SolvedPolicy, claim: Claim) -> dict[str, Any] | None:
    when = solved.policy.bands[claim.index].when
    if when is None or when.metric is None:
        return None
    return CertificateMonitor(
        metric=when.metric,
        tolerance=solved.policy.tolerance(claim.index),
        threshold=claim.threshold,
        floor=_floor(solved),
        level=_UNSET_LEVEL,
        since=_UNSET_SINCE,
    ).to_dict()


def _floor(solved: SolvedPolicy) -> float:
    """Return the smallest positive propensity of a policy: "review" is among its actions, so that there is one."""
    return float(solved.propensities[solved.propensities > 0].min())


def _digest(of: str, document: dict[str, Any], certificate: str | None = None) -> str:
    said = [of, document, certificate]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def count(
    served: Served, wanted: Sequence[Subject], due: Sequence[StoredMonitor], rows: RecentRows, *, end: int, refit: bool
) -> list[Counted]:
    """Let monitors count a cohort.

    Args:
        served: The revision in service.
        wanted: What is watched of it; `due` are monitors of these.
        due: Monitors that stand where the cohort begins.
        rows: All predictions of the cohort.
        end: Where it ends.
        refit: Whether an alarm of the calibration asks for a refit.
    """
    by_subject = {subject.watched.subject: subject for subject in wanted}
    views = _Views(served, rows)
    counted = []
    for stored in due:
        subject = by_subject[stored.subject]
        monitor = _MONITORS[stored.kind](stored.document)
        view, time = views.of(subject)
        monitor.update(view, time, through=end)
        # Labels from before the activation are those that the calibrator was fitted on, or never about it; of those
        # about younger predictions than the cohort's many have not come yet.
        request = RefitRequest(mode="propose", since_us=stored.since, until_us=end)
        counted.append(
            Counted(
                before=stored,
                document=monitor.to_dict(),
                evidence=monitor.alarm.log_e,
                through=end,
                rows=len(time) > 0,
                fired_at=monitor.alarm.fired_at,
                refit=asdict(request) if refit and stored.kind == "calibration" else None,
            )
        )
    return counted


_MONITORS: dict[str, Callable[[dict[str, Any]], CertificateMonitor | CalibrationMonitor]] = {
    "certificate": CertificateMonitor.from_dict,
    "calibration": CalibrationMonitor.from_dict,
}


class _Views:
    """The rows of a cohort as each policy sees them, scored once."""

    def __init__(self, served: Served, rows: RecentRows) -> None:
        self._served = served
        self._rows = rows
        # Of labels that came unasked nobody knows why they came: they are left out, as in a refit.
        self._labelled = rows.sought & (rows.propensity > 0) & (rows.labels != NO_LABEL)
        self._by_positive: dict[str, ScoredRows] = {}

    def of(self, subject: Subject) -> tuple[ScoredRows, npt.NDArray[np.int64]]:
        """Return the rows that a statement is about, and when each was predicted."""
        if subject.policy is None:
            return self._confidences(), self._rows.predicted_at
        positive = subject.policy.policy.positive
        if positive not in self._by_positive:
            self._by_positive[positive] = scored(
                subject.policy.policy,
                self._served.labels,
                self._served.calibrator,
                self._rows.logits,
                self._rows.labels,
                group=self._rows.cluster,
                propensity=self._rows.propensity,
                labelled=self._labelled,
                sought=self._rows.sought,
            )
        view = self._by_positive[positive]
        if subject.segment is None:
            return view, self._rows.predicted_at
        here = self._rows.segment == subject.segment
        return view.take(here), self._rows.predicted_at[here]

    def _confidences(self) -> ScoredRows:
        probabilities = self._served.calibrator.predict_proba(self._rows.logits)
        predicted, confidence = self._served.calibrator.top_label(self._rows.logits, probabilities)
        stated = np.clip(confidence, 0.0, 1.0).astype(np.float32)
        return ScoredRows(
            stated,
            stated,
            predicted == self._rows.labels,
            group=self._rows.cluster,
            propensity=self._rows.propensity,
            labelled=self._labelled,
            sought=self._rows.sought,
        )
