"""keep_previous: the same rows stay above a threshold while the calibrator changes, or it is said why they cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom

from bundle import LabelledLogits, Reference
from bundle.split import CERTIFY, FIT, GATE
from calibrators import CALIBRATORS, Calibrator, from_dict
from candor.contract.certificates import Basis, Certificate, SolvedBand, Threshold
from candor.contract.policies import Policy
from service.decisions.calibrated import Calibrated
from service.decisions.certify import solve
from service.decisions.claims import Shown
from service.decisions.decide import decide_rows
from service.decisions.policy import parse_policy
from service.decisions.rows import Rows
from service.decisions.same_rows import OrderLostError, same_rows
from service.decisions.sets import solve_sets
from service.decisions.solve import solve_on_reference
from service.decisions.solved import SolvedPolicy
from service.recalibration.policies import Refitted, refit_policies
from service.recalibration.rows import Division

NAMES = ("fine", "fraud")
CLAIM = Certificate(
    metric="precision",
    at_least=0.9,
    at_most=None,
    delta=0.05,
    n=100,
    errors=1,
    looks=1,
    basis="traffic",
    window=None,
    valid=True,
)


def temperature(value: float, classes: int = 2) -> Calibrator:
    document = {"method": "temperature", "version": 1, "classes": classes, "temperature": value, "at_bound": False}
    return from_dict(document)


def drawn(seed: int, n: int, spread: float = 3.0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Logits and labels for which the softmax is right."""
    rng = np.random.default_rng(seed)
    logits = (spread * rng.standard_normal((n, 2))).astype(np.float32)
    return logits, (logits + rng.gumbel(size=(n, 2))).argmax(axis=1)


def fitted(method: str, seed: int) -> Calibrator:
    logits, labels = drawn(seed, 400)
    return CALIBRATORS[method]().fit(logits * (1 + 0.3 * seed), labels)


def policy(promise: float = 0.9, **fields: Any) -> Policy:
    document = {
        "id": "p",
        "positive": "fraud",
        "bands": [
            {"action": "block", "when": {"min_precision": promise}},
            {"action": "look", "when": {"min_probability": 0.5}},
            {"action": "allow"},
        ],
        "on_uncertifiable": "keep_previous",
    }
    return parse_policy(document | fields)


def band_at(wanted: Policy, calibrator: Calibrator, logits: npt.NDArray[np.float32], row: int) -> SolvedBand:
    """A certified band whose threshold is the pair of a row, as a grid's are."""
    rows = Calibrated.of(calibrator, NAMES, Rows(logits=logits)).scored(wanted)
    return SolvedBand(
        action="block", threshold=Threshold.at(float(rows.probability[row]), float(rows.score[row])), certificate=CLAIM
    )


@pytest.mark.parametrize(
    ("positive", "before", "after"),
    [
        ("fraud", "temperature", "temperature"),
        ("fine", "temperature", "platt"),
        ("fraud", "identity", "beta"),
        ("fine", "isotonic", "temperature"),
        ("fraud", "temperature", "isotonic"),
        ("fraud", "isotonic", "isotonic"),
        ("top", "temperature", "ensemble_temperature"),
        ("top", "identity", "temperature"),
    ],
)
def test_rows_never_seen_before_stay_on_their_side(positive: str, before: str, after: str) -> None:
    old, new = fitted(before, 1), fitted(after, 2)
    seen, unseen = drawn(3, 3000)[0], drawn(4, 20_000)[0]
    wanted = policy(positive=positive)
    column: Any = positive if positive == "top" else NAMES.index(positive)
    for row in range(0, 3000, 271):
        band = band_at(wanted, old, seen, row)
        (moved,) = same_rows((band,), column, old, new, seen)
        assert moved.certificate == band.certificate
        last = (SolvedBand(action="allow", threshold=None, certificate=None),)
        sides = []
        for calibrator, one in ((old, band), (new, moved)):
            solved = SolvedPolicy(wanted, 1, (one, *last), review_all=False)
            p = calibrator.predict_proba(unseen)
            sides.append(decide_rows(solved, NAMES, unseen, p, *calibrator.top_label(unseen, p)) == 0)
        flipped = sides[0] != sides[1]
        assert not flipped.any()
        assert 0 < sides[0].sum() < len(unseen)


