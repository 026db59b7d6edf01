from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

from calibrators import confidence_histogram, reliability_diagram, softmax
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
    figure.savefig(tmp_path / "figure.svg")
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.svg").stat().st_size > 5000


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
