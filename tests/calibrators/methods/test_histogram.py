from __future__ import annotations

import numpy as np
import pytest

from calibrators import CalibrationDataError, Histogram, softmax


def rows_of(confidence):
    """Two-class logits whose first probability is the given confidence."""
    confidence = np.asarray(confidence)
    return np.stack([np.log(confidence), np.log1p(-confidence)], axis=1)


def test_values_by_hand():
    logits = rows_of([0.55, 0.58, 0.95, 0.97, 0.99])
    calibrator = Histogram(bins=10, scheme="width").fit(logits, [0, 1, 0, 0, 1])
    assert calibrator.values_[0][5] == 1.5 / 3
    assert calibrator.values_[0][9] == 2.5 / 4
    assert calibrator.values_[0][7] == pytest.approx(0.75)  # empty: its centre
    np.testing.assert_allclose(calibrator.predict_proba(rows_of([0.57, 0.96, 0.75]))[:, 0], [0.5, 0.625, 0.75])


def test_equal_mass_bins_hold_equal_numbers_of_rows(world):
    logits, labels = world(1000, 4)
    calibrator = Histogram(bins=10).fit(logits, labels)
    confidence = softmax(logits).max(axis=1)
    counts = np.histogram(confidence, calibrator.edges_[0])[0]
    assert counts.sum() == 1000
    assert np.abs(counts - 100).max() <= 1  # np.histogram closes bins on the left
    assert len(calibrator.values_[0]) == 10


def test_ties_are_never_split():
    logits = np.repeat(rows_of([0.6, 0.7, 0.8]), [10, 80, 10], axis=0)
    labels = np.tile([0, 1], 50)
    calibrator = Histogram(bins=10).fit(logits, labels)
    assert len(calibrator.values_[0]) == 3
    np.testing.assert_allclose(calibrator.values_[0], [5.5 / 11, 40.5 / 81, 5.5 / 11])


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_brute_force_on_the_top_label(scheme, world):
    logits, labels = world(700, 5, 1.8)
    calibrator = Histogram(bins=7, scheme=scheme).fit(logits, labels)
    probabilities = softmax(logits)
    edges = calibrator.edges_[0]
    result = calibrator.predict_proba(logits)
    top = probabilities.argmax(axis=1)
    confidence = probabilities.max(axis=1)
    for i in range(700):
        b = next(j for j in range(len(edges) - 1) if confidence[i] <= edges[j + 1])
        inside = (confidence <= edges[b + 1]) & ((confidence > edges[b]) | (b == 0))
        value = ((top == labels)[inside].sum() + 0.5) / (inside.sum() + 1)
        rest = np.delete(probabilities[i], top[i])
        assert result[i, top[i]] == pytest.approx(value, abs=1e-12)
        np.testing.assert_allclose(np.delete(result[i], top[i]), (1 - value) * rest / rest.sum(), atol=1e-12)


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_brute_force_per_class(scheme, world):
    logits, labels = world(400, 3, 1.8)
    calibrator = Histogram(bins=6, scheme=scheme, on="per_class").fit(logits, labels)
    probabilities = softmax(logits)
    expected = np.empty_like(probabilities)
    for k in range(3):
        edges, scores = calibrator.edges_[k], probabilities[:, k]
        for i in range(400):
            # The nudge keeps scores that are edges where they are, whatever their last bit.
            b = next(j for j in range(len(edges) - 1) if scores[i] <= edges[j + 1] + 1e-12)
            inside = (scores <= edges[b + 1] + 1e-12) & ((scores > edges[b] + 1e-12) | (b == 0))
            expected[i, k] = ((labels == k)[inside].sum() + 0.5) / (inside.sum() + 1)
    np.testing.assert_allclose(
        calibrator.predict_proba(logits), expected / expected.sum(axis=1, keepdims=True), atol=1e-12
    )


def test_the_label_stays_raw_even_where_another_entry_is_larger(world):
    logits, labels = world(3000, 3, 8.0)  # far too confident, so confidences fall below one half
    calibrator = Histogram(bins=10).fit(logits, labels)
    probabilities = calibrator.predict_proba(logits)
    top, confidence = calibrator.top_label(logits, probabilities)
    np.testing.assert_array_equal(top, logits.argmax(axis=1))
    assert (probabilities.argmax(axis=1) != top).any()
    assert set(confidence) <= set(calibrator.values_[0])


def test_the_rest_is_spread_in_old_proportions_even_where_it_underflows():
    logits = np.array([[2000.0, 1.0, 0.0], [3.0, 0.0, 1.0]])
    calibrator = Histogram(bins=2, scheme="width").fit(logits, [0, 0])
    first = calibrator.predict_proba(logits)[0]
    assert first[1] / first[2] == pytest.approx(np.e)


def test_where_the_others_are_impossible_they_share_evenly():
    logits = np.array([[0.0, -np.inf, -np.inf], [0.0, -np.inf, -5.0]])
    calibrator = Histogram(bins=1).fit(logits, [0, 2])
    np.testing.assert_allclose(calibrator.predict_proba(logits), [[0.5, 0.25, 0.25], [0.5, 0.0, 0.5]])


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_two_classes_have_one_curve_for_class_one(scheme, world):
    logits, labels = world(500, 2, 1.8)
    calibrator = Histogram(bins=6, scheme=scheme, on="per_class").fit(logits, labels)
    (edges,), (values,) = calibrator.edges_, calibrator.values_
    result = calibrator.predict_proba(logits)
    chance = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    for i in range(500):
        b = next(j for j in range(len(edges) - 1) if chance[i] <= edges[j + 1])
        inside = (chance <= edges[b + 1]) & ((chance > edges[b]) | (b == 0))
        assert result[i, 1] == (labels[inside].sum() + 0.5) / (inside.sum() + 1)
        assert result[i, 0] == 1 - values[b]