def test_a_threshold_that_takes_every_row_stays() -> None:
    band = SolvedBand(action="block", threshold=Threshold.at(0.0, -np.inf), certificate=CLAIM)
    assert same_rows((band,), 1, temperature(1.0), temperature(2.0), drawn(0, 100)[0]) == (band,)


@pytest.mark.parametrize(
    ("positive", "before", "after", "why"),
    [
        (1, temperature(1.0, 3), temperature(2.0, 3), "3 classes"),
        (1, temperature(1.0), fitted("histogram", 1), "'histogram' may change the order of rows"),
        (1, fitted("quadratic", 1), temperature(1.0), "'quadratic' may change the order of rows"),
        ("top", temperature(1.0), fitted("platt", 1), "'platt' may change the predicted label"),
    ],
)
def test_what_may_change_the_order_is_refused(positive: Any, before: Calibrator, after: Calibrator, why: str) -> None:
    logits = np.zeros((4, before.classes_), dtype=np.float32)
    with pytest.raises(OrderLostError, match=why):
        same_rows((), positive, before, after, logits)


def test_the_same_calibrator_changes_nothing() -> None:
    bands = (SolvedBand(action="block", threshold=Threshold.at(0.5, 0.0), certificate=None),)
    logits = np.zeros((4, 3), dtype=np.float32)
    assert same_rows(bands, 1, temperature(1.5, 3), temperature(1.5, 3), logits) == bands


class Bundle:
    """What refits read of a bundle: its labels and its reference rows."""

    class manifest:  # noqa: N801 — an attribute of that name
        labels = NAMES
        sharing = 1

    reference = Reference(*(LabelledLogits(*drawn(seed, 200)) for seed in (91, 92, 93)))


def table(logits: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], seed: int) -> Rows:
    n = len(labels)
    every = np.ones(n, dtype=bool)
    group = np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, n)
    return Rows(logits=logits, label=labels, group=group, sought=every, labelled=every)


def refit(
    old: SolvedPolicy,
    rows: dict[int, Rows],
    before: Calibrator,
    after: Calibrator,
    look: int = 1,
    basis: Basis = "traffic",
) -> Refitted:
    division = Division(rows[FIT], rows[FIT], rows[CERTIFY], rows[GATE])
    arguments: Any = ({"p": old}, Bundle(), before, after, division)
    shown = Shown(look, basis, ("a", "b"), fresh=look == 1)
    return refit_policies(*arguments, shown={"p": shown}, seeds={"p": 0})["p"]


def on_traffic(wanted: Policy, rows: dict[int, Rows], calibrator: Calibrator) -> SolvedPolicy:
    plain = {part: Rows(logits=rows[part].logits, label=rows[part].label) for part in (FIT, CERTIFY)}
    fit, certify = (Calibrated.of(calibrator, NAMES, plain[part]).scored(wanted) for part in (FIT, CERTIFY))
    return solve(wanted, version=1, fit=fit, certify=certify, look=1, basis="traffic")


def parts(seed: int, n: int) -> dict[int, Rows]:
    return {part: table(*drawn(3 * seed + part, n), seed=seed) for part in (FIT, CERTIFY, GATE)}


