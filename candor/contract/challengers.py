"""Challengers: revisions that are scored beside the active one and never answer."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from candor.contract.documents import Answer, Body, Interval
from candor.contract.fields import refusal

Arm = Literal["active", "challenger"]


class ChallengerRequest(Body):
    """A revision to score beside the active one: by its id, or the newest revision of a bundle."""

    revision: Annotated[str, Field(pattern=r"^r[1-9][0-9]{0,17}$")] | None = Field(
        None, description="Id of the revision, such as `r8`."
    )
    bundle: Annotated[int, Field(strict=True, ge=1, le=10**9)] | None = Field(
        None, description="Version of a bundle; its newest revision becomes the challenger."
    )
    share: Annotated[float, Field(gt=0, le=1)] = Field(
        0.1,
        description="Share of the groups whose rows a challenger of another bundle scores. Other revisions of the "
        "active bundle need no scoring: all rows are compared.",
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.revision is None) == (self.bundle is None):
            raise refusal(
                "A challenger is one revision: give its id (`revision`) or the version of its bundle (`bundle`).",
                'Send {"revision": "r8"} or {"bundle": 2}.',
                expected="either revision or bundle",
                found=sorted(self.model_fields_set),
            )
        return self


class Challenger(Answer):
    """A challenger of a model."""

    name: str
    revision: str = Field(description="Revision that is scored beside the active one.")
    bundle: int = Field(description="Version of its bundle.")
    share: float = Field(description="Share of the groups whose rows it scores, if its bundle is another one.")
    scoring: Literal["from the log", "own session", "none"] = Field(
        description="`from the log`: it has the active model file, so logged scores suffice. `own session`: it scores "
        "a sample of the rows again. `none`: it is active itself, or has a problem."
    )
    problem: str | None = Field(description="Why it is not scored, or its comparison does not go on; null otherwise.")
    since: str = Field(description="When it was put (ISO 8601, UTC). Earlier predictions are not compared.")
    by: str
    more_columns: tuple[str, ...] = Field(
        description="Columns of its table that the active revision lacks. Send them in the rows of `inputs`, with null "
        "for a missing value: a row without one of them is not scored."
    )


class ChallengerPage(Answer):
    """The challengers of a model, by name."""

    items: tuple[Challenger, ...]


class Question(Answer):
    """Which arm has the smaller mean loss. Every look is valid: read it and stop when you like."""

    active: float | None = Field(description="Mean loss of the active revision on labelled rows; null without any.")
    challenger: float | None = Field(description="Mean loss of the challenger on the same rows.")
    difference: float | None = Field(description="Challenger minus active: below 0, the challenger is better.")
    interval: Interval = Field(
        description="Confidence sequence of the mean difference: it holds at all looks together, with confidence "
        "1 − level."
    )
    better: Arm | None = Field(description="Arm with the smaller mean loss; null while undecided. It never changes.")
    decided_at: str | None = Field(description="Time of the prediction that decided it; null while undecided.")
    evidence: dict[Arm, float] = Field(
        description="Evidence that each arm is better (natural logarithm of an e-process)."
    )
    decides_at: float = Field(description="Evidence at which an arm is called better.")


class OutcomeQuestion(Question):
    """Which arm's decisions cost less under a policy."""

    policy: str
    unit: Literal["cost", "errors"] = Field(
        description="`cost`: of the policy's first band with costs. `errors`: an action on a row that is not positive, "
        "or none on a positive row, counts 1, and a review 0: compare the numbers of reviews too."
    )
    amount_limit: float | None = Field(
        None,
        description="Where costs depend on amounts: larger amounts count as this one, which bounds the cost of a row: "
        "99.9 % of the amounts of the 10,000 predictions before the comparison's start are up to it; null otherwise.",
    )
    amount_cut: int | None = Field(
        None, description="Rows among those that count whose amount was above the limit; null where there is none."
    )
    rows: int = Field(description="Rows that both decided, labelled or not.")
    flipped: int = Field(description="Rows with different actions.")
    changes: tuple[ChangedAction, ...] = Field(description="Different actions, most frequent first.")


class ChangedAction(Answer):
    """Rows that the challenger would treat differently."""

    active: str = Field(description="Action of the active revision.")
    challenger: str = Field(description="Action of the challenger.")
    rows: int
    amount: float | None = Field(description="Sum of the amounts of these rows; null if no row has one.")


class ChallengerComparison(Challenger):
    """A challenger beside the active revision, on the rows that both scored."""

    model: str
    active: str = Field(description="The active revision.")
    level: float | None = Field(
        description="Probability that a question is ever answered wrongly, for each question. Null before the first "
        "comparison."
    )
    compared_since: str | None = Field(description="Predictions before this time are not compared.")
    through: str | None = Field(description="All mature predictions before this time are counted.")
    scored: int = Field(description="Mature predictions that both scored.")
    rows: int = Field(
        description="Rows among them that count: of known propensity, up to the first label sought in their group."
    )
    labelled: int = Field(description="Sought labels among them that have arrived.")
    missing: int = Field(
        description="Rows whose sought label has not arrived, or whose propensity is below the policies' smallest, as "
        "in a review queue with `max_per_day`; each counts with the label least favourable to the better arm."
    )
    returned: int = Field(
        0,
        description="Rows left out because a label of their group was counted before. Where they are many, the first "
        "groups are the frequent ones: the answers are about groups that come within a time as short as the comparison "
        "until it decided.",
    )
    log_loss: Question | None = Field(description="Log loss in nats, probabilities floored as at the gate.")
    policies: tuple[OutcomeQuestion, ...] = Field(description="Policies that both revisions have.")


OutcomeQuestion.model_rebuild()
