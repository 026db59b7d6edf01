"""Certificates that grow, read by a recalibration: no look is recorded, whatever becomes of the recalibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select

from bundle import Bundle
from bundle.split import CERTIFY, roles
from calibrators import Calibrator
from candor.contract.certificates import Certificate, SolvedBand
from candor.contract.conditions import Metric
from candor.contract.policies import TOP, Policy
from service.decisions.begun import Beginning, beginning_of, beginnings, lowest_sought, promised
from service.decisions.binomial import labels_needed
from service.decisions.calibrated import Calibrated
from service.decisions.claims import DENOMINATORS, promise_of
from service.decisions.counting import seed_of
from service.decisions.grid import key_of, make_grid
from service.decisions.growing import STAKED, Plan, certified, needed
from service.decisions.maturity import maturity_us
from service.decisions.policy import parse_policy
from service.decisions.revision import Revision
from service.decisions.rows import Rows, ScoredRows
from service.decisions.same_rows import OrderLostError, same_rows
from service.decisions.solved import SolvedPolicy
from service.decisions.voided import ALARM, broken
from service.recalibration.policies import Refitted
from service.state.database import Database
from service.state.labelled import load_labelled_rows
from service.state.maturing import settled
from service.state.monitors import MonitorStore
from service.state.revisions import RevisionStore
from service.state.tables import predictions
from service.state.unlabelled import MOST_ROWS, load_unlabelled_rows
from service.state.window import Window
from service.times import iso

_SEEDS = 1 << 32  # keeps draws of beginnings apart from those of looks
_RETURN = 0.1  # of the rows' time span: a row that comes later than that after the first of its group has returned
_FEW = 0.01  # largest share of returned rows at which the first rows of groups stand for the groups


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What is known for the certificates that grow.

    Attributes:
        beginnings: Those of the model.
        rows: Certify rows since the first of the active policies' beginnings, in the order of predictions.
        floors: Smallest positive probability with which the active policies sought labels, by time since when.
        kept_since_us: Earlier rows may have been deleted.
        voided_us: When an alarm last voided a certificate; 0 for never.
    """

    beginnings: Sequence[Beginning]
    rows: Rows
    floors: Sequence[tuple[int, float]] = ()
    kept_since_us: int = 0
    voided_us: int = 0

    def floor_at(self, times_us: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the smallest positive probability in force at each time, known before it; 1 before the first."""
        values = np.array([1.0, *(floor for _, floor in self.floors)])
        found: NDArray[np.float64] = values[np.searchsorted([at for at, _ in self.floors], times_us, side="right")]
        return found


def load_evidence(
    database: Database, revision: Revision, names: Sequence[str], *, at_us: int, kept_us: float | None
) -> Evidence | None:
    """Read the evidence of a revision's policies; None if none of their certificates grows.

    Args:
        database: Open state.
        revision: The active revision.
        names: The model's labels.
        at_us: Rows predicted before this time are read.
        kept_us: Time that rows are kept, in microseconds; None for ever.
    """
    wanted = [
        promise
        for solved in revision.policies.values()
        for promise in promised(solved.policy, revision.bundle_id).values()
    ]
    if not wanted:
        return None
    store = RevisionStore(database)
    made = store.made(revision.model)
    begun = beginnings(made, names)
    ours = (beginning_of(promise, revision.calibrator, begun, names) for promise in wanted)
    since_us = min((one.since_us for one in ours if one is not None), default=at_us)
    # Whole up to one time: rows of another policy in between, read before, must not come earlier than rows read later.
    known = (parse_policy(document["policy"]) for one in made for document in one.policies.values())
    mature_us = at_us - maturity_us(known)
    window = Window(revision.model, revision.model_digest, min(since_us, mature_us), mature_us)
    with database.connect() as connection:  # one transaction, so that no row is read twice
        window = settled(connection, window, at_us, names)
        here = predictions.c.origin.in_(window.origins(connection)), *window.times()
        times = select(predictions.c.created_at).where(*here).order_by(predictions.c.created_at)
        until_us = connection.scalar(times.offset(MOST_ROWS).limit(1))  # the first ones: evidence never starts later
        window = replace(window, until_us=until_us or mature_us)
        rows = Rows.concat(
            [
                load_labelled_rows(connection, window, label_names=names).rows,
                load_unlabelled_rows(connection, window, classes=len(names), ids=True),
            ]
        )
    rows = rows.take(roles(rows.group) == CERTIFY)
    rows = rows.take(np.lexsort((rows.id, rows.predicted_at))).without("id")
    lowest = {
        one.id: min(
            (lowest_sought(parse_policy(document["policy"])) for document in one.policies.values()), default=1.0
        )
        for one in made
    }
    return Evidence(
        begun,
        rows,
        [(at, lowest[active]) for at, active in store.activations(revision.model)],
        kept_since_us=0 if kept_us is None else at_us - round(kept_us),
        voided_us=MonitorStore(database).last_void(revision.model),
    )


def read_all(
    policies: Mapping[str, SolvedPolicy],
    bundle: Bundle,
    active: Calibrator,
    candidate: Calibrator,
    evidence: Evidence,
    *,
    seed: int,
) -> dict[str, Refitted]:
    """Return the policies whose certificates grow, where `grown` has an answer."""
    found = {key: grown(old, bundle, active, candidate, evidence, seed=seed) for key, old in policies.items()}
    return {key: refitted for key, refitted in found.items() if refitted is not None}


def grown(
    old: SolvedPolicy, bundle: Bundle, active: Calibrator, candidate: Calibrator, evidence: Evidence, *, seed: int
) -> Refitted | None:
    """Return a policy with what its evidence certifies; None if its certificates do not grow, or rows lose their order.

    A certificate that stands is replaced only by one that takes more rows (for a recall: fewer).

    Args:
        old: The active policy, with voided certificates marked.
        bundle: Its reference fit rows fix the candidates and the order of tests.
        active: The active calibrator.
        candidate: The recalibrated one.
        evidence: From `load_evidence`.
        seed: The installation's.
    """
    policy, names = old.policy, bundle.manifest.labels
    wanted = promised(policy, bundle.id)
    positive = TOP if policy.positive == TOP else names.index(policy.positive)
    logits = np.concatenate([evidence.rows.logits, bundle.reference.fit.logits])
    if not wanted:
        return None
    try:
        bands = list(same_rows(old.bands, positive, active, candidate, logits))
    except OrderLostError:
        return None
    notes, voided = [], broken(old)
    for index, promise in wanted.items():
        beginning = beginning_of(promise, active, evidence.beginnings, names)
        if beginning is None:
            return None
        when = policy.bands[index].condition
        void = when is not None and when.metric in voided and evidence.voided_us >= beginning.since_us
        band, note = _read(policy, index, bundle, beginning, evidence, seed, void=void)
        notes.append(note)
        if band.threshold is not None:
            try:
                (band,) = same_rows((band,), positive, beginning.calibrator, candidate, logits)
            except OrderLostError as error:
                notes.append(f"{band.action} keeps its threshold: {error}.")
                continue
        if _better(band, bands[index], recall=when is not None and when.metric == "recall"):
            bands[index] = band
    lost = any(not band.stands and (band.threshold is None or policy.on_invalid == "review_all") for band in bands)
    return Refitted(replace(old, bands=tuple(bands), review_all=lost), tuple(notes))


def _better(new: SolvedBand, old: SolvedBand, *, recall: bool) -> bool:
    """Return whether a band with new evidence replaces an old one; both are of one calibrator."""
    if new.threshold is None:
        return not old.stands and old.threshold is None  # the newer reason
    if not old.stands or old.threshold is None:
        return True
    sides = key_of(new.threshold)[0], key_of(old.threshold)[0]
    return bool(sides[0] > sides[1] if recall else sides[0] < sides[1])


def _read(
    policy: Policy, index: int, bundle: Bundle, beginning: Beginning, evidence: Evidence, seed: int, *, void: bool
) -> tuple[SolvedBand, str]:
    """Return a band as its evidence certifies it, with a threshold for the beginning's calibrator, and a note."""
    action, when = policy.bands[index].action, policy.bands[index].condition
    assert when is not None and when.metric is not None  # noqa: S101, PT018 — it is a promise
    names, planned, metric = bundle.manifest.labels, beginning.promised.planned, when.metric
    rows = evidence.rows.since(beginning.since_us)
    if metric != "flag_rate":  # nobody knows why other labels came
        rows = rows.take(~np.isnan(rows.propensity))
    returned = _returned(rows)
    first = np.sort(np.unique(rows.group, return_index=True)[1])
    rows = rows.take(first)
    floor = evidence.floor_at(rows.predicted_at)
    fit, certify = (
        Calibrated.of(beginning.calibrator, names, part).scored(policy)
        for part in (Rows.of_reference(bundle.reference.fit), rows)
    )
    came = f"{len(rows):,} certify rows came since {iso(beginning.since_us)}, {planned:,} are planned"
    grid = make_grid(fit, replace(certify.take(slice(0)), labelled=np.zeros(0, np.bool_)))
    window = iso(beginning.since_us), iso(int(rows.predicted_at[-1]) if len(rows) else beginning.since_us)
    claim = Certificate(
        metric=metric,
        at_least=when.value if when.at_least else None,
        at_most=None if when.at_least else when.value,
        delta=beginning.level,
        n=0,
        errors=0,
        looks=1,
        basis="traffic",
        window=window,
        valid=False,
    )

    def not_shown(reason: str, **found: int) -> tuple[SolvedBand, str]:
        refused = claim.model_copy(update={"reason": reason, **found})
        note = reason if reason.startswith(came) else f"{came}; {reason}"
        return SolvedBand(action=action, threshold=None, certificate=refused), f"{action}: {note}."

    if void:
        return not_shown(
            f"{ALARM}: the traffic broke this promise; another promise or another `planned` begins a new certificate"
        )
    if beginning.since_us < evidence.kept_since_us:
        return not_shown("rows of that time have been deleted, so the certificate grows no further; change `planned`")
    if returned > _FEW:
        return not_shown(
            f"{returned:.1%} of the rows are of groups that came before, and groups with many rows come first: the "
            f"first rows of groups do not stand for all groups; above {_FEW:.0%}, use looks: unlimited"
        )
    if not len(grid.keys):
        return not_shown("the bundle has no reference rows to choose thresholds from")
    plan = Plan(
        replace(grid, floor=np.full(len(grid.keys), beginning.sought)),
        metric,
        policy.tolerance(index),
        beginning.level,
        planned,
        seed_of(seed, _SEEDS + beginning.number),
    )
    at = certified(plan, certify, floor)
    if at >= 0:
        n, errors = _counts(metric, certify, plan.grid.cells(certify) <= at)
        claim = claim.model_copy(update={"n": n, "errors": errors, "valid": True})
        band = SolvedBand(action=action, threshold=grid.threshold(at), certificate=claim)
        return band, f"{action}: {came}; they show {promise_of(when)} with {errors} errors among {n:,}."
    n, errors = _counts(metric, certify, plan.grid.cells(certify) <= plan.order[0])
    more = needed(plan, certify, floor)
    exact = labels_needed(n, errors, plan.tolerance, STAKED * plan.level)
    if exact <= planned - len(rows):
        more = min(more, exact)
    rest, labels = DENOMINATORS[metric]
    return not_shown(
        f"{came}: {errors} errors among {n} {rest} do not show {promise_of(when)} yet; at least {more} more {labels} "
        "are needed, if none of them is an error",
        n=n,
        errors=errors,
        needed=more,
    )


def _returned(rows: Rows) -> float:
    """Return the share of rows, in order of prediction, whose group came long before: not in the same burst."""
    if not len(rows):
        return 0.0
    time = rows.predicted_at
    _, first, of = np.unique(rows.group, return_index=True, return_inverse=True)
    return float((time - time[first][of] > _RETURN * (time[-1] - time[0])).mean())


def _counts(metric: Metric, rows: ScoredRows, above: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the labelled rows in a metric's denominator (for a flag rate all), and the errors among them."""
    known = rows.known() & (rows.propensity > 0)
    inside, wrong = {
        "precision": (known & above, ~rows.positive),
        "selective_risk": (known & above, ~rows.positive),
        "recall": (known & rows.positive, ~above),
        "false_positive_rate": (known & ~rows.positive, above),
        "flag_rate": (np.ones(len(rows), np.bool_), above),
    }[metric]
    return int(inside.sum()), int((inside & wrong).sum())
