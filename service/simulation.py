"""What a policy would have done with the newest predictions, before it is activated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from service.decisions.decide import decide
from service.decisions.rows import ScoredRows
from service.decisions.simulate import Simulation, simulate
from service.decisions.solved import SolvedBand, SolvedPolicy
from service.errors import InputValueError
from service.plane import Served
from service.revision import Threshold
from service.solve import scored
from service.state.recent import NO_LABEL, RecentRows


def simulate_on(
    rows: RecentRows, served: Served, after: SolvedPolicy, before: SolvedPolicy | None, *, most_flips: int, seed: int
) -> Simulation:
    """Try a solved policy on logged predictions, with the calibrator in service.

    Args:
        rows: Newest predictions of the model in service.
        served: The revision in service.
        after: The policy that is tried.
        before: The policy that it is compared with; None for none.
        most_flips: Names of changed rows that are returned, at most.
        seed: Of every draw; fixed before any label is seen.
    """
    theirs = None if before is None else _scored(rows, served, before)
    own = _scored(rows, served, after)
    return simulate(
        after,
        decide(after, own.probability, own.score, own.segment),
        own,
        rows.ids,
        before=None
        if before is None or theirs is None
        else np.array(before.actions)[decide(before, theirs.probability, theirs.score, theirs.segment)],
        most_flips=most_flips,
        seed=seed,
    )


def moved(solved: SolvedPolicy, thresholds: Mapping[int, float]) -> SolvedPolicy:
    """Return a policy as if thresholds lay elsewhere: nothing is solved, and nothing is certified.

    Args:
        solved: The policy; without thresholds to move it comes back as it is.
        thresholds: Probability in [0, 1] from which on a band takes rows, by the band's index; the same for every
            segment. Bands that are not named keep theirs.

    Raises:
        InputValueError: The policy has no such band, or it is the last one, which takes what is left.
    """
    if not thresholds:
        return solved
    if not thresholds.keys() <= set(range(len(solved.bands) - 1)):
        raise InputValueError(
            "There is no such band to move.",
            where="band",
            found=sorted(thresholds),
            expected=f"from 0 to {len(solved.bands) - 2}",
        )
    bands = tuple(
        SolvedBand(band.action, Threshold(float(np.float32(thresholds[index])), float("-inf")), None)
        if index in thresholds
        else replace(band, certificate=None)
        for index, band in enumerate(solved.bands)
    )
    return SolvedPolicy(replace(solved.policy, segments=None), solved.version, bands, review_all=False)


def spread(rows: RecentRows, served: Served, solved: SolvedPolicy, *, bins: int) -> dict[str, list[int]]:
    """Count logged predictions by the probability that a policy goes by, in bins of equal width from 0 to 1.

    Args:
        rows: Newest predictions of the model in service.
        served: The revision in service.
        solved: The policy.
        bins: How many.

    Returns:
        `positive` and `negative`, of the rows whose label was sought and has come, and `unknown`, all others.
    """
    seen = _scored(rows, served, solved)
    index = np.minimum((seen.probability * bins).astype(np.intp), bins - 1)
    known = seen.known()
    kinds = {"positive": known & seen.positive, "negative": known & ~seen.positive, "unknown": ~known}
    return {name: np.bincount(index[which], minlength=bins).tolist() for name, which in kinds.items()}


def _scored(rows: RecentRows, served: Served, solved: SolvedPolicy) -> ScoredRows:
    return scored(
        solved.policy,
        served.labels,
        served.calibrator,
        rows.logits,
        rows.labels,
        group=rows.cluster,
        propensity=rows.propensity,
        # Of labels that came unasked nobody knows why they came: they are left out, as in a refit.
        labelled=rows.sought & (rows.propensity > 0) & (rows.labels != NO_LABEL),
        sought=rows.sought,
        segment=rows.segment,
    )
