"""Every error that Candor's domain code raises, as one tree.

    CandorError
    ├── InputError                     the request's content
    │   ├── MalformedBodyError         cannot be parsed at all
    │   ├── BodyTooLargeError
    │   ├── UnsupportedMediaTypeError
    │   │   └── UnsupportedEncodingError
    │   ├── InputShapeError
    │   ├── InputTypeError
    │   ├── InputValueError            NaN, out of range, an unreadable image
    │   └── NonFiniteLogitsError       the model returns NaN or infinite scores, or no probability
    ├── FeedbackError                  a feedback item
    │   ├── MalformedPredictionIdError
    │   └── UnknownLabelError
    ├── PolicyError                    a policy document; `where` names the field
    ├── NotFoundError
    │   ├── UnknownModelError
    │   ├── UnknownRevisionError
    │   ├── UnknownPolicyError
    │   ├── UnknownJobError
    │   ├── UnknownLabelledSetError
    │   ├── UnknownCaseError
    │   └── UnknownChallengerError
    ├── TooFewLabelsError              too few labelled rows to recalibrate
    ├── RevisionStateError             this revision cannot be activated or rolled back
    ├── LabelledSetStateError          this uploaded set cannot be used this way or deleted now
    ├── JobStateError                  this job has no result, or cannot be cancelled
    ├── CaseStateError                 someone else has this case, or it is done
    ├── IdempotencyConflictError       the same key with another body
    ├── EpochRequiredError             If-Match is missing
    ├── EpochStaleError                If-Match names an older state
    ├── UnauthenticatedError
    ├── ForbiddenError
    ├── RateLimitedError               this key has sent too many requests
    ├── ConfigurationError             the service cannot start with this configuration
    │   ├── NoStateError               there is no state yet: the next start makes it
    │   └── OldStateError              the state is of an older version: the next start updates it
    ├── BundleRefusedError             the bundle is damaged or does not reproduce its golden logits
    ├── RunTooLongError                the model does not end for these rows
    ├── UpstreamRejectedError          the server that runs the model cannot score these rows
    └── UnavailableError               the request is fine; try later
        ├── OverloadedError            a queue is full
        ├── DeadlineExceededError
        ├── NotReadyError
        ├── BundleUnreachableError     a remote bundle cannot be copied
        ├── StateUnavailableError      the database does not answer
        ├── ProviderUnavailableError   the identity provider does not answer
        └── UpstreamError              the server that runs the model
            ├── UpstreamDownError      does not answer
            ├── UpstreamSlowError      takes too long
            ├── UpstreamAnswerError    sends something else than the protocol says
            └── UpstreamChangedError   runs another model than the one that was certified

Errors know no HTTP; `service.rest.problems` turns them into responses, `service.grpc.errors` into gRPC statuses.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from service.places import Place

_LONGEST_PART = 500  # characters of client data in an error


class CandorError(Exception):
    """Root of the tree: what went wrong, where, what was found, what was expected, and what to do.

    Args:
        message: What went wrong, in one sentence.
        where: Place of the offending part in a request; elsewhere the name of a setting, file, column …
        found: What was found (JSON-able).
        expected: What was expected (JSON-able).
        remedy: What the caller can do.
    """

    title: ClassVar[str] = "Candor error"
    kind: ClassVar[str] = "error"

    def __init__(
        self,
        message: str,
        *,
        where: Place | str | None = None,
        found: Any = None,
        expected: Any = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        self.place = where
        self.found = found
        self.expected = expected
        self.remedy = remedy

    @property
    def where(self) -> str | None:
        """The place as text, as clients read it."""
        return None if self.place is None else str(self.place)

    @property
    def row(self) -> int | None:
        """Row of `inputs` that the error is about, None for any other place."""
        return self.place.row if isinstance(self.place, Place) else None

    def as_one_text(self) -> str:
        """Return all of it as one text, for protocols that have no more.

        >>> from service.places import in_body
        >>> InputShapeError("The request has no inputs.", where=in_body("inputs"), found=0, expected="1").as_one_text()
        'The request has no inputs. Where: /inputs. Found: 0. Expected: 1.'
        """
        parts = [str(self)]
        for name in ("where", "found", "expected"):
            value = getattr(self, name)
            if value is not None:
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
                parts.append(f"{name.capitalize()}: {text[:_LONGEST_PART]}.")
        if self.remedy is not None:
            parts.append(self.remedy)
        return " ".join(parts)


class InputError(CandorError):
    """The request's content cannot be used.

    Attributes:
        refused: Column of a table that refuses a value, and whether that is "missing", "unknown" or "invalid"; None for
            other errors.
    """

    title = "Unusable input"
    kind = "input"
    refused: tuple[str, str] | None = None


class MalformedBodyError(InputError):
    """The body cannot be parsed."""

    title = "Malformed body"
    kind = "malformed-body"


class BodyTooLargeError(InputError):
    """The body exceeds the size limit, compressed or unpacked."""

    title = "Body too large"
    kind = "body-too-large"


class UnsupportedMediaTypeError(InputError):
    """The endpoint does not accept this content type."""

    title = "Unsupported media type"
    kind = "unsupported-media-type"


class UnsupportedEncodingError(UnsupportedMediaTypeError):
    """The endpoint does not accept this content encoding."""

    title = "Unsupported content encoding"
    kind = "unsupported-encoding"


class InputShapeError(InputError):
    """The shape of an input does not match the model."""

    title = "Wrong input shape"
    kind = "input-shape"


class InputTypeError(InputError):
    """The type of an input does not match the model."""

    title = "Wrong input type"
    kind = "input-type"


class InputValueError(InputError):
    """A value of an input is outside the range of the model."""

    title = "Wrong input value"
    kind = "input-value"


class NonFiniteLogitsError(InputError):
    """The model returns NaN or infinite scores for a valid input, or a probability outside 0 to 1."""

    title = "No finite scores"
    kind = "non-finite-logits"


class FeedbackError(CandorError):
    """A feedback item cannot be used."""

    title = "Unusable feedback"
    kind = "feedback"


class MalformedPredictionIdError(FeedbackError):
    """The prediction id does not have the format of Candor's ids."""

    title = "Malformed prediction id"
    kind = "prediction-id"


