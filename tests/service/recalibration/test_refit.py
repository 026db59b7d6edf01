"""The refit as a computation: what may fit, what may test, what a certificate on traffic covers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pytest

from bundle import LabelledLogits, Reference
from bundle.split import CERTIFY, FIT, GATE, roles
from calibrators import Temperature
from candor.contract.certificates import SolvedSegment
from service.decisions.double_labels import LabelPairs
from service.decisions.policy import parse_policy
from service.decisions.revision import Revision
from service.decisions.rows import NO_LABEL, Rows, came
from service.decisions.solve import solve_on_reference
from service.decisions.solved import SolvedPolicy
from service.decisions.unattended import Limits
from service.decisions.windows import windows
from service.errors import InputValueError, TooFewLabelsError
from service.recalibration.refit import refit
from service.recalibration.report import calibration_warnings, label_warnings, shown_calibrator
from service.recalibration.rows import Division, Silence, divide, fit_weights
from service.recalibration.task import RefitRequest, RefitTask, packed
from service.state.window_rows import WindowRows

K = 4
NAMES = ("a", "b", "c", "d")
DAY_US = 86_400_000_000
NOW = 1_800_000_000_000_000
SCALE = 6.0
FAR = np.array([[6, 0, 0, 0]], dtype=np.float32)
"""Where the active temperature and half of it differ most; no row of a twentieth of the scale comes near."""
POLICY = parse_policy(
    {
        "id": "auto",
        "bands": [
            {"action": "accept", "when": {"min_precision": 0.9}},
            {"action": "review"},
        ],
    }
)


class StandIn:
    """What a refit reads of a bundle: its labels and its reference rows."""

    class manifest:  # noqa: N801 — an attribute of that name
        labels = NAMES
        sharing = 1

    def __init__(self, reference: Reference) -> None:
        self.reference = reference


def draw(rows: int, seed: int, temperature: float = 1.0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Logits and labels for which softmax(logits / temperature) is exactly right."""
    rng = np.random.default_rng(seed)
    logits = (SCALE * rng.standard_normal((rows, K))).astype(np.float32)
    gumbel = rng.gumbel(size=(rows, K))
    return logits, (logits / temperature + gumbel).argmax(axis=1)


def logged(
    logits: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    *,
    propensity: npt.NDArray[np.float64] | None = None,
    sought: npt.NDArray[np.bool_] | None = None,
    has_label: npt.NDArray[np.bool_] | None = None,
    segment: npt.NDArray[np.object_] | None = None,
    action: npt.NDArray[np.object_] | None = None,
    times: npt.NDArray[np.int64] | None = None,
    seed: int = 0,
) -> Rows:
    """Labelled rows first, as they are read."""
    n = len(labels)
    rng = np.random.default_rng(seed)
    group = rng.integers(-(2**63), 2**63 - 1, n)
    propensity = np.ones(n) if propensity is None else propensity
    sought = np.ones(n, dtype=bool) if sought is None else sought
    has = np.ones(n, dtype=bool) if has_label is None else has_label
    times = np.arange(n, dtype=np.int64) + 1_700_000_000_000_000 if times is None else times
    label = np.where(has, labels, NO_LABEL)
    texts: dict[str, Any] = {"segment": segment, "action": action}
    rows = Rows(
        logits=logits,
        label=label,
        group=group,
        propensity=propensity,
        sought=sought,
        labelled=came(label, sought, propensity),
        predicted_at=times,
        labelled_at=np.where(has, times + 10, 0),
        **{name: column for name, column in texts.items() if column is not None},
    )
    return Rows.concat([rows.take(has), rows.take(~has)])


@pytest.fixture(scope="module")
def bundle() -> Any:
    logits, labels = draw(900, seed=99)
    parts = (LabelledLogits(logits[i : i + 300], labels[i : i + 300]) for i in (0, 300, 600))
    return StandIn(Reference(*parts))


@pytest.fixture(scope="module")
def revision(bundle: Any) -> Revision:
    """In service: T = 1, right for the reference, and the policy solved there."""
    calibrator = Temperature.from_dict(
        {"method": "temperature", "version": 1, "classes": K, "temperature": 1.0, "at_bound": False}
    )
    solved = solve_on_reference(POLICY, version=2, bundle=bundle, calibrator=calibrator, look=1)
    assert not solved.review_all
    return Revision(
        id="r1",
        model="m",
        bundle_id="b",
        bundle_version=1,
        model_digest="d",
        calibrator=calibrator,
        policies={"auto": solved},
        parent=None,
        cause="bundle",
        by="test",
        gate="not_run",
        created_at=0,
    )


NO_CAPS = Limits(flipped=None, flag_rate_ratio=None, probability_change=None)


