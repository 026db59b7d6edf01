"""Verdicts on claims about differences, one by one and together, derived from the tests alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from studies.page import Page
from studies.statistics import Comparison, holm

ALPHA = 0.05
Verdict = Literal["confirmed", "contradicted", "undecided", "not tested"]
Outcome = Verdict | Literal["partly confirmed", "partly contradicted", "mixed"]


@dataclass(frozen=True)
class Claim:
    """A claim that one mean is higher than another, or lower.

    Attributes:
        about: Subject, in a few words.
        text: The claim, a clause.
        comparison: The difference in question; None if it cannot be tested.
        higher: Whether the claim says that the difference is positive.
        baseline: Name of what is compared with.
        published: The source's difference, in points; None if it prints none.
        shares: What the two cells of a pair have in common (`studies.pairs.SHARED`).
        same: Whether both numbers belong to the same network, such as before and after scaling.
    """

    about: str
    text: str
    comparison: Comparison | None
    higher: bool
    baseline: str = ""
    published: float | None = None
    shares: tuple[str, ...] = ()
    same: bool = False

    def verdict(self, p_value: float | None = None) -> Verdict:
        """Return the verdict at 5 %, by the comparison's p-value or the one given.

        Example:
            >>> fell = Comparison(-1.0, -1.5, -0.5, 0.001, deviation=0.4, pairs=5)
            >>> Claim("focal 3", "focal 3 lowers the ECE", fell, higher=False).verdict()
            'confirmed'
        """
        if self.comparison is None:
            return "not tested"
        if (self.comparison.p_value if p_value is None else p_value) >= ALPHA:
            return "undecided"
        return "confirmed" if self.leans() else "contradicted"

    def leans(self) -> bool:
        """Return whether the difference has the claimed sign, however small it is."""
        return self.comparison is not None and (self.comparison.difference > 0) == self.higher

    def sentence(self) -> str:
        """Return the claim, its verdict and the numbers behind it."""
        verdict, found = self.verdict(), self.comparison
        if found is None:
            return f"{self.text}: **{verdict}** (requires two common seeds and some spread)."
        flips = "" if found.sign_flips is None else f", by sign flips {found.sign_flips:.4f}"
        source = "" if self.published is None else f"; source {self.published:+.2f}"
        return (
            f"{self.text}: **{verdict}** (difference {found.difference:+.2f} points, 95 % interval "
            f"{found.low:+.2f} … {found.high:+.2f}, {found.pairs} pairs, p {_with_sign(p_value(found))}"
            f"{flips}{source})."
        )

    def against_itself(self) -> bool:
        """Return whether the source's own difference has the opposite sign of its claim."""
        return self.published is not None and self.published != 0 and (self.published > 0) != self.higher


@dataclass(frozen=True)
class Question:
    """A source's claim about several comparisons at once.

    Attributes:
        subject: Subject of the claim, a plural noun.
        claimed: The claim, a predicate.
        opposite: The opposite claim, a predicate.
        claims: The comparisons that test it.
    """

    subject: str
    claimed: str
    opposite: str
    claims: Sequence[Claim]

    def verdicts(self) -> list[Verdict]:
        """Return the verdict on each comparison, at 5 % for all of them together (Holm)."""
        tested = [claim.comparison.p_value for claim in self.claims if claim.comparison is not None]
        corrected = iter(holm(tested))
        return [claim.verdict(None if claim.comparison is None else next(corrected)) for claim in self.claims]

    def outcome(self) -> Outcome:
        """Return the outcome of all comparisons together.

        `confirmed` or `contradicted` if most testable comparisons say so and none says the opposite, `partly` so if
        fewer do, `mixed` if they disagree, `not tested` if none could be tested, otherwise `undecided`.
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
        """Return the outcome in words, with the comparisons behind it."""
        outcome = self.outcome()
        subject = f"{self.subject[0].upper()}{self.subject[1:]}"
        words: Mapping[Outcome, str] = {
            "confirmed": f"{subject} {self.claimed}",
            "contradicted": f"{subject} {self.opposite}",
            "partly confirmed": f"Some {self.subject} {self.claimed}; the others are undecided",
            "partly contradicted": f"Some {self.subject} {self.opposite}; the others are undecided",
            "mixed": f"Some {self.subject} {self.claimed}, others {self.opposite}",
            "undecided": f"The numbers do not decide whether {self.subject} {self.claimed}",
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
            told.append(f"{sum(map(Claim.leans, tested))} of {len(tested)} differences have that sign")
        return f"**{outcome.capitalize()}.** {words[outcome]} ({'; '.join(told)})."


def findings(page: Page, claims: Sequence[Claim], level: int = 3) -> None:
    """Add claims to a page, one sentence each."""
    page.heading("Findings", level)
    page.points([claim.sentence() for claim in claims])


def answer(page: Page, question: str, parts: Sequence[Question]) -> None:
    """Add the answer to a study's question to a page.

    Args:
        page: The page.
        question: The source's question.
        parts: Its claims; those without comparisons are left out.
    """
    parts = [part for part in parts if part.claims]
    page.heading("Answer")
    if not parts:
        page.text_block(f"*{question}* No finished cell answers it yet.")
        return
    outcomes = [part.outcome() for part in parts]
    order: tuple[Outcome, ...] = (
        *("confirmed", "partly confirmed", "contradicted", "partly contradicted"),
        *("mixed", "undecided", "not tested"),
    )
    counts = [f"{outcomes.count(outcome)} {outcome}" for outcome in order if outcome in outcomes]
    page.text_block(
        f"*{question}* Of {len(parts)} claim{'s' if len(parts) > 1 else ''}: {', '.join(counts)}. All comparisons of a "
        "claim are tested together at 5 % (Holm's correction), so fewer are decided here than above."
    )
    page.points([part.sentence() for part in parts])
    claims = [claim for part in parts for claim in part.claims]
    if opposed := [claim for claim in claims if claim.against_itself()]:
        page.text_block("The source's own figures contradict its claim here:")
        page.points([f"{claim.about}: {claim.text}; the source prints {claim.published:+.2f}." for claim in opposed])
    dependence(page, claims)


def dependence(page: Page, claims: Sequence[Claim]) -> None:
    """Add what the pairs of a study share, and which comparisons depend on each other through their baseline."""
    kinds = Counter("the network" if claim.same else ", ".join(claim.shares) or "nothing" for claim in claims)
    baselines = Counter(claim.baseline for claim in claims)
    common = [f"{name} ({count})" for name, count in baselines.items() if count > 1]
    page.heading("Dependence", 3)
    page.text_block(
        "Comparisons are paired by seed. The two cells of a pair share: "
        + "; ".join(f"{what} ({count} comparison{'s' if count > 1 else ''})" for what, count in kinds.items())
        + "."
    )
    if common:
        page.text_block(
            f"Comparisons with a common baseline are not independent: {'; '.join(common)}. Holm's correction holds "
            "whatever the dependence, but a count of equal signs is not a count of independent votes."
        )


def p_value(comparison: Comparison | None) -> str:
    """Return a p-value in words, or a dash.

    Example:
        >>> p_value(Comparison(1.0, 0.5, 1.5, 0.00004, deviation=0.4, pairs=5))
        '< 0.0001'
    """
    if comparison is None:
        return "–"
    return "< 0.0001" if comparison.p_value < 0.0001 else f"{comparison.p_value:.4f}"


def _with_sign(shown_p: str) -> str:
    return shown_p if shown_p.startswith("<") else f"= {shown_p}"
