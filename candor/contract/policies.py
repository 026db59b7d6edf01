"""The policy document: bands of actions on one class, what is certified about them, and what is explored.

A policy is data. `Policy` refuses every document that cannot work, with an error that names the field; the service
solves its promises into thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic import ValidationError as ValidationError

from candor.contract.conditions import REVIEW, Band, Condition, check_reachable
from candor.contract.fields import Delta, Label, Name, Part, Segment, Share, refusal

TOP: Final = "top"


class Certify(Part):
    """Error probability of the certificates, and repeated use of labelled rows."""

    delta: Delta = Field(0.05, description="Probability that any promise of the policy is false.")
    looks: Literal["unlimited", "once"] = Field(
        "unlimited",
        description='"unlimited" allows repeated certification; each look uses a smaller part of delta. "once" uses '
        "all of delta on rows that have not been shown before.",
    )


class Explore(Part):
    """Labels sought at random for rows that no person would label."""

    share: Share = Field(0.0, description="Probability that the label of a row with one of the actions is sought.")
    actions: tuple[Name, ...] = Field((), description="Actions of the bands that the share applies to.")

    @model_validator(mode="after")
    def _both(self) -> Self:
        if bool(self.actions) != (self.share > 0):
            raise refusal(
                "`explore` needs both a share above 0 and the actions it applies to.",
                "Give both, or remove `explore`.",
                expected={"share": 0.01, "actions": ["accept"]},
            )
        return self


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) < len(values):
        raise refusal("A segment appears twice.", "Remove the duplicate.", expected="each value once")
    return values


class Segments(Part):
    """Segments of the traffic with thresholds and certificates of their own."""

    values: Annotated[tuple[Segment, ...], AfterValidator(_distinct)] = Field(
        min_length=1,
        json_schema_extra={"uniqueItems": True},
        description="Values of a request's `segments` that are solved separately.",
    )
    fallback: Name = Field(
        REVIEW, description='Action of all other rows, and of segments that cannot be certified: "review" or a band\'s.'
    )


class Policy(Part):
    """Bands of actions on one class, or on the predicted label."""

    model_config = ConfigDict(title="Candor policy")

    id: Name = Field(description="Name of the policy.")
    positive: Label = Field(TOP, description='A label of the model, or "top" for the predicted label.')
    bands: Annotated[tuple[Band, ...], AfterValidator(check_reachable)] = Field(
        min_length=1,
        description="Bands from the strictest to the loosest; the first whose condition holds decides. The last band "
        "has no condition.",
    )
    certify: Certify = Certify()
    explore: Explore = Explore()
    on_calibrator_change: Literal["resolve", "keep_threshold"] = Field(
        "resolve",
        description='After a recalibration, "resolve" solves the thresholds again; "keep_threshold" keeps the '
        "thresholds and certifies them again.",
    )
    on_uncertifiable: Literal["review_all", "keep_previous", "fail"] = Field(
        "review_all",
        description='While a promise cannot be certified, "review_all" sends every row to review (of a segment: to '
        'its fallback). "keep_previous" does so too, unless a recalibration keeps the order of rows: then the same '
        'rows stay above the thresholds, and their certificates stay valid. "fail" refuses the policy.',
    )
    on_invalid: Literal["keep", "review_all"] = Field(
        "keep",
        description='After a kept threshold loses its certificate to a recalibration or an alarm, "keep" lets it '
        'decide; "review_all" sends every row to review (of a segment: to its fallback).',
    )
    segments: Segments | None = Field(None, description="Segments that are solved separately; null for none.")

    @property
    def fallback(self) -> str:
        """Action of the rows for which nothing is certified."""
        return REVIEW if self.segments is None else self.segments.fallback

    @property
    def claims(self) -> int:
        """Number of certificates that share delta: one for each promise in each segment."""
        return len(list(self.promises())) * (1 if self.segments is None else len(self.segments.values))

    def promises(self) -> Iterator[tuple[int, Condition]]:
        """Yield the index and the condition of each band that promises something."""
        for index, band in enumerate(self.bands):
            if band.condition is not None and band.condition.metric is not None:
                yield index, band.condition

    def explored_below(self, index: int) -> float:
        """Return the largest share of the rows below a band that is explored."""
        below = {band.action for band in self.bands[index + 1 :]}
        return self.explore.share if below & set(self.explore.actions) else 0.0

    def tolerance(self, index: int) -> float:
        """Return the largest rate of errors with which a band keeps its promise.

        A flag rate also counts the rows explored below the threshold, since a person sees them too: of a limit a and
        an explored share e, (a − e)/(1 − e) is left for the rows at or above.

        Args:
            index: Of a band that promises something.
        """
        condition = dict(self.promises())[index]
        explored = self.explored_below(index) if condition.metric == "flag_rate" else 0.0
        return (condition.tolerance - explored) / (1.0 - explored)

    def propensity(self, action: str) -> float:
        """Return the probability in [0, 1] that the label of a row with this action is sought."""
        if action == REVIEW:
            return 1.0
        return self.explore.share if action in self.explore.actions else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-able document with its defaults; `when` and `segments` only where they are not null."""
        return self.model_dump(mode="json", exclude_none=True)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Refuse parts that contradict the bands or one another."""
        actions = [band.action for band in self.bands]
        known = list(dict.fromkeys([REVIEW, *actions]))
        if not set(self.explore.actions) <= set(actions):
            raise refusal(
                "`explore.actions` names an action without a band.",
                "Name actions of the bands.",
                *("explore", "actions"),
                expected=actions,
                found=self.explore.actions,
            )
        for i, condition in self.promises():
            explored = self.explored_below(i)
            if condition.metric == "flag_rate" and explored >= condition.value:
                raise refusal(
                    f"Exploration alone flags {explored:.1%} of the rows: the flag rate leaves no rows for this band.",
                    "Explore a smaller share, or allow a larger flag rate.",
                    *("bands", i, "when", condition.name),
                    expected=f"more than {explored:g}",
                    found=condition.value,
                )
        if self.on_calibrator_change == "keep_threshold" and self.on_uncertifiable == "keep_previous":
            raise refusal(
                "A recalibration cannot keep both the threshold and the rows above it.",
                "keep_threshold keeps the number, keep_previous the rows; choose one.",
                "on_uncertifiable",
                expected="one of the two",
                found="keep_previous, with keep_threshold",
            )
        if self.fallback not in known:
            raise refusal(
                f"Unknown action {self.fallback!r}. Expected: {', '.join(known)}.",
                "Use one of these.",
                *("segments", "fallback"),
                expected=known,
                found=self.fallback,
            )
        return self


def policy_schema() -> dict[str, Any]:
    """Return a JSON Schema (draft 2020-12) of the document; it leaves relations between fields to `Policy`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Policy.model_json_schema()
