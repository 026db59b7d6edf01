"""Verdicts follow from comparisons, one by one and together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from studies.page import Page
from studies.power import HEADER, power_table
from studies.statistics import Comparison, pairs_for, power
from studies.verdicts import Claim, Question, answer

LOWER = Comparison(-1.0, -1.5, -0.5, 0.001, 0.3, 5)
HIGHER = Comparison(1.0, 0.5, 1.5, 0.001, 0.3, 5)
OPEN = Comparison(-1.0, -2.5, 0.5, 0.2, 0.3, 5)
NEARLY = Comparison(-1.0, -1.9, -0.1, 0.03, 0.3, 5)


def claim(comparison: Comparison | None, about: str = "focal 3", *, higher: bool = False) -> Claim:
    return Claim(about, f"{about} lowers the ECE", comparison, higher)


def question(*comparisons: Comparison | None) -> Question:
    claims = [claim(comparison, f"loss {place}") for place, comparison in enumerate(comparisons)]
    return Question("regularised losses", "lower the ECE", "raise the ECE", claims)


@pytest.mark.parametrize(
    ("comparison", "higher", "verdict"),
    [
        (LOWER, False, "confirmed"),
        (LOWER, True, "contradicted"),
        (HIGHER, True, "confirmed"),
        (OPEN, False, "undecided"),
        (None, True, "not tested"),
    ],
)
def test_a_verdict_follows_from_its_comparison(comparison: Comparison | None, higher: bool, verdict: str) -> None:
    found = claim(comparison, higher=higher)
    assert found.verdict() == verdict
    assert found.sentence().startswith(f"focal 3 lowers the ECE: **{verdict}** (")


@pytest.mark.parametrize(
    ("comparisons", "outcome"),
    [
        ((LOWER, LOWER, LOWER), "confirmed"),
        ((LOWER, LOWER, OPEN), "confirmed"),
        ((LOWER, OPEN, OPEN), "partly confirmed"),
        ((OPEN, HIGHER), "partly contradicted"),
        ((LOWER, LOWER, HIGHER), "mixed"),
        ((HIGHER, HIGHER, OPEN), "contradicted"),
        ((LOWER, None, None), "confirmed"),
        ((None, None), "not tested"),
        ((OPEN,), "undecided"),
    ],
)
def test_an_outcome_follows_from_the_verdicts(comparisons: tuple[Comparison | None, ...], outcome: str) -> None:
    found = question(*comparisons)
    assert found.outcome() == outcome
    assert found.sentence().startswith(f"**{outcome.capitalize()}.** ")


def test_comparisons_of_one_claim_are_corrected_for_being_several() -> None:
    assert claim(NEARLY).verdict() == "confirmed"
    assert question(NEARLY).verdicts() == ["confirmed"]
    assert question(NEARLY, None, OPEN).verdicts() == ["undecided", "not tested", "undecided"]  # 0.03 · 2
    assert question(NEARLY, LOWER).verdicts() == ["confirmed", "confirmed"]  # 0.001 · 2, then 0.03


def test_the_answer_counts_outcomes_and_names_who_says_what() -> None:
    page = Page()
    answer(page, "Do they?", [question(LOWER, LOWER, OPEN), question(None), question()])
    text = page.text()
    assert text.startswith("## Answer\n\n*Do they?* Of 2 claims: 1 confirmed, 1 not tested.")
    assert (
        "- **Confirmed.** Regularised losses lower the ECE (confirmed: loss 0 · loss 1; undecided: loss 2; 3 of 3 "
        in text
    )
    assert "- **Not tested.** Too few seeds to say whether regularised losses lower the ECE (loss 0)." in text


def test_a_source_that_contradicts_its_own_claim_is_named() -> None:
    """Wang et al. print an ECE after scaling of 2.71 for the L1 norm and of 3.11 for cross-entropy."""
    page = Page()
    own = replace(claim(HIGHER, "L1 norm", higher=True), published=2.71 - 3.11, baseline="cross-entropy")
    answer(page, "Do they?", [Question("losses", "raise the ECE", "lower it", [own, replace(own, published=1.0)])])
    assert "L1 norm: L1 norm lowers the ECE; the source prints -0.40." in page.text()
    assert page.text().count("the source prints") == 1
    assert "source -0.40)" in own.sentence()


def test_comparisons_with_a_common_baseline_are_named() -> None:
    page = Page()
    shared = ("held-out rows", "initial weights")
    claims = [replace(claim(LOWER, name), baseline="cross-entropy", shares=shared) for name in ("a", "b")]
    answer(page, "Do they?", [Question("losses", "do", "do not", claims)])
    assert "share: held-out rows, initial weights (2 comparisons)" in page.text()
    assert "not independent: cross-entropy (2)." in page.text()


def test_the_power_of_each_comparison_is_at_the_level_of_its_claim() -> None:
    page = [replace(claim(LOWER, name), published=-0.8) for name in ("a", "b")]
    (row, _) = power_table([Question("losses", "do", "do not", page)])
    told = dict(zip(HEADER, row, strict=True))
    assert told["source"] == "-0.80"
    assert told["power"] == f"{100 * power(0.8, 0.3, 5, 0.025):.0f} %"
    assert int(told["seeds for 80 %"]) == pairs_for(0.8, 0.3, 0.025)
    (row,) = power_table([question(None)])
    assert dict(zip(HEADER, row, strict=True))["seeds for 80 %"] == "–"


def test_an_answer_without_claims_says_so() -> None:
    page = Page()
    answer(page, "Do they?", [question()])
    assert "No finished cell answers it yet" in page.text()
