"""Labels of earlier predictions: appended durably, never changed, resolved when read."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Connection, select

from service.errors import CandorError, FeedbackError, IdempotencyConflictError, RateLimitedError
from service.places import in_body
from service.state.cases import close_labelled
from service.state.database import SET_BACK_US, Database, now_us
from service.state.grouping import GroupedWrites
from service.state.insertion import insert_new
from service.state.numbering import take_numbers
from service.state.quotas import Quota
from service.state.resolution import rank, weight
from service.state.tables import feedback, feedback_batches, predictions
from service.state.unlabelled import count_labelled
from service.state.window import Window, origins_of

Status = Literal["stored", "pending", "duplicate", "conflict"]
_MANY = 100  # targets
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
            sent this label, and it is still the last word of that priority); conflict (stored, and differs from the
            current label).
    """

    status: Status


@dataclass(frozen=True, slots=True)
class FeedbackReceipt:
    """The outcome of a request; all stored items are durable.

    Attributes:
        stored: Stored items, pending and conflicting ones included.
        pending: Stored items whose prediction is not known yet.
        duplicates: Items that were not stored, because their source already sent the same label and nothing changed it.
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


_Row = tuple[_Target, _Label]
_ROW: Final = ("model", "by_reference", "target", *_Label._fields)
_BATCH: Final = ("model", "batch", "by", "received_at", "idempotency_key", "body_digest", "receipt", "by_key")
Within = Callable[[Connection], None]
"""Called inside the transaction that stores a request; a CandorError that it raises refuses the request."""


@dataclass(frozen=True, slots=True)
class _Request:
    items: list[tuple[_Target, FeedbackItem]]
    by: str
    by_key: str | None
    key: str | None
    digest: bytes | None
    within: Within | None


class FeedbackStore:
    """Labels of all models. All methods raise StateUnavailableError when the database does not answer.

    Args:
        database: The state.
        quota: Labels that keys may send; None does not limit them.
    """

    def __init__(self, database: Database, quota: Quota | None = None) -> None:
        self._database = database
        self._quota = quota
        self._groups = GroupedWrites[_Request, FeedbackReceipt](self._store, at_most=TARGETS_PER_QUERY)

    def add(
        self,
        model: str,
        items: Sequence[FeedbackItem],
        *,
        by: str,
        idempotency_key: str | None = None,
        body_digest: bytes | None = None,
    ) -> FeedbackReceipt:
        """Store labels durably; see `submit`."""
        return self.submit(model, items, by=by, idempotency_key=idempotency_key, body_digest=body_digest).result()

    def submit(
        self,
        model: str,
        items: Sequence[FeedbackItem],
        *,
        by: str,
        idempotency_key: str | None = None,
        body_digest: bytes | None = None,
        within: Within | None = None,
        by_key: str | None = None,
    ) -> Future[FeedbackReceipt]:
        """Store labels; the future is done when they are durable.

        Requests for a model that wait for each other share one transaction; each is stored whole, or not at all.

        Args:
            model: The model.
            items: The labels.
            by: Actor of the request.
            idempotency_key: The caller's key for the request: a repetition returns the first receipt. Without a key no
                receipt is kept.
            body_digest: Digest of the request's body, to detect a key that is used for another body.
            within: Called in the same transaction, before the labels are stored.
            by_key: Prefix of the actor's API key: names are used again, prefixes are not.

        Raises:
            FeedbackError: An item does not name exactly one prediction or reference or has text that cannot be stored,
                or (by the future) the references match more than `MOST_NAMED` predictions; nothing is stored.
            IdempotencyConflictError: By the future: `by` used the key for another body.
            RateLimitedError: By the future: the quota of `by` is used up.
        """
        targets = [_target(position, item) for position, item in enumerate(items)]
        request = _Request(list(zip(targets, items, strict=True)), by, by_key, idempotency_key, body_digest, within)
        return self._groups.submit(model, request, len(items))

    def _store(self, model: str, requests: Sequence[_Request]) -> list[FeedbackReceipt | Exception]:
        """Store requests in their order in one transaction, and return a receipt or an error for each."""
        receipts: list[FeedbackReceipt | Exception] = []
        rows: list[_Row] = []
        batches: list[tuple[Any, ...]] = []
        senders: dict[int, str] = {}
        with self._database.begin() as connection:
            number = take_numbers(connection, f"feedback/{model}", len(requests))
            received_at = _received_at(connection, model)
            earlier = _earlier(connection, model, requests)
            new = [request for request in requests if (request.by, request.key) not in earlier]
            refused = self._refused(connection, new)
            items = [item for request in new if id(request) not in refused for item in request.items]
            known = _Known.of(connection, model, {target for target, _ in items})
            for batch, request in enumerate(requests, number):
                if (first := earlier.get((request.by, request.key))) is not None:
                    receipts.append(_replayed(request, *first))
                    continue
                if id(request) in refused:
                    receipts.append(refused[id(request)])
                    continue
                if request.within is not None:
                    try:
                        request.within(connection)
                    except CandorError as error:
                        receipts.append(error)
                        continue
                added, receipt = _judge(known, batch, received_at, request.items)
                receipts.append(receipt)
                rows += added
                kept = None if request.key is None else _receipt_document(receipt)
                if kept is not None:
                    earlier[request.by, request.key] = request.digest, kept
                senders[batch] = request.by
                receipt_text = None if kept is None else json.dumps(kept)
                sender = (request.by, received_at, request.key, request.digest, receipt_text, request.by_key)
                batches.append((model, batch, *sender))
            if rows:
                labels = [(model, *target, *label) for target, label in rows]
                insert_new(connection, feedback, _ROW, labels, skip=False)
                close_labelled(connection, _labelled(rows, known.names, senders), received_at)
            if batches:
                insert_new(connection, feedback_batches, _BATCH, batches, skip=False)
        return receipts

    def _refused(self, connection: Connection, requests: Sequence[_Request]) -> dict[int, RateLimitedError]:
        """Count requests of keys towards their quotas; return the error of each that is refused, by its identity."""
        if self._quota is None:
            return {}
        by_name: dict[str, list[_Request]] = defaultdict(list)
        for request in requests:
            if request.by_key is not None:
                by_name[request.by].append(request)
        refused: dict[int, RateLimitedError] = {}
        for name, own in sorted(by_name.items()):
            # A request without labels is kept, too.
            errors = self._quota.take(connection, name, [len(request.items) or 1 for request in own])
            refused |= {id(request): error for request, error in zip(own, errors, strict=True) if error is not None}
        return refused

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


_Earlier = dict[tuple[str, str | None], tuple[bytes | None, dict[str, Any]]]


def _earlier(connection: Connection, model: str, requests: Sequence[_Request]) -> _Earlier:
    """Return the digests and receipts of earlier requests with the same keys, by caller and key."""
    keys = {request.key for request in requests if request.key is not None}
    if not keys:
        return {}
    batches = feedback_batches.c
    query = select(batches.by, batches.idempotency_key, batches.body_digest, batches.receipt).where(
        batches.model == model,
        batches.by.in_({request.by for request in requests}),
        batches.idempotency_key.in_(keys),
    )
    return {(by, key): (digest, receipt) for by, key, digest, receipt in connection.execute(query)}


def _replayed(
    request: _Request, digest: bytes | None, receipt: dict[str, Any]
) -> FeedbackReceipt | IdempotencyConflictError:
    if request.digest == digest:
        return _receipt_from(receipt)
    return IdempotencyConflictError(
        f"The idempotency key {request.key!r} was already used for another body.",
        where="Idempotency-Key",
        found="another body",
        expected="the same body as in the first request with this key",
        remedy="Send new content with a new key.",
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of targets: the other targets of each known prediction, and the labels of all."""

    names: dict[_Target, list[_Target]]
    labels: dict[_Target, list[_Label]]

    @classmethod
    def of(cls, connection: Connection, model: str, targets: set[_Target]) -> _Known:
        names = _other_names(connection, model, targets)
        return cls(names, _labels(connection, model, targets | {name for others in names.values() for name in others}))


