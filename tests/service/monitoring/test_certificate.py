import itertools
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from candor.contract.certificates import Threshold
from service.decisions.rows import ScoredRows
from service.errors import InputValueError
from service.monitoring.certificate import ROWS, CertificateMonitor, _factor, bets, values
from service.monitoring.onset import onset_share, shares_left

THRESHOLD = Threshold.at(0.5, 0.0)
LABELLED = ("precision", "selective_risk", "recall", "false_positive_rate")


def monitor(metric: str = "precision", tolerance: float = 0.1, **options: Any) -> CertificateMonitor:
    defaults: dict[str, Any] = {"threshold": THRESHOLD, "floor": 1.0, "level": 0.05, "since": 0}
    return CertificateMonitor(metric=metric, tolerance=tolerance, **{**defaults, **options})  # type: ignore[arg-type]


def scored(above: Any, positive: Any, **columns: Any) -> ScoredRows:
    """Return rows at the threshold itself, or a hair of the score below it."""
    above = np.atleast_1d(np.asarray(above, np.bool_))
    probability = np.full(len(above), 0.5, np.float32)
    return ScoredRows(
        probability=probability,
        score=np.where(above, 0.0, -1e-6).astype(np.float32),
        positive=np.atleast_1d(np.asarray(positive, np.bool_)),
        **{name: np.atleast_1d(np.asarray(values)) for name, values in columns.items()},
    )


def feed(watch: CertificateMonitor, rows: ScoredRows) -> CertificateMonitor:
    """Count rows, each of a new group unless some have the same."""
    start = watch.alarm.through
    time = np.arange(start, start + len(rows))
    watch.update(replace(rows, predicted_at=time, group=rows.group + start), through=start + len(rows))
    return watch


def test_the_evidence_of_a_few_rows_is_the_formula() -> None:
    errors = [True, False, False, True]
    watch = feed(monitor(), scored([True] * 4, ~np.array(errors)))
    factors = [[1 + b * 9 if error else 1 - b for b in bets(0.1)] for error in errors]
    staked = sum(
        onset_share(k) * math.prod(row[j] for row in factors[k - 1 :]) / len(bets(0.1))
        for j in range(len(bets(0.1)))
        for k in range(1, 5)
    )
    assert watch.alarm.log_e == pytest.approx(math.log(ROWS * (staked + shares_left(4))))
    assert watch.alarm.rows == 4


def test_bets_are_likelihood_ratios_of_higher_rates() -> None:
    for tolerance in (0.5, 0.05, 0.001):
        rates = tolerance + bets(tolerance) * (1 - tolerance)
        assert rates[0] >= 0.5
        assert rates[-1] <= tolerance * 1.125 + 1e-12
        # A factor of 1 + b v is r/q for an error and (1 − r)/(1 − q) for none.
        np.testing.assert_allclose(1 + bets(tolerance) * (1 - tolerance) / tolerance, rates / tolerance)
        np.testing.assert_allclose(1 - bets(tolerance), (1 - rates) / (1 - tolerance))


# Share, at or above, propensity, rate of positives; what is explored is worse than what is reviewed.
SEEN = [(0.3, True, 1.0, 0.98), (0.2, True, 0.25, 0.8), (0.3, False, 1.0, 0.1), (0.2, False, 0.25, 0.3)]
HIDDEN = [(0.25, True, 1.0, 0.98), (0.2, True, 0.25, 0.8), (0.05, True, 0.0, 0.7), (0.5, False, 0.25, 0.2)]


def rate(metric: str, population: list[tuple[float, bool, float, float]]) -> float:
    """Return the population's rate of what counts against the promise."""
    mass = {(above, positive): 0.0 for above in (True, False) for positive in (True, False)}
    for share, above, _, positives in population:
        mass[above, True] += share * positives
        mass[above, False] += share * (1 - positives)
    if metric == "recall":
        return mass[False, True] / (mass[True, True] + mass[False, True])
    if metric == "false_positive_rate":
        return mass[True, False] / (mass[True, False] + mass[False, False])
    return mass[True, False] / (mass[True, True] + mass[True, False])


def outcomes(population: list[tuple[float, bool, float, float]], missing: dict[bool, float]) -> Any:
    """Yield every row that can come with its probability: region, label, whether it is sought and whether it comes."""
    for (share, above, propensity, positives), positive, sought, comes in itertools.product(
        population, (True, False), (True, False), (True, False)
    ):
        probability = share * (positives if positive else 1 - positives)
        probability *= propensity if sought else 1 - propensity
        probability *= 1 - missing[positive] if comes else missing[positive]
        if probability:
            yield (
                probability,
                scored(above, positive, propensity=propensity, sought=sought, labelled=sought and comes),
            )


