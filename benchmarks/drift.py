"""The test of input drift: false alarms and power by simulation, for docs/explanation/statistics.md, and its cost.

    python -m benchmarks.drift [--worlds 400]

Takes about two minutes on one core.
"""

from __future__ import annotations

import argparse
import math
import timeit
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from bundle import InputSpec
from service.decisions.levels import level_of
from service.monitoring.homogeneity import evidence, stability_index
from service.serving.sampling import Sample

Shares = NDArray[np.float64]

ALPHA = level_of(0.05, 1)  # of a model's first bundle
PSI = 0.1
COLUMNS = 30
DECILES: Shares = np.full(10, 0.1)


def shifted(index: float) -> Shares:
    """Return the shares of the deciles of a normal number whose mean has moved until the index has this value."""
    edges = norm.ppf(np.arange(1, 10) / 10)
    shift = math.sqrt(index)
    for _ in range(50):
        found = np.diff([0.0, *norm.cdf(edges - shift), 1.0])
        shift *= math.sqrt(index / float(((found - DECILES) * np.log(found / DECILES)).sum()))
    return found


def pairs(
    rng: np.random.Generator, reference: Shares, traffic: Shares, sizes: tuple[int, int], worlds: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return evidence and index of samples of these sizes, (worlds,) each."""
    samples = [(rng.multinomial(sizes[0], reference), rng.multinomial(sizes[1], traffic)) for _ in range(worlds)]
    return np.array([evidence(*each) for each in samples]), np.array([stability_index(*each) for each in samples])


def false_alarms(rng: np.random.Generator, worlds: int) -> None:
    """No drift, one column, one window: how often each rule alarms."""
    print("| bins | reference | traffic | mean index | index > 0.1 alone | test at 5 % | both |\n" + "|---" * 7 + "|")
    rare = np.array([0.98, 0.015, 0.005])
    kinds = [
        ("2 equal", np.full(2, 0.5)),
        ("0.98, 0.015, 0.005", rare),
        ("10 equal", DECILES),
        ("22 equal", np.full(22, 1 / 22)),
    ]
    for name, shares in kinds:
        for sizes in ((100, 1000), (300, 1000), (1500, 2000)):
            found, index = pairs(rng, shares, shares, sizes, worlds * 5)
            test, alone = found >= math.log(20), index > PSI
            rates = (f"{rate:.1%}" for rate in (alone.mean(), test.mean(), (test & alone).mean()))
            print(f"| {name} | {sizes[0]:,} | {sizes[1]:,} | {index.mean():.3f} | {' | '.join(rates)} |")


def windows(rng: np.random.Generator, worlds: int, count: int = 30, columns: int = 10) -> None:
    """No drift, ten columns, 30 windows against one reference: how often anything ever alarms."""
    ever = np.zeros(2)
    for _ in range(worlds):
        reference = [rng.multinomial(500, DECILES) for _ in range(columns)]
        strongest = [max(evidence(own, rng.multinomial(1000, DECILES)) for own in reference) for _ in range(count)]
        levels = [level_of(0.05, window) for window in range(1, count + 1)], [0.05] * count
        ever += [
            any(e >= math.log(columns / level) for e, level in zip(strongest, each, strict=True)) for each in levels
        ]
    print(f"\n{columns} columns, {count} windows, {worlds} worlds, any alarm: ", end="")
    print(f"{ever[0] / worlds:.1%} with the k-th at 5 %/(k(k + 1)), {ever[1] / worlds:.1%} with each at 5 %")


def power(rng: np.random.Generator, worlds: int, at: Sequence[int] = (1, 30, 365)) -> None:
    """One of 30 columns drifts: how often its window alarms, by the number of the window."""
    print(f"\n| index | reference | traffic | {' | '.join(f'window {k}' for k in at)} |\n|{'---|' * (3 + len(at))}")
    for index in (0.05, 0.1, 0.15, 0.25):
        for sizes in ((300, 1000), (500, 2000), (1500, 2000), (5000, 4000)):
            found, seen = pairs(rng, DECILES, shifted(index), sizes, worlds)
            alarms = [(found >= math.log(COLUMNS / level_of(ALPHA, k))) & (seen > PSI) for k in at]
            rates = " | ".join(f"{alarm.mean():.0%}" for alarm in alarms)
            print(f"| {index} | {sizes[0]:,} | {sizes[1]:,} | {rates} |")


def bursts(rng: np.random.Generator, worlds: int) -> None:
    """No drift, but every client sends the same value several times: how often the test at 5 % rejects."""
    print("\n| rows of a client, all equal | test at 5 % | both |\n|---|---|---|")
    for times in (1, 3, 10, 50):
        samples = [
            (rng.multinomial(1500, DECILES), times * rng.multinomial(2000 // times, DECILES)) for _ in range(worlds)
        ]
        test = np.array([evidence(*each) >= math.log(20) for each in samples])
        both = test & np.array([stability_index(*each) > PSI for each in samples])
        print(f"| {times} | {test.mean():.1%} | {both.mean():.1%} |")


def hot_path(columns: int = 30) -> None:
    """Time that the sample adds to the hot path for each batch."""
    print("\n| rows of a batch | while the sample fills | later |\n|---|---|---|")
    for rows in (1, 32, 1000):
        batch = np.zeros((rows, columns), np.float32)
        sample = Sample(InputSpec(kind="array", dtype="float32", shape=(columns,)))

        def filling(sample: Sample = sample, batch: NDArray[np.float32] = batch) -> None:
            sample._kept = 0  # noqa: SLF001 — as if it had just been taken
            sample.add(batch)

        first = min(timeit.repeat(filling, number=1000, repeat=9)) / 1000
        for _ in range(200_000 // rows):
            sample.add(batch)
        later = min(timeit.repeat(lambda sample=sample, batch=batch: sample.add(batch), number=1000, repeat=9)) / 1000
        print(f"| {rows:,} | {first * 1e6:.1f} µs | {later * 1e6:.1f} µs |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=400)
    worlds = parser.parse_args().worlds
    rng = np.random.default_rng(16)
    false_alarms(rng, worlds)
    windows(rng, worlds // 2)
    power(rng, worlds)
    bursts(rng, worlds)
    hot_path()