def test_what_cannot_be_certified_anew_keeps_its_rows_and_certificates() -> None:
    before, after = temperature(1.0), temperature(2.0)
    old = on_traffic(policy(), parts(0, 2000), before)
    assert not old.review_all
    few = parts(1, 30)
    found = refit(old, few, before, after)
    assert not found.solved.review_all
    assert found.solved.bands[0].certificate == old.bands[0].certificate
    assert found.solved.bands[0].threshold != old.bands[0].threshold
    assert found.solved.bands[1] == old.bands[1]  # a fixed threshold promises nothing and stays a number
    assert found.report(old)["warnings"] == []
    (note,) = found.report(old)["notes"]
    assert note.startswith("keep_previous keeps the same rows and their certificates; block has no new certificate:")
    lost = refit(replace(old, policy=policy(on_uncertifiable="review_all")), few, before, after)
    assert lost.solved.review_all
    broken = refit(old, few, before, fitted("histogram", 1))
    assert broken.solved.review_all
    assert broken.report(old)["warnings"]
    assert broken.report(old)["notes"][0].startswith("keep_previous cannot keep the same rows: 'histogram' may change")


def test_a_lost_prediction_set_decides_nothing_about_bands() -> None:
    """Labels that are never sought refuse the set; the bands keep what they had, or get what they won."""
    before, after, won = temperature(1.0), temperature(2.0), parts(2, 3000)
    asked = np.arange(3000) > 0
    unsought = {
        part: replace(
            rows,
            label=np.where(asked, rows.label, -1),
            propensity=asked.astype(float),
            sought=asked,
            labelled=asked,
        )
        for part, rows in won.items()
    }
    for promise, certified in ((0.9, True), (0.9999, False)):
        bands = [{"action": "block", "when": {"min_precision": promise}}, {"action": "allow"}]
        wanted = policy(bands=bands, set={"coverage": 0.8})
        rows = parts(0, 2000)
        sets = solve_sets(wanted, Calibrated.of(before, NAMES, rows[CERTIFY]), Shown(1, "traffic"), 0)
        old = replace(on_traffic(wanted, rows, before), sets=sets)
        assert (old.sets[""].valid, old.review_all) == (True, not certified)
        found = refit(old, unsought, before, after)
        assert "never sought" in str(found.solved.sets[""].reason)
        assert found.report(old)["lost"] == [None]
        assert (found.solved.review_all, found.notes) == (not certified, ())
        assert found.solved.bands[0].certificate is not None
        assert (found.solved.bands[0].certificate.window, found.solved.bands[0].stands) == (("a", "b"), certified)


@pytest.mark.parametrize("segments", [None, {"values": ["DE"]}])
def test_kept_rows_decide_only_if_they_decided_before(segments: dict[str, Any] | None) -> None:
    bands = [
        {"action": "block", "when": {"min_precision": 0.9999}},
        {"action": "look", "when": {"min_precision": 0.9}},
        {"action": "allow"},
    ]
    wanted = policy(bands=bands, **({"segments": segments} if segments else {}))
    before, after = temperature(1.0), temperature(2.0)
    rows, few = (
        {part: replace(one, segment=np.full(len(one), "DE", object)) for part, one in parts(seed, n).items()}
        for seed, n in ((0, 2000), (1, 30))
    )
    plain = [Rows(logits=one.logits, label=one.label, segment=one.segment) for one in (rows[FIT], rows[CERTIFY])]
    fit, certify = (Calibrated.of(before, NAMES, part).scored(wanted) for part in plain)
    old = solve(wanted, version=1, fit=fit, certify=certify, look=1, basis="traffic")
    found = refit(old, few, before, after).solved
    was, now = (next(iter(one.parts.values()), one) for one in (old, found))
    assert [band.stands for band in was.bands] == [band.stands for band in now.bands] == [False, True, True]
    assert was.review_all
    assert now.review_all
    assert now.bands[1].certificate == was.bands[1].certificate


def test_what_can_be_certified_anew_is() -> None:
    before, after = temperature(1.0), temperature(2.0)
    old = on_traffic(policy(), parts(0, 2000), before)
    found = refit(old, parts(2, 3000), before, after)
    assert found.solved.bands[0].certificate != old.bands[0].certificate
    assert found.solved.bands[0].certificate is not None
    assert found.solved.bands[0].certificate.window == ("a", "b")
    assert found.report(old)["notes"] == found.report(old)["warnings"] == []


