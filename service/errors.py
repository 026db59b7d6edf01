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
    │   └── NonFiniteLogitsError       the model has no finite scores for it
    ├── FeedbackError                  a feedback item
    │   ├── MalformedPredictionIdError
    │   └── UnknownLabelError
    ├── PolicyError                    a policy document; `where` names the field
    ├── NotFoundError
    │   ├── UnknownModelError
    │   ├── UnknownRevisionError
    │   ├── UnknownPolicyError
    │   ├── UnknownJobError
    │   └── UnknownLabelledSetError
    ├── TooFewLabelsError              a refit without enough labelled rows
    ├── RevisionStateError             this revision cannot be activated or rolled back
    ├── LabelledSetStateError          this uploaded set cannot be used like this, or not be deleted now
    ├── JobStateError                  this job has no result, or cannot be cancelled
    ├── IdempotencyConflictError       the same key with another body
    ├── EpochRequiredError             If-Match is missing
    ├── EpochStaleError                If-Match names an older state
    ├── UnauthenticatedError
    ├── ForbiddenError
    ├── RateLimitedError               this key has sent too many requests
    ├── ConfigurationError             the service cannot start like this
    ├── BundleRefusedError             a bundle that is damaged or does not do what it says
    └── UnavailableError               nothing wrong with the request; try later
        ├── OverloadedError            the queue is full
        ├── DeadlineExceededError
        ├── NotReadyError
        └── StateUnavailableError      the database does not answer

Errors know no HTTP: `service.app` alone turns them into answers.
"""

from __future__ import annotations

from typing import Any, ClassVar


class CandorError(Exception):
    """Root of the tree: what went wrong, where, what was found, what was expected, and what to do.

    Args:
        message: One sentence for a person.
        where: JSON pointer or field name of the offending part, if there is one.
        found: What was found (JSON-able).
        expected: What was expected (JSON-able).
        remedy: What the caller can do about it.
    """

    title: ClassVar[str] = "Candor error"
    kind: ClassVar[str] = "error"

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        found: Any = None,
        expected: Any = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        self.where = where
        self.found = found
        self.expected = expected
        self.remedy = remedy


class InputError(CandorError):
    """The request's content cannot be used."""

    title = "Unusable input"
    kind = "input"


class MalformedBodyError(InputError):
    """The body cannot be parsed."""

    title = "Malformed body"
    kind = "malformed-body"


class BodyTooLargeError(InputError):
    """The body, or what it unpacks to, is over the limit."""

    title = "Body too large"
    kind = "body-too-large"


class UnsupportedMediaTypeError(InputError):
    """The content type is none that the endpoint reads."""

    title = "Unsupported media type"
    kind = "unsupported-media-type"


class UnsupportedEncodingError(UnsupportedMediaTypeError):
    """The body is encoded in a way that is not read."""

    title = "Unsupported content encoding"
    kind = "unsupported-encoding"


class InputShapeError(InputError):
    """An input's shape is not the model's."""

    title = "Wrong input shape"
    kind = "input-shape"


class InputTypeError(InputError):
    """An input's type is not the model's."""

    title = "Wrong input type"
    kind = "input-type"


class InputValueError(InputError):
    """An input's value is outside what the model takes."""

    title = "Wrong input value"
    kind = "input-value"


class NonFiniteLogitsError(InputError):
    """An input that fits the model, and that the model gives NaN or infinite scores for."""

    title = "No finite scores"
    kind = "non-finite-logits"


class FeedbackError(CandorError):
    """A feedback item cannot be taken."""

    title = "Unusable feedback"
    kind = "feedback"


class MalformedPredictionIdError(FeedbackError):
    """A prediction id that Candor cannot have issued."""

    title = "Malformed prediction id"
    kind = "prediction-id"


class UnknownLabelError(FeedbackError):
    """A label that the model does not have."""

    title = "Unknown label"
    kind = "unknown-label"


class PolicyError(CandorError):
    """A policy document that cannot be used; `where` names the field."""

    title = "Unusable policy"
    kind = "policy"


class NotFoundError(CandorError):
    """Something was named that does not exist."""

    title = "Not found"
    kind = "not-found"


class UnknownModelError(NotFoundError):
    """No such model."""

    title = "Unknown model"
    kind = "unknown-model"


class UnknownRevisionError(NotFoundError):
    """No such revision."""

    title = "Unknown revision"
    kind = "unknown-revision"


class UnknownPolicyError(NotFoundError):
    """No such policy."""

    title = "Unknown policy"
    kind = "unknown-policy"


class UnknownJobError(NotFoundError):
    """No such job."""

    title = "Unknown job"
    kind = "unknown-job"


class UnknownLabelledSetError(NotFoundError):
    """No such labelled set."""

    title = "Unknown labelled set"
    kind = "unknown-labelled-set"


class TooFewLabelsError(CandorError):
    """There are not enough labelled rows to refit."""

    title = "Too few labels"
    kind = "too-few-labels"


class RevisionStateError(CandorError):
    """The revision is in no state to be activated or rolled back to."""

    title = "Revision cannot be activated"
    kind = "revision-state"


class LabelledSetStateError(CandorError):
    """An uploaded set belongs to another model, was declared to be something else, or is in use."""

    title = "Labelled set cannot be used like this"
    kind = "labelled-set-state"


class JobStateError(CandorError):
    """The job was cancelled, or has gone too far to be."""

    title = "Job has ended"
    kind = "job-state"


class IdempotencyConflictError(CandorError):
    """An idempotency key came again with another body."""

    title = "Idempotency key used for another body"
    kind = "idempotency-conflict"


class EpochRequiredError(CandorError):
    """An activation or rollback came without the epoch it is based on."""

    title = "If-Match required"
    kind = "epoch-required"


class EpochStaleError(CandorError):
    """The epoch moved on since the caller looked."""

    title = "State has moved on"
    kind = "epoch-stale"


class UnauthenticatedError(CandorError):
    """No API key, or none that is valid."""

    title = "Not authenticated"
    kind = "unauthenticated"


class ForbiddenError(CandorError):
    """The API key lacks the scope."""

    title = "Not allowed"
    kind = "forbidden"


class RateLimitedError(CandorError):
    """The API key has sent too many requests.

    Args:
        message: One sentence for a person.
        retry_after_s: Seconds until it may send the next.
        **details: As for every error.
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


class BundleRefusedError(CandorError):
    """A bundle is damaged, or does not do what it says."""

    title = "Bundle refused"
    kind = "bundle-refused"


class UnavailableError(CandorError):
    """The request is fine, the service cannot serve it now."""

    title = "Unavailable"
    kind = "unavailable"


class OverloadedError(UnavailableError):
    """The queue is full."""

    title = "Overloaded"
    kind = "overloaded"


class DeadlineExceededError(UnavailableError):
    """The request's deadline passed before its turn came."""

    title = "Deadline exceeded"
    kind = "deadline-exceeded"


class NotReadyError(UnavailableError):
    """No revision is loaded yet."""

    title = "Not ready"
    kind = "not-ready"


class StateUnavailableError(UnavailableError):
    """The database does not answer, so nothing can be stored durably."""

    title = "State unavailable"
    kind = "state-unavailable"


def error_document(error: CandorError) -> dict[str, Any]:
    """Return an error as a document that `error_from_document` reads back."""
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
    """Return the error that `error_document` wrote."""
    kind: type[CandorError] = _BY_NAME[document["class"]]
    return kind(
        document["message"],
        where=document["where"],
        found=document["found"],
        expected=document["expected"],
        remedy=document["remedy"],
    )
