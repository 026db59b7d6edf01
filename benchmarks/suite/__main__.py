"""Log loss relative to temperature scaling on held-out logits of many classifiers: `auto` beside single methods.

    python -m benchmarks.suite --data FOLDER --seeds 5

Half of a set's rows fit, the other half test; each seed draws other halves.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.suite.data_sets import data_sets, held_out
from calibrators import CALIBRATORS, CalibrationError, metrics
from calibrators.methods.auto import BINARY, MULTICLASS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of downloaded data sets")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--most-classes", type=int, default=1000)
    chosen = parser.parse_args()
    gains, bests = [], []
    for data in data_sets(chosen.data):
        if data.labels.max() >= chosen.most_classes:
            continue
        for model in data.models:
            logits, labels = held_out(data, model)
            classes = logits.shape[1]
            singles = [name for name in (BINARY if classes == 2 else MULTICLASS) if name != "pool"]
            for seed in range(chosen.seeds):
                order = np.random.default_rng(seed).permutation(len(labels))
                fit, test = order[: len(labels) // 2], order[len(labels) // 2 :]
                losses, started, took = dict[str, float](), time.process_time(), 0.0
                for name in ("auto", *singles):
                    try:
                        fitted = CALIBRATORS[name]().fit(logits[fit], labels[fit])
                    except CalibrationError as error:  # too many rows and classes for a method
                        print(f"{data.name}, {model}: {error}")
                        continue
                    took = time.process_time() - started if name == "auto" else took
                    losses[name] = metrics.negative_log_likelihood(fitted.predict_proba(logits[test]), labels[test])
                own = losses.pop("auto")
                best = min(losses, key=lambda name: losses[name])
                gains.append(own / losses["temperature"])
                bests.append(losses[best] / losses["temperature"])
                told = f"{data.name}, {model}, seed {seed}: auto {gains[-1]:.3f} in {took:.1f} s"
                print(f"{told}; best {bests[-1]:.3f} ({best})", flush=True)
    found, least = np.array(gains), np.array(bests)
    print(f"{len(found)} runs: auto {np.exp(np.log(found).mean()):.4f}, best single {np.exp(np.log(least).mean()):.4f}")
    print(f"within 1 % of the best: {np.mean(found <= 1.01 * least):.1%}; above 1.005: {np.mean(found > 1.005):.1%}")


if __name__ == "__main__":
    main()