def _judge(
    known_before: _Known,
    batch: int,
    received_at: int,
    items: list[tuple[_Target, FeedbackItem]],
) -> tuple[list[_Row], FeedbackReceipt]:
    """Return the outcome of each item, and add its labels to those known; the caller holds the model's lock."""
    names, labels = known_before.names, known_before.labels
    rows: list[_Row] = []
    statuses: list[Status] = []
    pending = 0
    for position, (target, item) in enumerate(items):
        new = _Label(item.label, item.source, item.labelled_at, received_at, batch, position)
        own = labels[target]
        others = [labels[name] for name in names.get(target, ())] or [[]]
        if _repeated(new, own, others):
            statuses.append("duplicate")
            continue
        unknown = target not in names
        pending += unknown
        last = [_current(own)] if own else []
        if any(_current(known).label != new.label for row in others if (known := [*last, *row])):
            statuses.append("conflict")
        else:
            statuses.append("pending" if unknown else "stored")
        labels[target].append(new)
        rows.append((target, new))
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


def _labelled(
    rows: list[_Row], names: dict[_Target, list[_Target]], senders: dict[int, str]
) -> dict[str, tuple[str, str]]:
    """Return label and sender of each known prediction that new labels are about, by its id."""
    found: dict[str, tuple[str, str]] = {}
    for target, label in rows:
        about = [target] if not target.by_reference else names.get(target, [])
        found |= {one.key: (label.label, senders[label.batch]) for one in about if target in names}
    return found


def _current(labels: Iterable[_Label]) -> _Label:
    return max(labels, key=lambda label: rank(*label[1:]))


def _repeated(new: _Label, own: list[_Label], others: list[list[_Label]]) -> bool:
    """Return whether a label's source has said it already, and no equally strong source has said otherwise since.

    Args:
        new: The label.
        own: Earlier labels of its target.
        others: Labels under the other name of each prediction that the target names.
    """
    same = [label for label in own if label.source == new.source]
    if not same:
        return False
    if new.labelled_at is not None and any(
        (label.label, label.labelled_at) == (new.label, new.labelled_at) for label in same
    ):
        return True  # sent again after its source had changed it
    if _current(same).label != new.label:
        return False
    strength = weight(new.source)
    last = _current(label for label in own if weight(label.source) == strength)
    rows = ([last, *(label for label in row if weight(label.source) == strength)] for row in others)
    return all(_current(row).label == new.label for row in rows)


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
                where=in_body("items"),
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
    if len(targets) > _MANY and connection.dialect.name == "postgresql":
        # A plan that was kept while the table was empty would scan it whole, until it is analysed.
        connection.exec_driver_sql("SET LOCAL plan_cache_mode = force_custom_plan")
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
