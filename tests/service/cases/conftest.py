"""A service whose cases wait and have reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost

import candor

NAMES = [f"column {place}" for place in range(25)]
POLICY = {
    "positive": "fraud",
    "bands": [{"action": "allow", "when": {"min_probability": 1.0}}, {"action": "review"}],
    "review": {},
}


MODELS = {
    "lightgbm": lightgbm.LGBMClassifier(n_estimators=20, num_leaves=8, n_jobs=1, verbosity=-1),
    "xgboost": xgboost.XGBClassifier(n_estimators=20, max_depth=3, n_jobs=1),
}


@pytest.fixture(scope="module")
def reviewing(launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service of a LightGBM model whose policy sends nearly every row to review."""
    yield from running(launch, tmp_path_factory, "lightgbm")


@pytest.fixture(scope="module")
def reviewing_xgboost(launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The same of an XGBoost model."""
    yield from running(launch, tmp_path_factory, "xgboost")


def running(launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, library: str) -> Iterator[Any]:
    root, rng = tmp_path_factory.mktemp("bundles"), np.random.default_rng(4)
    rows = pd.DataFrame(rng.normal(size=(600, len(NAMES))), columns=NAMES)
    odds = rows.to_numpy() @ np.linspace(1.0, 0.1, len(NAMES)) + rng.logistic(size=600)
    fraud = (odds > 1).astype(int)
    model = MODELS[library].fit(rows[:200], fraud[:200])
    candor.import_model(model, rows[200:], fraud[200:], labels={0: "fine", 1: "fraud"}, name="cards", out=root)
    service = launch(
        tmp_path_factory.mktemp("reasons"),
        bundles=root,
        default_model="cards",
        policies=None,
        keep_inputs="sought",
    )
    put = service.http.put("/v1/models/cards/policies/all", json=POLICY)
    epoch = service.http.get("/v1/models/cards/revisions").headers["etag"]
    path = f"/v1/models/cards/revisions/{put.json()['id']}/activate"
    moved = service.http.post(path, json={"reason": "a test"}, headers={"if-match": epoch})
    assert moved.status_code == 200, moved.text
    answer = service.http.post("/predict", json={"inputs": rows[:12].to_dict("records")})
    assert answer.status_code == 200, answer.text
    assert service.runtime.log.flush()
    yield service
    service.close()
