"""What the recipe for photographs gains over the plain settings, on few images of CIFAR-10.

    python -m benchmarks.photographs --data FOLDER [--seeds 3] [--images 1000 3000] [--models lenet5] [--epochs 60]

Each run is `candor-train train --dataset cifar10 --train-rows IMAGES` with another seed and otherwise its defaults,
once with `--plain` and once without. It reports accuracy and log loss on the 10,000 test images, before and after the
calibrator. One thread for each run, two at a time.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from calibrators import metrics, softmax
from training import TrainConfig
from training.calibrate import calibrate
from training.photographs import BY_DATA
from training.pipeline import fit
from training.trained import Given


def measured(settings: dict[str, Any]) -> tuple[float, float, float]:
    """Return accuracy, log loss and log loss after calibration on the test part."""
    config = TrainConfig(dataset="cifar10", threads=1, device="cpu", **settings)
    whole = config.read()
    suited, notes = config.suited(whole)
    trained = fit(suited, Given(*suited.cut(whole), notes=notes))
    test = trained.scored(trained.parts.test)
    calibrator = calibrate(suited.calibrator or "temperature", trained.scored(trained.parts.fit))
    accuracy = float((test.logits.argmax(axis=1) == test.labels).mean())
    before, after = softmax(test.logits), calibrator.predict_proba(test.logits)
    losses = [float(metrics.negative_log_likelihood(each, test.labels)) for each in (before, after)]
    return accuracy, losses[0], losses[1]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--images", type=int, nargs="+", default=[3000])
    options.add_argument("--models", nargs="+", default=["lenet5"])
    options.add_argument("--epochs", type=int, default=TrainConfig().epochs)
    given = options.parse_args()
    print("| network | images | | accuracy | log loss | calibrated |\n|---|---|---|---|---|---|", flush=True)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for model, images in itertools.product(given.models, given.images):
            for name, by_data in (("plain", ()), ("default", BY_DATA)):
                same = {"data": given.data, "model": model, "train_rows": images, "epochs": given.epochs}
                runs = [same | {"seed": seed, "by_data": by_data} for seed in range(given.seeds)]
                found = np.array(list(pool.map(measured, runs)))
                mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(len(found))
                cells = " | ".join(f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True))
                print(f"| `{model}` | {images:,} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