@pytest.mark.parametrize(("classes", "on"), [(2, "top_label"), (5, "top_label"), (2, "per_class")])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_a_row_is_read_in_the_bin_where_it_was_counted(classes, dtype, scheme, on, world):
    # Equal-mass edges are scores of rows, so a score computed otherwise by the last bit would change its bin.
    logits, labels = world(997, classes, 1.8, dtype=dtype)
    calibrator = Histogram(bins=20, scheme=scheme, on=on).fit(logits, labels)
    result = calibrator.predict_proba(logits.astype(np.float64))
    hits = logits.argmax(axis=1) == labels if on == "top_label" else labels == 1
    found = result[np.arange(997), logits.argmax(axis=1)] if on == "top_label" else result[:, 1]
    values = calibrator.values_[0]
    assert set(found) <= set(values)
    for value in values[[np.count_nonzero(values == v) == 1 for v in values]]:
        inside = found == value
        # A bin of equal width that nothing fell in keeps its centre.
        assert value == (hits[inside].sum() + 0.5) / (inside.sum() + 1) if inside.any() else scheme == "width"


def test_a_score_on_an_edge_belongs_to_the_bin_below():
    logits = np.array([[0.0, 0.0]] * 3 + [[0.0, 1e-9]] * 2)
    calibrator = Histogram(bins=2, scheme="width", on="per_class").fit(logits, [1, 0, 0, 1, 1])
    np.testing.assert_array_equal(calibrator.values_[0], [1.5 / 4, 2.5 / 3])
    np.testing.assert_array_equal(calibrator.predict_proba(logits)[:, 1], [1.5 / 4] * 3 + [2.5 / 3] * 2)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("scheme", ["width", "mass"])
@pytest.mark.parametrize("on", ["top_label", "per_class"])
def test_frequencies_are_repeated_rows(classes, scheme, on, world):
    logits, labels = world(300, classes, 1.5)
    counts = np.random.default_rng(3).integers(0, 4, 300)
    weighted = Histogram(7, scheme, on, weight_kind="frequency").fit(logits, labels, counts)
    repeated = Histogram(7, scheme, on).fit(np.repeat(logits, counts, axis=0), np.repeat(labels, counts))
    for found, expected in zip(weighted.values_ + weighted.edges_, repeated.values_ + repeated.edges_, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_each_bin_counts_its_own_effective_rows(scheme, world):
    logits, labels = world(400, 2, 1.5)
    weight = np.random.default_rng(4).uniform(0.1, 3, 400)
    calibrator = Histogram(5, scheme, "per_class").fit(logits, labels, weight)
    found = calibrator.predict_proba(logits)[:, 1]
    for value in set(found):
        own, hits = weight[found == value], labels[found == value]
        effective = own.sum() ** 2 / (own @ own)
        assert value == pytest.approx((effective * np.average(hits, weights=own) + 0.5) / (effective + 1))


def test_weights_count_as_effective_rows():
    logits = rows_of([0.9] * 4)
    weighted = Histogram(bins=1).fit(logits, [0, 0, 0, 1], [1.0, 1.0, 1.0, 3.0])
    effective = 36 / 12
    assert weighted.values_[0][0] == pytest.approx((effective * 0.5 + 0.5) / (effective + 1))


def test_weights_move_equal_mass_edges_as_repeated_rows_do(world):
    logits, labels = world(500, 3)
    counts = np.random.default_rng(0).integers(0, 4, 500)
    weighted = Histogram(bins=8).fit(logits, labels, counts)
    repeated = Histogram(bins=8).fit(np.repeat(logits, counts, axis=0), np.repeat(labels, counts))
    np.testing.assert_array_equal(weighted.edges_[0], repeated.edges_[0])


def test_a_class_that_the_labels_lack_gets_little(world):
    logits, labels = world(2000, 4)
    calibrator = Histogram(bins=5, on="per_class").fit(logits, np.minimum(labels, 2))
    assert calibrator.values_[3].max() < 0.01


@pytest.mark.parametrize(
    "options", [{"bins": 0}, {"bins": 2.5}, {"bins": True}, {"scheme": "x"}, {"on": "x"}, {"weight_kind": "x"}]
)
def test_unknown_options_are_refused(options):
    with pytest.raises(CalibrationDataError, match=next(iter(options))):
        Histogram(**options)


def test_contradictory_documents_are_refused(world):
    document = Histogram(bins=3, scheme="width").fit(*world(300, 3)).to_dict()
    edges, values = document["edges"][0], document["values"][0]
    contradictions = (
        {"edges": [edges[::-1]]},
        {"edges": [[0.0, 0.5, 0.5, 1.0]]},
        {"edges": [[0.1, *edges[1:]]]},
        {"edges": [[*edges[:-1], 0.9]]},
        {"edges": [edges] * 2},
        {"values": [values[:-1]]},
        {"values": [[0.0, *values[1:]]]},
        {"values": [[1.5, *values[1:]]]},
        {"on": "per_class"},
        {"weight_kind": "x"},
        {"bins": 2},
        {"classes": 1},
    )
    for change in contradictions:
        with pytest.raises(CalibrationDataError):
            Histogram.from_dict({**document, **change})


def test_both_targets_and_schemes_round_trip(world):
    logits, labels = world(300, 3)
    for scheme in ("width", "mass"):
        for on in ("top_label", "per_class"):
            calibrator = Histogram(4, scheme, on).fit(logits, labels)
            restored = Histogram.from_dict(calibrator.to_dict())
            assert restored.top_label_only == (on == "top_label")
            np.testing.assert_array_equal(restored.predict_proba(logits), calibrator.predict_proba(logits))
