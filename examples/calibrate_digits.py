"""A tour of `calibrators` on the logits of a real network: compare, choose, draw, fit per camera, set thresholds.

First run `make train`, which makes the bundle: a small CNN, its reference rows and the ONNX model. Then

    .venv/bin/python examples/calibrate_digits.py [BUNDLE] [OUT]

fits on the 400 reference rows and measures on about 1,100 unseen digits. BUNDLE is a bundle's folder (default
var/bundles/digits/1); OUT is the folder of the diagrams (default var/calibrate-digits).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from rich.console import Console
from rich.rule import Rule
from rich.table import Table

from calibrators import (
    CALIBRATORS,
    Calibrator,
    Temperature,
    confidence_histogram,
    inverse,
    logits_from_probabilities,
    margin_thresholds,
    metrics,
    reliability_diagram,
)
from training import TrainConfig
from training.data import drift

ROOT = Path(__file__).resolve().parent.parent
METHODS = ("identity", "temperature", "vector", "structured_vector", "isotonic_multiclass", "histogram", "spline")
POSITIVE = 8
console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)


def main(bundle: Path, out: Path) -> None:
    """Run the five parts of the tour."""
    out.mkdir(parents=True, exist_ok=True)
    logits, labels = reference_rows(bundle)
    images, truth = unseen_digits(bundle)
    fresh = run(bundle, images)
    console.print(f"{len(labels)} rows to fit, {len(truth)} rows to measure, {logits.shape[1]} classes")
    fitted = {name: CALIBRATORS[name]().fit(logits, labels) for name in METHODS}
    console.print(Rule("1  Which calibrator?"))
    compare(fitted, fresh, truth)
    console.print(Rule("2  The choice of auto"))
    choose(logits, labels)
    console.print(Rule("3  Pictures"))
    draw(fitted, fresh, truth, out)
    console.print(Rule("4  One calibrator per camera"))
    per_camera(images, truth, bundle)
    console.print(Rule("5  From calibrated to raw thresholds"))
    thresholds(logits, labels, fresh)


def reference_rows(bundle: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Read all reference logits and labels of the bundle."""
    with np.load(bundle / "reference.npz") as arrays:
        parts = ("fit", "certify", "gate")
        return (
            np.concatenate([arrays[f"{part}_logits"] for part in parts]),
            np.concatenate([arrays[f"{part}_labels"] for part in parts]),
        )


