"""A tour of `calibrators` on the logits of a real network: compare, measure, draw, by segment, and back again.

`make train` first makes the bundle: a small CNN, its held-out reference rows and the ONNX model. Then

    .venv/bin/python examples/calibrate_digits.py [BUNDLE] [OUT]

fits on the 400 reference rows and measures on some 1,100 digits that the network never saw. BUNDLE is a bundle's
folder, var/bundles/digits/1 by default; the diagrams go to OUT, var/calibrate-digits by default.
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
    SegmentedCalibrator,
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
    """Tell it in five parts."""
    out.mkdir(parents=True, exist_ok=True)
    logits, labels = reference_rows(bundle)
    images, truth = unseen_digits(bundle)
    fresh = run(bundle, images)
    console.print(f"{len(labels)} rows to fit on, {len(truth)} to measure on, {logits.shape[1]} classes")
    fitted = {name: CALIBRATORS[name]().fit(logits, labels) for name in METHODS}
    console.print(Rule("1  Which calibrator?"))
    compare(fitted, fresh, truth)
    console.print(Rule("2  What auto takes, and why"))
    choose(logits, labels)
    console.print(Rule("3  Pictures"))
    draw(fitted, fresh, truth, out)
    console.print(Rule("4  A calibrator for each camera"))
    segments(images, truth, bundle)
    console.print(Rule("5  From the calibrated scale back to the raw one"))
    thresholds(logits, labels, fresh)


def reference_rows(bundle: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Read all of the bundle's held-out logits and labels."""
    with np.load(bundle / "reference.npz") as arrays:
        parts = ("fit", "certify", "gate")
        return (
            np.concatenate([arrays[f"{part}_logits"] for part in parts]),
            np.concatenate([arrays[f"{part}_labels"] for part in parts]),
        )


def unseen_digits(bundle: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the digits that are neither in the network's training rows nor among its reference rows."""
    seed = json.loads((bundle / "manifest.json").read_text())["training"]["seed"]
    data, parts = TrainConfig(dataset="digits", seed=seed).load()
    return data.inputs[parts.feedback], data.labels[parts.feedback]


def run(bundle: Path, images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the network's logits."""
    network = onnxruntime.InferenceSession(bundle / "model.onnx")
    logits: NDArray[np.float32] = network.run(["logits"], {"input": images})[0]
    return logits


def compare(fitted: dict[str, Calibrator], logits: NDArray[np.float32], truth: NDArray[np.int64]) -> None:
    """Set the methods side by side: the ECE with its null, the log loss with a paired interval."""
    columns = ("method", "accuracy", "ECE", "if calibrated", "p", "log loss", "less the plain softmax's, 95 %")
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
    console.print("An ECE says little without the column beside it; a large p-value may only mean few rows.")


def choose(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
    """Let cross-validation choose, and show its report."""
    auto = CALIBRATORS["auto"]().fit(logits, labels)
    table = Table("candidate", "out-of-fold log loss", "behind the best", "standard error", box=None, pad_edge=False)
    for one in auto.report_:
        cells = (f"{value:.4f}" for value in (one.loss, one.difference, one.standard_error) if value is not None)
        table.add_row(one.name, *cells)
    console.print(table)
    for one in auto.report_:
        if one.error is not None:
            console.print(f"{one.name} is out: {one.error}")
    console.print(f"The simplest within one standard error of the best: [bold]{auto.calibrator_.name}[/bold]")


def draw(fitted: dict[str, Calibrator], logits: NDArray[np.float32], truth: NDArray[np.int64], out: Path) -> None:
    """Write a reliability diagram and a confidence histogram before and after."""
    for when, name in (("before", "identity"), ("after", "temperature")):
        probabilities = fitted[name].predict_proba(logits)
        title = f"Digits, {when} calibration"
        for kind, picture in (("reliability", reliability_diagram), ("confidence", confidence_histogram)):
            path = out / f"{kind}-{when}.svg"
            picture(probabilities, truth, title=title).savefig(path)
            console.print(f"{path}")


def segments(images: NDArray[np.uint8], truth: NDArray[np.int64], bundle: Path) -> None:
    """Fit a temperature for each of two cameras, one of them with a dim lamp; a new third has few rows yet."""
    cameras = {"bright": images, "dim": drift.dim(images, seed=0)}
    logits = np.concatenate([run(bundle, seen) for seen in cameras.values()])
    labels, names = np.tile(truth, 2), np.repeat(list(cameras), len(truth))
    names[:40] = "new"
    fit = np.tile(np.arange(len(truth)) % 2 == 0, 2)
    calibrator = SegmentedCalibrator("temperature").fit(logits[fit], labels[fit], names[fit])
    for name, own in calibrator.calibrators_.items():
        console.print(f"{name}: T = {own.temperature_:.2f}")
    for name, reason in calibrator.fell_back_.items():
        console.print(f"{name}: no temperature of its own ({reason}), so that of all rows")
    console.print(f"all rows: T = {calibrator.fallback_.temperature_:.2f}")
    test = ~fit
    own = metrics.log_losses(calibrator.predict_proba(logits[test], names[test]), labels[test])
    one = metrics.log_losses(calibrator.fallback_.predict_proba(logits[test]), labels[test])
    # Both pictures of a digit belong together.
    digit = np.tile(np.arange(len(truth)), 2)[test]
    gain = metrics.paired_interval(own, one, groups=digit)
    interval = f"{gain.estimate:+.4f} ({gain.low:+.4f} to {gain.high:+.4f})"
    console.print(f"log loss with one each, less that with one for all: {interval}")


def thresholds(logits: NDArray[np.float32], labels: NDArray[np.int64], fresh: NDArray[np.float32]) -> None:
    """Carry thresholds for one digit against the rest from calibrated probabilities to raw log-odds."""
    binary, margin = one_against_rest(logits)
    calibrator = CALIBRATORS["beta"]().fit(binary, (labels == POSITIVE).astype(np.int64))
    wanted = np.array([0.1, 0.5, 0.9])
    raw = margin_thresholds(calibrator, wanted)
    binary, margin = one_against_rest(fresh)
    chance = calibrator.predict_proba(binary)[:, 1]
    for probability, threshold in zip(wanted, raw, strict=True):
        flagged, alike = chance >= probability, (chance >= probability) == (margin >= threshold)
        console.print(
            f"P({POSITIVE}) of at least {probability:.1f} is raw log-odds of at least {threshold:+.3f}: "
            f"{flagged.sum()} digits; both scales agree on {alike.mean():.2%}"
        )
    there = calibrator.predict_proba(inverse(calibrator, calibrator.predict_proba(binary)))
    console.print(f"There and back again, the largest difference: {np.abs(there[:, 1] - chance).max():.1g}")


def one_against_rest(logits: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two-class logits of POSITIVE against all other digits, and their difference."""
    chance = CALIBRATORS["identity"]().predict_proba(logits.astype(np.float64))
    rest = np.delete(chance, POSITIVE, axis=1).sum(axis=1)
    binary = logits_from_probabilities(np.stack([rest, chance[:, POSITIVE]], axis=1))
    return binary, binary[:, 1] - binary[:, 0]


if __name__ == "__main__":
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "var" / "bundles" / "digits" / "1"
    if not (source / "reference.npz").exists():
        sys.exit(f"There is no bundle in {source}. `make train` makes the one for the digits.")
    main(source, Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "var" / "calibrate-digits")
