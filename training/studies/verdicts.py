"""Whether claims about differences hold, one by one and together, in words that follow from the tests alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from training.studies.page import Page
from training.studies.statistics import Comparison, holm

ALPHA = 0.05
Verdict = Literal["confirmed", "contradicted", "undecided", "not tested"]
Outcome = Verdict | Literal["partly confirmed", "partly contradicted", "mixed"]


@dataclass(frozen=True)
class Claim:
    """A claim that one mean is higher than another, or lower.

    Attributes:
        about: What it is about, in a few words.
        text: The claim, a clause.
        comparison: The difference that it is about; None where it cannot be tested.
        higher: Whether the claim is that the difference is positive.
    """

    about: str
    text: str
    comparison: Comparison | None
    higher: bool

    def verdict(self, p_value: float | None = None) -> Verdict:
        """What the comparison says, at 5 %; by another p-value than its own where one is given.

        Example:
            >>> Claim("focal 3", "focal 3 lowers the ECE", Comparison(-1.0, -1.5, -0.5, 0.001), higher=False).verdict()
            'confirmed'
        """
        if self.comparison is None:
            return "not tested"
        if (self.comparison.p_value if p_value is None else p_value) >= ALPHA:
            return "undecided"
        return "confirmed" if self.leans() else "contradicted"

    def leans(self) -> bool:
        """Whether the difference points the claim's way, however small it is; False where there is none."""
        return self.comparison is not None and (self.comparison.difference > 0) == self.higher

    def sentence(self) -> str:
        """The claim, its verdict and the numbers behind it."""
        verdict, found = self.verdict(), self.comparison
        if found is None:
            return f"{self.text}: **{verdict}** (it takes two seeds of each side, and some spread)."
        return (
            f"{self.text}: **{verdict}** (difference {found.difference:+.2f} points, 95 % interval "
            f"{found.low:+.2f} … {found.high:+.2f}, p {_with_sign(p_value(found))})."
        )


@dataclass(frozen=True)
class Question:
    """What a source claims of several comparisons at once.

    Attributes:
        subject: Whom the claim is about, a noun in the plural.
        claimed: What the source says of them, a predicate.
        opposite: What they would do if the contrary were true, a predicate.
        claims: The comparisons that speak to it.
    """

    subject: str
    claimed: str
    opposite: str
    claims: Sequence[Claim]

    def verdicts(self) -> list[Verdict]:
        """Of each comparison, at 5 % for all of them together (Holm)."""
        tested = [claim.comparison.p_value for claim in self.claims if claim.comparison is not None]
        corrected = iter(holm(tested))
        return [claim.verdict(None if claim.comparison is None else next(corrected)) for claim in self.claims]

    def outcome(self) -> Outcome:
        """Of all comparisons together.

        `confirmed` or `contradicted` where most of those that could be tested say so and none says the contrary,
        `partly` so where fewer do, `mixed` where some say the one and some the other, `not tested` where none could be,
        `undecided` otherwise.
        """
        verdicts = self.verdicts()
        tested = len(verdicts) - verdicts.count("not tested")
        yes, no = verdicts.count("confirmed"), verdicts.count("contradicted")
        if not tested:
            return "not tested"
        if yes and no:
            return "mixed"
        if yes:
            return "confirmed" if 2 * yes > tested else "partly confirmed"
        if no:
            return "contradicted" if 2 * no > tested else "partly contradicted"
        return "undecided"

    def sentence(self) -> str:
        """The outcome in plain words, and which comparisons say what."""
        outcome = self.outcome()
        subject = f"{self.subject[0].upper()}{self.subject[1:]}"
        words: Mapping[Outcome, str] = {
            "confirmed": f"{subject} {self.claimed}",
            "contradicted": f"{subject} {self.opposite}",
            "partly confirmed": f"Some {self.subject} {self.claimed}; of the others it could not be decided",
            "partly contradicted": f"Some {self.subject} {self.opposite}; of the others it could not be decided",
            "mixed": f"Some {self.subject} {self.claimed}, others {self.opposite}",
            "undecided": f"It could not be decided whether {self.subject} {self.claimed}",
            "not tested": f"Too few seeds to say whether {self.subject} {self.claimed}",
        }
        by_verdict: dict[Verdict, list[str]] = {}
        for claim, verdict in zip(self.claims, self.verdicts(), strict=True):
            by_verdict.setdefault(verdict, []).append(claim.about)
        order: tuple[Verdict, ...] = ("confirmed", "contradicted", "undecided", "not tested")
        told = [f"{verdict}: {' · '.join(by_verdict[verdict])}" for verdict in order if verdict in by_verdict]
        if len(told) == 1:
            told = [told[0].partition(": ")[2]]
        if "undecided" in by_verdict:
            tested = [claim for claim in self.claims if claim.comparison is not None]
            told.append(f"{sum(map(Claim.leans, tested))} of {len(tested)} differences point that way")
        return f"**{outcome.capitalize()}.** {words[outcome]} ({'; '.join(told)})."


def findings(page: Page, claims: Sequence[Claim], level: int = 3) -> None:
    """Put claims on a page, a sentence each."""
    page.heading("Findings", level)
    page.points([claim.sentence() for claim in claims])


def answer(page: Page, question: str, parts: Sequence[Question]) -> None:
    """Put the answer to a study's question on a page: what is confirmed, contradicted, undecided.

    Args:
        page: Where to put it.
        question: What the source asks.
        parts: Its claims; those about which nothing was run are left out.
    """
    parts = [part for part in parts if part.claims]
    page.heading("Answer")
    if not parts:
        page.text_block(f"*{question}* Nothing has been run that could answer it yet.")
        return
    outcomes = [part.outcome() for part in parts]
    order: tuple[Outcome, ...] = (
        *("confirmed", "partly confirmed", "contradicted", "partly contradicted"),
        *("mixed", "undecided", "not tested"),
    )
    counts = [f"{outcomes.count(outcome)} {outcome}" for outcome in order if outcome in outcomes]
    page.text_block(
        f"*{question}* Of {len(parts)} claim{'s' if len(parts) > 1 else ''}: {', '.join(counts)}. The comparisons of a "
        "claim are tested at 5 % together (Holm's correction), so that fewer are decided here than above."
    )
    page.points([part.sentence() for part in parts])


def p_value(comparison: Comparison | None) -> str:
    """A p-value, or a dash.

    Example:
        >>> p_value(Comparison(1.0, 0.5, 1.5, 0.00004))
        '< 0.0001'
    """
    if comparison is None:
        return "–"
    return "< 0.0001" if comparison.p_value < 0.0001 else f"{comparison.p_value:.4f}"


def _with_sign(shown_p: str) -> str:
    return shown_p if shown_p.startswith("<") else f"= {shown_p}"
