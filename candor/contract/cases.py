"""Cases: predictions that wait for a person, who claims one, labels it or skips it."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints

from candor.contract.documents import Answer, Body, Text

MOST_AT_ONCE: Final = 100
"""Maximum number of cases in one claim."""

CaseState = Literal["open", "claimed", "labelled", "skipped"]
CaseOrder = Literal["priority", "due"]
Selected = Literal["all", "ranked", "random", "explored"]
_LEASE: Final = Field(900, ge=1, le=86_400, description="Seconds until the claim expires and others get the case.")
_FENCE: Final = Field(
    None,
    ge=1,
    le=2**63 - 1,
    description="`lease` of the claim that you act on; refused if the case has been claimed again.",
)


class Contribution(Answer):
    """What one column contributes."""

    column: str = Field(description="Name of the column; its place from 0 where columns have no names.")
    log_odds: float = Field(description="Its part of the calibrated log-odds.")


class Reasons(Answer):
    """Why a row got its probability: `log_odds` = `base` + all contributions + `other` + `residual`.

    The contributions are Shapley values (TreeSHAP) of the model, times `factor`, which maps log-odds of the model to
    calibrated ones.
    """

    label: str = Field(description="Label that they are about: the positive class of the policy, or the predicted one.")
    against: str = Field(description="Most probable other label.")
    log_odds: float = Field(description="Natural logarithm of the calibrated odds of `label` against `against`.")
    base: float = Field(description="Calibrated log-odds of a row of which nothing is known.")
    contributions: tuple[Contribution, ...] = Field(description="Up to 20 columns, the largest first.")
    other: float = Field(description="Sum of the contributions of all other columns.")
    residual: float = Field(
        description="What the calibrator adds that no column explains: 0, but for rounding, unless it has steps."
    )
    factor: float = Field(description="Mean slope of the calibrator between the base and the row.")


class Case(Answer):
    """A prediction that waits for a person, or that a person has seen. Its id is that of the prediction."""

    id: str = Field(description="Id of the prediction.")
    model: str
    policy: str = Field(description="Policy that decided.")
    state: CaseState = Field(description="A claim that has expired counts as open.")
    action: str | None = Field(description="Action of the prediction.")
    selected: Selected = Field(
        description="Why a label is sought: `all` rows sent to review are, or this one was `ranked` high, drawn at "
        "`random` within the capacity, or `explored`."
    )
    propensity: float | None = Field(description="Probability that its label was sought, fixed before any label.")
    reference: str | None = Field(description="Your own id of the row.")
    segment: str | None
    predicted: str | None = Field(description="Predicted label; null if its model is no longer loaded.")
    confidence: float | None = Field(description="Calibrated probability of the predicted label.")
    probability: float = Field(
        description='Calibrated probability of the policy\'s positive class; for "top", of a wrong answer.'
    )
    amount: float | None = Field(description="Amount at stake in the row.")
    expected_loss: float | None = Field(
        description="`probability` times `amount`, by which `priority: amount` sorts; null without an amount."
    )
    created_at: str = Field(description="When the prediction was made, UTC.")
    due_at: str = Field(description="When the case is overdue, UTC.")
    overdue: bool
    assignee: str | None = Field(description="Person whom it is reserved for.")
    claimed_by: str | None = Field(description="Person who has claimed it.")
    claimed_until: str | None = Field(description="When the claim expires, UTC.")
    lease: int = Field(description="Number of the latest claim; each claim and each release has a larger one.")
    label: str | None = Field(description="Label that closed it.")
    reason: str | None = Field(description="Reason why it was skipped.")
    done_by: str | None = Field(description="Who labelled or skipped it.")
    done_at: str | None = Field(description="When it was labelled or skipped, UTC.")
    reasons: Reasons | None = Field(
        None,
        description="Why the row got its probability, kept when a person ends the case; of one case, also while it "
        "waits. Null without trees or without the stored input.",
    )


class CaseCounts(Answer):
    """The queue of a model, read a few seconds ago at most."""

    waiting: int = Field(description="Cases that are neither labelled nor skipped.")
    claimed: int = Field(description="Cases of `waiting` that someone has claimed.")
    overdue: int = Field(description="Cases of `waiting` that are past their due time.")
    oldest_s: float | None = Field(description="Age of the oldest of `waiting`, in seconds; null if there are none.")


class CasePage(Answer):
    """Cases in the requested order."""

    items: tuple[Case, ...]
    next: str | None = Field(description="`after` of the next page; null on the last one.")
    counts: CaseCounts


class EarlierCase(Answer):
    """Another case of the same group."""

    id: str
    created_at: str
    state: CaseState
    probability: float
    label: str | None


class PastPrediction(Answer):
    """Another prediction for the same group."""

    id: str
    created_at: str
    reference: str | None
    action: str | None
    probability: float | None = Field(
        description="Calibrated probability of the case's policy at that time: of its positive class, for `top` of a "
        "wrong answer; null if its revision had no such policy or its bundle is gone."
    )
    amount: float | None
    label: str | None = Field(description="Current label, from any source; null without one.")
    case: CaseState | None = Field(description="State of its case; null if it is not one.")


class CaseDetail(Case):
    """A case with what a person needs to decide it."""

    labels: tuple[str, ...] | None = Field(description="The model's labels; null if the model is no longer loaded.")
    probabilities: dict[str, float] | None = Field(
        description="Calibrated probability of each label; null if the model is no longer loaded."
    )
    inputs: Any = Field(
        description="The stored input: an object by column for tables, the text as the model saw it for texts, lists "
        "of numbers otherwise. Null if inputs are not stored (CANDOR_KEEP_INPUTS), were deleted, or are too large."
    )
    earlier: tuple[EarlierCase, ...] = Field(description="Latest other cases of the same group, newest first.")
    history: tuple[PastPrediction, ...] = Field(
        description="Latest other predictions for the same group, newest first, at most 50: those that policies with a "
        "review queue decided, if the request gave the group."
    )


class LabelledCase(Case):
    """A case that was just labelled."""

    feedback: Literal["stored", "pending", "duplicate", "conflict"] = Field(
        description="What became of the label, as for POST /feedback."
    )


class Claims(Answer):
    """Cases that the caller has claimed."""

    items: tuple[Case, ...]


class ClaimRequest(Body):
    """Which cases to claim: those assigned to you first, then the first free ones in order."""

    count: int = Field(1, ge=1, le=MOST_AT_ONCE, description="Maximum number of cases.")
    lease_s: int = _LEASE
    policy: Text | None = Field(None, max_length=64, description="Only cases of this policy.")
    order: CaseOrder = "priority"


class CaseClaim(Body):
    """Claim one case, or extend your claim."""

    lease_s: int = _LEASE


class CaseLabel(Body):
    """The true label of a case."""

    label: Text = Field(description="True label, one of the model's label names.")
    lease: int | None = _FENCE


class CaseSkip(Body):
    """Why a case cannot be labelled."""

    reason: Annotated[Text, StringConstraints(strip_whitespace=True)] = Field(max_length=500)
    lease: int | None = _FENCE


class CaseRelease(Body):
    """Give a claim back, or reopen a case that you labelled or skipped."""

    lease: int | None = _FENCE


class CaseAssign(Body):
    """Reserve a case for a person."""

    to: Text | None = Field(max_length=200, description="Name of the person's API key; null for anyone.")