@pytest.mark.parametrize("metric", LABELLED)
def test_at_the_edge_of_the_promise_the_mean_stays_one(metric: str) -> None:
    tolerance = rate(metric, SEEN)
    mean = [0.0, 0.0]
    for first, row in outcomes(SEEN, {True: 0.0, False: 0.0}):
        once = feed(monitor(metric, tolerance, floor=0.25), row)
        mean[0] += first * math.exp(once.alarm.log_e)
        document = once.to_dict()
        for second, another in outcomes(SEEN, {True: 0.0, False: 0.0}):
            twice = feed(CertificateMonitor.from_dict(document), another)
            mean[1] += first * second * math.exp(twice.alarm.log_e)
    assert mean == pytest.approx([ROWS, ROWS], abs=1e-12)


@pytest.mark.parametrize("metric", LABELLED)
@pytest.mark.parametrize("missing", [{True: 0.3, False: 0.0}, {True: 0.0, False: 0.3}, {True: 0.1, False: 0.1}])
@pytest.mark.parametrize("population", [SEEN, HIDDEN], ids=["seen", "hidden"])
@pytest.mark.parametrize("floor", [0.25, 0.6])
def test_labels_that_stay_away_or_are_never_sought_cannot_raise_the_mean(
    metric: str, missing: dict[bool, float], population: list[tuple[float, bool, float, float]], floor: float
) -> None:
    mean = 0.0
    for probability, row in outcomes(population, missing):
        watch = feed(monitor(metric, rate(metric, population), floor=floor), row)
        mean += probability * math.exp(watch.alarm.log_e)
    assert mean <= ROWS + 1e-12


@pytest.mark.parametrize("metric", LABELLED)
def test_what_stands_where_a_label_has_not_come_is_not_read(metric: str) -> None:
    above = np.arange(40) % 2 == 0
    hidden = {"labelled": np.zeros(40, np.bool_), "sought": np.ones(40, np.bool_)}
    either = [feed(monitor(metric), scored(above, np.full(40, label), **hidden)) for label in (True, False)]
    assert either[0].to_dict() == either[1].to_dict()
    assert either[0].alarm.peak == 0.0


def test_a_propensity_below_the_floor_is_not_weighed_but_its_labels_count() -> None:
    few = {"propensity": np.full(200, 0.1), "sought": np.arange(200) % 5 == 0}
    watch = feed(monitor(floor=0.5), scored([True] * 200, [False] * 200, labelled=few["sought"], **few))
    assert (watch.alarm.rows, watch.alarm.unlabelled) == (200, 160)
    assert watch.alarm.peak > 0


def test_a_flag_rate_needs_no_labels_and_counts_every_row() -> None:
    tolerance = 0.2
    mean = 0.0
    for above, probability in ((True, tolerance), (False, 1 - tolerance)):
        row = scored(above, False, labelled=False, propensity=math.nan)
        watch = feed(monitor("flag_rate", tolerance), row)
        mean += probability * math.exp(watch.alarm.log_e)
        assert (watch.alarm.rows, watch.alarm.unlabelled) == (1, 0)
    assert mean == pytest.approx(ROWS)
    assert feed(monitor("flag_rate", tolerance), scored([True] * 60, [False] * 60)).alarm.fired_at is not None


def test_which_rows_count() -> None:
    rows = scored(
        above=[True, True, True, False, True, True],
        positive=[True] * 6,
        propensity=[1.0, 0.5, 0.5, 1.0, math.nan, 0.1],
        sought=[True, True, False, True, True, False],
        labelled=[True, False, False, True, True, False],
    )
    counts = {metric: feed(monitor(metric, floor=0.5), rows).alarm for metric in LABELLED}
    # The third was not sought, the fourth is in no precision's denominator, the propensity of the fifth is unknown.
    assert (counts["precision"].rows, counts["precision"].unlabelled) == (3, 2)
    assert (counts["recall"].rows, counts["recall"].unlabelled) == (4, 2)


def test_later_rows_of_a_group_keep_the_promise_and_stop_bets_on_rows_while_they_are_many() -> None:
    again = np.where(np.arange(200) == 150, 7, np.arange(200))
    rows = scored([True] * 200, [False] * 200, group=again)
    kept = scored([True] * 200, np.arange(200) == 150)
    by_row, by_group = (feed(monitor(per=per), rows).alarm for per in ("row", "group"))
    assert (by_row.rows, by_group.rows) == (200, 199)
    assert by_row.log_e == pytest.approx(feed(monitor(), kept).alarm.log_e)
    often = feed(monitor(), scored([True] * 50, [False] * 50, group=np.repeat([7, 9], 25))).alarm
    assert often.log_e == pytest.approx(feed(monitor(), scored([True, False], [False, False])).alarm.log_e, abs=0.2)
    assert often.fired_at is None


