"""Models of a real table: claims on vehicles, 6 % of them fraud. CANDOR_TEST_DATA names the folder that holds it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import pytest
import skops.io
from catboost import CatBoostClassifier
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from typer.testing import CliRunner

import bundle as bundles
from importing.cli import app

from .answers import answers

CLAIMS = Path(os.environ.get("CANDOR_TEST_DATA") or "/nonexistent") / "vehicle-fraud" / "fraud_oracle.csv"
TRAINED, ROWS = 2_000, 4_000

pytestmark = pytest.mark.skipif(not CLAIMS.exists(), reason="CANDOR_TEST_DATA names no folder that holds vehicle-fraud")


@pytest.fixture(scope="module")
def claims() -> tuple[pd.DataFrame, np.ndarray]:
    frame = pd.read_csv(CLAIMS, nrows=ROWS).drop(columns="PolicyNumber")
    return frame.drop(columns="FraudFound_P"), frame["FraudFound_P"].to_numpy()


@pytest.mark.parametrize("library", ["lightgbm", "catboost", "sklearn"])
def test_a_model_of_real_claims_answers_as_its_library(
    library: str, claims: tuple[pd.DataFrame, np.ndarray], tmp_path: Path
) -> None:
    table, fraud = claims
    more: list[str] = []
    if library == "lightgbm":
        file = tmp_path / "model.txt"
        coded = table.astype(dict.fromkeys(table.select_dtypes(exclude="number"), "category"))
        kept = {"feature_pre_filter": False}  # else a column of rare values is left out, and its values are not
        data = lightgbm.Dataset(coded[:TRAINED], fraud[:TRAINED], params=kept)
        settings = {"objective": "binary", "num_leaves": 8, "verbosity": -1, "num_threads": 1}
        booster = lightgbm.train(settings, data, 20)
        booster.save_model(file)
        positive = booster.predict(coded[TRAINED:])
    elif library == "catboost":
        file = tmp_path / "model.cbm"
        texts = list(table.select_dtypes(exclude="number"))
        quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1, "random_seed": 3}
        estimator = CatBoostClassifier(iterations=20, cat_features=texts, one_hot_max_size=100, **quiet)
        estimator.fit(table[:TRAINED], fraud[:TRAINED]).save_model(str(file))
        positive = estimator.predict_proba(table[TRAINED:])[:, 1]
        known = tmp_path / "categories.json"  # rare ones are among the rows of the training alone
        known.write_text(json.dumps({name: table[name][:TRAINED].unique().tolist() for name in texts}))
        more = ["--categories", str(known)]
    else:
        file = tmp_path / "model.skops"
        numbers = list(table.select_dtypes("number"))
        texts = [name for name in table if name not in numbers]
        columns = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(handle_unknown="ignore"), texts))
        pipeline = make_pipeline(columns, LogisticRegression(max_iter=500)).fit(table[:TRAINED], fraud[:TRAINED])
        skops.io.dump(pipeline, file)
        positive = pipeline.predict_proba(table[TRAINED:])[:, 1]
    rows = tmp_path / "claims.csv"
    table.assign(fraud=fraud)[TRAINED:].to_csv(rows, index=False)
    command = [library, str(file), "--name", "claims", "--validation", str(rows), "--label", "fraud"]
    command += ["--labels", "0=genuine,1=fraud", "--calibrator", "temperature", "--out", str(tmp_path / "out"), *more]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output + result.stderr
    found = bundles.verify(tmp_path / "out" / "claims" / "1")
    record = found.manifest.imported
    assert record is not None
    assert record.native is not None
    assert (record.native.rows, record.native.difference <= 1e-5) == (ROWS - TRAINED, True)
    sent = table[TRAINED:].to_dict("records")
    np.testing.assert_allclose(answers(found, sent)[:, 1], positive, rtol=0, atol=1e-5)
    assert 0.02 < np.mean(found.reference.certify.labels) < 0.12
