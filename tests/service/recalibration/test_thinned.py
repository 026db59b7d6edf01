"""A recalibration that reads unlabelled rows of a sample of the groups: estimates stay unbiased, certificates hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.stats import binom

from benchmarks.thinned import BITS, BUSY_WORSE, DELTA, JUST_ABOVE, certified, promise, sampled, truth, world
from bundle.split import CERTIFY, FIT, GATE, roles
from service.decisions.rows import Rows
from service.recalibration.rows import Silence, divide
from service.state.thinning import drawn
from service.state.window_rows import thinned

SILENCE = Silence(label=0, mature_before_us=10, actions=frozenset({"allow"}))


def figures(rows: Rows, share: float) -> Iterator[tuple[str, float]]:
    """What a recalibration says of all traffic."""
    division = divide(rows, unsought_may_fit=False, min_rows=1, silence=SILENCE, share=share)
    yield "unidentified", division.unidentified_share
    yield "missing", division.judged.take(division.judged.drawn).missing_share()
    yield "flagged", float((division.certify.action == "block").mean())
    fit = division.fitting
    yield "base rate of a fit", float(np.average(fit.label, weights=fit.weight))
    yield "gate labels", float(len(division.gate))


def test_figures_about_all_traffic_are_those_of_all_rows_on_average() -> None:
    rng = np.random.default_rng(11)
    differences: dict[str, list[float]] = {}
    for _ in range(60):
        every = world(rng)
        of_all, of_sample = dict(figures(every, 1.0)), dict(figures(thinned(every, BITS), 2.0**-BITS))
        for name, value in of_all.items():
            differences.setdefault(name, []).append(of_sample[name] - value)
    assert set(differences.pop("gate labels")) == {0.0}  # every label gates
    for name, found in differences.items():
        error = np.std(found, ddof=1) / np.sqrt(len(found))
        assert abs(np.mean(found)) < 4 * error + 1e-12, name
        assert error < 0.01, name  # or it would show nothing


def test_without_the_share_silence_would_count_too_little() -> None:
    every = world(np.random.default_rng(12), groups=20_000)
    of_all, ignored = dict(figures(every, 1.0)), dict(figures(thinned(every, BITS), 1.0))
    assert ignored["base rate of a fit"] > 1.5 * of_all["base rate of a fit"]


def test_a_certificate_from_thinned_rows_keeps_its_level() -> None:
    """The promise is just above the truth, which is about one row of each group."""
    policy = promise("group", truth("group") + JUST_ABOVE)
    rng = np.random.default_rng(13)
    runs, false, careless = 200, 0, 0
    for run in range(runs):
        rows = world(rng, missing=0.0)
        false += certified(policy, sampled(rows), seed=run)
        if run % 4 == 0:  # as if the labels of groups that are not drawn were all that there is of them
            labelled = thinned(rows, BITS).without("drawn")
            careless += certified(policy, divide(labelled, unsought_may_fit=False, min_rows=1), seed=run)
    assert 0 < false <= binom.ppf(0.999, runs, DELTA)
    assert careless > binom.ppf(0.999, runs // 4, DELTA)


def test_a_promise_per_row_keeps_its_level_on_thinned_rows() -> None:
    """The default. Large groups are worse, and their rows are right or wrong together."""
    actual = truth("row", BUSY_WORSE)
    exact, easy = promise("row", actual + JUST_ABOVE), promise("row", actual - 0.25)
    rng = np.random.default_rng(15)
    runs, false, found = 40, 0, 0
    for run in range(runs):
        division = sampled(world(rng, missing=0.0, right=BUSY_WORSE, together=True))
        false += certified(exact, division, seed=run)
        found += certified(easy, division, seed=run)
    assert false <= binom.ppf(0.999, runs, DELTA)
    assert found > runs // 4, "or it would certify nothing"


def test_rows_of_other_groups_fit_and_gate_and_never_certify() -> None:
    rows = thinned(world(np.random.default_rng(14)), BITS)
    division = divide(rows, unsought_may_fit=False, min_rows=1, share=2.0**-BITS)
    role, known = roles(rows.group), rows.known()
    assert len(division.fitting) == int((known & (role == FIT)).sum())
    assert len(division.gate) == int((known & (role == GATE)).sum())
    assert drawn(division.certify.group, BITS).all()
    assert len(division.certify) == int((drawn(rows.group, BITS) & (role == CERTIFY)).sum())
    assert drawn(division.fit.group, BITS).all()


def test_a_sample_without_gate_rows_shows_nothing_of_the_traffic() -> None:
    rows = world(np.random.default_rng(5), 300)
    rows = replace(rows, drawn=roles(rows.group) != GATE)
    assert divide(rows, unsought_may_fit=False, min_rows=1, share=0.5).unidentified_share == 1.0
