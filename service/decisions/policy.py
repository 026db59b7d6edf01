"""What an operator wants: bands of actions, the first one whose condition holds.

A policy is data. This file reads a policy document, refuses what cannot work with an error that names the field, and
writes it back; `certify.solve` turns it into thresholds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, cast

from service.errors import PolicyError

TOP: Final = "top"
REVIEW: Final = "review"

CONDITIONS: Final[dict[str, bool]] = {"min_probability": False, "min_precision": True}
"""Every condition a band may have, and whether it is solved from labelled rows and certified."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Condition:
    """What a row must meet to fall into a band.

    Attributes:
        name: One of `CONDITIONS`.
        value: Lowest probability in (0, 1] for `min_probability`; promised precision in (0, 1) for `min_precision`.
    """

    name: str
    value: float

    @property
    def certified(self) -> bool:
        """Whether the threshold is solved from labelled rows and carries a certificate."""
        return CONDITIONS[self.name]


@dataclass(frozen=True, slots=True)
class Band:
    """One action and when it is taken.

    Attributes:
        action: Name of the action; "review" means that a person labels the row.
        when: The condition, None in the last band, which takes every row that is left.
    """

    action: str
    when: Condition | None = None


@dataclass(frozen=True, slots=True)
class Certify:
    """How certificates of a policy are to hold.

    Attributes:
        delta: Probability in (0, 1) that any certificate of the policy is false.
        looks: "unlimited" shares delta among all looks at the same rows; "once" spends it on rows never shown before.
    """

    delta: float = 0.05
    looks: Literal["unlimited", "once"] = "unlimited"


