"""What the state knows of a model, for people who judge its risk: notes and tables, sealed by the audit log."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, Table, func, select

from service.decisions.solved import SolvedPolicy
from service.decisions.voided import overlaid
from service.errors import UnknownModelError
from service.state import audit
from service.state.database import Database, now_us
from service.state.monitors import voided_in
from service.state.tables import (
    activations,
    approvals,
    challengers,
    drift,
    estimates,
    exposures,
    feedback,
    feedback_batches,
    guards,
    jobs,
    monitors,
    rejections,
    revisions,
)
from service.state.tables import audit as audit_log
from service.times import iso

ACTION: Final = "dossier"
_MOST_FACTS: Final = 80  # of one document
_LONGEST: Final = 300
_ALARMS: Final = ("alarm", "challenger_decided", "rollback")
_GUIDANCE: Final = (
    (
        "United States: SR 26-2 (Federal Reserve), Bulletin 2026-13 (OCC) and the same by the FDIC, 17 April 2026; "
        "they replace SR 11-7 and Bulletin 2011-12",
        "Principles, not binding, addressed mainly to banks above 30 billion dollars. Whether this is a model in their "
        "narrower sense, and how material it is, is yours to say.",
        "development: Data and training, Calibration; validation: Certificates, Gates; monitoring: Alarms, Input "
        "drift; governance: Approvals, Overrides, Seal",
    ),
    (
        "European Union: AI Act (Regulation 2024/1689), Annex III, point 5 (b)",
        "Systems that judge the creditworthiness of people are of high risk. Systems that detect financial fraud are "
        "excepted. A model that decides on credit is not one of those, whatever it is called.",
        "for a model of high risk: parts of the technical documentation, of record-keeping and of human oversight",
    ),
    (
        "European Union: GDPR, article 22 (decisions by machine alone)",
        "It knows no exception for fraud. Legal basis, information and a person who can decide otherwise are yours.",
        "Purpose (which actions are taken without a person), Overrides",
    ),
)


class Grid(NamedTuple):
    """A table: the names of its columns, and rows of texts."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Section(NamedTuple):
    """A section: its title, sentences, and tables."""

    title: str
    notes: tuple[str, ...]
    grids: tuple[Grid, ...]


def digest_of(sections: Sequence[Section]) -> str:
    """Return the SHA-256 of sections: of their JSON without spaces, in ASCII."""
    return hashlib.sha256(json.dumps(sections, separators=(",", ":")).encode()).hexdigest()


def seal(database: Database, model: str, sections: Sequence[Section], *, by: str) -> None:
    """Record the digest of a dossier in the audit log.

    Raises:
        StateUnavailableError: The database does not answer.
    """
    detail = {"sha256": digest_of(sections)}
    with database.begin() as connection:
        audit.append(connection, model=model, by=by, action=ACTION, subject=model, detail=detail)


def sections_of(connection: Connection, model: str, manifest: Mapping[str, Any] | None) -> tuple[Section, ...]:
    """Return the sections on a model.

    Args:
        connection: Inside a transaction that sees one snapshot.
        model: The model.
        manifest: Manifest of its active bundle; None where that is not at hand.

    Raises:
        UnknownModelError: The state has no active revision of it.
    """
    query = select(activations).where(activations.c.model == model).order_by(activations.c.epoch.desc())
    history = connection.execute(query).all()
    if not history:
        raise UnknownModelError(f"The state has no active revision of {model!r}.", found=model)
    stored = connection.execute(_of(revisions, model).order_by(revisions.c.number)).all()
    active = next(row for row in stored if f"r{row.number}" == history[0].active)
    entries = connection.execute(_of(audit_log, model).order_by(audit_log.c.id)).all()
    return (
        _model(active, history[0]),
        _purpose(active),
        _data(active, manifest, _labels(connection, model)),
        _calibration(active),
        _certificates(connection, model, active),
        _gates(connection, model, stored),
        _approvals(connection, model, history),
        _overrides(entries),
        _alarms(connection, model, entries),
        _drift(connection, model),
        Section(
            "What it is evidence for",
            (
                "This dossier states what happened, not that a law or a supervisor's guidance is met. None of those "
                "below asks for calibrated probabilities or certified decisions. Check the texts in force.",
            ),
            (Grid(("text", "what it says of such models", "parts of this dossier"), _GUIDANCE),),
        ),
    )


def _of(table: Table, model: str) -> Any:
    return select(table).where(table.c.model == model)