def run(
    revision: Revision,
    bundle: Any,
    rows: Rows,
    *,
    shown: list[dict[str, Any]] | None = None,
    limits: Limits = NO_CAPS,
    numbers: dict[str, int] | None = None,
    spent: int = 1,
    ordinal: int = 1,
    pairs: LabelPairs | None = None,
    **request: Any,
) -> dict[str, Any]:
    task = RefitTask(
        "",
        str(Path()),
        "m",
        "r1",
        min_rows=60,
        alpha=0.05,
        margin=0.002,
        max_labels=10**6,
        run_timeout_s=60.0,
        limits=limits,
        request=RefitRequest(**request),
    )

    def show(looks: dict[str, Any]) -> dict[str, Any]:
        if shown is not None:
            shown.append(looks)
        counted = dict.fromkeys(looks["certify"], 1) | (numbers or {})
        return {
            "attempt": 1,
            "ordinal": ordinal,
            "looks": {
                key: {"number": number, "ordinal": ordinal, "spent": spent, "fresh": number == 1}
                for key, number in counted.items()
            },
        }

    return refit(task, revision, bundle, WindowRows(rows, pending=3, pairs=pairs), seed=1, at=NOW, show=show)


def assert_bounded_report(report: dict[str, Any]) -> None:
    """Every number of the report that a reader may draw: there, consistent, and as many as bins, not classes."""
    metrics, gate = report["metrics"], report["gate"]
    assert set(metrics["ece"]) == {"before", "after", "null", "null_before"}
    assert report["warnings"] == calibration_warnings(metrics["ece"], report["calibration"])
    off = {"label": "fraud", "required": True, "after": {"ece": 0.04, "null_q95": 0.03}}
    assert calibration_warnings({"after": 0.02, "null": {"q95": 0.03}}, [off, {**off, "required": False}]) == [
        "Not calibrated for 'fraud': the ECE is 4.0%. On these rows, 95 % of calibrated models have less than 3.0%."
    ]
    assert calibration_warnings({"after": 0.2, "null": {"q95": 0.03}}, []) == [
        "Not calibrated: the ECE is 20.0%. On these rows, 95 % of calibrated models have less than 3.0%."
    ]
    assert calibration_warnings({"after": 0.03, "null": {"q95": 0.03}}, []) == []
    for name in ("nll", "brier", "accuracy", "refinement_auroc", "debiased_calibration_error"):
        for side in ("before", "after"):
            low, high = metrics[name][f"interval_{side}"]
            assert low <= max(metrics[name][side], 0) <= high
    for name in ("nll", "brier", "refinement_auroc"):
        low, high = metrics[name]["difference_interval"]
        assert low <= metrics[name]["after"] - metrics[name]["before"] <= high
    assert gate["nll"]["before"] == metrics["nll"]["before"]
    for side in ("before", "after"):
        points, histogram = report["reliability"][side], report["confidence"][side]
        assert set(points) == {"confidence", "accuracy", "count", "lower", "upper"}
        assert all(a <= b <= c for a, b, c in zip(points["lower"], points["accuracy"], points["upper"], strict=True))
        assert sum(points["count"]) == sum(histogram["right"]) + sum(histogram["wrong"]) == gate["rows"]
        assert sum(histogram["right"]) == round(metrics["accuracy"][side] * gate["rows"])
        edges = np.array(report["confidence"]["edges"])
        assert len(edges) == len(histogram["right"]) + 1 == len(histogram["wrong"]) + 1
        filled = np.add(histogram["right"], histogram["wrong"])
        np.testing.assert_array_equal(filled[filled > 0], points["count"])
        inside = np.searchsorted(edges, points["confidence"])
        np.testing.assert_array_equal(inside, np.flatnonzero(filled) + 1)
        score, error = (report["decomposition"][name][side] for name in ("brier", "ece"))
        assert score["score"] == pytest.approx(score["calibration"] + score["refinement"] + score["within_bins"])
        assert error["value"] == pytest.approx(error["confidence"] - error["refinement"] - error["constant"])
    assert len(orjson.dumps(report)) < 30_000


def solved_in(outcome: dict[str, Any]) -> dict[str, SolvedPolicy]:
    return {key: SolvedPolicy.from_dict(document) for key, document in outcome["policies"].items()}


