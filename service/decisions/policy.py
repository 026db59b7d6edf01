"""What an operator wants: bands of actions, the first one whose condition holds.

A policy is data. This file reads a policy document, refuses what cannot work with an error that names the field, and
writes it back; `certify.solve` turns it into thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, cast

from service.decisions import documents
from service.decisions.bands import Band, Explore, explored_below, read_bands, read_explore
from service.decisions.conditions import REVIEW, Condition
from service.errors import PolicyError

TOP: Final = "top"
FIELDS: Final = (
    "id",
    "positive",
    "bands",
    "certify",
    "explore",
    "on_calibrator_change",
    "on_uncertifiable",
    "on_invalid",
    "segments",
)
LOOKS: Final = ("unlimited", "once")
ON_CALIBRATOR_CHANGE: Final = ("resolve", "keep_threshold")
ON_UNCERTIFIABLE: Final = ("review_all", "keep_previous", "fail")
ON_INVALID: Final = ("keep", "review_all")
LONGEST_SEGMENT: Final = 200  # characters; no request names a longer one
SMALLEST_DELTA: Final = 1e-12  # of which every promise, segment and look still has a share that floats tell from 0


@dataclass(frozen=True, slots=True)
class Certify:
    """How certificates of a policy are to hold.

    Attributes:
        delta: Probability in [1e-12, 1) that any certificate of the policy is false.
        looks: "unlimited" shares delta among all looks at the same rows; "once" spends it on rows never shown before.
    """

    delta: float = 0.05
    looks: Literal["unlimited", "once"] = "unlimited"


@dataclass(frozen=True, slots=True)
class Segments:
    """Parts of the traffic with thresholds and certificates of their own.

    Attributes:
        values: The values of a request's `segments` that name such a part.
        fallback: Action of every row of another segment, of none, or of one that cannot be certified. Fixed here,
            before any label is seen.
    """

    values: tuple[str, ...]
    fallback: str = REVIEW


@dataclass(frozen=True, slots=True)
class Policy:
    """Bands of actions on one class or on the predicted label.

    Attributes:
        id: Name of the policy.
        positive: A class label, or "top" for whichever label is predicted.
        bands: First match wins; the last one is unconditional.
        certify: How certificates are to hold.
        explore: Which rows are labelled at random.
        on_calibrator_change: "resolve" solves anew when a refit changes the calibrator; "keep_threshold" leaves the
            thresholds where they are, and tests them again.
        on_uncertifiable: "review_all" sends every row to review (of a segment: to its fallback) while a promise cannot
            be certified; "keep_previous" does so too, except after a refit that keeps the order of rows: then the same
            rows stay above the thresholds, and their certificates stand; "fail" refuses.
        on_invalid: What becomes of a threshold that has stayed and lost its certificate, to a refit or to an alarm:
            "keep" lets it decide, "review_all" sends every row to review (of a segment: to its fallback).
        segments: Parts of the traffic that are solved for themselves; None for one solution for all.

    Example:
        >>> policy = Policy.from_dict(
        ...     {
        ...         "id": "auto-read",
        ...         "positive": "top",
        ...         "bands": [{"action": "accept", "when": {"min_precision": 0.95}}, {"action": "review"}],
        ...     }
        ... )
        >>> policy.bands[0].when
        Condition(name='min_precision', value=0.95, costs=None)
        >>> Policy.from_dict(policy.to_dict()) == policy
        True
    """

    id: str
    positive: str
    bands: tuple[Band, ...]
    certify: Certify = field(default_factory=Certify)
    explore: Explore = field(default_factory=Explore)
    on_calibrator_change: Literal["resolve", "keep_threshold"] = "resolve"
    on_uncertifiable: Literal["review_all", "keep_previous", "fail"] = "review_all"
    on_invalid: Literal["keep", "review_all"] = "keep"
    segments: Segments | None = None

    @property
    def fallback(self) -> str:
        """Action of the rows for which nothing is certified."""
        return REVIEW if self.segments is None else self.segments.fallback

    @property
    def claims(self) -> int:
        """Number of certificates that share delta: one for each promise in each segment."""
        return len(list(self.promises())) * (1 if self.segments is None else len(self.segments.values))

    def promises(self) -> Iterator[tuple[int, Condition]]:
        """Yield the bands that promise something, by index, with what they promise."""
        for index, band in enumerate(self.bands):
            if band.when is not None and band.when.certified:
                yield index, band.when

    def tolerance(self, index: int) -> float:
        """Return the largest rate of errors with which a band keeps its promise.

        A flag rate counts what is explored below the threshold as well, since a person sees those rows too: of a limit
        a and an explored share e, (a − e)/(1 − e) is left for the rows at or above.

        Args:
            index: Of a band with a certified condition.
        """
        when = self.bands[index].when
        if when is None:
            raise ValueError(f"band {index} promises nothing")
        explored = explored_below(self.bands, self.explore, index) if when.metric == "flag_rate" else 0.0
        return (when.tolerance - explored) / (1.0 - explored)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read a policy document.

        Args:
            document: Parsed JSON or YAML.

        Returns:
            The policy.

        Raises:
            PolicyError: With `where` as a JSON pointer to the field, what was found and what was expected.
        """
        fields = documents.fields_of(document, "", set(FIELDS))
        bands = read_bands(documents.required(fields, "bands"))
        explore = read_explore(fields.get("explore", {}), bands)
        if fields.get("on_calibrator_change") == "keep_threshold" and fields.get("on_uncertifiable") == "keep_previous":
            raise PolicyError(
                "A refit cannot leave both the threshold and the rows above it as they are.",
                where="/on_uncertifiable",
                found="keep_previous, beside keep_threshold",
                expected="one of the two",
                remedy="keep_threshold leaves the number, keep_previous the rows; choose one.",
            )
        return cls(
            id=documents.name(documents.required(fields, "id"), "/id"),
            positive=documents.text(fields.get("positive", TOP), "/positive"),
            bands=bands,
            certify=_certify(fields.get("certify", {})),
            explore=explore,
            on_calibrator_change=cast(
                "Literal['resolve', 'keep_threshold']", _choice(fields, "on_calibrator_change", ON_CALIBRATOR_CHANGE)
            ),
            on_uncertifiable=cast(
                "Literal['review_all', 'keep_previous', 'fail']", _choice(fields, "on_uncertifiable", ON_UNCERTIFIABLE)
            ),
            on_invalid=cast("Literal['keep', 'review_all']", _choice(fields, "on_invalid", ON_INVALID)),
            segments=_segments(fields["segments"], bands) if fields.get("segments") is not None else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the complete JSON-able document, defaults written out; `segments` only where there are some."""
        bands: list[dict[str, Any]] = [
            {"action": band.action} | ({} if band.when is None else {"when": band.when.to_dict()})
            for band in self.bands
        ]
        return {
            "id": self.id,
            "positive": self.positive,
            "bands": bands,
            "certify": {"delta": self.certify.delta, "looks": self.certify.looks},
            "explore": {"share": self.explore.share, "actions": list(self.explore.actions)},
            "on_calibrator_change": self.on_calibrator_change,
            "on_uncertifiable": self.on_uncertifiable,
            "on_invalid": self.on_invalid,
        } | ({} if self.segments is None else {"segments": _segments_document(self.segments)})

    def check_labels(self, labels: Sequence[str]) -> None:
        """Refuse a positive class that the model does not have, or that may be meant in two ways.

        Args:
            labels: The model's labels.

        Raises:
            PolicyError: When `positive` is neither "top" nor one of them, or when it is "top" and a label is too.
        """
        if self.positive == TOP and TOP in labels:
            raise PolicyError(
                f"This model has a label {TOP!r}: it may mean that class or the predicted label.",
                where="/positive",
                found=self.positive,
                expected=[label for label in labels if label != TOP],
                remedy="Name another label, or export the model with another name for that class.",
            )
        if self.positive != TOP and self.positive not in labels:
            raise PolicyError(
                f"The policy's positive class {self.positive!r} is no label of this model.",
                where="/positive",
                found=self.positive,
                expected=[TOP, *labels],
                remedy='Name one of the model\'s labels, or "top" for the predicted label.',
            )

    def propensity(self, action: str) -> float:
        """Return the probability in [0, 1] with which the label of a row with this action is sought."""
        if action == REVIEW:
            return 1.0
        return self.explore.share if action in self.explore.actions else 0.0


def _choice(fields: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    """Return one of a few words; the first of them where the field is missing."""
    return documents.choice(fields.get(name, known[0]), f"/{name}", known)


def _certify(value: Any) -> Certify:
    fields = documents.fields_of(value, "/certify", {"delta", "looks"})
    looks = documents.choice(fields.get("looks", Certify().looks), "/certify/looks", LOOKS)
    delta = documents.share(
        fields.get("delta", Certify().delta),
        "/certify/delta",
        remedy="Give the probability with which a promise may be false; 0.05 is usual.",
    )
    if delta < SMALLEST_DELTA:
        raise PolicyError(
            "This delta is too small to be shared.",
            where="/certify/delta",
            found=delta,
            expected=f"at least {SMALLEST_DELTA:g}",
            remedy="Give the probability with which a promise may be false; 0.05 is usual.",
        )
    return Certify(delta=delta, looks=cast("Literal['unlimited', 'once']", looks))


def _segments(value: Any, bands: tuple[Band, ...]) -> Segments:
    fields = documents.fields_of(value, "/segments", {"values", "fallback"})
    values = documents.required(fields, "values", "/segments")
    if not isinstance(values, list | tuple) or not values:
        raise PolicyError(
            "Segments need a list of at least one value.",
            where="/segments/values",
            found=values,
            expected='a list such as ["DE", "FR"]',
            remedy="Name the values of the request's `segments` that are to have thresholds of their own.",
        )
    names = tuple(_segment(item, f"/segments/values/{i}") for i, item in enumerate(values))
    if len(set(names)) < len(names):
        raise PolicyError(
            "A segment appears twice.",
            where="/segments/values",
            found=list(names),
            expected="each value once",
            remedy="Remove the repeated one.",
        )
    actions = tuple(dict.fromkeys([REVIEW, *(band.action for band in bands)]))
    return Segments(names, documents.choice(fields.get("fallback", REVIEW), "/segments/fallback", actions))


def _segment(value: Any, where: str) -> str:
    name = documents.text(value, where)
    if len(name) > LONGEST_SEGMENT or "\0" in name:
        raise PolicyError(
            "No request can say that its rows are of this segment.",
            where=where,
            found=f"{len(name)} characters" + (", with a NUL" if "\0" in name else ""),
            expected=f"1 to {LONGEST_SEGMENT} characters without NUL",
            remedy="Give the segment a shorter name, here and in the requests.",
        )
    return name


def _segments_document(segments: Segments) -> dict[str, Any]:
    return {"values": list(segments.values), "fallback": segments.fallback}
