"""Labels of earlier predictions: appended durably, never changed, resolved when read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, insert, select

from service.errors import FeedbackError, IdempotencyConflictError
from service.state.database import SET_BACK_US, Database, now_us
from service.state.numbering import take_number
from service.state.resolution import rank
from service.state.tables import feedback, feedback_batches, predictions
from service.state.unlabelled import count_labelled
from service.state.window import Window, origins_of

Status = Literal["stored", "pending", "duplicate", "conflict"]
TARGETS_PER_QUERY = 2_000
MOST_NAMED = 20_000
"""Maximum predictions that the references of a request match, because the serving process reads all of them."""


@dataclass(frozen=True, slots=True)
class FeedbackItem:
    """A true label for an earlier prediction.

    Attributes:
        prediction_id: Id of the prediction; None with a reference.
        reference: The client's reference, for all predictions of the model that have it; None with an id.
        label: Name of the true label.
        source: Source of the label, such as "reviewer", "system" or "client".
        labelled_at: When the label was found, in microseconds since the epoch; None for the time of receipt.
    """

    prediction_id: str | None
    reference: str | None
    label: str
    source: str = "client"
    labelled_at: int | None = None


@dataclass(frozen=True, slots=True)
class ItemStatus:
    """The outcome of an item.

    Attributes:
        status: stored; pending (stored, but its prediction is not known yet); duplicate (not stored: its source already
            sent this label); conflict (stored, and differs from the current label).
    """

    status: Status


@dataclass(frozen=True, slots=True)
class FeedbackReceipt:
    """The outcome of a request; all stored items are durable.

    Attributes:
        stored: Stored items, pending and conflicting ones included.
        pending: Stored items whose prediction is not known yet.
        duplicates: Items that were not stored, because their source already sent the same label.
        conflicts: Stored items that differ from the current label.
        items: Status of each item, in the request's order.
        batch: Number of the request among the model's; None for a repeated receipt.
    """

    stored: int
    pending: int
    duplicates: int
    conflicts: int
    items: tuple[ItemStatus, ...]
    batch: int | None = field(default=None, compare=False)  # not part of the answer


class _Target(NamedTuple):
    by_reference: int
    key: str


class _Label(NamedTuple):
    label: str
    source: str
    labelled_at: int | None
    received_at: int
    batch: int
    position: int


class FeedbackStore:
    """Labels of all models. All methods raise StateUnavailableError when the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        model: str,
        items: Sequence[FeedbackItem],
        *,
        by: str,
        idempotency_key: str | None = None,
        body_digest: bytes | None = None,
    ) -> FeedbackReceipt:
        """Store labels durably.

        Args:
            model: The model.
            items: The labels.
            by: Actor of the request.
            idempotency_key: The caller's key for the request: a repetition returns the first receipt. Without a key no
                receipt is kept.
            body_digest: Digest of the request's body, to detect a key that is used for another body.

        Raises:
            FeedbackError: An item does not name exactly one prediction or reference or has text that cannot be stored,
                or the references match more than `MOST_NAMED` predictions; nothing is stored.
            IdempotencyConflictError: `by` used the key for another body.
        """
        targets = [_target(position, item) for position, item in enumerate(items)]
        with self._database.begin() as connection:
            batch = take_number(connection, f"feedback/{model}")
            if idempotency_key is not None:
                receipt = _replay(connection, model, by, idempotency_key, body_digest)
                if receipt is not None:
                    return receipt
            received_at = _received_at(connection, model)
            rows, receipt = _judge(connection, model, batch, received_at, list(zip(targets, items, strict=True)))
            if rows:
                connection.execute(insert(feedback), rows)
            connection.execute(
                insert(feedback_batches).values(
                    model=model,
                    batch=batch,
                    by=by,
                    received_at=received_at,
                    idempotency_key=idempotency_key,
                    body_digest=body_digest,
                    receipt=None if idempotency_key is None else _receipt_document(receipt),
                )
            )
        return receipt

    def count_labelled(self, window: Window, *, at_most: int, input_spec: str | None = None) -> int:
        """Return how many predictions have a label, counting no further than `at_most`; see `count_labelled`."""
        with self._database.connect() as connection:
            return count_labelled(connection, window, at_most=at_most, input_spec=input_spec)


def _received_at(connection: Connection, model: str) -> int:
    """Return the time, at least the last request's, because the latest label is the current one.

    A last request far in the future comes from a broken clock and is ignored.
    """
    query = select(feedback_batches.c.received_at).where(feedback_batches.c.model == model)
    last = connection.execute(query.order_by(feedback_batches.c.batch.desc()).limit(1)).scalar()
    now = now_us()
    return now if last is None or last > now + SET_BACK_US else max(now, last)


def _target(position: int, item: FeedbackItem) -> _Target:
    where = f"/items/{position}"
    if (item.prediction_id is None) == (item.reference is None):
        raise FeedbackError(
            "A label must name its prediction either by id or by reference.",
            where=where,
            found="neither" if item.prediction_id is None else "both",
            expected="either prediction_id or reference",
        )
    for name in ("prediction_id", "reference", "label", "source"):
        text = getattr(item, name)
        if text is not None and not _storable(text):
            raise FeedbackError(
                f"The {name} contains characters that cannot be stored.",
                where=f"{where}/{name}",
                found=ascii(text),
                expected="Unicode text without NUL or lone surrogates",
            )
    if item.prediction_id is not None:
        return _Target(0, item.prediction_id)
    return _Target(1, str(item.reference))