def certificate(outcome: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = outcome["report"]["policies"]["auto"]["certified"]["accept"]
    return found


@pytest.mark.parametrize("role", [FIT, CERTIFY])
def test_a_row_that_could_be_harmed_counts_whatever_its_role(revision: Revision, bundle: Any, role: int) -> None:
    """It has no label: its features show what the worst one would cost where no gate row lies."""
    logits, labels = draw(3000, seed=1, temperature=10.0)
    rows = logged(logits / 20, labels)
    one = rows.take(np.flatnonzero(roles(rows.group) == role)[:1])
    nothing = {"label": np.array([NO_LABEL]), "labelled": np.array([False]), "labelled_at": np.array([0])}
    far = replace(one, logits=FAR, propensity=np.zeros(1), sought=np.array([False]), **nothing)
    gates = [run(revision, bundle, each)["report"]["gate"] for each in (rows, Rows.concat([rows, far]))]
    without, with_it = (gate["nll"] for gate in gates)
    assert with_it["difference"] == without["difference"]
    assert with_it["upper"] > without["upper"] + 0.001


def test_each_look_draws_anew(revision: Revision, bundle: Any) -> None:
    """An installation whose first draw is unlucky does not keep it for ever."""
    logits, labels = draw(3000, seed=1)
    rng = np.random.default_rng(2)
    propensity = np.where(rng.random(3000) < 0.5, 0.5, 1.0)
    rows = logged(logits, labels, propensity=propensity, sought=rng.random(3000) < propensity)

    def drawn(ordinal: int) -> tuple[int, int]:
        outcome = run(revision, bundle, rows, ordinal=ordinal, calibrator="vector")
        return certificate(outcome)["n"], outcome["report"]["gate"]["rows"]

    found = [drawn(ordinal) for ordinal in (1, 1, 2, 3)]
    assert found[0] == found[1]
    assert len({n for n, _ in found}) > 1
    assert len({rows for _, rows in found}) > 1


def test_a_drift_is_mended_and_the_gate_passes(revision: Revision, bundle: Any) -> None:
    outcome = run(revision, bundle, logged(*draw(3000, seed=1, temperature=2.5)))
    assert outcome["calibrator"]["temperature"] == pytest.approx(2.5, rel=0.1)
    report = outcome["report"]
    assert report["gate"]["passed"]
    assert report["metrics"]["nll"]["after"] < report["metrics"]["nll"]["before"]
    assert report["metrics"]["nll"]["interval"][1] < 0
    assert_bounded_report(report)
    assert report["rows"]["pending"] == 3
    assert report["summary"].startswith("Better")
    assert certificate(outcome)["basis"] == "traffic"
    assert outcome["policies"]["auto"]["version"] == 2
    assert (report["gate"]["unattended"], report["gate"]["unattended_reason"]) == (True, None)
    assert (report["gate"]["unidentified_share"], report["gate"]["missing_share"]) == (0.0, 0.0)


def test_thresholds_of_both_sides_are_shown(revision: Revision, bundle: Any) -> None:
    outcome = run(revision, bundle, logged(*draw(3000, seed=1, temperature=2.5)))
    shown = outcome["report"]["policies"]["auto"]
    for side, policy in (("before", revision.policies["auto"].to_dict()), ("after", outcome["policies"]["auto"])):
        assert shown[side] == {key: policy[key] for key in ("version", "bands", "review_all")}
    assert shown["before"]["bands"][0]["threshold"] != shown["after"]["bands"][0]["threshold"]
    assert shown["lost"] == []


def test_a_thousand_classes_make_no_long_report() -> None:
    """Of everything in a report only the calibrator's document grows with the classes, and that is cut."""
    matrix = {"method": "matrix", "classes": 1000, "at_bound": False, "weights": [[0.5] * 1000] * 1000}
    shown = shown_calibrator({"method": "prior_shift", "calibrator": matrix, "adapted": True})
    assert shown == {"method": "prior_shift", "adapted": True, "omitted": ["calibrator"]}
    small = {"method": "vector", "scale": [1.0] * 10}
    assert shown_calibrator(small) == small


def test_nothing_changed_is_refused(revision: Revision, bundle: Any) -> None:
    outcome = run(revision, bundle, logged(*draw(1500, seed=2)))
    assert not outcome["report"]["gate"]["passed"]
    assert outcome["report"]["summary"].startswith("Refused. Not shown to be better")


def test_looks_are_recorded_before_anything_is_compared(revision: Revision, bundle: Any) -> None:
    shown: list[dict[str, Any]] = []
    rows = logged(*draw(1500, seed=3))
    run(revision, bundle, rows, shown=shown)
    (looks,) = shown
    role = roles(rows.group)
    assert looks["gate"] == rows.labelled_at[role == 2].min()
    earliest = rows.labelled_at[role == 1].min()
    assert looks["certify"]["auto"] == {"basis": "traffic", "earliest": earliest, "groups": "labelled"}
    assert looks["groups"] == {"gate": packed(rows.group[role == 2]), "labelled": packed(rows.group[role == 1])}


def test_a_window_that_the_request_chose_divides_delta(revision: Revision, bundle: Any) -> None:
    rows = logged(*draw(3000, seed=3))
    day = 86_400_000_000
    since = (NOW // day - 2) * day
    by_rule, chosen, by_service = (
        certificate(run(revision, bundle, rows, since_us=start, window_by_rule=rule))
        for start, rule in ((None, False), (since, False), (since, True))
    )
    assert by_rule["delta"] == by_service["delta"]
    assert chosen["delta"] == pytest.approx(by_rule["delta"] / windows(since, None, at_us=NOW, rows=10**6))


def test_the_looks_of_a_year_share_delta(revision: Revision, bundle: Any) -> None:
    rows = logged(*draw(3000, seed=3))
    first, fifth = (certificate(run(revision, bundle, rows, spent=spent)) for spent in (1, 5))
    assert first["looks"] == fifth["looks"] == 1, "fresh rows"
    assert fifth["delta"] == pytest.approx(first["delta"] * 2 / 30)


def test_policies_are_solved_anew_on_traffic_while_the_calibrator_stays(revision: Revision, bundle: Any) -> None:
    shown: list[dict[str, Any]] = []
    outcome = run(revision, bundle, logged(*draw(3000, seed=3)), shown=shown, calibrator="unchanged")
    assert shown[0]["gate"] is None  # no attempt: the sides are equal
    assert outcome["calibrator"] == revision.calibrator.to_dict()
    assert outcome["policies"]["auto"] != revision.policies["auto"].to_dict()
    assert (certificate(outcome)["basis"], certificate(outcome)["valid"]) == ("traffic", True)
    gate = outcome["report"]["gate"]
    assert (gate["passed"], gate["unattended"], gate["nll"]["difference"]) == (True, False, 0.0)
    assert outcome["report"]["summary"].startswith("The calibrator is unchanged")


def test_what_was_certified_stays_while_the_calibrator_does(revision: Revision, bundle: Any) -> None:
    logits, labels = draw(3000, seed=4)
    worse = logged(logits, np.where(np.arange(3000) % 3 == 0, (labels + 1) % K, labels))
    outcome = run(revision, bundle, worse, calibrator="unchanged")
    before, after = revision.policies["auto"].to_dict(), outcome["policies"]["auto"]
    assert (after["bands"], after["review_all"]) == (before["bands"], False)
    (note,) = outcome["report"]["policies"]["auto"]["notes"]
    assert note.startswith("The unchanged calibrator keeps the same rows")
    changed = run(revision, bundle, worse)
    assert changed["policies"]["auto"]["review_all"], "another calibrator has to show the promise anew"


def test_rows_that_were_flagged_before_their_labels_came_are_not_fresh(revision: Revision, bundle: Any) -> None:
    """Of a row without a label an earlier look has shown nothing, but whether it is flagged."""
    kept = {"on_calibrator_change": "keep_threshold"}
    flags = {"id": "flags", "bands": [{"action": "look", "when": {"max_flag_rate": 0.5}}, {"action": "review"}]}
    calibrator = revision.calibrator
    policies = {
        wanted.id: solve_on_reference(wanted, version=1, bundle=bundle, calibrator=calibrator, look=1)
        for wanted in (parse_policy(POLICY.to_dict() | kept), parse_policy(flags | kept))
    }
    has = np.arange(4000) >= 1000
    rows = logged(*draw(4000, seed=3, temperature=1.3), propensity=np.full(4000, 0.75), sought=has, has_label=has)
    shown: list[dict[str, Any]] = []
    before = replace(revision, policies=policies)
    report = run(before, bundle, rows, shown=shown, numbers={"auto": 1, "flags": 3})["report"]
    certifying = roles(rows.group) == CERTIFY
    assert {key: look["earliest"] for key, look in shown[0]["certify"].items()} == {
        "auto": rows.labelled_at[certifying & rows.known()].min(),
        "flags": rows.predicted_at[certifying & ~rows.known()].min(),
    }
    # The look before in this refit shows nothing yet, the one before that has.
    claims = [report["policies"][key]["certified"] for key in ("auto", "flags")]
    assert "have been" not in str(claims[0]["accept"]["reason"])
    assert "these were (look 3)" in claims[1]["look"]["reason"]


def without_certificate(solved: SolvedPolicy) -> SolvedPolicy:
    """What has stayed under another calibrator, and could not be certified then."""
    first, *others = solved.bands
    assert first.certificate is not None
    claim = first.certificate.model_copy(update={"valid": False, "reason": "partition_changed: too few labels"})
    return replace(solved, bands=(first.model_copy(update={"certificate": claim}), *others))


def test_new_labels_certify_a_threshold_that_has_stayed(revision: Revision, bundle: Any) -> None:
    """It takes no other calibrator to test it, and what is certified is not tested again."""
    wanted = parse_policy(POLICY.to_dict() | {"on_calibrator_change": "keep_threshold"})
    calibrator = revision.calibrator
    solved = without_certificate(solve_on_reference(wanted, version=1, bundle=bundle, calibrator=calibrator, look=1))
    logits, labels = draw(3000, seed=3, temperature=0.5)
    before = replace(revision, policies={"auto": solved})
    shown = run(before, bundle, logged(logits, labels), numbers={"auto": 2}, calibrator="unchanged")
    assert "these were (look 2)" in certificate(shown)["reason"]
    outcome = run(before, bundle, logged(logits, labels), calibrator="unchanged")
    claim, after = certificate(outcome), outcome["policies"]["auto"]
    assert (claim["valid"], claim["basis"], after["review_all"]) == (True, "traffic", False)
    assert after["bands"][0]["threshold"] == solved.to_dict()["bands"][0]["threshold"]
    noise = logged(logits, np.random.default_rng(4).integers(0, K, 3000))
    held = replace(revision, policies=solved_in(outcome))
    assert run(held, bundle, noise, calibrator="unchanged")["policies"] == outcome["policies"]


def test_what_a_segment_has_certified_stays_while_others_are_tested(revision: Revision, bundle: Any) -> None:
    kept = {"on_calibrator_change": "keep_threshold"}
    wanted = parse_policy(POLICY.to_dict() | kept | {"segments": {"values": ["held", "lost", "new"]}})
    calibrator = revision.calibrator
    nothing = solve_on_reference(wanted, version=1, bundle=bundle, calibrator=calibrator, look=1)
    logits, labels = draw(9000, seed=5)
    two, three = (np.array(["held", "lost", third], dtype=object)[np.arange(9000) % 3] for third in (None, "new"))
    before = replace(revision, policies={"auto": nothing})
    first = run(before, bundle, logged(logits, labels, segment=two), calibrator="unchanged")
    solved = SolvedPolicy.from_dict(first["policies"]["auto"])
    assert [part.certified for part in solved.segments.values()] == [True, True, False]
    lost = SolvedSegment(bands=without_certificate(solved.parts["lost"]).bands, certified=True)
    start = replace(solved, segments={**solved.segments, "lost": lost})
    again = replace(revision, policies={"auto": start})
    outcome = run(again, bundle, logged(*draw(9000, seed=6, temperature=0.5), segment=three), calibrator="unchanged")
    after = SolvedPolicy.from_dict(outcome["policies"]["auto"])
    assert after.segments["held"] == solved.segments["held"]
    assert after.segments["new"].certified
    tested = after.segments["lost"].bands[0]
    assert tested.threshold == solved.segments["lost"].bands[0].threshold
    assert tested.certificate is not None
    assert tested.certificate.valid


def test_certificates_caps_and_changes_are_by_segment(revision: Revision, bundle: Any) -> None:
    """Of one segment the labels are noise: it cannot be certified, and none of its decisions changes."""
    wanted = parse_policy(POLICY.to_dict() | {"segments": {"values": ["good", "noise"], "fallback": "review"}})
    calibrator = revision.calibrator
    nothing = solve_on_reference(wanted, version=1, bundle=bundle, calibrator=calibrator, look=1)
    before = replace(revision, policies={"auto": nothing})
    logits, labels = draw(4000, seed=20)
    segment = np.array(["good", "noise", "good", None], dtype=object)[np.arange(4000) % 4]
    noisy = segment == "noise"
    labels = np.where(noisy, np.random.default_rng(21).integers(0, K, 4000), labels)
    rows = logged(logits, labels, segment=segment)
    outcome = run(before, bundle, rows, calibrator="unchanged")
    segments = outcome["report"]["policies"]["auto"]["segments"]
    assert {value: part["uses_fallback"] for value, part in segments.items()} == {"good": False, "noise": True}
    assert segments["good"]["certified"]["accept"]["segment"] == "good"

    gated = roles(rows.group) == GATE
    probability = calibrator.predict_proba(logits).max(axis=1).astype(np.float32)
    cut = outcome["policies"]["auto"]["segments"]["good"]["bands"][0]["threshold"]["probability"]
    accepted = int((gated & (segment == "good") & (probability >= np.float32(cut))).sum())
    caps = {cap["name"]: cap["count"] for cap in outcome["report"]["gate"]["caps"]}
    assert caps == {"flipped": accepted, "flag_rate": accepted, "flag_rate_ratio": accepted, "probability_change": 0}
    assert outcome["report"]["decisions"]["policies"]["auto"]["flipped"] == accepted > 300

    # Then all of it turns to noise: what was certified is lost, and that needs a person.
    after = replace(revision, policies=solved_in(outcome))
    noise = np.random.default_rng(22).integers(0, K, 4000)
    gate = run(after, bundle, logged(logits, noise, segment=segment))["report"]["gate"]
    assert "policy 'auto' would lose its certificate of segment 'good': rows get the fallback" in str(
        gate["unattended_reason"]
    ).replace("Policy", "policy")


def test_few_rows_are_certified_on_the_reference(revision: Revision, bundle: Any) -> None:
    outcome = run(revision, bundle, logged(*draw(90, seed=4)))
    assert certificate(outcome)["basis"] == "reference"


def test_what_nobody_labels_cannot_be_certified(revision: Revision, bundle: Any) -> None:
    """Accepted rows whose labels nobody seeks: the labelled rest says nothing of them."""
    logits, labels = draw(6000, seed=5, temperature=2.5)
    confident = logits.max(axis=1) - np.sort(logits, axis=1)[:, -2] > 3
    blind = logged(logits, labels, propensity=np.where(confident, 0.0, 1.0), sought=~confident, has_label=~confident)
    assert certificate(run(revision, bundle, blind))["valid"] is False
    explored = logged(logits, labels)
    assert certificate(run(revision, bundle, explored))["valid"] is True


def test_labels_that_were_sought_and_have_not_come_void_the_certificate(revision: Revision, bundle: Any) -> None:
    logits, labels = draw(3000, seed=6, temperature=2.5)
    has_label = np.random.default_rng(0).random(3000) > 0.2
    found = certificate(run(revision, bundle, logged(logits, labels, has_label=has_label)))
    assert not found["valid"]
    assert "have not arrived" in found["reason"]


def test_labels_that_do_not_come_are_errors_of_the_certificate(revision: Revision, bundle: Any) -> None:
    """Too few to void it by themselves, but all of them wrong answers."""
    logits, labels = draw(6000, seed=6, temperature=2.5)
    lost = (logits.argmax(axis=1) != labels) & (np.arange(6000) % 7 == 0)
    assert 0.03 < lost.mean() < 0.05
    whole, rest = (certificate(run(revision, bundle, logged(logits, labels, has_label=has))) for has in (None, ~lost))
    assert whole["valid"] and rest["valid"]  # noqa: PT018
    assert rest["errors"] / rest["n"] == pytest.approx(whole["errors"] / whole["n"], abs=0.01)
    assert rest["n"] == pytest.approx(whole["n"], rel=0.05)


def test_labels_that_nobody_sought_fit_on_request_and_never_test() -> None:
    logits, labels = draw(600, seed=7)
    unsought = np.arange(600) % 2 == 0
    propensity = np.where(unsought, np.nan, 1.0)
    rows = logged(logits, labels, propensity=propensity, sought=~unsought)
    strict = divide(rows, unsought_may_fit=False, min_rows=60)
    open_ = divide(rows, unsought_may_fit=True, min_rows=60)
    assert len(open_.fitting) == int((roles(rows.group) == FIT).sum()) > len(strict.fitting)
    for division in (strict, open_):
        assert division.gate.known().all()
        assert not np.isnan(division.gate.propensity).any()
    assert len(open_.gate) == len(strict.gate)


@pytest.fixture(scope="module")
def chargebacks() -> dict[str, Any]:
    """Two classes, right at T = 2; all is allowed, a tenth explored, and fraud is charged back ten days later or so."""
    rows = 60_000
    rng = np.random.default_rng(11)
    score = rng.normal(-2.0, 2.0, rows)
    labels = (rng.random(rows) < 1 / (1 + np.exp(-score / 2))).astype(np.int64)
    age_days = rng.uniform(0, 100, rows)
    reported = (labels == 1) & (rng.exponential(10, rows) < age_days)
    sought = rng.random(rows) < 0.1
    return {
        "logits": np.stack([np.zeros(rows), score], axis=1).astype(np.float32),
        "labels": labels,
        "propensity": np.full(rows, 0.1),
        "sought": sought,
        "has_label": sought | reported,
        "action": np.full(rows, "allow", dtype=object),
        "times": NOW - (age_days * DAY_US).astype(np.int64),
    }


class TestSilence:
    """Chargebacks: they come of what was allowed, late, and only where there was fraud."""

    def fitted(self, chargebacks: dict[str, Any], **how: Any) -> tuple[float, Division]:
        """The share of fraud that a fit sees, and its rows."""
        division = divide(logged(**chargebacks), **({"unsought_may_fit": False, "min_rows": 60} | how))
        part = division.fitting
        return float(np.average(part.label, weights=fit_weights(part.propensity))), division

    def silence(self, days: float, actions: frozenset[str] = frozenset({"allow"})) -> Silence:
        return Silence(0, NOW - round(days * DAY_US), actions)

    def test_after_maturity_it_is_a_label_and_before_it_is_not(self, chargebacks: dict[str, Any]) -> None:
        truth = float(chargebacks["labels"].mean())
        explored, _ = self.fitted(chargebacks)
        assert explored == pytest.approx(truth, abs=0.03)
        mature, division = self.fitted(chargebacks, silence=self.silence(60))
        assert mature == pytest.approx(truth, abs=0.015)
        assert division.silent > 4_000
        early, _ = self.fitted(chargebacks, silence=self.silence(0.0))
        assert early < truth - 0.02  # a tenth of the frauds is still to be charged back
        naive, _ = self.fitted(chargebacks, unsought_may_fit=True)
        assert naive > truth + 0.1

    def test_it_tests_nothing(self, chargebacks: dict[str, Any]) -> None:
        _, without = self.fitted(chargebacks)
        _, division = self.fitted(chargebacks, silence=self.silence(60))
        assert np.array_equal(division.gate.logits, without.gate.logits)
        assert int(division.certify.known().sum()) == int(without.certify.known().sum())

    def test_of_other_actions_it_says_nothing(self, chargebacks: dict[str, Any]) -> None:
        same, _ = self.fitted(chargebacks)
        blocked, division = self.fitted(chargebacks, silence=self.silence(60, frozenset({"block"})))
        assert (blocked, division.silent) == (same, 0)

    def test_each_row_that_it_speaks_of_stands_for_itself(self, chargebacks: dict[str, Any]) -> None:
        _, division = self.fitted(chargebacks, silence=self.silence(60))
        mature = division.fitting.predicted_at < NOW - 60 * DAY_US
        assert (division.fitting.propensity[mature] == 1).all()
        assert (division.fitting.propensity[~mature] == 0.1).all()
        assert (division.fitting.label >= 0).all()


def test_a_spontaneous_label_of_an_explored_action_tests_nothing() -> None:
    """Its propensity is known, but it was not drawn: that it came says something about the row."""
    logits, labels = draw(600, seed=8)
    drawn = np.arange(600) % 2 == 0
    rows = logged(logits, labels, propensity=np.full(600, 0.5), sought=drawn)
    assert int(rows.known().sum()) == 300


def test_no_group_has_two_roles() -> None:
    logits, labels = draw(400, seed=9)
    rows = logged(logits, labels)
    shared = replace(rows, group=np.repeat(rows.group[:100], 4))
    division = divide(shared, unsought_may_fit=False, min_rows=60)
    parts = [set(part.group.tolist()) for part in (division.fit, division.certify, division.gate)]
    assert sum(len(part) for part in parts) == len(set.union(*parts))


def test_few_errors_draw_the_temperature_towards_the_one_in_service(revision: Revision, bundle: Any) -> None:
    logits, labels = draw(400, seed=10, temperature=0.25)  # hardly any errors
    free = Temperature().fit(logits, labels).temperature_
    drawn = run(revision, bundle, logged(logits, labels))["calibrator"]["temperature"]
    assert free < drawn < 1.0


def test_other_methods_need_errors_to_learn_from(revision: Revision, bundle: Any) -> None:
    rows = logged(*draw(400, seed=10, temperature=0.25))
    with pytest.raises(TooFewLabelsError, match="requires more wrong predictions"):
        run(revision, bundle, rows, calibrator="histogram")


def test_too_few_rows_are_counted_by_role(revision: Revision, bundle: Any) -> None:
    with pytest.raises(TooFewLabelsError, match="Too few usable") as refused:
        run(revision, bundle, logged(*draw(30, seed=11)))
    assert "to fit" in str(refused.value.found)


@pytest.mark.parametrize("method", ["identity", "temperature", "histogram"])
def test_every_method_of_the_slice_gives_a_whole_answer(method: str, revision: Revision, bundle: Any) -> None:
    outcome = run(revision, bundle, logged(*draw(2000, seed=12, temperature=2.0)), calibrator=method)
    assert outcome["calibrator"]["method"] == method
    assert outcome["report"]["gate"]["reason"]


def test_auto_judges_methods_on_groups_that_they_were_not_fitted_on(revision: Revision, bundle: Any) -> None:
    """Every row has nine copies. With a copy in another fold, larger methods look better than they are."""
    logits, labels = draw(400, seed=17)
    rows = logged(np.repeat(logits, 10, axis=0), np.repeat(labels, 10))
    together = replace(rows, group=np.repeat(rows.group[::10], 10))
    gains, methods = [], []
    for each in (together, rows):
        found = run(revision, bundle, each, calibrator="auto")["calibrator"]
        losses = [candidate["loss"] for candidate in found["report"]]
        gains.append(losses[0] - min(losses))
        methods.append(found["calibrator"]["method"])
    assert methods == ["identity", "pool"]  # softmax(logits) is exactly right
    assert gains[0] < 0.2 * gains[1]


def test_a_label_that_cannot_be_fitted_is_refused(revision: Revision, bundle: Any) -> None:
    logits, labels = draw(600, seed=13)
    logits[np.arange(600), labels] = -np.inf
    with pytest.raises(InputValueError, match="cannot be fitted"):
        run(revision, bundle, logged(logits, labels))


@pytest.fixture(scope="module")
def blind() -> Rows:
    """A tenth of the traffic goes to review, where the temperature is 2.5 now; of the rest no label is sought."""
    logits, labels = draw(15_000, seed=14)
    margin = logits.max(axis=1) - np.sort(logits, axis=1)[:, -2]
    reviewed = margin < np.quantile(margin, 0.2)
    drifted = (logits / 2.5 + np.random.default_rng(15).gumbel(size=logits.shape)).argmax(axis=1)
    labels = np.where(reviewed, drifted, labels)
    kept = np.flatnonzero(~reviewed)[: int(9 * reviewed.sum())]
    chosen = np.sort(np.concatenate([np.flatnonzero(reviewed)[: len(kept) // 9], kept]))
    sought = reviewed[chosen]
    propensity = np.where(sought, 1.0, 0.0)
    return logged(logits[chosen], labels[chosen], propensity=propensity, sought=sought, has_label=sought)


def test_what_is_better_for_the_labelled_tenth_is_not_activated_unattended(
    revision: Revision, bundle: Any, blind: Rows
) -> None:
    gate = run(revision, bundle, blind, mode="activate")["report"]["gate"]
    assert gate["passed"]
    assert gate["unidentified_share"] == pytest.approx(0.9, abs=0.01)
    assert not gate["unattended"]
    share = f"{gate['unidentified_share']:.1%}"
    assert gate["unattended_reason"].startswith(f"No label represents {share} of the rows, more than 5.0%")
    assert gate["reason"].endswith(f"No label represents {share} of the rows: nothing is known about them.")
    lenient = run(revision, bundle, blind, limits=Limits(unidentified=1.0))["report"]["gate"]
    assert "nothing is known" not in lenient["reason"]


def test_a_propensity_too_small_for_a_single_label_identifies_nothing(
    revision: Revision, bundle: Any, blind: Rows
) -> None:
    hardly = replace(blind, propensity=np.where(blind.known(), blind.propensity, 1e-6))
    gate = run(revision, bundle, hardly)["report"]["gate"]
    assert gate["passed"]
    assert gate["unidentified_share"] == pytest.approx(0.9, abs=0.01)
    assert not gate["unattended"]


def test_rows_of_unknown_propensity_are_unidentified(revision: Revision, bundle: Any) -> None:
    logits, labels = draw(3000, seed=1, temperature=2.5)
    decided = np.arange(3000) % 10 > 0  # the others came without a policy
    propensity = np.where(decided, 1.0, np.nan)
    rows = logged(logits, labels, propensity=propensity, sought=decided)
    gate = run(revision, bundle, rows)["report"]["gate"]
    of = roles(rows.group) == GATE
    assert gate["passed"]
    assert gate["unidentified_share"] == pytest.approx(1 - decided[of].mean())
    assert not gate["unattended"]


def test_explored_traffic_is_identified(revision: Revision, bundle: Any) -> None:
    logits, labels = draw(12_000, seed=16, temperature=2.5)
    sought = np.random.default_rng(17).random(12_000) < 0.3
    rows = logged(logits, labels, propensity=np.full(12_000, 0.3), sought=sought, has_label=sought)
    gate = run(revision, bundle, rows)["report"]["gate"]
    assert (gate["passed"], gate["unidentified_share"], gate["missing_share"]) == (True, 0.0, 0.0)
    late = sought & (np.arange(12_000) % 10 > 0)
    rows = logged(logits, labels, propensity=np.full(12_000, 0.3), sought=sought, has_label=late)
    gate = run(revision, bundle, rows)["report"]["gate"]
    assert gate["missing_share"] == pytest.approx(0.1, abs=0.03)
    assert "have not arrived" in gate["unattended_reason"]


def test_a_certificate_is_not_lost_unattended(revision: Revision, bundle: Any) -> None:
    """The drift is mended, but so many answers are wrong now that nothing can be promised of them."""
    outcome = run(revision, bundle, logged(*draw(3000, seed=18, temperature=12.0)))
    assert outcome["policies"]["auto"]["review_all"]
    gate = outcome["report"]["gate"]
    assert gate["passed"]
    assert gate["unattended_reason"] == "Policy 'auto' would lose its certificate, and send every row to review."


def test_double_labels_are_reported_and_compared_with_what_a_policy_assumes(revision: Revision, bundle: Any) -> None:
    rows = logged(*draw(3000, seed=21, temperature=2.5))
    assumes = parse_policy({**POLICY.to_dict(), "certify": {"wrong_labels": 0.01}})
    solved = solve_on_reference(assumes, version=3, bundle=bundle, calibrator=revision.calibrator, look=1)
    active = replace(revision, policies={"auto": solved})
    one = np.zeros(400, np.int64)
    pairs = LabelPairs(one, np.where(np.arange(400) < 20, 1, 0), np.arange(400))
    outcome = run(active, bundle, rows, pairs=pairs)["report"]
    assert {key: outcome["double_labels"][key] for key in ("rows", "differ")} == {"rows": 400, "differ": 20}
    assert 0.02 < outcome["double_labels"]["wrong"] < 0.05 < outcome["double_labels"]["upper"] < 0.08
    assert any(
        warning.startswith("Policy 'auto' assumes at most 1.0% of wrong labels") for warning in outcome["warnings"]
    )
    alike = run(active, bundle, rows, pairs=LabelPairs(one, one, np.arange(400)))["report"]
    assert not any("wrong labels" in warning for warning in alike["warnings"])
    assert label_warnings({}, None, 0) == []
    assert label_warnings({}, None, 3)[0].startswith("Rows with a label that the model lacks: 3.")
    assert run(active, bundle, rows)["report"]["double_labels"] is None


def test_changes_are_bounded_on_all_recent_rows_one_of_each_group(revision: Revision, bundle: Any) -> None:
    logits, labels = draw(12_000, seed=16, temperature=2.5)
    sought = np.random.default_rng(17).random(12_000) < 0.5
    rows = logged(logits, labels, propensity=np.full(12_000, 0.5), sought=sought, has_label=sought, seed=3)
    labelled = int(sought.sum())
    group = rows.group.copy()
    group[labelled : labelled + 10] = group[:10]
    rows = replace(rows, group=group)
    outcome = run(revision, bundle, rows)
    gate = outcome["report"]["gate"]
    groups = np.unique(group)
    caps = {cap["name"]: cap for cap in gate["caps"]}
    assert set(caps) == {"flipped", "flag_rate", "flag_rate_ratio", "probability_change"}
    assert caps["probability_change"]["upper"] <= caps["probability_change"]["value"] <= 1
    for name in ("flipped", "flag_rate"):
        cap = caps[name]
        assert cap["of"] == int((roles(groups) == GATE).sum())
        assert cap["count"] / cap["of"] < cap["upper"] < cap["count"] / cap["of"] + 0.03
    assert gate["unattended"]
    allowed = replace(NO_CAPS, flipped=caps["flipped"]["upper"], flag_rate=caps["flag_rate"]["upper"])
    assert run(revision, bundle, rows, limits=allowed)["report"]["gate"]["unattended"]
    tight = Limits(flipped=caps["flipped"]["count"] / caps["flipped"]["of"], flag_rate=0.1)
    held = run(revision, bundle, rows, limits=tight)["report"]["gate"]
    assert held["passed"]
    assert "may change up to" in held["unattended_reason"]
    assert "may flag up to" in held["unattended_reason"]


def test_labels_that_contradict_the_model_throughout_need_a_person(revision: Revision, bundle: Any) -> None:
    """A client whose labels are shifted by one class: flattening everything does lower the loss on them."""
    logits, labels = draw(3000, seed=14)
    outcome = run(revision, bundle, logged(logits, (labels + 1) % K))
    assert outcome["calibrator"]["at_bound"]
    gate = outcome["report"]["gate"]
    assert gate["passed"]
    assert not gate["unattended"]
    assert "temperature is at its bound" in gate["unattended_reason"]