def test_kept_thresholds_stay_through_a_refit() -> None:
    wanted = policy(on_uncertifiable="review_all", on_calibrator_change="keep_threshold")
    before, after = temperature(1.0), temperature(2.0)
    old = on_traffic(wanted, parts(0, 2000), before)
    for basis, look, valid in (("traffic", 1, True), ("traffic", 2, False), ("reference", 2, False)):
        found = refit(old, parts(4, 3000), before, after, look, basis).solved
        assert found.bands[0].threshold == old.bands[0].threshold
        assert found.bands[0].certificate is not None
        assert (found.bands[0].certificate.valid, found.bands[0].certificate.basis) == (valid, basis)
    assert refit(old, parts(4, 3000), before, temperature(1.0)).solved is old


def test_what_decides_stays_while_the_calibrator_does_and_the_rest_is_solved() -> None:
    segments = {"values": ["DE", "FR"], "fallback": "look"}
    wanted = policy(on_uncertifiable="review_all", on_calibrator_change="keep_threshold", segments=segments)
    calibrator = temperature(1.0)

    def of(seed: int, *names: str) -> dict[int, Rows]:
        found = parts(seed, 3000)
        named = np.array(names, dtype=object)[np.arange(3000) % len(names)]
        return {part: replace(rows, segment=named) for part, rows in found.items()}

    def segmented(rows: Rows) -> Any:
        plain = Rows(logits=rows.logits, label=rows.label, segment=rows.segment)
        return Calibrated.of(calibrator, NAMES, plain).scored(wanted)

    rows = of(0, "DE")
    arguments: Any = {"fit": segmented(rows[FIT]), "certify": segmented(rows[CERTIFY]), "look": 1, "basis": "traffic"}
    old = solve(wanted, version=1, **arguments)
    assert {value: part.certified for value, part in old.segments.items()} == {"DE": True, "FR": False}
    found = refit(old, of(5, "DE", "FR"), calibrator, calibrator).solved
    assert found.segments["DE"] == old.segments["DE"]
    assert found.segments["FR"].certified


def test_in_one_refit_a_false_certificate_is_in_force_at_most_as_often_as_delta_says() -> None:
    """Every set of rows breaks the promise by a hair; the old certificate and the new one may both be false."""
    worlds, before, after = 1500, temperature(1.0), temperature(2.0)
    rng = np.random.default_rng(8)
    held = kept = 0

    def world(n: int) -> dict[int, Rows]:
        logits = rng.standard_normal((3, n, 2)).astype(np.float32)
        labels = (rng.random((3, n)) < 0.9 - 1e-4).astype(np.int64)
        return {part: table(logits[part], labels[part], part) for part in (FIT, CERTIFY, GATE)}

    for _ in range(worlds):
        old = on_traffic(policy(), world(250), before)
        found = refit(old, world(250), before, after).solved
        held += not found.review_all
        kept += found.bands[0].certificate == old.bands[0].certificate and not found.review_all
    assert held <= binom.isf(0.001, worlds, 0.05)
    assert kept > 0


def test_an_adapted_prior_shift_voids_what_reference_rows_say_of_mixtures() -> None:
    shift = CALIBRATORS["prior_shift"]().fit(*drawn(5, 2000))
    bands = [
        {"action": "block", "when": {"min_precision": 0.6}},
        {"action": "look", "when": {"min_recall": 0.5}},
        {"action": "allow"},
    ]
    wanted = parse_policy({"id": "p", "positive": "fraud", "bands": bands})

    def solved() -> list[Certificate | None]:
        bundle: Any = Bundle()
        found = solve_on_reference(wanted, version=1, bundle=bundle, calibrator=shift, look=1)
        return [band.certificate for band in found.bands]

    plain = solved()
    assert [claim and claim.valid for claim in plain] == [True, True, None]
    shift.adapt_to([0.8, 0.2])
    precision, recall, _ = solved()
    assert precision is not None
    assert recall is not None
    assert (precision.valid, recall.valid) == (False, True)
    assert str(precision.reason).startswith("prior_shift: ")