def _model(active: Row[Any], pointer: Row[Any]) -> Section:
    facts = {
        "model": active.model,
        "active revision": f"r{active.number}",
        "epoch": pointer.epoch,
        "active since": iso(pointer.at),
        "bundle": f"version {active.bundle_version}, sha256:{active.bundle_id}",
        "model file": f"sha256:{active.model_digest}",
        "written": iso(now_us()),
    }
    return Section("Model", (), (_facts(facts),))


def _purpose(active: Row[Any]) -> Section:
    rows = []
    for name, solved in sorted(active.policies.items()):
        policy = solved["policy"]
        for band in policy["bands"]:
            when = json.dumps(band["when"], sort_keys=True) if band.get("when") else "every other row"
            rows.append((f"{name}@{solved['version']}", policy["positive"], band["action"], when))
    notes = ("The policies in force say what its probabilities are used for.",) if rows else (_NO_POLICY,)
    return Section("Purpose", notes, (_grid(("policy", "positive", "action", "condition"), rows),))


_NO_POLICY: Final = "No policy is in force: the service answers probabilities, and decisions are made elsewhere."


def _data(active: Row[Any], manifest: Mapping[str, Any] | None, labels: Grid) -> Section:
    if manifest is None:
        notes: tuple[str, ...] = (
            f"The manifest of bundle sha256:{active.bundle_id} describes data and training. It was not at hand.",
        )
        return Section("Data and training", notes, (labels,))
    kept = ("source", "labels", "architecture", "training", "imported", "metrics", "versions", "created_at")
    facts = {name: manifest[name] for name in kept if manifest.get(name) is not None}
    return Section("Data and training", ("From the manifest of the active bundle.",), (_facts(facts), labels))


def _labels(connection: Connection, model: str) -> Grid:
    same = (feedback_batches.c.model == feedback.c.model) & (feedback_batches.c.batch == feedback.c.batch)
    columns = feedback.c.source, feedback_batches.c.by
    received = feedback.c.received_at
    query = select(*columns, func.count(), func.min(received), func.max(received)).join(feedback_batches, same)
    found = connection.execute(query.where(feedback.c.model == model).group_by(*columns).order_by(*columns))
    rows = [(source, by, count, iso(first), iso(last)) for source, by, count, first, last in found]
    return _grid(("source of labels", "sent by", "labels", "first received", "last received"), rows)


def _calibration(active: Row[Any]) -> Section:
    report = {key: active.report[key] for key in ("summary", "metrics", "rows", "calibrator") if key in active.report}
    return Section(
        "Calibration",
        ("The calibrator in force, and the report of the revision that brought it.",),
        (_facts({"calibrator": active.calibrator}), _facts({"cause": active.cause, **report})),
    )


def _certificates(connection: Connection, model: str, active: Row[Any]) -> Section:
    voided = voided_in(connection).get(model, {})
    policies = {name: SolvedPolicy.from_dict(solved) for name, solved in active.policies.items()}
    rows = []
    for name, policy in sorted(overlaid(policies, active.model_digest, voided).items()):
        solved = policy.to_dict()
        parts = {"": solved, **solved.get("segments", {})}
        for segment, part in parts.items():
            for band in part["bands"]:
                if (one := band.get("certificate")) is not None:
                    promise = f"≥ {one['at_least']}" if one["at_least"] is not None else f"≤ {one['at_most']}"
                    stands = "valid" if one["valid"] else f"not valid: {one.get('reason')}"
                    of = f"{name}/{segment}" if segment else name
                    counts = one["delta"], one["n"], one["errors"], one["looks"], one["basis"]
                    window = " to ".join(one["window"] or ())
                    rows.append((of, band["action"], f"{one['metric']} {promise}", *counts, window, stands))
    columns = ("policy", "action", "promise", "delta", "rows", "errors", "looks", "basis", "window", "state")
    spent = exposures.c.rows, exposures.c.basis, exposures.c.scope
    query = select(*spent, func.count(), func.max(exposures.c.at)).where(exposures.c.model == model)
    looks = [
        (role, basis, scope, count, iso(at))
        for role, basis, scope, count, at in connection.execute(query.group_by(*spent).order_by(*spent))
    ]
    return Section(
        "Certificates and looks spent",
        ("Current state: a certificate that its monitor has voided is not valid. See Alarms.",),
        (_grid(columns, rows), _grid(("rows", "basis", "purpose", "looks", "last"), looks)),
    )


