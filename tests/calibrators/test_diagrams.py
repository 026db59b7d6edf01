from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from calibrators import CalibrationDataError, confidence_histogram, reliability_diagram, softmax
from calibrators.metrics import calibration_test, reliability_curve


def texts(figure):
    return [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]


@pytest.mark.parametrize("draw", [reliability_diagram, confidence_histogram])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_error_stands_beside_its_null(draw, weighted, world, tmp_path):
    logits, labels = world(500, 4, 2.0)
    weight = np.linspace(0.1, 1, 500) if weighted else None
    figure = draw(softmax(logits), labels, 10, sample_weight=weight, title="Digits")
    assert isinstance(figure, Figure)
    test = calibration_test(softmax(logits), labels, 10, sample_weight=weight)
    shown = texts(figure)
    note = next(text for text in shown if text.startswith("ECE"))
    for value in (test.error, test.null_mean, test.null_quantile):
        assert f"{value:.3f}" in note
    assert "Digits" in shown
    path = tmp_path / ("figure.svg" if weighted else "figure.png")
    figure.savefig(path)
    assert path.stat().st_size > 5000


@pytest.mark.parametrize("draw", [reliability_diagram, confidence_histogram])
def test_the_null_of_frequencies_is_that_of_repeated_rows(draw, world):
    logits, labels = world(500, 4, 2.0)
    times = np.full(500, 9)
    test = calibration_test(softmax(logits), labels, 10, sample_weight=times, weight_kind="frequency")
    shown = texts(draw(softmax(logits), labels, 10, sample_weight=times, weight_kind="frequency"))
    assert any(f"mean {test.null_mean:.3f}" in text for text in shown)
    assert test.null_mean < 0.5 * calibration_test(softmax(logits), labels, 10).null_mean


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_bars_are_the_curve(scheme, world):
    logits, labels = world(500, 3, 2.0)
    curve = reliability_curve(softmax(logits), labels, 8, scheme)
    axes, strip = reliability_diagram(softmax(logits), labels, 8, scheme).axes
    accuracy, gaps = axes.containers
    np.testing.assert_allclose([bar.get_height() for bar in accuracy], curve.accuracy)
    np.testing.assert_allclose([bar.get_y() + bar.get_height() for bar in gaps], curve.confidence)
    np.testing.assert_allclose([bar.get_height() for bar in strip.containers[0]], curve.share)


def test_the_histogram_counts_every_row(world):
    logits, labels = world(500, 3, 2.0)
    axes, _ = confidence_histogram(softmax(logits), labels, 8).axes
    assert sum(bar.get_height() for container in axes.containers for bar in container) == pytest.approx(1)


def test_one_row_can_be_drawn():
    for draw in (reliability_diagram, confidence_histogram):
        draw([[1.0, 0.0]], [0]).savefig("/dev/null", format="png")


def test_top_label_methods_pass_their_labels():
    figure = reliability_diagram([[0.4, 0.6]] * 4, [0, 0, 0, 1], 5, predicted=[0, 0, 0, 0])
    assert [bar.get_height() for bar in figure.axes[0].containers[0]] == [0.75]


def test_matplotlib_is_imported_only_to_draw():
    code = "import sys, calibrators; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def rare_events(rows=20_000):
    rng = np.random.default_rng(0)
    chance = 1 / (1 + np.exp(-rng.normal(-6, 1.5, rows)))
    labels = (rng.random(rows) < chance).astype(int)
    return np.stack([1 - chance, chance], axis=1), labels


@pytest.mark.parametrize("weighted", [False, True])
def test_rare_events_on_axes_of_log_odds(weighted, tmp_path):
    probabilities, labels = rare_events()
    weight = np.linspace(0.5, 1, len(labels)) if weighted else None
    figure = reliability_diagram(probabilities, labels, 10, "mass", weight, positive=1, axis="logit", title="Fraud")
    axes, strip = figure.axes
    assert axes.get_xscale() == axes.get_yscale() == strip.get_xscale() == "logit"
    lines = {line.get_label(): line for line in axes.lines}
    curve = reliability_curve(probabilities, labels, 10, "mass", weight, predicted=np.ones(len(labels), int))
    seen = curve.accuracy > 0
    np.testing.assert_allclose(lines["bins"].get_xdata(), curve.confidence[seen])
    np.testing.assert_allclose(lines["bins"].get_ydata(), curve.accuracy[seen])
    assert (len(lines["_v"].get_xdata()) if "_v" in lines else 0) == (~seen).sum()
    low, high = axes.get_xlim()
    assert 0 < low < probabilities[:, 1].min()
    assert probabilities[:, 1].max() < high < 1
    assert any(text.startswith("ECE 0.000") for text in texts(figure))
    figure.savefig(tmp_path / ("figure.svg" if weighted else "figure.png"))


def test_few_or_extreme_points_on_axes_of_log_odds(tmp_path):
    for probabilities, labels in (([[0.9, 0.1]], [0]), ([[0.9, 0.1], [1.0, 0.0], [0.0, 1.0]], [0, 0, 1])):
        reliability_diagram(probabilities, labels, positive=1, axis="logit").savefig(tmp_path / "figure.png")
    with pytest.raises(CalibrationDataError, match="Nothing to draw"):
        reliability_diagram([[1.0, 0.0]], [0], axis="logit")


def test_one_class_on_plain_axes():
    figure = reliability_diagram([[0.4, 0.6]] * 4, [0, 0, 0, 1], 5, positive=0)
    assert [bar.get_height() for bar in figure.axes[0].containers[0]] == [0.75]
    assert figure.axes[0].get_ylabel() == "frequency"
    for options in ({"positive": 2}, {"axis": "cubic"}, {"positive": 0, "predicted": [0] * 4}):
        with pytest.raises(CalibrationDataError):
            reliability_diagram([[0.4, 0.6]] * 4, [0, 0, 0, 1], **options)


@pytest.mark.parametrize("draw", [reliability_diagram, confidence_histogram])
def test_any_title_is_drawn_as_it_stands(draw, world):
    logits, labels = world(200, 3)
    for title in ("", "$5 or $6", r"a \$ and $\frac{1}$", r"$\broken{$", "a_b^c"):
        figure = draw(softmax(logits), labels, title=title)
        FigureCanvasAgg(figure).draw()
        assert figure.get_suptitle() == title
    for wrong in (None, 5, ["a"]):
        with pytest.raises(CalibrationDataError, match="title"):
            draw(softmax(logits), labels, title=wrong)
