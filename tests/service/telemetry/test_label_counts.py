"""Labels reach the metrics by their prediction's bin, once, and a curve of selective labels can be put right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.state.feedback import FeedbackItem
from service.telemetry.calibration_counts import BINS, NAMES, OLDER, SHOWN_REVISIONS
from service.telemetry.label_counts import LabelCounts
from tests.waiting import until


def bin_of(confidence: float) -> str:
    """The bin of a confidence: closed on the right, in float32."""
    return NAMES[int(np.searchsorted(np.float32(np.arange(1, BINS) / BINS), np.float32(confidence)))]


def by_bin(service: Any, name: str, **labels: str) -> dict[str, float]:
    found = {name_of: service.metric(name, bin=name_of, **labels) for name_of in NAMES}
    return {key: value for key, value in found.items() if value}


def send(service: Any, items: list[dict[str, Any]], **headers: str) -> dict[str, Any]:
    response = service.http.post("/feedback", json={"items": items}, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


def test_labels_are_counted_by_the_bin_of_their_prediction(on_both: Any, digits: Any) -> None:
    service = on_both
    predicted = service.predict(digits.images[:200], policy="auto-read")
    assert service.runtime.log.flush()
    bins = [bin_of(row["confidence"]) for row in predicted]
    expected = {name: float(bins.count(name)) for name in NAMES if name in bins}
    assert by_bin(service, "candor_calibration_bin_predictions_total", positive="top", revision="r1") == expected
    sums = by_bin(service, "candor_calibration_bin_confidence_total", positive="top")
    assert sum(sums.values()) == pytest.approx(sum(row["confidence"] for row in predicted), rel=1e-6)

    items = [
        {"prediction_id": row["prediction_id"], "label": label}
        for row, label in zip(predicted[:120], digits.labels[:120], strict=True)
    ]
    send(service, items, **{"idempotency-key": "a"})
    send(service, items, **{"idempotency-key": "a"})  # a replay
    send(service, items[:50])  # duplicates
    send(service, [item | {"label": "0", "source": "reviewer"} for item in items[:50]])  # other labels, later
    until(lambda: service.metric("candor_label_delay_seconds_count", model="digits") >= 120)
    until(lambda: not service.runtime.labels.waiting)
    right = [row["label"] == label for row, label in zip(predicted[:120], digits.labels, strict=False)]
    assert 0 < sum(right) < 120
    assert service.metric("candor_labelled_bin_rows_total", positive="top") == 120
    assert service.metric("candor_labelled_bin_right_total", positive="top") == sum(right)
    for name, count in by_bin(service, "candor_labelled_bin_rows_total", positive="top").items():
        assert count == bins[:120].count(name)
    assert service.metric("candor_label_delay_seconds_count", model="digits") == 120
    assert service.metric("candor_feedback_items_total", outcome="replayed") == 120


def test_a_label_before_its_prediction_is_counted_when_that_comes(service: Any, digits: Any) -> None:
    runtime = service.runtime
    often = tuple(0.05 * number for number in range(2_000))  # for longer than anybody here waits
    counts = LabelCounts(runtime.database, runtime.models, runtime.metrics, after_s=often)
    store = runtime.feedback
    items = [FeedbackItem(None, "early", "1"), FeedbackItem(None, "never", "1")]
    receipt = store.add("digits", items, by="test")
    counts.stored("digits", receipt.batch, items)
    until(lambda: counts.waiting == 2)
    body = {"inputs": digits.images[:1].tolist(), "references": ["early"]}
    assert service.http.post("/predict", json=body).status_code == 200
    until(lambda: service.metric("candor_labelled_bin_rows_total", positive="top") == 1)
    counts.close()
    assert (
        service.metric("candor_labelled_bin_rows_total", positive="top", sought="no") == 1
    )  # without a policy nobody sought it


def test_what_finds_no_prediction_or_no_room_is_counted_as_uncounted(service: Any) -> None:
    runtime = service.runtime
    counts = LabelCounts(runtime.database, runtime.models, runtime.metrics, after_s=(0.0,), capacity=2)
    counts.stored("digits", 1, [FeedbackItem(None, name, "1") for name in "abc"])
    counts.stored("digits", 2, [FeedbackItem(None, name, "1") for name in "ab"])
    until(lambda: service.metric("candor_labels_uncounted_total", reason="unknown") == 2)
    counts.close()
    assert service.metric("candor_labels_uncounted_total", reason="full") == 3


def test_selective_labels_weighted_by_propensity_give_the_curve_of_all_traffic(service: Any) -> None:
    """Where a label is sought more often for what is wrong, counting labels lies and weighing them does not."""
    random = np.random.default_rng(0)
    rows = 40_000
    right = random.random(rows) < 0.8
    propensity = np.where(right, 0.1, 0.9)
    sought = random.random(rows) < propensity
    metrics = service.runtime.metrics.calibration
    confidence = np.full(rows, 0.8, np.float32)
    chosen = sought.nonzero()[0]
    metrics.labelled("digits", "r1", "top", confidence[chosen], right[chosen], propensity[chosen], sought[chosen])

    def total(name: str) -> float:
        return service.metric(f"candor_labelled_bin_{name}_total", sought="yes", bin="0.80")

    assert total("right") / total("rows") < 0.4
    assert total("weighted_right") / total("weight") == pytest.approx(0.8, abs=0.02)
    assert total("weighted_confidence") / total("weight") == pytest.approx(0.8, abs=1e-6)
    assert total("weight") ** 2 / total("squared_weight") < total("rows")


def test_rows_of_unknown_propensity_have_no_weight(service: Any) -> None:
    two = np.array([0.3, 1.0], np.float32), np.array([True, True]), np.array([np.nan, 0.0]), np.array([False, False])
    service.runtime.metrics.calibration.labelled("digits", "r1", "top", *two)
    assert by_bin(service, "candor_labelled_bin_rows_total", sought="no") == {"0.30": 1, "1.00": 1}
    assert service.metric("candor_labelled_bin_weight_total") == 0


def test_a_policys_positive_class_has_a_curve_of_its_own(service: Any, digits: Any) -> None:
    document = {
        "positive": "3",
        "bands": [{"action": "flag", "when": {"min_probability": 0.5}}, {"action": "pass"}],
        "explore": {"share": 1.0, "actions": ["pass", "flag"]},
    }
    response = service.http.put("/v1/models/digits/policies/threes", json=document)
    assert response.status_code == 201, response.text
    revision = response.json()["id"]
    service.activate(revision)
    predicted = service.predict(digits.images[:150], policy="threes")
    assert service.runtime.log.flush()
    scores = [row["probabilities"]["3"] for row in predicted]
    found = by_bin(service, "candor_calibration_bin_predictions_total", positive="3", revision=revision)
    bins = [bin_of(score) for score in scores]
    assert found == {name: bins.count(name) for name in NAMES if name in bins}
    labels = digits.labels[:150]
    send(
        service,
        [{"prediction_id": row["prediction_id"], "label": label} for row, label in zip(predicted, labels, strict=True)],
    )
    until(lambda: service.metric("candor_labelled_bin_rows_total", positive="3", sought="yes") == 150)
    assert service.metric("candor_labelled_bin_right_total", positive="3") == labels.count("3")
    assert by_bin(service, "candor_labelled_bin_rows_total", positive="3") == found
    confidence = service.metric("candor_labelled_bin_confidence_total", positive="3")
    assert confidence == pytest.approx(sum(scores), rel=1e-5)
    assert service.metric("candor_labelled_bin_weight_total", positive="3") == 150


def test_only_the_latest_revisions_are_shown(service: Any, digits: Any) -> None:
    service.predict(digits.images[:3])
    for share in range(1, SHOWN_REVISIONS + 2):
        service.activate(service.propose_policy(share=share / 10))
        service.predict(digits.images[:2])
    count = service.metric
    assert count("candor_calibration_bin_predictions_total", revision="r1") == 0
    assert (
        count("candor_calibration_bin_predictions_total", positive="top")
        == count("candor_predictions_total")
        == 2 * SHOWN_REVISIONS
    )
    one = np.array([0.9], np.float32), np.array([True]), np.array([1.0]), np.array([True])
    service.runtime.metrics.calibration.labelled("digits", "r1", "top", *one)
    assert count("candor_labelled_bin_rows_total", revision=OLDER) == 1
