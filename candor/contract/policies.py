"""The policy document: bands of actions on one class, what is certified about them, and what is explored.

A policy is data. `Policy` refuses every document that cannot work, with an error that names the field; the service
solves its promises into thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, ConfigDict, FailFast, Field, model_validator
from pydantic import ValidationError as ValidationError

from candor.contract.conditions import MOST_BANDS, REVIEW, Band, Condition, Costs, Per, check_reachable
from candor.contract.fields import (
    Amount,
    Delta,
    Duration,
    Label,
    Name,
    Part,
    PerDay,
    Planned,
    Promise,
    RowsPerDay,
    Segment,
    Share,
    refusal,
)

TOP: Final = "top"
FOR_REFERENCE: Final = 0.2
"""Share of delta that looks at reference rows use beside certificates that grow."""
MOST_SEGMENTS: Final = 1000
MOST_PARTS: Final = 5_000
"""Maximum bands in all segments together: each has a threshold, a certificate and a warning in every answer."""
"""Maximum number of segments of a policy."""


class Certify(Part):
    """Error probability of the certificates, and repeated use of labelled rows."""

    delta: Delta = Field(0.05, description="Probability that any promise of the policy is false.")
    looks: Literal["unlimited", "once", "anytime"] = Field(
        "unlimited",
        description='"unlimited" allows repeated certification; each look uses a smaller part of delta. "once" uses '
        'all of delta on rows that have not been shown before. "anytime" uses a fifth of delta for looks at the '
        "bundle's reference rows, and the rest for certificates that grow with labels: reading them uses no look.",
    )
    planned: Planned | None = Field(
        None,
        description='With "anytime", and only there: number of certify rows, labelled or not, one of each group, at '
        "which its certificates are strongest. About a third of the groups certify.",
    )
    per: Per | None = Field(
        None,
        description='What the promises count: each "row" (the default), each unit of the rows\' "amount", or each '
        '"group" once, however many rows it has. With "anytime", each group counts once.',
    )

    over: Literal["year", "look"] | None = Field(
        None,
        description='With "unlimited": "year" (the default) shares delta among all looks of a calendar year (UTC), at '
        'fresh rows or not. "look" gives each look at rows that have not been shown before a delta of its own. With '
        '"anytime", the looks of a year share the part for reference rows.',
    )

    wrong_labels: Share | None = Field(
        None,
        description="Largest share of the labels of the certify rows that may be wrong. Certificates then hold "
        "whichever labels these are, and count each group once. Null: labels are right.",
    )

    labels: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None,
        description="Number of labels that share delta: of a multi-label model all of its labels, so that the promises "
        "of all hold together. Null: 1, as for other models. Each label has its own policy, with the same delta.",
    )

    @property
    def horizon(self) -> Literal["year", "look"]:
        """What delta covers: all looks of a year, or each look at fresh rows."""
        return self.over or ("look" if self.looks == "once" else "year")

    @property
    def sharing(self) -> int:
        """Number of labels that share delta."""
        return self.labels or 1

    @property
    def unit(self) -> Per:
        """What the promises count."""
        return self.per or ("group" if self.looks == "anytime" or self.wrong_labels else "row")

    @property
    def for_looks(self) -> float:
        """Part of delta that looks at labelled rows share; the rest is for certificates that grow."""
        return self.delta * FOR_REFERENCE if self.looks == "anytime" else self.delta

    @model_validator(mode="after")
    def _planned(self) -> Self:
        if (self.looks == "anytime") != (self.planned is not None):
            raise refusal(
                "`looks: anytime` needs `planned`, and nothing else has it.",
                "Give both, or neither.",
                expected={"looks": "anytime", "planned": 1000},
            )
        if self.over is not None and self.looks != "unlimited":
            raise refusal(
                "Only looks: unlimited shares delta over time.",
                "Remove `over`, or use looks: unlimited.",
                "over",
                expected="no `over`",
                found=self.over,
            )
        if self.looks == "anytime" and self.unit != "group":
            raise refusal(
                "Certificates that grow count each group once.",
                "Remove `per`, or use looks: unlimited.",
                "per",
                expected="group",
                found=self.per,
            )
        if self.wrong_labels and self.looks == "anytime":
            raise refusal(
                "Certificates that grow take labels as right.",
                "Remove `wrong_labels`, or use looks: unlimited.",
                "wrong_labels",
                expected="no `wrong_labels`",
                found=self.wrong_labels,
            )
        if self.wrong_labels and self.unit != "group":
            raise refusal(
                "Certificates that allow for wrong labels count each group once.",
                "Remove `per`, or `wrong_labels`.",
                "per",
                expected="group",
                found=self.per,
            )
        return self


class Explore(Part):
    """Labels sought at random for rows that no person would label."""

    share: Share = Field(0.0, description="Probability that the label of a row with one of the actions is sought.")
    actions: Annotated[tuple[Name, ...], FailFast()] = Field(
        (), max_length=MOST_BANDS, description="Actions of the bands that the share applies to."
    )

    @model_validator(mode="after")
    def _both(self) -> Self:
        if bool(self.actions) != (self.share > 0):
            raise refusal(
                "`explore` needs both a share above 0 and the actions it applies to.",
                "Give both, or remove `explore`.",
                expected={"share": 0.01, "actions": ["accept"]},
            )
        return self


class Labels(Part):
    """Labels that arise by themselves, such as chargebacks or repayments, for rows that nobody looks at."""

    mature_in: Duration = Field(
        description="Time from the prediction until the label is known, such as 60d. Younger rows fit, certify and "
        "gate nothing: their labels so far are not typical."
    )
    silence: Label | None = Field(
        None,
        description="Label of the mature rows for which none has come, such as the one of payments without a "
        "chargeback; null if every row gets a label.",
    )
    actions: Annotated[tuple[Name, ...], FailFast()] = Field(
        (),
        max_length=MOST_BANDS,
        description="Actions whose rows get such a label; empty for all. A blocked payment has no chargeback.",
    )


SetScore = Literal["lac", "aps", "raps"]


class PredictionSet(Part):
    """Labels among which the true one is, with a certified coverage."""

    coverage: Promise = Field(description="Smallest share of rows whose set has the true label.")
    per_class: bool = Field(
        True, strict=True, description="Whether this holds for the rows of each true label, or for all rows together."
    )
    score: SetScore = Field(
        "lac",
        description='Order in which labels enter the sets. "lac", by probability, makes the smallest sets; "aps", by '
        'the probability of all labels before, makes larger ones for difficult rows; "raps" is "aps" with a penalty '
        "on unlikely labels.",
    )


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) < len(values):
        raise refusal("A segment appears twice.", "Remove the duplicate.", expected="each value once")
    return values


class Segments(Part):
    """Segments of the traffic with thresholds and certificates of their own."""

    values: Annotated[tuple[Segment, ...], FailFast(), AfterValidator(_distinct)] = Field(
        min_length=1,
        max_length=MOST_SEGMENTS,
        json_schema_extra={"uniqueItems": True},
        description="Values of a request's `segments` that are solved separately.",
    )
    fallback: Name = Field(
        REVIEW, description='Action of all other rows, and of segments that cannot be certified: "review" or a band\'s.'
    )


class Review(Part):
    """The review queue: which rows become cases, by when they are due, and in which order people get them."""

    max_per_day: PerDay | None = Field(
        None,
        description="Number of rows sent to review that people can label in a day (UTC); null for all. Some are drawn "
        "at random and the others by priority. Explored rows come on top.",
    )
    random_share: Share = Field(
        0.1,
        description="Share of `max_per_day` drawn at random, so that labels stay unbiased. 0 leaves rows of low "
        "priority without labels: nothing is learned about them.",
    )
    priority: Literal["probability", "amount", "age"] = Field(
        "probability",
        description='Order of the cases: "probability" of the positive class (for "top", of a wrong answer); "amount" '
        "at risk, which is that probability times the row's amount, rows without an amount last; or "
        '"age", oldest first.',
    )
    due: Duration = Field("24h", description="Time until a case is overdue, such as 30m, 24h or 7d.")


class Policy(Part):
    """Bands of actions on one class, or on the predicted label."""

    model_config = ConfigDict(title="Candor policy")

    id: Name = Field(description="Name of the policy.")
    positive: Label = Field(TOP, description='A label of the model, or "top" for the predicted label.')
    bands: Annotated[tuple[Band, ...], FailFast(), AfterValidator(check_reachable)] = Field(
        min_length=1,
        max_length=MOST_BANDS,
        description="Bands from the strictest to the loosest; the first whose condition holds decides. The last band "
        "has no condition.",
    )
    certify: Certify = Certify()
    explore: Explore = Explore()
    labels: Labels | None = Field(
        None,
        description="Labels that arise by themselves; null if only reviewed and explored rows get one.",
    )
    set: PredictionSet | None = Field(None, description="Prediction set of each row, beside its action; null for none.")
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
    review: Review | None = Field(
        None, description="The queue of cases for people; null for none: rows sent to review then make no cases."
    )
    amount_when_missing: Amount | None = Field(
        None,
        description="Amount of rows whose request gives none, for conditions that read it; null sends these rows to "
        "review.",
    )
    rows_per_day: RowsPerDay | None = Field(
        None,
        description="Rows that the model predicts in a busy day, for `max_review_per_day`; null: those of the busiest "
        "of the last 7 whole days (UTC), measured when the policy is solved.",
    )
    segments: Segments | None = Field(None, description="Segments that are solved separately; null for none.")

    @property
    def fallback(self) -> str:
        """Action of the rows for which nothing is certified."""
        return REVIEW if self.segments is None else self.segments.fallback

    @property
    def claims(self) -> int:
        """Number of certificates that share delta: one for each promise, and for the set, in each segment and label."""
        each = len(list(self.promises())) + (self.set is not None)
        return each * (1 if self.segments is None else len(self.segments.values)) * self.certify.sharing

    @property
    def costs(self) -> Costs | None:
        """Costs of the first band that decides by them; None without one."""
        return next((band.when.cost for band in self.bands if band.when and band.when.cost is not None), None)

    @property
    def reads_amounts(self) -> bool:
        """Whether a condition depends on the amounts of rows."""
        return any(band.condition is not None and band.condition.by_amount for band in self.bands)

    def promises(self) -> Iterator[tuple[int, Condition]]:
        """Yield the index and the condition of each band that promises something."""
        for index in range(len(self.bands)):
            condition = self.condition(index)
            if condition is not None and condition.metric is not None:
                yield index, condition

    def condition(self, index: int) -> Condition | None:
        """Return the condition of a band as a number; None for the last one."""
        found = self.bands[index].condition
        return replace(found, rows_per_day=self.rows_per_day) if found is not None and found.per_day else found

    @property
    def most_per_day(self) -> int | None:
        """Largest promise in rows per day; None without one."""
        return max((int(condition.value) for _, condition in self.promises() if condition.per_day), default=None)

    @property
    def lacks_rows_per_day(self) -> bool:
        """Whether it promises a number of rows per day, and the rows of a day must be measured."""
        return self.rows_per_day is None and self.most_per_day is not None

    def measured(self, rows_per_day: int | None) -> Self:
        """Return the policy with measured rows of a day, where it needs them and gives none."""
        return self.model_copy(update={"rows_per_day": rows_per_day}) if self.lacks_rows_per_day else self

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

    def arises(self, action: str) -> bool:
        """Return whether the rows with an action get a label by themselves."""
        return self.labels is not None and (not self.labels.actions or action in self.labels.actions)

    def propensity(self, action: str) -> float:
        """Return the probability in [0, 1] that the label of a row with this action is sought."""
        if action == REVIEW or self.arises(action):
            return 1.0
        return self.explore.share if action in self.explore.actions else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-able document with its defaults; nullable fields only where they are not null."""
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
        if self.segments is not None and (parts := len(self.bands) * len(self.segments.values)) > MOST_PARTS:
            raise refusal(
                "The policy has too many bands in too many segments.",
                "Use fewer bands, or fewer segments.",
                "segments",
                expected=f"at most {MOST_PARTS} bands in all segments together",
                found=parts,
            )
        if self.labels is not None:
            self._check_labels(known)
        if self.amount_when_missing is not None and not self.reads_amounts and self.certify.unit != "amount":
            raise refusal(
                "No condition of the policy reads amounts.",
                "Remove `amount_when_missing`, let a cost depend on `amount`, or certify per amount.",
                "amount_when_missing",
                expected="a band with max_expected_loss, or with a cost such as 4 + 0.02 * amount",
            )
        self._check_losses()
        self._check_explored()
        self._check_per_day()
        if self.certify.wrong_labels:
            self._check_wrong_labels(self.certify.wrong_labels)
        if self.certify.looks == "anytime":
            self._check_anytime()
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

    def _check_losses(self) -> None:
        """Refuse a loss with `positive: top`."""
        for i, band in enumerate(self.bands):
            if self.positive == TOP and band.condition is not None and band.condition.name == "max_expected_loss":
                raise refusal(
                    'With positive: "top", the probability is that of a right answer, which loses nothing.',
                    "Name the label that loses the amount, or use `cost`.",
                    *("bands", i, "when", "max_expected_loss"),
                    expected="a label of the model in `positive`",
                    found=TOP,
                )

    def _check_explored(self) -> None:
        """Refuse flag rates that exploration alone uses up."""
        for i, condition in self.promises():
            explored = self.explored_below(i)
            if condition.metric == "flag_rate" and explored >= condition.bound:
                of_a_day = condition.rows_per_day
                flags = f"Exploration alone flags {explored:.1%} of the rows"
                if of_a_day is not None:  # measured, perhaps by a recalibration of several policies
                    flags += f", {explored * of_a_day:,.0f} of {of_a_day:,} per day under policy {self.id!r}"
                raise refusal(
                    f"{flags}: the flag rate leaves no rows for this band.",
                    "Explore a smaller share, or allow a larger flag rate.",
                    *("bands", i, "when", condition.name),
                    expected=f"more than {explored:g}"
                    if of_a_day is None
                    else f"more than {explored * of_a_day:g}, of {of_a_day} rows per day",
                    found=condition.value,
                )

    def _check_labels(self, known: list[str]) -> None:
        """Refuse unknown actions, and exploration where labels arise anyway."""
        if self.labels is not None and not set(self.labels.actions) <= set(known):
            raise refusal(
                "`labels.actions` names an action without a band.",
                "Name actions of the bands, or leave `actions` out.",
                *("labels", "actions"),
                expected=known,
                found=self.labels.actions,
            )
        needless = [action for action in self.explore.actions if self.arises(action)]
        if needless:
            raise refusal(
                f"The labels of {', '.join(needless)} arise by themselves: exploring them finds nothing more.",
                "Remove these actions from `explore`, or name the other actions in `labels.actions`.",
                *("explore", "actions"),
                expected=[action for action in known if not self.arises(action)],
                found=self.explore.actions,
            )

    def _check_wrong_labels(self, share: float) -> None:
        """Refuse promises that no number of labels can show if this share of them may be wrong."""
        if self.set is not None:
            raise refusal(
                "Prediction sets take labels as right.",
                "Remove `set` or `certify.wrong_labels`.",
                "set",
                expected="no `set`",
            )
        for index, condition in self.promises():
            if condition.metric != "flag_rate" and share >= condition.tolerance:
                raise refusal(
                    f"The promise tolerates errors in {condition.tolerance:g} of the rows, and as many labels may be "
                    "wrong.",
                    "Assume fewer wrong labels, or promise less.",
                    *("certify", "wrong_labels"),
                    expected=f"less than {condition.tolerance:g}, for {condition.name} of band {index}",
                    found=share,
                )

    def _check_per_day(self) -> None:
        """Refuse promises in rows per day where a certified share of the rows says nothing about their number."""
        if self.most_per_day is None:
            if self.rows_per_day is not None:
                raise refusal(
                    "No band promises a number of rows per day.",
                    "Remove `rows_per_day`, or add a band with max_review_per_day.",
                    "rows_per_day",
                    expected="a band with max_review_per_day",
                    found=self.rows_per_day,
                )
            return
        if self.rows_per_day is not None and self.rows_per_day <= self.most_per_day:
            raise refusal(
                f"max_review_per_day of {self.most_per_day} limits nothing: a day has no more rows.",
                "Promise fewer rows per day, or correct `rows_per_day`.",
                "rows_per_day",
                expected=f"more than {self.most_per_day}",
                found=self.rows_per_day,
            )
        for refused, at, expected, why in (
            (self.segments is not None, ("segments",), "no `segments`", "People review the rows of all segments."),
            (
                self.certify.looks == "anytime",
                ("certify", "looks"),
                "unlimited or once",
                "A certificate that grows has one promised rate, and the rows of a day change.",
            ),
            (
                self.certify.unit != "row",
                ("certify", "per"),
                "row",
                f"Certificates count each {self.certify.unit}, and people review rows.",
            ),
        ):
            if refused:
                raise refusal(
                    f"max_review_per_day does not go with this policy. {why}",
                    "Change it, or use max_flag_rate.",
                    *at,
                    expected=expected,
                )

    def _check_anytime(self) -> None:
        """Refuse what certificates that grow do not do."""
        limited = self.review is not None and self.review.max_per_day is not None
        for refused, name, why in (
            (self.segments is not None, "segments", "Certificates that grow are about all traffic."),
            (self.on_calibrator_change == "keep_threshold", "on_calibrator_change", "Certificates that grow move."),
            (self.set is not None, "set", "Sets are solved anew at each look."),
            (limited, "review", "Certificates that grow need the label of every row sent to review."),
        ):
            if refused:
                raise refusal(
                    f"`looks: anytime` does not go with this `{name}`. {why}",
                    f"Change `{name}`, or use looks: unlimited.",
                    name,
                    expected={"review": "no max_per_day", "on_calibrator_change": "resolve"}.get(name),
                )


def policy_schema() -> dict[str, Any]:
    """Return a JSON Schema (draft 2020-12) of the document; it leaves relations between fields to `Policy`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Policy.model_json_schema()
