"""What the service answers, typed and frozen. The whole of each answer, as it came, is its `document`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from service.client.errors import UnexpectedAnswerError

T = TypeVar("T")
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy decided: its action, whether a label is asked for, and the policy's segment that the row is of."""

    action: str
    label_sought: bool
    segment: str | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """What held-out labelled rows certify of an action.

    Attributes:
        metric: Name of the certified metric, such as `precision`.
        delta: Error probability that the claim was allowed.
        n: Rows in the metric's denominator.
        basis: `reference`, `traffic` or `uploaded`.
        valid: Whether the claim stands; `reason` says why not.
        segment: The part of the traffic that it is about; None for all of it.
    """

    metric: str
    delta: float
    n: int
    basis: str
    valid: bool
    at_least: float | None = None
    at_most: float | None = None
    errors: int | None = None
    reason: str | None = None
    needed: int | None = None
    segment: str | None = None


@dataclass(frozen=True, slots=True)
class AppliedSegment:
    """What is certified of each action in one segment, and whether its rows get the fallback for want of it."""

    certified: Mapping[str, Certificate]
    uses_fallback: bool


@dataclass(frozen=True, slots=True)
class AppliedPolicy:
    """The policy that decided.

    Attributes:
        id: Its id and version, such as `auto-read@3`.
        certified: What is certified of each action; empty where the policy has segments.
        fallback: With segments, the action of rows of any other.
        segments: With segments, what is certified of those that the request's rows are of.
    """

    id: str
    certified: Mapping[str, Certificate]
    fallback: str | None = None
    segments: Mapping[str, AppliedSegment] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one input got.

    Attributes:
        prediction_id: By which feedback names it.
        label: The most probable label.
        confidence: Its calibrated probability.
        probabilities: By label; all, the largest or none, as was asked for.
        reference: The caller's own name of the row.
        decision: None where no policy decided.
    """

    prediction_id: str
    label: str
    confidence: float
    probabilities: Mapping[str, float]
    reference: str | None = None
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class Predictions:
    """One prediction for each input, in order, all by one revision."""

    model: str
    revision: str
    policy: AppliedPolicy | None
    predictions: tuple[Prediction, ...]
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class FeedbackStatus:
    """What became of one label: `stored`, `pending`, `duplicate` or `conflict`."""

    status: str


@dataclass(frozen=True, slots=True)
class FeedbackReceipt:
    """What became of labels; whatever is counted here is on disk."""

    stored: int
    pending: int
    duplicates: int
    conflicts: int
    items: tuple[FeedbackStatus, ...]
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Erasure:
    """What was erased of a subject, in rows; `labelled_sets` have rows of it too, and are left to be deleted whole."""

    model: str
    predictions: int
    inputs: int
    labels: int
    receipts: int
    labelled_sets: tuple[str, ...]
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """Labelled rows that were uploaded.

    Attributes:
        id: Such as `ls1`.
        sha256: Of the bytes.
        kind: `logits` or `inputs`.
        labels: Rows by label.
        represents: `traffic` where they were declared to be a random sample of it.
    """

    id: str
    sha256: str
    bytes: int
    rows: int
    kind: str
    labels: Mapping[str, int]
    created_at: str
    by: str
    represents: str | None = None
    document: Document = field(repr=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate's verdict over a refit.

    Attributes:
        mode: `superior` or `non_inferior`.
        passed: Whether the refit may take the place of the revision in service.
        difference: Mean difference of the log loss, in nats; negative is better.
        upper: Its upper bound at level `alpha`.
        attempt: How often these rows have been looked at, this time included.
    """

    mode: str
    passed: bool
    difference: float
    upper: float
    alpha: float
    attempt: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Recalibration:
    """What a refit found, and what came of it.

    Attributes:
        base: The revision that it was compared with.
        epoch: The epoch to activate it with.
        rows: Labelled rows by part.
        metrics: Metrics on the gate's rows, before and after.
        decisions: Decisions that would change, by policy.
        policies: Thresholds and certificates by policy.
        summary: One sentence.
        revision: The proposal; None where nothing was kept.
        state: Its state.
    """

    base: str
    epoch: int
    rows: Mapping[str, int]
    gate: Gate
    metrics: Document
    decisions: Document
    policies: Document
    summary: str
    revision: str | None = None
    state: str | None = None
    document: Document = field(repr=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Job:
    """A refit that runs or ran; `result` and `error` are None until it ends.

    Attributes:
        state: `queued`, `running`, `done`, `failed` or `cancelled`.
        progress: What it is doing, in words.
        step: Which of its `steps` that is, from 1; 0 before it starts.
        looks: Looks at held-out rows that it has spent, None before the first.
        summary: Of a cancelled job, whether looks are spent; in a list, what it found.
        revision: In a list, the proposal that it made.
    """

    job: str
    model: str
    kind: str
    state: str
    progress: str | None
    created_at: str
    error: Document | None
    result: Document | None = None
    by: str | None = None
    step: int = 0
    steps: int = 0
    looks: Document | None = None
    summary: str | None = None
    revision: str | None = None
    document: Document = field(repr=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs, newest first; `next` is what the next page wants."""

    items: tuple[Job, ...]
    next: str | None
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ProposedJob:
    """The revision that a dry run has become."""

    job: str
    model: str
    revision: str
    state: str
    gate: str
    summary: str
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A proposal that was turned down."""

    id: str
    state: str
    by: str
    reason: str
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One thing that was done, such as `activate`, and what it was done to, such as `r7`."""

    id: int
    at: str
    by: str
    action: str
    subject: str
    detail: Document


@dataclass(frozen=True, slots=True)
class AuditPage:
    """What was done, newest first; `next` is what the next page wants."""

    items: tuple[AuditEntry, ...]
    next: int | None
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class RevisionSummary:
    """A revision in a list.

    Attributes:
        id: Such as `r7`.
        state: `active`, `proposed` …
        bundle: Version of its bundle.
        cause: What made it: `bundle`, `policy`, `recalibrate` …
        gate: `passed`, `refused` or `not_run`.
        created_at: ISO 8601.
    """

    id: str
    state: str
    bundle: int
    cause: str
    by: str
    gate: str
    created_at: str
    parent: str | None = None
    summary: str | None = None


@dataclass(frozen=True, slots=True)
class RevisionPage:
    """Revisions, newest first; `epoch` is what activate and rollback want, `next` what the next page wants."""

    active: str
    previous: str | None
    epoch: int
    items: tuple[RevisionSummary, ...]
    next: str | None
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision whole: calibrator, thresholds, certificates and the report that led to it."""

    id: str
    state: str
    model: str
    bundle: int
    cause: str
    by: str
    gate: str
    created_at: str
    calibrator: Document
    policies: Document
    report: Document
    parent: str | None = None
    summary: str | None = None
    document: Document = field(repr=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Pointer:
    """What is in service after a move, what was before, and the epoch of that state.

    `warnings` name certificates that an activation has lost.
    """

    active: str
    previous: str | None
    epoch: int
    warnings: tuple[str, ...] = ()
    document: Document = field(repr=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """A policy as it is in force: its document, version and solved thresholds."""

    policy: Document
    version: int
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class PolicyProposal:
    """The revision that a policy would take force with; its state is `active` where it is in force already.

    `warnings` say where nothing is certified, and how many labels are missing.
    """

    id: str
    state: str
    policy: Document
    warnings: tuple[str, ...] = ()
    document: Document = field(repr=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Model:
    """A model and what it serves.

    Attributes:
        revision: In service, None while there is none; so are the fields below.
        input: What one example looks like.
        columns: Of a model of a table's rows, their names.
        problem: Why it does not serve what it should.
        refused: Of a load: bundles that became no proposals, and why, by version.
    """

    model: str
    epoch: int
    revision: str | None
    problem: str | None
    loaded: bool = True
    bundle: int | None = None
    provider: str | None = None
    labels: tuple[str, ...] = ()
    input: Document | None = None
    columns: tuple[str, ...] | None = None
    policies: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    document: Document = field(repr=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class ClassShare:
    """A class's share of the rows.

    Attributes:
        source: That the calibrator was right for.
        target: That it is carried over to.
        interval: 95 % interval of an estimated one, None of a known one.
    """

    source: float
    target: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class PriorShift:
    """The calibrator in service for other shares of the classes.

    Attributes:
        revision: The proposal, None of a dry run.
        state: `dry_run` or `proposed`.
        priors: Shares by label.
        rows: Recent predictions that were looked at.
        summary: In words.
    """

    revision: str | None
    state: str
    priors: Mapping[str, ClassShare]
    rows: int
    summary: str
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Health:
    """Whether every model serves what it should, and which do not.

    Attributes:
        ready: Whether all do.
        stale_for_s: Seconds since the service heard from its database.
        models: Revision in service by model; None where the service has keys and none of them was sent.
        problems: What is wrong, by model; None likewise.
    """

    ready: bool
    stale_for_s: float
    document: Document = field(repr=False, compare=False)
    models: Mapping[str, str | None] | None = None
    problems: Mapping[str, str] | None = None


def read(kind: type[T], document: Any) -> T:
    """Return an answer as one of the classes above. Fields that they do not name are left to `document`.

    Raises:
        UnexpectedAnswerError: A field is missing, or an object or array is none.
    """
    try:
        answer: T = _reader(kind)(document)  # type: ignore[arg-type]  # types are hashable
    except (TypeError, KeyError, AttributeError) as error:
        raise UnexpectedAnswerError(
            f"The answer is no {kind.__name__} as this client knows it: {error!r}. Does the URL lead to a Candor "
            "service of this version?"
        ) from error
    return answer


@cache
def _reader(hint: Hashable) -> Callable[[Any], Any]:
    """Return what turns a JSON value into a value of this type; numbers, texts and documents stay as they are."""
    if is_dataclass(hint):
        return _record_reader(hint)
    arguments: tuple[Any, ...] = get_args(hint)
    if NoneType in arguments:
        present = _reader(next(argument for argument in arguments if argument is not NoneType))
        return lambda value: None if value is None else present(value)
    if get_origin(hint) is tuple:
        of_entry = _reader(arguments[0])
        return lambda values: tuple([of_entry(value) for value in values])
    last: Any = arguments[-1] if arguments else None
    if is_dataclass(last):
        of_value = _reader(last)  # type: ignore[arg-type]  # types are hashable
        return lambda values: {key: of_value(value) for key, value in values.items()}
    return lambda value: value


def _record_reader(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    readers = {entry.name: _reader(hints[entry.name]) for entry in fields(kind) if entry.name != "document"}
    required = [
        entry.name
        for entry in fields(kind)
        if entry.default is MISSING and entry.default_factory is MISSING and entry.name != "document"
    ]
    keeps_document = "document" in hints

    def record(document: Any) -> Any:
        for name in required:
            document[name]  # a KeyError names the field
        values = {name: reader(document[name]) for name, reader in readers.items() if name in document}
        return kind(**values, document=document) if keeps_document else kind(**values)

    return record