class UnknownLabelError(FeedbackError):
    """The model does not have this label."""

    title = "Unknown label"
    kind = "unknown-label"


class PolicyError(CandorError):
    """A policy document cannot be used; `where` names the field."""

    title = "Unusable policy"
    kind = "policy"


class NotFoundError(CandorError):
    """The named object does not exist."""

    title = "Not found"
    kind = "not-found"


class UnknownModelError(NotFoundError):
    """The model does not exist."""

    title = "Unknown model"
    kind = "unknown-model"


class UnknownRevisionError(NotFoundError):
    """The revision does not exist."""

    title = "Unknown revision"
    kind = "unknown-revision"


class UnknownPolicyError(NotFoundError):
    """The policy does not exist."""

    title = "Unknown policy"
    kind = "unknown-policy"


class UnknownJobError(NotFoundError):
    """The job does not exist."""

    title = "Unknown job"
    kind = "unknown-job"


class UnknownLabelledSetError(NotFoundError):
    """The labelled set does not exist."""

    title = "Unknown labelled set"
    kind = "unknown-labelled-set"


class UnknownCaseError(NotFoundError):
    """The case does not exist."""

    title = "Unknown case"
    kind = "unknown-case"


class UnknownChallengerError(NotFoundError):
    """The challenger does not exist."""

    title = "Unknown challenger"
    kind = "unknown-challenger"


class TooFewLabelsError(CandorError):
    """There are too few labelled rows to recalibrate."""

    title = "Too few labels"
    kind = "too-few-labels"


class RevisionStateError(CandorError):
    """The revision cannot be activated or rolled back to in its present state."""

    title = "Revision cannot be used"
    kind = "revision-state"


class LabelledSetStateError(CandorError):
    """An uploaded set belongs to another model, was declared for another purpose, or is in use."""

    title = "Labelled set cannot be used like this"
    kind = "labelled-set-state"


class JobStateError(CandorError):
    """The job was cancelled, or can no longer be cancelled."""

    title = "Job has ended"
    kind = "job-state"


class CaseStateError(CandorError):
    """Someone else has the case, or it is done."""

    title = "Case not available"
    kind = "case-state"


class IdempotencyConflictError(CandorError):
    """An idempotency key was reused with another body."""

    title = "Idempotency key used for another body"
    kind = "idempotency-conflict"


class EpochRequiredError(CandorError):
    """An activation or rollback lacks the epoch that it is based on."""

    title = "If-Match required"
    kind = "epoch-required"


class EpochStaleError(CandorError):
    """The epoch has changed since the caller read it."""

    title = "State has moved on"
    kind = "epoch-stale"


class UnauthenticatedError(CandorError):
    """The API key is missing or not valid."""

    title = "Not authenticated"
    kind = "unauthenticated"


class ForbiddenError(CandorError):
    """The API key lacks the required scope."""

    title = "Not allowed"
    kind = "forbidden"


class RateLimitedError(CandorError):
    """The API key has sent too many requests, or has used up a quota.

    Args:
        message: What went wrong, in one sentence.
        retry_after_s: Seconds until the next request is allowed.
        **details: As in `CandorError`.
    """

    title = "Too many requests"
    kind = "rate-limited"

    def __init__(self, message: str, *, retry_after_s: float = 1.0, **details: Any) -> None:
        super().__init__(message, **details)
        self.retry_after_s = retry_after_s


