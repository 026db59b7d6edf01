"""Multicalibration on census rows with drift: log loss and the worst group, beside a global fit and MCGrad.

    python -m benchmarks.multicalibration --census FOLDER [--seeds 2] [--calibration 30000]

FOLDER holds census-income.data and census-income.test of the data set "Census-Income (KDD)" (UCI; years 1994 and 1995).
LightGBM is trained on 20,000 rows of 1994 about people of at most 45 years. Rows of 1995 calibrate it, and all others
of 1995 judge: groups are the values and ranges of eleven columns with 500 rows or more. MCGrad is measured where the
package `mcgrad` can be imported. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Final

import lightgbm
import numpy as np
import numpy.typing as npt
from scipy import special

from calibrators import Multicalibration
from calibrators.metrics import expected_calibration_error

_YEAR, _INCOME, _WEIGHT = 40, 41, 24
_NUMBERS: Final = (0, 5, 16, 17, 18, 30, 39)
_GROUPS: Final = {
    "age": 0, "sex": 12, "race": 10, "education": 4, "marital": 7, "class": 1,
    "region": 20, "citizen": 35, "employers": 30, "filer": 19, "occupation": 9,
}  # fmt: skip
_TRAINED, _LEAST = 20_000, 500
Columns = dict[str, npt.NDArray[np.float64] | npt.NDArray[np.str_]]


def read(folder: Path) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.int64], Columns]:
    """Return features (N, 39), labels (N,), years (N,), and the columns of the groups."""
    rows = []
    for name in ("census-income.data", "census-income.test"):
        with (folder / name).open(encoding="utf-8", newline="") as file:
            rows += [[cell.strip() for cell in row] for row in csv.reader(file) if len(row) == _INCOME + 1]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    features = [
        column.astype(float) if number in _NUMBERS else np.unique(column, return_inverse=True)[1]
        for number, column in enumerate(columns)
        if number not in (_WEIGHT, _YEAR, _INCOME)
    ]
    groups: Columns = {
        name: columns[at].astype(float) if at in _NUMBERS else columns[at] for name, at in _GROUPS.items()
    }
    labels = np.char.startswith(columns[_INCOME], "50000").astype(np.int64)
    return np.column_stack(features).astype(float), labels, columns[_YEAR].astype(np.int64), groups


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--census", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--calibration", type=int, default=30_000)
    given = parser.parse_args()
    features, labels, years, columns = read(given.census)
    print(
        "| seed | method | log loss | ECE of the worst group | of the mean group | fit, s |\n|---|---|---|---|---|---|"
    )
    for seed in range(given.seeds):
        random = np.random.default_rng(seed)
        early = random.permutation(np.flatnonzero((years == 94) & (features[:, 0] <= 45)))[:_TRAINED]
        late = random.permutation(np.flatnonzero(years == 95))
        fitted, judged = late[: given.calibration], late[given.calibration :]
        options = {"objective": "binary", "num_leaves": 15, "verbose": -1, "num_threads": 1}
        booster = lightgbm.train(options, lightgbm.Dataset(features[early], labels[early]), 100)
        score = booster.predict(features, raw_score=True)
        logits = np.stack([np.zeros_like(score), score], axis=1)
        began = time.perf_counter()
        ours = Multicalibration().fit(
            logits[fitted], labels[fitted], {name: column[fitted] for name, column in columns.items()}
        )
        took_s = time.perf_counter() - began
        seen = {name: column[judged] for name, column in columns.items()}
        cells = ours.cells(logits[judged], labels[judged], seen, least_rows=_LEAST)
        codes = [(one.cell_of(seen[one.name], len(judged)), one.count) for one in ours.cells_]
        assert len(cells) == sum((np.bincount(code, minlength=count) >= _LEAST).sum() for code, count in codes)
        base = ours.base_.predict_proba(logits)[:, 1]
        tried = [("as it is", special.expit(score[judged]), 0.0), ("`auto` for all rows", base[judged], 0.0)]
        tried.append(("`Multicalibration`", ours.predict_proba(logits[judged], seen)[:, 1], took_s))
        tried += mcgrad(base, labels, columns, fitted, judged)
        for method, chance, seconds in tried:
            chance = np.clip(chance, 1e-9, 1 - 1e-9)
            own = np.where(labels[judged] == 1, chance, 1 - chance)
            errors = [
                expected_calibration_error(
                    np.stack([1 - chance[part], chance[part]], axis=1), labels[judged][part], 10, "mass", positive=1
                )
                for code, count in codes
                for part in (np.flatnonzero(code == cell) for cell in range(count))
                if len(part) >= _LEAST
            ]
            print(
                f"| {seed} | {method} | {-np.log(own).mean():.5f} | {100 * max(errors):.1f} % | "
                f"{100 * np.mean(errors):.2f} % | {seconds:.1f} |",
                flush=True,
            )


def mcgrad(
    base: npt.NDArray[np.float64],
    labels: npt.NDArray[np.int64],
    columns: Columns,
    fitted: npt.NDArray[np.int64],
    judged: npt.NDArray[np.int64],
) -> list[tuple[str, npt.NDArray[np.float64], float]]:
    """Return MCGrad's probabilities of the judged rows with its defaults; nothing where it is not installed."""
    try:
        from mcgrad.methods import MCGrad
    except ImportError:
        return []
    import pandas as pd

    frame = pd.DataFrame(columns | {"p": base, "y": labels})
    names = {
        "prediction_column_name": "p",
        "categorical_feature_column_names": [name for name, one in columns.items() if one.dtype.kind == "U"],
        "numerical_feature_column_names": [name for name, one in columns.items() if one.dtype.kind == "f"],
    }
    method, began = MCGrad(), time.perf_counter()
    method.fit(df_train=frame.iloc[fitted].reset_index(drop=True), label_column_name="y", **names)
    took_s = time.perf_counter() - began
    return [("MCGrad", np.asarray(method.predict(df=frame.iloc[judged].reset_index(drop=True), **names)), took_s)]


if __name__ == "__main__":
    main()
