"""Repeat the demo with many seeds and count how often the recalibration passes the gate.

For each seed a LeNet-5 is trained on 300 digits and its temperature fitted on 200 reference rows. The 1,097 feedback
images are dimmed; a temperature is fitted again on a random third of them and compared with the first on another third,
as `/recalibrate` does. Four splits are drawn per seed, because the service splits by a secret.

    OMP_NUM_THREADS=1 python benchmarks/demo_seeds.py --seeds 100 --drift 0.25:0.05 --drift 0.4:0.07
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from bundle import LabelledLogits
from calibrators import Calibrator
from service.decisions.gate import compare
from training import TrainConfig
from training.calibrate import calibrate
from training.data import drift
from training.determinism import deterministic
from training.export import logits_of
from training.trained import learn

CONFIDENT = 0.9
DRAWS = 4


@dataclass(frozen=True)
class Clean:
    """One seed before the drift."""

    accuracy: float
    temperature: float
    confident: float


@dataclass(frozen=True)
class Dimmed:
    """One seed, one drift, one draw of fit and gate rows."""

    accuracy: float
    confident: float
    confident_after: float
    temperature_after: float
    fit_errors: float
    gate_errors: float
    nll_upper: float
    brier_upper: float
    passed: float


def main() -> None:
    """Run the study and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100, help="seeds 0 … SEEDS − 1")
    parser.add_argument(
        "--drift", action="append", metavar="GAIN:NOISE", help="default: the drift of training.data.drift"
    )
    arguments = parser.parse_args()
    drifts = [(gain, noise) for gain, noise in (map(float, text.split(":")) for text in arguments.drift or ())]
    drifts = drifts or [(drift.GAIN, drift.NOISE)]
    clean: list[Clean] = []
    dimmed: dict[tuple[float, float], list[Dimmed]] = {pair: [] for pair in drifts}
    for seed in range(arguments.seeds):
        before, after = one_seed(seed, drifts)
        clean.append(before)
        for pair in drifts:
            dimmed[pair] += after[pair]
    print(f"{len(clean)} seeds: median (minimum … maximum)")
    table(clean)
    for (gain, noise), rows in dimmed.items():
        passed = sum(row.passed for row in rows)
        print(f"gain {gain:g}, noise {noise:g}: {passed:.0f} of {len(rows)} recalibrations passed the gate")
        table(rows)


def one_seed(seed: int, drifts: list[tuple[float, float]]) -> tuple[Clean, dict[tuple[float, float], list[Dimmed]]]:
    """Train with one seed and recalibrate under each drift."""
    config = TrainConfig(seed=seed)
    data, parts = config.load()
    images, labels = data.inputs[parts.feedback], data.labels[parts.feedback]
    module = learn(config).module
    with deterministic(config.seed, config.threads):
        active = calibrate(
            "temperature", LabelledLogits(logits_of(module, data.inputs[parts.fit]), data.labels[parts.fit])
        )
        clean = logits_of(module, images)
        dark = {pair: logits_of(module, drift.dim(images, seed=seed, gain=pair[0], noise=pair[1])) for pair in drifts}
    before = Clean(accuracy(clean, labels), temperature(active), confident(active, clean))
    return before, {pair: [refit(active, dark[pair], labels, [seed, draw]) for draw in range(DRAWS)] for pair in drifts}


def refit(active: Calibrator, logits: NDArray[np.float32], labels: NDArray[np.int64], seed: list[int]) -> Dimmed:
    """Recalibrate on a third of the rows and compare on another."""
    role = np.random.default_rng(seed).integers(0, 3, len(labels))
    fit, gate = role == 0, role == 2
    candidate = calibrate("temperature", LabelledLogits(logits[fit], labels[fit]))
    verdict = compare(
        candidate.predict_proba(logits[gate]),
        active.predict_proba(logits[gate]),
        labels[gate],
        mode="superior",
        attempt=1,
    )
    return Dimmed(
        accuracy=accuracy(logits, labels),
        confident=confident(active, logits),
        confident_after=confident(candidate, logits),
        temperature_after=temperature(candidate),
        fit_errors=float((logits[fit].argmax(axis=1) != labels[fit]).sum()),
        gate_errors=float(verdict.errors),
        nll_upper=verdict.nll.upper,
        brier_upper=verdict.brier.upper,
        passed=float(verdict.passed),
    )


def accuracy(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """Return the accuracy."""
    return float((logits.argmax(axis=1) == labels).mean())


def confident(calibrator: Calibrator, logits: NDArray[np.float32]) -> float:
    """Return the share of rows with a calibrated confidence above 0.9."""
    return float((calibrator.predict_proba(logits).max(axis=1) > CONFIDENT).mean())


def temperature(calibrator: Calibrator) -> float:
    """Return the fitted temperature."""
    return float(calibrator.to_dict()["temperature"])


def table(rows: Sequence[Clean] | Sequence[Dimmed]) -> None:
    """Print median, minimum and maximum of each field."""
    for name in asdict(rows[0]):
        low, middle, high = np.quantile([getattr(row, name) for row in rows], [0, 0.5, 1])
        print(f"  {name:18}{middle:8.3f} ({low:.3f} … {high:.3f})")


if __name__ == "__main__":
    main()