def _gates(connection: Connection, model: str, stored: Sequence[Row[Any]]) -> Section:
    rejected = {row.revision: row for row in connection.execute(_of(rejections, model))}
    made = []
    for row in stored:
        name = f"r{row.number}"
        no = rejected.get(name)
        end = "" if no is None else f"rejected by {no.by}: {no.reason}"
        made.append((name, iso(row.created_at), row.cause, row.by, row.parent, row.gate, end))
    runs = []
    for row in connection.execute(_of(jobs, model).order_by(jobs.c.number)):
        result = row.result or {}
        gate = result.get("gate") or {}
        verdict = "" if gate.get("passed") is None else "passed" if gate["passed"] else "refused"
        detail = ", ".join(
            f"{key} {gate[key]}" for key in ("difference", "upper", "alpha") if gate.get(key) is not None
        )
        why = result.get("summary") or (row.error or {}).get("detail")
        runs.append((f"j{row.number}", iso(row.created_at), row.kind, row.by, row.state, verdict, detail, why))
    return Section(
        "Gates passed and refused",
        (),
        (
            _grid(("revision", "made", "cause", "by", "from", "gate", "rejection"), made),
            _grid(("job", "asked", "kind", "by", "state", "gate", "log loss against the active one", "summary"), runs),
        ),
    )


def _approvals(connection: Connection, model: str, history: Sequence[Row[Any]]) -> Section:
    moves = [(row.epoch, iso(row.at), row.previous, row.active, row.by, row.reason) for row in reversed(history)]
    rows = connection.execute(_of(approvals, model).order_by(approvals.c.at))
    first = [(row.revision, iso(row.at), row.by, row.reason) for row in rows]
    return Section(
        "Approvals",
        (),
        (
            _grid(("epoch", "at", "from", "to", "by", "reason"), moves),
            _grid(("revision", "first approval", "by", "reason"), first),
        ),
    )


def _overrides(entries: Iterable[Row[Any]]) -> Section:
    rows = [
        (row.id, iso(row.at), row.by, row.action, row.subject, row.detail["reason"], _short(_but(row.detail, "reason")))
        for row in entries
        if isinstance(row.detail, dict) and row.detail.get("reason")
    ]
    notes = ("Actions that required or were given a reason, from the audit log.",)
    return Section("Overrides", notes, (_grid(("entry", "at", "by", "action", "of", "reason", "more"), rows),))


def _alarms(connection: Connection, model: str, entries: Iterable[Row[Any]]) -> Section:
    found = connection.execute(_of(monitors, model).order_by(monitors.c.id))
    running = [
        (
            row.kind,
            row.name,
            row.revision,
            iso(row.since),
            f"{row.evidence:.2f}",
            _time(row.fired_at),
            _time(row.ended_at),
        )
        for row in found
    ]
    told = [
        (row.id, iso(row.at), row.action, row.subject, _short(row.detail)) for row in entries if row.action in _ALARMS
    ]
    guarded = [
        (row.revision, iso(row.since), iso(row.until), row.state, row.rows)
        for row in connection.execute(_of(guards, model))
    ]
    beside = [
        (row.name, row.revision, row.share, iso(row.since), row.by)
        for row in connection.execute(_of(challengers, model))
    ]
    return Section(
        "Alarms",
        (),
        (
            _grid(("monitor", "of", "revision", "since", "log evidence", "fired", "ended"), running),
            _grid(("entry", "at", "event", "of", "detail"), told),
            _grid(("guard of", "since", "until", "state", "groups"), guarded),
            _grid(("challenger", "revision", "share", "since", "by"), beside),
        ),
    )


def _drift(connection: Connection, model: str) -> Section:
    grids = [
        _facts({"revision": row.revision, "level": row.level, **row.document})
        for row in connection.execute(_of(drift, model))
    ]
    grids += [
        _facts({"estimates of": row.revision, "at": iso(row.at), **row.document})
        for row in connection.execute(_of(estimates, model))
    ]
    notes = () if grids else ("No test of input drift has run, and no estimate was made yet.",)
    return Section("Input drift", notes, tuple(grids))


def _facts(document: Mapping[str, Any]) -> Grid:
    """Return the leaves of a document by path; long lists are counted, long documents end."""
    rows = list(_leaves(document, ""))
    cut = [("…", f"{len(rows) - _MOST_FACTS} further values")] if len(rows) > _MOST_FACTS else []
    return _grid(("fact", "value"), [*rows[:_MOST_FACTS], *cut])


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from _leaves(part, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and len(value) > 20:
        yield path, f"{len(value)} values"
    else:
        yield path, json.dumps(value, ensure_ascii=False) if isinstance(value, list | Mapping) else value


def _grid(columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> Grid:
    return Grid(columns, tuple(tuple(_text(cell) for cell in row) for row in rows))


def _text(value: Any) -> str:
    text = "—" if value is None or value == "" else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _short(detail: Any) -> str:
    return json.dumps(detail, sort_keys=True, ensure_ascii=False) if detail else ""


def _but(detail: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in detail.items() if key != name}


def _time(us: int | None) -> str | None:
    return None if us is None else iso(us)