def unseen_digits(bundle: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the digits outside the network's training rows and reference rows."""
    seed = json.loads((bundle / "manifest.json").read_text())["training"]["seed"]
    data, parts = TrainConfig(dataset="digits", seed=seed).load()
    return data.inputs[parts.feedback], data.labels[parts.feedback]


def run(bundle: Path, images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the network's logits."""
    network = onnxruntime.InferenceSession(bundle / "model.onnx")
    logits: NDArray[np.float32] = network.run(["logits"], {"input": images})[0]
    return logits


def compare(fitted: dict[str, Calibrator], logits: NDArray[np.float32], truth: NDArray[np.int64]) -> None:
    """Compare the methods: the ECE with its null, the log loss with a paired interval."""
    columns = ("method", "accuracy", "ECE", "if calibrated", "p", "log loss", "minus plain softmax, 95 % interval")
    table = Table(*columns, box=None, pad_edge=False)
    plain = metrics.log_losses(fitted["identity"].predict_proba(logits), truth)
    for name, calibrator in fitted.items():
        probabilities = calibrator.predict_proba(logits)
        label, _ = calibrator.top_label(logits, probabilities)
        test = metrics.calibration_test(probabilities, truth, predicted=label)
        losses = metrics.log_losses(probabilities, truth)
        interval = metrics.paired_interval(losses, plain)
        table.add_row(
            name,
            f"{np.mean(label == truth):.1%}",
            f"{test.error:.3f}",
            f"{test.null_mean:.3f}, 95 %: {test.null_quantile:.3f}",
            f"{test.p_value:.3f}",
            f"{losses.mean():.4f}",
            "" if name == "identity" else f"{interval.estimate:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})",
        )
    console.print(table)
    console.print("Compare the ECE with the column beside it. A large p-value can also result from few rows.")


def choose(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
    """Choose by cross-validation, and show the report."""
    auto = CALIBRATORS["auto"]().fit(logits, labels)
    table = Table("candidate", "out-of-fold log loss", "behind the best", "standard error", box=None, pad_edge=False)
    for one in auto.report_:
        cells = (f"{value:.4f}" for value in (one.loss, one.difference, one.standard_error) if value is not None)
        table.add_row(one.name, *cells)
    console.print(table)
    for one in auto.report_:
        if one.error is not None:
            console.print(f"{one.name} is excluded: {one.error}")
    console.print(
        f"The simplest within one standard error of the best, or a pool: [bold]{auto.calibrator_.name}[/bold]"
    )


def draw(fitted: dict[str, Calibrator], logits: NDArray[np.float32], truth: NDArray[np.int64], out: Path) -> None:
    """Write a reliability diagram and a confidence histogram before and after."""
    for when, name in (("before", "identity"), ("after", "temperature")):
        probabilities = fitted[name].predict_proba(logits)
        title = f"Digits, {when} calibration"
        for kind, picture in (("reliability", reliability_diagram), ("confidence", confidence_histogram)):
            path = out / f"{kind}-{when}.svg"
            picture(probabilities, truth, title=title).savefig(path)
            console.print(f"{path}")


def per_camera(images: NDArray[np.uint8], truth: NDArray[np.int64], bundle: Path) -> None:
    """Fit one temperature per camera and one for both; the second camera has a dim lamp."""
    cameras = {"bright": images, "dim": drift.dim(images, seed=0)}
    logits = {name: run(bundle, seen) for name, seen in cameras.items()}
    fit, test = slice(0, None, 2), slice(1, None, 2)
    shared = Temperature().fit(np.concatenate([one[fit] for one in logits.values()]), np.tile(truth[fit], 2))
    own_losses, shared_losses = [], []
    for name, seen in logits.items():
        own = Temperature().fit(seen[fit], truth[fit])
        console.print(f"{name}: T = {own.temperature_:.2f}")
        own_losses.append(metrics.log_losses(own.predict_proba(seen[test]), truth[test]))
        shared_losses.append(metrics.log_losses(shared.predict_proba(seen[test]), truth[test]))
    console.print(f"all rows: T = {shared.temperature_:.2f}")
    # Both pictures of a digit belong together.
    digit = np.tile(np.arange(len(truth[test])), 2)
    gain = metrics.paired_interval(np.concatenate(own_losses), np.concatenate(shared_losses), groups=digit)
    interval = f"{gain.estimate:+.4f} ({gain.low:+.4f} to {gain.high:+.4f})"
    console.print(f"log loss with one temperature per camera minus that with one for both: {interval}")


def thresholds(logits: NDArray[np.float32], labels: NDArray[np.int64], fresh: NDArray[np.float32]) -> None:
    """Map thresholds for one digit against the rest from calibrated probabilities to raw log-odds."""
    binary, margin = one_against_rest(logits)
    calibrator = CALIBRATORS["beta"]().fit(binary, (labels == POSITIVE).astype(np.int64))
    wanted = np.array([0.1, 0.5, 0.9])
    raw = margin_thresholds(calibrator, wanted)
    binary, margin = one_against_rest(fresh)
    chance = calibrator.predict_proba(binary)[:, 1]
    for probability, threshold in zip(wanted, raw, strict=True):
        flagged, alike = chance >= probability, (chance >= probability) == (margin >= threshold)
        console.print(
            f"P({POSITIVE}) >= {probability:.1f} equals raw log-odds >= {threshold:+.3f}: "
            f"{flagged.sum()} digits; both scales agree on {alike.mean():.2%}"
        )
    there = calibrator.predict_proba(inverse(calibrator, calibrator.predict_proba(binary)))
    console.print(f"Inverse and back, largest difference: {np.abs(there[:, 1] - chance).max():.1g}")


def one_against_rest(logits: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two-class logits of POSITIVE against all other digits, and their difference."""
    chance = CALIBRATORS["identity"]().predict_proba(logits.astype(np.float64))
    rest = np.delete(chance, POSITIVE, axis=1).sum(axis=1)
    binary = logits_from_probabilities(np.stack([rest, chance[:, POSITIVE]], axis=1), floor=0)
    return binary, binary[:, 1] - binary[:, 0]


if __name__ == "__main__":
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "var" / "bundles" / "digits" / "1"
    if not (source / "reference.npz").exists():
        sys.exit(f"No bundle found in {source}. Run `make train` to make the digits bundle.")
    main(source, Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "var" / "calibrate-digits")
