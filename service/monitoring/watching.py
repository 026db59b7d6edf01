"""The monitors of an active revision, and how they count a cohort of its predictions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from candor.contract.policies import TOP
from service.decisions.calibrated import Calibrated
from service.decisions.rows import Rows, ScoredRows
from service.decisions.solved import SolvedPolicy
from service.decisions.voided import Claim, claims, key_of
from service.monitoring.calibration import CalibrationMonitor
from service.monitoring.certificate import CertificateMonitor
from service.monitoring.comparison import Comparison
from service.monitoring.propensity import PropensityMonitor
from service.recalibration.task import RefitRequest
from service.serving.plane import Served
from service.state.challengers import Challenger
from service.state.monitors import CALIBRATIONS, Counted, Kind, StoredMonitor, Watched

CALIBRATION = "calibration"
_UNSET_LEVEL, _UNSET_SINCE = 0.5, 0  # until the state assigns level and start


@dataclass(frozen=True, slots=True)
class Subject:
    """One statement about the traffic to monitor.

    Attributes:
        watched: Its names.
        document: Document of a new monitor for it.
        policy: Policy of the certificate, or one whose positive class it is about; None for others.
        segment: Its segment; None for all traffic.
        challenger: The challenger; None for other statements.
    """

    watched: Watched
    document: dict[str, Any]
    policy: SolvedPolicy | None = None
    segment: str | None = None
    challenger: Challenger | None = None


def subjects(served: Served, tolerance: float, challengers: Sequence[Challenger] = ()) -> list[Subject]:
    """Return the statements to monitor: the calibration, each valid certificate, and each challenger.

    There is one monitor of the calibration for the predicted label, one for the positive class of each policy, and one
    for each of the policy's segments. A certificate that rests on traffic has two monitors: of its promise, and of the
    propensities behind it.

    Args:
        served: The active revision, with voided certificates marked.
        tolerance: Tolerated miscalibration.
        challengers: Challengers of the model.
    """
    of = json.dumps([served.revision.model_digest, served.revision.calibrator.to_dict()], sort_keys=True)
    return [
        *_calibrations(served, tolerance, of),
        *_certificates(served, of),
        *(_challenger(served, one) for one in challengers if one.revision != served.revision.id),
    ]


def name_of(policy: str, action: str, segment: str | None) -> str:
    """Return the display name of a certificate's monitor."""
    return "/".join([policy, action] if segment is None else [policy, action, segment])


def _calibrations(served: Served, tolerance: float, of: str) -> Iterator[Subject]:
    document = CalibrationMonitor(
        tolerance=tolerance, floor=_smallest_floor(served), level=_UNSET_LEVEL, since=_UNSET_SINCE
    ).to_dict()
    yield Subject(Watched("calibration", CALIBRATION, _digest(of, document)), document)
    for name, solved, segment in calibrated_parts(served.policies.values()):
        kind: Kind = "class_calibration" if segment is None else "segment_calibration"
        yield Subject(Watched(kind, name, _digest(of, document, name)), document, solved, segment)


def calibrated_parts(policies: Iterable[SolvedPolicy]) -> list[tuple[str, SolvedPolicy, str | None]]:
    """Return the parts of the traffic whose calibration is watched for a class, all traffic first.

    Each has the display name of its monitor, a policy with this positive class, and the segment, None for all traffic.
    """
    parts: dict[tuple[str, str | None], SolvedPolicy] = {}
    for solved in policies:
        segments = () if solved.policy.segments is None else solved.policy.segments.values
        for segment in (None, *segments):
            parts.setdefault((solved.policy.positive, segment), solved)
    parts.pop((TOP, None), None)  # the calibration of the model
    found = [
        ("/".join([CALIBRATION, *(_escaped(part) for part in key if part is not None)]), solved, key[1])
        for key, solved in parts.items()
    ]
    return sorted(found, key=lambda part: part[2] is not None)


def _escaped(part: str) -> str:
    """Return a label or segment without slashes, so that no two parts have one name."""
    return part.replace("%", "%25").replace("/", "%2F")


def _smallest_floor(served: Served) -> float:
    return min((_floor(solved) for solved in served.policies.values()), default=1.0)