def test_per_group_a_row_without_a_sought_label_takes_its_groups_place_in_later_cohorts_too() -> None:
    watch = monitor(per="group", floor=0.5)
    for sought in (False, True):  # the second cohort ends a period: all errors, of groups whose place is taken
        rows = scored(
            [True] * 100, [False] * 100, propensity=[0.5] * 100, sought=[sought] * 100, labelled=[sought] * 100
        )
        start = watch.alarm.through
        rows = replace(rows, group=np.arange(100), predicted_at=np.arange(start, start + 100))
        watch.update(rows, through=start + 100)
    assert (watch.alarm.rows, watch.alarm.log_e) == (0, pytest.approx(-math.log(16)))


@pytest.mark.parametrize("metric", LABELLED)
def test_no_wrong_label_can_do_more_than_is_allowed_for(metric: Any) -> None:
    above, positive = (np.array(each) for each in zip(*itertools.product((False, True), repeat=2), strict=True))
    for tolerance in (0.01, 0.1, 0.4, 0.8):
        right, wrong = (
            np.log1p(np.outer(values(metric, above, labels, np.ones(4, np.bool_), tolerance), bets(tolerance)))
            for labels in (positive, ~positive)
        )
        np.testing.assert_allclose((wrong - right).max(axis=0), _factor(metric, tolerance))


@pytest.mark.parametrize("per", ["row", "amount"])
def test_rows_that_are_rarely_sought_break_no_promise_that_is_kept(per: str) -> None:
    """3 of 10 rows are all sought, the rest at 0.001: one that is explored weighs a thousand times as much."""
    rng, fired = np.random.default_rng(14), 0
    for _ in range(20):
        watch = monitor(tolerance=0.05, floor=0.001, per=per)
        for _ in range(60):
            often = rng.random(200) < 0.3
            propensity = np.where(often, 1.0, 0.001)
            rows = scored(
                np.ones(200, np.bool_),
                rng.random(200) >= np.where(often, 0.15, 0.002),  # 4.6 % are errors
                propensity=propensity,
                sought=(came := rng.random(200) < propensity),
                labelled=came,
                amount=rng.exponential(size=200),
            )
            feed(watch, rows)
        fired += watch.alarm.fired_at is not None
    assert fired <= 4


@pytest.mark.parametrize("metric", LABELLED)
def test_wrong_labels_that_a_certificate_allows_for_do_not_void_it(metric: str) -> None:
    """The promise is kept to a hair by the true labels, and 2 % of the labels are changed where they hurt most."""
    rng, n, share = np.random.default_rng(4), 12_800, 0.02
    fired = {"allowed": 0, "taken as right": 0, "broken": 0}
    for _ in range(12):
        above = rng.random(n) < 0.5
        for name, wrong, tolerated in (("allowed", share, 0.1), ("taken as right", 0.0, 0.1), ("broken", share, 0.4)):
            if metric in ("precision", "selective_risk"):
                positive = rng.random(n) >= np.where(above, tolerated, 0.5)
                worse = above & positive
            else:  # of the rows of the class that it counts, 10 % are errors
                error = rng.random(n) < tolerated
                counts = rng.random(n) < 0.5
                above = np.where(counts, error, rng.random(n) < 0.5) ^ (metric == "recall")
                positive = counts == (metric == "recall")
                worse = ~counts & (above == (metric == "false_positive_rate"))  # they become further errors
            lies = worse & (rng.random(n) < share / worse.mean())
            watch = monitor(metric, per="group", wrong_labels=wrong)
            for part in np.array_split(np.arange(n), 8):
                feed(watch, scored(above[part], (positive ^ lies)[part]))
            fired[name] += CertificateMonitor.from_dict(watch.to_dict()).alarm.fired_at is not None
    assert fired["allowed"] <= 3, fired
    assert fired["taken as right"] >= 9, fired
    assert fired["broken"] == 12, fired


def test_cohorts_stored_between_them_give_the_same_numbers_and_rows_do_not_depend_on_their_ends() -> None:
    rng = np.random.default_rng(3)
    n = 400
    rows = scored(
        rng.random(n) < 0.7,
        rng.random(n) < 0.85,
        propensity=np.where(rng.random(n) < 0.5, 1.0, 0.3),
        sought=rng.random(n) < 2,
        group=rng.integers(0, 150, n),
    )
    time = np.sort(rng.integers(0, 1000, n))
    whole, cut, stored = (monitor(floor=0.3) for _ in range(3))
    rows = replace(rows, predicted_at=time)
    whole.update(rows, through=1000)
    for start, end in itertools.pairwise([0, 1, 170, 171, 600, 601, 1000]):
        here = (time >= start) & (time < end)
        for watch in (cut, stored):
            watch.update(rows.take(here), through=np.int64(end))
        document = json.loads(json.dumps(stored.to_dict(), allow_nan=False))
        assert document == stored.to_dict() == cut.to_dict()
        stored = CertificateMonitor.from_dict(document)
    of_rows = ("stakes", "rows", "unlabelled", "groups")
    assert [cut.to_dict()[name] for name in of_rows] == [whole.to_dict()[name] for name in of_rows]
    assert cut.alarm.beside is not None