class ConfigurationError(CandorError):
    """The service cannot start with this configuration."""

    title = "Unusable configuration"
    kind = "configuration"


class NoStateError(ConfigurationError):
    """There is no state yet. The next start of a service makes it."""


class OldStateError(ConfigurationError):
    """The state is of an older version. The next start of a service updates it."""


class BundleRefusedError(CandorError):
    """A bundle is damaged or does not reproduce its golden logits."""

    title = "Bundle refused"
    kind = "bundle-refused"


class RunTooLongError(CandorError):
    """The model does not end for a batch with these rows, so its run was ended. Slow rows would hold it up again."""

    title = "Run too long"
    kind = "run-too-long"


class UpstreamRejectedError(CandorError):
    """The server that runs the model cannot score these rows."""

    title = "Rejected by the model's server"
    kind = "upstream-rejected"


class UnavailableError(CandorError):
    """The request is fine, but the service cannot answer it now."""

    title = "Unavailable"
    kind = "unavailable"


class OverloadedError(UnavailableError):
    """A queue is full."""

    title = "Overloaded"
    kind = "overloaded"


def stopping() -> OverloadedError:
    """Return the error of a request that a stop leaves no time for."""
    return OverloadedError("The service is stopping.", remedy="Ask another replica, or try again later.")


class DeadlineExceededError(UnavailableError):
    """The deadline of the request passed while it was queued."""

    title = "Deadline exceeded"
    kind = "deadline-exceeded"


class NotReadyError(UnavailableError):
    """No revision is loaded."""

    title = "Not ready"
    kind = "not-ready"


class BundleUnreachableError(UnavailableError):
    """A remote bundle cannot be copied."""

    title = "Bundle unreachable"
    kind = "bundle-unreachable"


class StateUnavailableError(UnavailableError):
    """The database does not answer, so nothing can be stored.

    Attributes:
        public: The error without addresses, users and paths, for clients; None if it has none of them.
    """

    public: StateUnavailableError | None = None

    title = "State unavailable"
    kind = "state-unavailable"


class ProviderUnavailableError(UnavailableError):
    """The identity provider gives no usable answer, so nobody can be identified by it."""

    title = "Identity provider unavailable"
    kind = "identity-provider"


class UpstreamError(UnavailableError):
    """The server that runs the model gives no usable answer."""

    title = "Model's server unavailable"
    kind = "upstream"


class UpstreamDownError(UpstreamError):
    """The server that runs the model does not answer, or answers that it cannot."""

    title = "Model's server down"
    kind = "upstream-down"


class UpstreamSlowError(UpstreamError):
    """The server that runs the model does not answer in time."""

    title = "Model's server too slow"
    kind = "upstream-slow"


class UpstreamAnswerError(UpstreamError):
    """The server that runs the model sends something else than the protocol says."""

    title = "Unusable answer of the model's server"
    kind = "upstream-answer"


class UpstreamChangedError(UpstreamError):
    """The server runs another model than the one that was certified."""

    title = "Model has changed on its server"
    kind = "upstream-changed"


def for_clients(error: CandorError) -> CandorError:
    """Return an error as clients may read it: without the address of the state."""
    return (isinstance(error, StateUnavailableError) and error.public) or error


def error_document(error: CandorError) -> dict[str, Any]:
    """Return an error as a document for `error_from_document`, as clients may read it."""
    error = for_clients(error)
    return {
        "class": type(error).__name__,
        "message": str(error),
        "where": error.where,
        "found": error.found,
        "expected": error.expected,
        "remedy": error.remedy,
    }


def _tree(root: type[CandorError]) -> list[type[CandorError]]:
    return [root, *(kind for branch in root.__subclasses__() for kind in _tree(branch))]


_BY_NAME = {kind.__name__: kind for kind in _tree(CandorError)}


def error_from_document(document: dict[str, Any]) -> CandorError:
    """Return the error in a document of `error_document`."""
    kind: type[CandorError] = _BY_NAME[document["class"]]
    return kind(
        document["message"],
        where=document["where"],
        found=document["found"],
        expected=document["expected"],
        remedy=document["remedy"],
    )


_KINDS = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
}


def kind_of(value: Any) -> str:
    """Return the JSON type of a value; of a value that JSON has not, the name of its class.

    >>> kind_of([]), kind_of(True), kind_of(1.5), kind_of(None), kind_of(b"")
    ('array', 'boolean', 'number', 'null', 'bytes')
    """
    return _KINDS.get(type(value), type(value).__name__)