@dataclass(frozen=True, slots=True)
class Explore:
    """Random share of some actions whose true label is sought anyway.

    Attributes:
        share: Probability in [0, 1] that such a row is sent to labelling.
        actions: The actions it applies to.
    """

    share: float = 0.0
    actions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """Bands of actions on one class or on the predicted label.

    Attributes:
        id: Name of the policy.
        positive: A class label, or "top" for whichever label is predicted.
        bands: First match wins; the last one is unconditional.
        certify: How certificates are to hold.
        explore: Which rows are labelled at random.
        on_uncertifiable: "review_all" sends every row to review while a promise cannot be certified; "fail" refuses.

    Example:
        >>> policy = Policy.from_dict(
        ...     {
        ...         "id": "auto-read",
        ...         "positive": "top",
        ...         "bands": [{"action": "accept", "when": {"min_precision": 0.95}}, {"action": "review"}],
        ...     }
        ... )
        >>> policy.bands[0].when
        Condition(name='min_precision', value=0.95)
        >>> Policy.from_dict(policy.to_dict()) == policy
        True
    """

    id: str
    positive: str
    bands: tuple[Band, ...]
    certify: Certify = field(default_factory=Certify)
    explore: Explore = field(default_factory=Explore)
    on_uncertifiable: Literal["review_all", "fail"] = "review_all"

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
        fields = _fields(document, "", {"id", "positive", "bands", "certify", "explore", "on_uncertifiable"})
        bands = _bands(_required(fields, "bands"))
        return cls(
            id=_name(_required(fields, "id"), "/id"),
            positive=_text(fields.get("positive", TOP), "/positive"),
            bands=bands,
            certify=_certify(fields.get("certify", {})),
            explore=_explore(fields.get("explore", {}), bands),
            on_uncertifiable=cast(
                "Literal['review_all', 'fail']",
                _choice(fields.get("on_uncertifiable", "review_all"), "/on_uncertifiable", ("review_all", "fail")),
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the complete JSON-able document, defaults written out."""
        bands: list[dict[str, Any]] = [
            {"action": band.action} | ({} if band.when is None else {"when": {band.when.name: band.when.value}})
            for band in self.bands
        ]
        return {
            "id": self.id,
            "positive": self.positive,
            "bands": bands,
            "certify": {"delta": self.certify.delta, "looks": self.certify.looks},
            "explore": {"share": self.explore.share, "actions": list(self.explore.actions)},
            "on_uncertifiable": self.on_uncertifiable,
        }

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


def _bands(value: Any) -> tuple[Band, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise PolicyError(
            "A policy needs a list of at least one band.",
            where="/bands",
            found=value,
            expected='a list such as [{"action": "accept", "when": {"min_precision": 0.95}}, {"action": "review"}]',
        )
    bands = tuple(_band(item, f"/bands/{i}") for i, item in enumerate(value))
    lowest: dict[str, float] = {}
    for i, band in enumerate(bands):
        where = f"/bands/{i}"
        if band.action in {earlier.action for earlier in bands[:i]}:
            raise PolicyError(
                f"The action {band.action!r} appears twice.",
                where=f"{where}/action",
                found=band.action,
                expected="each action in one band",
            )
        last = i == len(bands) - 1
        if last != (band.when is None):
            raise PolicyError(
                "The last band must take every row that is left." if last else "No row can reach the bands after this.",
                where=f"{where}/when" if last else where,
                found=band.when.name if band.when else None,
                expected="no condition" if last else "a condition",
                remedy='End with an unconditional band, such as {"action": "review"}, and give every other a "when".',
            )
        if band.when is not None:
            name, threshold = band.when.name, band.when.value
            if threshold >= lowest.get(name, math.inf):
                raise PolicyError(
                    f"This band's {name} of {threshold:g} leaves it nothing: an earlier band takes those rows.",
                    where=f"{where}/when/{name}",
                    found=threshold,
                    expected=f"less than {lowest[name]:g}",
                    remedy="Order the bands from the strictest condition to the loosest.",
                )
            lowest[name] = threshold
    return bands


def _band(value: Any, where: str) -> Band:
    fields = _fields(value, where, {"action", "when"})
    action = _name(_required(fields, "action", where), f"{where}/action")
    if fields.get("when") is None:
        return Band(action)
    when = _fields(fields["when"], f"{where}/when", set(CONDITIONS), kind="condition")
    if len(when) != 1:
        raise PolicyError(
            "A band has exactly one condition.",
            where=f"{where}/when",
            found=sorted(when),
            expected=f"one of {', '.join(CONDITIONS)}",
        )
    ((name, number),) = when.items()
    return Band(action, Condition(name, _number(number, f"{where}/when/{name}", closed_above=not CONDITIONS[name])))


def _certify(value: Any) -> Certify:
    fields = _fields(value, "/certify", {"delta", "looks"})
    looks = _choice(fields.get("looks", Certify().looks), "/certify/looks", ("unlimited", "once"))
    return Certify(
        delta=_number(fields.get("delta", Certify().delta), "/certify/delta"),
        looks=cast("Literal['unlimited', 'once']", looks),
    )


def _explore(value: Any, bands: tuple[Band, ...]) -> Explore:
    fields = _fields(value, "/explore", {"share", "actions"})
    share = _number(fields.get("share", 0.0), "/explore/share", closed_below=True, closed_above=True)
    actions = fields.get("actions", [])
    known = [band.action for band in bands]
    if not isinstance(actions, list | tuple) or any(action not in known for action in actions):
        raise PolicyError(
            "`explore.actions` names an action that no band has.",
            where="/explore/actions",
            found=actions,
            expected=known,
        )
    if bool(actions) != (share > 0):
        raise PolicyError(
            "`explore` needs both a share above 0 and the actions it applies to.",
            where="/explore",
            found=dict(fields),
            expected={"share": 0.01, "actions": known[:1]},
        )
    return Explore(share, tuple(actions))


def _fields(value: Any, where: str, known: set[str], kind: str = "field") -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise PolicyError(
            f"Expected an object here, found {type(value).__name__}.", where=where, found=value, expected=sorted(known)
        )
    for name in value:
        if name not in known:
            raise PolicyError(
                f"Unknown {kind} {name!r}; known are {', '.join(sorted(known))}.",
                where=f"{where}/{name}",
                found=name,
                expected=sorted(known),
            )
    return value


def _required(fields: Mapping[str, Any], name: str, where: str = "") -> Any:
    if name not in fields:
        raise PolicyError(
            f"The field {name!r} is missing.", where=f"{where}/{name}", found=sorted(fields), expected=name
        )
    return fields[name]


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise PolicyError("Expected a text that is not empty.", where=where, found=value, expected="a text")
    return value


def _name(value: Any, where: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise PolicyError(
            "A name has 1 to 64 letters, digits, '.', '_' or '-', and starts with a letter or digit.",
            where=where,
            found=value,
            expected=_NAME.pattern,
        )
    return value


def _choice(value: Any, where: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise PolicyError(
            f"Unknown value {value!r}; known are {', '.join(known)}.", where=where, found=value, expected=list(known)
        )
    return cast("str", value)


def _number(value: Any, where: str, *, closed_below: bool = False, closed_above: bool = False) -> float:
    span = f"{'[' if closed_below else '('}0, 1{']' if closed_above else ')'}"
    # Compared before it is converted: an integer may be larger than any float.
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    number = float(value) if fits else math.nan
    if not fits or (number == 0 and not closed_below) or (number == 1 and not closed_above):
        raise PolicyError(
            f"Expected a number in {span}.",
            where=where,
            found=value,
            expected=f"a number in {span}",
            remedy="No finite number of labels can certify a promise of exactly 1; 0.99 is a strong one."
            if number == 1
            else None,
        )
    return number
