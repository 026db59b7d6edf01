"""How well `candor-train`'s defaults find fraud in tables, beside LightGBM untuned on the same rows.

    python -m benchmarks.trained_tables --data FOLDER [--seeds 5] [--models auto,lightgbm,xgboost]

Two tables: vehicle insurance claims (6 % fraud; skipped without `--data`) and 60,000 generated payments, 1.5 % of them
fraud, in which a fifth of the log-odds is unexplained. Each run is `TrainConfig(dataset=…, test_rows=…, seed=…)`
without any other setting; its scores of the test part, which is the same for all seeds, are compared with those of
`LGBMClassifier()` on the run's training and validation rows. The difference of the average precisions is paired by
seed.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.metrics import average_precision_score, roc_auc_score

from training import TrainConfig
from training.pipeline import fit
from training.trained import Given
from training.trees.table import encoded

ROWS = 60_000


def write_payments(path: Path) -> None:
    """Write generated payments with numbers, categories of up to 300 values and missing cells; 1.5 % are fraud."""
    draw = np.random.default_rng(2026)
    amount, days = draw.lognormal(3.6, 1.0, ROWS).round(2), np.floor(draw.gamma(1.2, 300.0, ROWS))
    hour, attempts = draw.integers(0, 24, ROWS), draw.poisson(0.5, ROWS)
    merchant, country = np.minimum(draw.zipf(1.5, ROWS), 300), draw.integers(0, 30, ROWS)
    device = draw.choice(["known", "new", "emulator"], ROWS, p=[0.8, 0.18, 0.02])
    risk_of = draw.normal(0, 1.2, 301), draw.normal(0, 0.8, 30)
    suspicion = (
        1.1 * np.log(amount / 40)
        + 1.8 * np.exp(-days / 120)
        + 0.9 * np.minimum(attempts, 4)
        + 1.6 * ((hour < 5) & (device != "known"))
        + 2.5 * (device == "emulator")
        + risk_of[0][merchant]
        + risk_of[1][country] * (1 + (amount > 100))
        + draw.normal(0, 1.0, ROWS)  # what no column tells
    )
    low, high = -40.0, 20.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if expit(1.5 * suspicion + middle).mean() < 0.015 else (low, middle)
    fraud = draw.random(ROWS) < expit(1.5 * suspicion + low)
    lost = draw.random((ROWS, 2)) < 0.04
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["amount", "account_days", "hour", "attempts", "merchant", "country", "device", "fraud"])
        for row in range(ROWS):
            known = ["" if lost[row, 0] else days[row], hour[row], attempts[row], f"m{merchant[row]}"]
            shown = "" if lost[row, 1] else f"c{country[row]}"
            writer.writerow([amount[row], *known, shown, device[row], int(fraud[row])])


def tables(data: Path | None, folder: Path) -> Iterator[tuple[str, TrainConfig]]:
    if data is not None:
        yield "vehicle_fraud", TrainConfig(dataset="vehicle_fraud", data=data, test_rows=4000)
    write_payments(folder / "payments.csv")
    settings = {"file": "payments.csv", "label": "fraud"}
    yield "payments", TrainConfig(dataset="table", data=folder, data_settings=settings, test_rows=15_000)


def scores(config: TrainConfig) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return scores of the test part, of the run and of LightGBM untuned, and its labels."""
    import lightgbm

    whole = config.read()
    suited, notes = config.suited(whole)
    data, parts = suited.cut(whole)
    found = fit(suited, Given(data, parts, notes=notes)).scored(parts.test)
    table = encoded(data, parts.train, ordered=lambda _: False)
    assert table.columns is not None
    categories = [place for place, column in enumerate(table.columns.columns) if column.categories is not None]
    both = np.concatenate([parts.train, parts.validation])
    plain = lightgbm.LGBMClassifier(n_jobs=1, verbose=-1)
    plain.fit(table.inputs[both], data.labels[both], categorical_feature=categories)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        untuned = plain.predict_proba(table.inputs[parts.test])[:, 1]
    logits = found.logits.astype(np.float64)
    return logits[:, 1] - logits[:, 0], untuned, data.labels[parts.test]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--models", default="auto")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, config in tables(options.data, Path(folder)):
            for model in options.models.split(","):
                found = []
                for seed in range(options.seeds):
                    changed = {"model": model, "seed": seed, "threads": 1}
                    ours, untuned, labels = scores(TrainConfig(**{**vars(config), **changed}))
                    both = (ours, untuned)
                    found.append([f(labels, each) for f in (roc_auc_score, average_precision_score) for each in both])
                table = np.array(found)
                gain = table[:, 2] - table[:, 3]
                means, error = table.mean(axis=0), gain.std(ddof=1) / np.sqrt(len(gain))
                print(
                    f"{name} ({labels.mean():.1%} of {len(labels):,}), {model}, {options.seeds} seeds: "
                    f"AUROC {means[0]:.3f} (LightGBM untuned {means[1]:.3f}), average precision {means[2]:.3f} "
                    f"({means[3]:.3f}), difference {gain.mean():+.3f} ± {error:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
