"""MAPIE's thresholds on given worlds; runs in MAPIE's environment, which `benchmarks.decisions` creates.

    python decisions_mapie.py WORLDS.npz PROMISE CONFIDENCE METHOD …

Prints the mean share of rows at or above each method's best threshold.
"""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
from mapie.risk_control import BinaryClassificationController


def both(scores: np.ndarray) -> np.ndarray:
    """Probabilities in the form of a classifier's `predict_proba`."""
    return np.stack([1 - scores[:, 0], scores[:, 0]], axis=1)


def main() -> None:
    path, promise, confidence, *methods = sys.argv[1:]
    warnings.simplefilter("ignore")
    worlds = np.load(path)
    volumes: dict[str, list[float]] = {method: [] for method in methods}
    for cuts, score, positive in zip(worlds["cuts"], worlds["score"], worlds["positive"], strict=True):
        grid = cuts[~np.isnan(cuts)]
        for method in methods:
            # A fixed sequence tests the grid in order, strictest first: nothing better is known beforehand.
            controller = BinaryClassificationController(
                both,
                "precision",
                float(promise),
                confidence_level=float(confidence),
                best_predict_param_choice="recall",
                list_predict_params=grid,
                fwer_method=method,
            )
            controller.calibrate(score[:, None].astype(np.float64), positive.astype(int))
            best = controller.best_predict_param
            volumes[method].append(0.0 if best is None else 1.0 - float(np.max(best)))
    print(json.dumps({method: float(np.mean(shares)) for method, shares in volumes.items()}))


if __name__ == "__main__":
    main()