def _challenger(served: Served, challenger: Challenger) -> Subject:
    document = Comparison(floor=_smallest_floor(served), level=_UNSET_LEVEL, through=_UNSET_SINCE).to_dict()
    subject = subject_of(served.revision.id, challenger)
    watched = Watched("challenger", challenger.name, subject, since=challenger.since)
    return Subject(watched, document, challenger=challenger)


def subject_of(active: str, challenger: Challenger) -> str:
    """Return the subject of the comparison of a challenger with a revision."""
    return f"{active} and challenger {challenger.number}"


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
            if claim.certificate.basis == "traffic" and claim.certificate.metric != "flag_rate":
                audit = PropensityMonitor(level=_UNSET_LEVEL, since=_UNSET_SINCE).to_dict()
                watched = Watched("propensity", f"{name}/propensity", _digest(of, audit, key), key)
                yield Subject(watched, audit, solved, claim.segment)


def _document(solved: SolvedPolicy, claim: Claim) -> dict[str, Any] | None:
    when = solved.policy.bands[claim.index].condition
    if when is None or when.metric is None:
        return None
    return CertificateMonitor(
        metric=when.metric,
        tolerance=solved.policy.measured(claim.certificate.rows_per_day).tolerance(claim.index),
        threshold=claim.threshold,
        floor=_floor(solved),
        level=_UNSET_LEVEL,
        since=_UNSET_SINCE,
        per=claim.certificate.per,
        amount_when_missing=solved.policy.amount_when_missing,
        wrong_labels=claim.certificate.wrong_labels,
    ).to_dict()


def _floor(solved: SolvedPolicy) -> float:
    """Return a policy's smallest positive propensity; the action "review" has one."""
    return float(solved.propensities[solved.propensities > 0].min())


def _digest(of: str, document: dict[str, Any], what: str | None = None) -> str:
    said = [of, document, what]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def count(
    served: Served, wanted: Sequence[Subject], due: Sequence[StoredMonitor], rows: Rows, *, end: int, refit: bool
) -> list[Counted]:
    """Count a cohort.

    Args:
        served: The active revision.
        wanted: Its statements to monitor, those of `due` among them.
        due: Monitors whose next cohort this is.
        rows: All predictions of the cohort.
        end: End of the cohort, exclusive.
        refit: Whether a calibration alarm requests a recalibration.
    """
    by_subject = {subject.watched.subject: subject for subject in wanted}
    views = _Views(served, rows)
    counted = []
    for stored in due:
        subject = by_subject[stored.subject]
        if subject.challenger is not None:
            continue
        monitor = _MONITORS[stored.kind](stored.document)
        view = views.of(subject)
        monitor.update(view, through=end)
        # Predictions before the activation were used to fit the calibrator or came from another one; many labels of
        # predictions after the cohort have not arrived yet.
        request = RefitRequest(mode="propose", since_us=stored.since, until_us=end, window_by_rule=True)
        of_all_traffic = stored.kind in CALIBRATIONS and subject.segment is None  # as a recalibration is
        counted.append(
            Counted(
                before=stored,
                document=monitor.to_dict(),
                evidence=monitor.alarm.log_e,
                through=end,
                rows=len(view) > 0,
                fired_at=monitor.alarm.fired_at,
                refit=asdict(request) if refit and of_all_traffic else None,
            )
        )
    return counted


_MONITORS: dict[str, Callable[[dict[str, Any]], CertificateMonitor | CalibrationMonitor | PropensityMonitor]] = {
    "certificate": CertificateMonitor.from_dict,
    **dict.fromkeys(CALIBRATIONS, CalibrationMonitor.from_dict),
    "propensity": PropensityMonitor.from_dict,
}


class _Views:
    """The rows of a cohort for each policy, scored once."""

    def __init__(self, served: Served, rows: Rows) -> None:
        self._seen = Calibrated.of(served.calibrator, served.labels, rows)

    def of(self, subject: Subject) -> ScoredRows:
        """Return the rows of a statement."""
        if subject.policy is None:
            return self._confidences()
        rows = self._seen.scored(subject.policy.policy)
        return rows if subject.segment is None else rows.of_segment(subject.segment)

    def _confidences(self) -> ScoredRows:
        stated = np.clip(self._seen.confidence, 0.0, 1.0).astype(np.float32)
        return ScoredRows.of(self._seen.rows, probability=stated, score=stated, positive=self._seen.right)
