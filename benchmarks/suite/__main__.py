"""Log loss relative to temperature scaling on held-out logits of many classifiers: `auto` beside single methods.

    python -m benchmarks.suite --data FOLDER --seeds 5 [--peers probmetrics netcal …]

Half of a set's rows fit, the other half test; each seed draws other halves. Peers run in environments of their own, as
for `benchmarks.calibrators`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from benchmarks.calibrators import CACHE
from benchmarks.packages.job import Floats, Labels
from benchmarks.side_by_side.environments import interpreters
from benchmarks.side_by_side.turns import ROOT, environment_of
from benchmarks.suite.data_sets import DataSet, data_sets, held_out
from benchmarks.suite.peers import METHODS
from calibrators import CALIBRATORS, CalibrationError, metrics
from calibrators.methods.auto import BINARY, MULTICLASS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of downloaded data sets")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--most-classes", type=int, default=1000)
    parser.add_argument("--peers", nargs="*", choices=list(METHODS), default=[], help="other packages to compare")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the peers' environments")
    parser.add_argument("--limit", type=float, default=900.0, help="maximum seconds of a package on a set")
    chosen = parser.parse_args()
    pythons, skipped = interpreters(chosen.cache, chosen.peers)
    print("".join(f"{name} could not be installed: {why}\n" for name, why in skipped.items()), end="")
    gains, bests = [], []
    beside: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with suppress(KeyboardInterrupt):  # tells what it has so far
        for data in data_sets(chosen.data):
            if data.labels.max() >= chosen.most_classes:
                continue
            for own, best, others in _runs(data, chosen, pythons):
                gains.append(own)
                bests.append(best)
                for name, loss in others.items():
                    beside[name].append((loss, own))
    found, least = np.array(gains), np.array(bests)
    print(f"{len(found)} runs: auto {_mean(found):.4f}, best single {_mean(least):.4f}")
    print(f"within 1 % of the best: {np.mean(found <= 1.01 * least):.1%}; above 1.005: {np.mean(found > 1.005):.1%}")
    for name, pairs in sorted(beside.items()):
        theirs, own = np.array(pairs).T
        print(f"{name}: {_mean(theirs):.4f} in {len(pairs)} runs, in which auto has {_mean(own):.4f}")


def _runs(
    data: DataSet, chosen: argparse.Namespace, pythons: Mapping[str, Path]
) -> Iterator[tuple[float, float, dict[str, float]]]:
    """Yield losses relative to temperature scaling: of `auto`, of the best single method, and of the peers' by name."""
    for model in data.models:
        logits, labels = held_out(data, model)
        orders = np.stack([np.random.default_rng(seed).permutation(len(labels)) for seed in range(chosen.seeds)])
        theirs = _of_peers(pythons, logits, labels, orders, chosen.limit)
        for seed, order in enumerate(orders):
            own, best, reference = _run(f"{data.name}, {model}, seed {seed}", logits[order], labels[order])
            yield own, best, {name: losses[seed] / reference for name, losses in theirs.items()}


def _run(title: str, logits: Floats, labels: Labels) -> tuple[float, float, float]:
    """Return the loss of `auto` and of the best single method, relative to temperature scaling, and that one's loss."""
    half = len(labels) // 2
    names = [name for name in (BINARY if logits.shape[1] == 2 else MULTICLASS) if name != "pool"]
    losses, started, took = dict[str, float](), time.process_time(), 0.0
    for name in ("auto", *names):
        try:
            fitted = CALIBRATORS[name]().fit(logits[:half], labels[:half])
        except CalibrationError as error:  # too many rows and classes for a method
            print(f"{title}: {error}")
            continue
        took = time.process_time() - started if name == "auto" else took
        losses[name] = metrics.negative_log_likelihood(fitted.predict_proba(logits[half:]), labels[half:])
    own, reference = losses.pop("auto"), losses["temperature"]
    best = min(losses, key=lambda name: losses[name])
    told = f"{title}: auto {own / reference:.3f} in {took:.1f} s"
    print(f"{told}; best {losses[best] / reference:.3f} ({best})", flush=True)
    return own / reference, losses[best] / reference, reference


def _of_peers(
    pythons: Mapping[str, Path], logits: Floats, labels: Labels, orders: np.ndarray, limit: float
) -> dict[str, list[float]]:
    """Return the losses of each method of each package, one for each order of the rows."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "logits.npz"
        np.savez(file, logits=logits, labels=labels, orders=orders)
        for package, python in pythons.items():
            command = [python, "-m", "benchmarks.suite.peers", package, file]
            environment = environment_of(1)
            try:
                done = subprocess.run(
                    command, stdout=subprocess.PIPE, text=True, check=True, timeout=limit, env=environment, cwd=ROOT
                )
            except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
                print(f"{package}: {error}"[:300], file=sys.stderr)
                continue
            answer = json.loads(done.stdout.splitlines()[-1])
            found |= {f"{package}, {name}": losses for name, losses in answer.items()}
    return found


def _mean(ratios: np.ndarray) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.log(ratios).mean()))


if __name__ == "__main__":
    main()