def _storable(text: str) -> bool:
    try:
        return b"\x00" not in text.encode()
    except UnicodeEncodeError:
        return False


def _replay(connection: Connection, model: str, by: str, key: str, digest: bytes | None) -> FeedbackReceipt | None:
    query = select(feedback_batches.c.body_digest, feedback_batches.c.receipt).where(
        feedback_batches.c.model == model,
        feedback_batches.c.by == by,
        feedback_batches.c.idempotency_key == key,
    )
    first = connection.execute(query).one_or_none()
    if first is None:
        return None
    if first.body_digest != digest:
        raise IdempotencyConflictError(
            f"The idempotency key {key!r} was already used for another body.",
            where="Idempotency-Key",
            found="another body",
            expected="the same body as in the first request with this key",
            remedy="Send new content with a new key.",
        )
    return _receipt_from(first.receipt)


def _judge(
    connection: Connection,
    model: str,
    batch: int,
    received_at: int,
    items: list[tuple[_Target, FeedbackItem]],
) -> tuple[list[dict[str, Any]], FeedbackReceipt]:
    """Return the outcome of each item; the caller holds the model's lock."""
    names = _other_names(connection, model, {target for target, _ in items})
    asked = {target for target, _ in items} | {name for others in names.values() for name in others}
    labels = _labels(connection, model, asked)
    rows: list[dict[str, Any]] = []
    statuses: list[Status] = []
    pending = 0
    for position, (target, item) in enumerate(items):
        new = _Label(item.label, item.source, item.labelled_at, received_at, batch, position)
        own = [label for label in labels[target] if label.source == new.source]
        if own and (_current(own).label == new.label or _said_before(new, own)):
            statuses.append("duplicate")
            continue
        known = labels[target] + [label for name in names.get(target, ()) for label in labels[name]]
        unknown = target not in names
        pending += unknown
        if known and _current(known).label != new.label:
            statuses.append("conflict")
        else:
            statuses.append("pending" if unknown else "stored")
        labels[target].append(new)
        rows.append({"model": model, "by_reference": target.by_reference, "target": target.key, **new._asdict()})
    count = Counter(statuses)
    receipt = FeedbackReceipt(
        stored=len(rows),
        pending=pending,
        duplicates=count["duplicate"],
        conflicts=count["conflict"],
        items=tuple(ItemStatus(status) for status in statuses),
        batch=batch,
    )
    return rows, receipt


def _current(labels: Iterable[_Label]) -> _Label:
    return max(labels, key=lambda label: rank(*label[1:]))


def _said_before(new: _Label, own: list[_Label]) -> bool:
    """Return whether a timed label is a repetition, sent after its source had already changed it."""
    return new.labelled_at is not None and any(
        (label.label, label.labelled_at) == (new.label, new.labelled_at) for label in own
    )


def _other_names(connection: Connection, model: str, targets: set[_Target]) -> dict[_Target, list[_Target]]:
    """Return the other targets of each known prediction under which it may be labelled."""
    here = set(origins_of(connection, model))
    known = select(predictions.c.id, predictions.c.reference, predictions.c.origin)
    names: dict[_Target, list[_Target]] = {}
    for keys in _chunks(targets, by_reference=0):
        for id_, reference, origin in connection.execute(known.where(predictions.c.id.in_(keys))).all():
            if origin in here:
                names[_Target(0, id_)] = [] if reference is None else [_Target(1, reference)]
    room = MOST_NAMED
    for keys in _chunks(targets, by_reference=1):
        rows = connection.execute(known.where(predictions.c.reference.in_(keys)).limit(room + 1)).all()
        if len(rows) > room:
            (reference, count), *_ = Counter(row.reference for row in rows).most_common(1)
            raise FeedbackError(
                "The references of the request match too many predictions.",
                where="/items",
                found=f"more than {MOST_NAMED}; {reference[:64]!r} matches {count} or more",
                expected=f"at most {MOST_NAMED}",
                remedy="Send fewer items per request, or prediction_id if many predictions share a reference.",
            )
        room -= len(rows)
        for id_, reference, origin in rows:
            if origin in here:
                names.setdefault(_Target(1, reference), []).append(_Target(0, id_))
    return names


def _labels(connection: Connection, model: str, targets: set[_Target]) -> dict[_Target, list[_Label]]:
    labels: dict[_Target, list[_Label]] = defaultdict(list)
    for by_reference in (0, 1):
        for keys in _chunks(targets, by_reference=by_reference):
            query = select(feedback.c.target, *(feedback.c[name] for name in _Label._fields)).where(
                feedback.c.model == model, feedback.c.by_reference == by_reference, feedback.c.target.in_(keys)
            )
            for target, *label in connection.execute(query).all():
                labels[_Target(by_reference, target)].append(_Label(*label))
    return labels


def _chunks(targets: set[_Target], *, by_reference: int) -> Iterator[list[str]]:
    keys = sorted(target.key for target in targets if target.by_reference == by_reference)
    for start in range(0, len(keys), TARGETS_PER_QUERY):
        yield keys[start : start + TARGETS_PER_QUERY]


def _receipt_document(receipt: FeedbackReceipt) -> dict[str, Any]:
    counts = {name: getattr(receipt, name) for name in ("stored", "pending", "duplicates", "conflicts")}
    return counts | {"items": [item.status for item in receipt.items]}


def _receipt_from(document: dict[str, Any]) -> FeedbackReceipt:
    return FeedbackReceipt(**document | {"items": tuple(ItemStatus(status) for status in document["items"])})