def test_an_alarm_stays_and_names_its_row() -> None:
    watch = feed(monitor(), scored([True] * 30, [False] * 30))
    fired = watch.alarm.fired_at
    assert fired is not None
    assert feed(monitor(), scored([True] * fired, [False] * fired)).alarm.fired_at is None
    feed(watch, scored([True] * 500, [True] * 500))
    assert watch.alarm.log_e < 0
    assert watch.alarm.fired_at == fired
    assert watch.alarm.p_value <= 0.05
    assert CertificateMonitor.from_dict(watch.to_dict()).alarm.fired_at == fired


def test_an_empty_cohort_moves_the_time_only() -> None:
    watch = monitor()
    watch.update(scored([], []), through=50)
    assert (watch.alarm.through, watch.alarm.rows) == (50, 0)


@pytest.mark.parametrize(
    ("time", "through", "where"),
    [
        ([5, 6], 5, "time"),
        ([5, 6], 6, "time"),
        ([3, 6], 7, "time"),
        ([6, 5], 9, "time[1]"),
        ([6.0, 7.0], 9, "time"),
        ([5], 9, "predicted_at"),
        ([], 4, "through"),
    ],
)
def test_cohorts_out_of_order_are_refused_and_change_nothing(time: list[Any], through: int, where: str) -> None:
    watch = monitor(since=4)
    before = watch.to_dict()
    rows = scored([True] * 2, [True] * 2) if time else scored([], [])
    with pytest.raises(InputValueError) as caught:
        watch.update(replace(rows, predicted_at=np.array(time, np.int64 if not time else None)), through=through)
    assert caught.value.where == where
    assert caught.value.remedy
    assert watch.to_dict() == before


@pytest.mark.parametrize(
    "option",
    [
        {"metric": "accuracy"},
        {"per": "card"},
        *({"tolerance": value} for value in (0.0, 1.0, "0.1")),
        *({"floor": value} for value in (0.0, 1.01)),
        *({"level": value} for value in (0, True, math.nan)),
        *({"since": value} for value in (-1, 1.5)),
        {"wrong_labels": 0.02},  # rows are not counted once
        {"wrong_labels": 0.2, "per": "group"},  # more than the promise tolerates
    ],
)
def test_options_that_make_no_sense_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(InputValueError) as caught:
        monitor(**option)
    assert caught.value.where == next(iter(option))


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"kind": "calibration"}, "kind"),
        ({"version": 2}, "kind"),
        ({"extra": 1}, "extra"),
        ({"stakes": [0.0]}, "stakes"),
        ({"stakes": [math.inf] * 7}, "stakes[0]"),
        ({"stakes": ["0"] * 7}, "stakes[0]"),
        ({"rows": -1}, "rows"),
        ({"peak": -0.5}, "peak"),
        ({"peak": 40.0}, "fired_at"),
        ({"fired_at": 3}, "fired_at"),
        ({"tolerance": 0.2}, "stakes"),
        ({"threshold": {"probability": 0.5}}, "threshold"),
        ({"groups": "%"}, "groups"),
        ({"periods": {}}, "periods"),
        ({"threshold": {"probability": 5, "score": None}}, "threshold/probability"),
    ],
)
def test_documents_that_contradict_themselves_are_refused(change: dict[str, Any], where: str) -> None:
    document = feed(monitor(), scored([True] * 5, [True] * 5)).to_dict()
    with pytest.raises(InputValueError) as caught:
        CertificateMonitor.from_dict({**document, **change})
    assert caught.value.where == where


def test_a_document_without_a_field_is_refused() -> None:
    document = monitor().to_dict()
    del document["peak"]
    with pytest.raises(InputValueError, match="peak"):
        CertificateMonitor.from_dict(document)
    with pytest.raises(InputValueError, match="document of a monitor"):
        CertificateMonitor.from_dict([])  # type: ignore[arg-type]


def test_a_threshold_of_minus_infinity_comes_back() -> None:
    watch = monitor(threshold=Threshold.at(0.5, -math.inf))
    again = CertificateMonitor.from_dict(json.loads(json.dumps(watch.to_dict(), allow_nan=False)))
    assert again.threshold == watch.threshold
