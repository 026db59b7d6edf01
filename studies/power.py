"""The power of a study: how likely its comparisons find the source's effects, stated before the cells are run."""

from __future__ import annotations

from collections.abc import Sequence

from studies.statistics import detectable, pairs_for, power
from studies.verdicts import ALPHA, Claim, Question, p_value

WANTED = 0.8
NAME = "power"
HEADER = (
    *("comparison", "source", "seeds", "difference", "deviation", "p", "sign flips"),
    *("power", "seeds for 80 %", "found with 80 %"),
)
EXPLAINED = (
    "In points of a percent. *source* is the difference that the source prints; *deviation* is the standard deviation "
    "of the seeds' differences here; *power* is the chance that these seeds find a true difference of the source's "
    "size; *seeds for 80 %* would find it with 80 %; *found with 80 %* is the smallest difference that these seeds "
    "find with 80 %. All three are those of the paired t-test at 5 % divided by the tested comparisons of the claim. "
    "The deviation of three seeds is itself uncertain: the true one may be twice as large. *sign flips* is the exact "
    "test, which requires six seeds to reach 5 %."
)


def power_table(questions: Sequence[Question]) -> list[list[str]]:
    """Return a row for each comparison of a study, as `HEADER` has them."""
    rows = []
    for question in questions:
        tested = sum(claim.comparison is not None for claim in question.claims)
        rows += [_row(claim, ALPHA / max(tested, 1)) for claim in question.claims]
    return rows


def _row(claim: Claim, alpha: float) -> list[str]:
    found, effect = claim.comparison, claim.published
    chance = needed = least = "–"
    if found is not None:
        least = f"{detectable(found.deviation, found.pairs, alpha):.2f}"
    if found is not None and effect:
        chance = f"{100 * power(effect, found.deviation, found.pairs, alpha):.0f} %"
        needed = str(pairs_for(effect, found.deviation, alpha, WANTED) or "> 200")
    subject = claim.about.partition(" on ")[0]
    about = claim.text if claim.about in claim.text else f"{claim.about}: {claim.text.removeprefix(f'{subject} ')}"
    return [
        about,
        "–" if effect is None else f"{effect:+.2f}",
        *(("–",) * 3 if found is None else (str(found.pairs), f"{found.difference:+.2f}", f"{found.deviation:.2f}")),
        p_value(found),
        "–" if found is None or found.sign_flips is None else f"{found.sign_flips:.4f}",
        chance,
        needed,
        least,
    ]
