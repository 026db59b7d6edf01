"""Speed and power of decisions: solving, deciding one row, and certified thresholds compared with an oracle's.

    python -m benchmarks.decisions [--worlds 500] [--out var/benchmarks/decisions] [--without-mapie]

Power is the certified share of rows divided by the oracle's, averaged over worlds, at a promise of precision 0.95 and
delta 0.05. Rows come from a known distribution: calibrated, with rare errors at the top. Candor's fixed sequence is
compared with a Bonferroni correction over the same candidates and with MAPIE's `BinaryClassificationController` on the
same grid (in its own environment, created if necessary). A world without a certificate counts as zero.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candor.contract.policies import Policy
from service.decisions.binomial import critical_errors
from service.decisions.certify import solve
from service.decisions.counting import Sample
from service.decisions.decide import decide_rows
from service.decisions.grid import make_grid, pairs
from service.decisions.policy import parse_policy
from service.decisions.rows import ScoredRows

PROMISE, DELTA = 0.95, 0.05
SIZES = (300, 1_000, 5_000)
MAPIE = "mapie==1.6.0"
METHODS = ("bonferroni", "bonferroni_holm", "fixed_sequence")
THREE_BANDS = parse_policy(
    {
        "id": "three",
        "positive": "b",
        "bands": [
            {"action": "block", "when": {"min_precision": 0.95}},
            {"action": "review", "when": {"max_flag_rate": 0.3}},
            {"action": "look", "when": {"min_recall": 0.95}},
            {"action": "allow"},
        ],
    }
)
ONE_BAND = parse_policy(
    {
        "id": "one",
        "bands": [{"action": "accept", "when": {"min_precision": PROMISE}}, {"action": "review"}],
        "certify": {"looks": "once", "delta": DELTA},
    }
)


def chance(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probability of a positive at score u."""
    return 1 / (1 + np.exp(-8 * (u - 0.3)))


def draw(rng: np.random.Generator, n: int) -> ScoredRows:
    score = rng.random(n).astype(np.float32)
    return ScoredRows(probability=score, score=score, positive=rng.random(n) < chance(score))


def oracle() -> float:
    """Return the largest share of rows at or above a threshold that keeps the promise."""
    u = (np.arange(1_000_000) + 0.5) / 1_000_000
    precision = np.cumsum(chance(u)[::-1]) / np.arange(1, len(u) + 1)
    return float((np.flatnonzero(precision >= PROMISE)[-1] + 1) / len(u))


def best_of(call: Any, times: int) -> float:
    """Return the seconds of the fastest of several calls."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return min(took)


def speed() -> dict[str, float]:
    rng = np.random.default_rng(0)
    fit, certify = draw(rng, 500_000), draw(rng, 500_000)
    seconds = best_of(lambda: solve(THREE_BANDS, version=1, fit=fit, certify=certify, look=1, basis="traffic"), times=5)
    solved = solve(THREE_BANDS, version=1, fit=fit, certify=certify, look=1, basis="traffic")
    logits = np.array([[0.3, 1.2]], dtype=np.float32)
    probabilities = np.array([[0.2891, 0.7109]], dtype=np.float32)
    top, confidence = np.array([1]), np.array([0.7109], dtype=np.float32)
    calls = 20_000

    def one_by_one() -> None:
        for _ in range(calls):
            decide_rows(solved, ("a", "b"), logits, probabilities, top, confidence)

    batch = np.repeat(logits, 10_000, axis=0), np.repeat(probabilities, 10_000, axis=0)
    many = np.repeat(top, 10_000), np.repeat(confidence, 10_000)
    whole = best_of(lambda: decide_rows(solved, ("a", "b"), *batch, *many), times=20)
    return {
        "solve 1,000,000 rows, three bands, s": seconds,
        "decide one row, µs": best_of(one_by_one, times=5) / calls * 1e6,
        "decide 10,000 rows at once, µs a row": whole / 10_000 * 1e6,
    }


def power(worlds: int, folder: Path, *, mapie: bool) -> dict[int, dict[str, float]]:
    """Return the mean power by size (fit and certify rows each) and method."""
    truth, found = oracle(), {}
    for n in SIZES:
        rng = np.random.default_rng(n)
        achieved: dict[str, list[float]] = {"candor": [], "candor, second look": [], "bonferroni": []}
        cases: dict[str, list[NDArray[Any]]] = {"cuts": [], "score": [], "positive": []}
        for _ in range(worlds):
            fit, certify = draw(rng, n), draw(rng, n)
            achieved["candor"].append(_volume(ONE_BAND, fit, certify, 1))
            second = parse_policy({**ONE_BAND.to_dict(), "certify": {"looks": "unlimited", "delta": DELTA}})
            achieved["candor, second look"].append(_volume(second, fit, certify, 2))
            grid = make_grid(fit, certify)
            counts = Sample(certify, grid.cells(certify), grid.floor, 0).count("precision")
            cuts = pairs(grid.keys)[0].astype(np.float64)
            passed = counts.errors <= critical_errors(counts.n, 1 - PROMISE, DELTA / len(cuts))
            achieved["bonferroni"].append(1 - float(cuts[passed].min()) if passed.any() else 0.0)
            cases["cuts"].append(np.pad(cuts, (0, 200 - len(cuts)), constant_values=np.nan))
            cases["score"].append(certify.score)
            cases["positive"].append(certify.positive)
        means = {name: float(np.mean(volumes)) / truth for name, volumes in achieved.items()}
        if mapie:
            means |= {f"mapie, {name}": share / truth for name, share in _mapie(folder, n, cases).items()}
        found[n] = means
    return found


def _volume(policy: Policy, fit: ScoredRows, certify: ScoredRows, look: int) -> float:
    band = solve(policy, version=1, fit=fit, certify=certify, look=look, basis="traffic").bands[0]
    return 0.0 if band.threshold is None else 1 - band.threshold.probability


def _mapie(folder: Path, n: int, cases: dict[str, list[NDArray[Any]]]) -> dict[str, float]:
    python = folder / "mapie" / "bin" / "python"
    if not python.exists():
        print(f"installing {MAPIE} into {folder / 'mapie'}", file=sys.stderr)
        venv.create(folder / "mapie", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", MAPIE], check=True)
    data = folder / f"worlds-{n}.npz"
    np.savez(data, **{name: np.stack(columns) for name, columns in cases.items()})
    arguments = [str(PROMISE), str(1 - DELTA), *METHODS]
    program = Path(__file__).with_name("decisions_mapie.py")
    done = subprocess.run([python, program, data, *arguments], capture_output=True, text=True, check=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("var/benchmarks/decisions"))
    parser.add_argument("--without-mapie", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    measured = speed()
    for name, value in measured.items():
        print(f"{name}: {value:.3g}")
    powers = power(options.worlds, options.out, mapie=not options.without_mapie)
    methods = list(powers[SIZES[0]])
    print("\n| rows to fit and to certify | " + " | ".join(methods) + " |\n|---" * 1 + "|---" * len(methods) + "|")
    for n, means in powers.items():
        print(f"| {n} | " + " | ".join(f"{means[name]:.1%}" for name in methods) + " |")
    result = {"speed": measured, "power": powers, "worlds": options.worlds, "oracle": oracle()}
    (options.out / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
