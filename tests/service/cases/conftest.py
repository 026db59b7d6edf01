"""A service whose cases wait and have reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest

import candor

NAMES = [f"column {place}" for place in range(25)]
POLICY = {
    "positive": "fraud",
    "bands": [{"action": "allow", "when": {"min_probability": 1.0}}, {"action": "review"}],
    "review": {},
}


@pytest.fixture(scope="module")
def reviewing(launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service of a LightGBM model whose policy sends nearly every row to review."""
    root, rng = tmp_path_factory.mktemp("bundles"), np.random.default_rng(4)
    rows = pd.DataFrame(rng.normal(size=(600, len(NAMES))), columns=NAMES)
    odds = rows.to_numpy() @ np.linspace(1.0, 0.1, len(NAMES)) + rng.logistic(size=600)
    labels = np.where(odds > 1, "fraud", "fine")
    model = lightgbm.LGBMClassifier(n_estimators=20, num_leaves=8, n_jobs=1, verbosity=-1).fit(rows[:200], labels[:200])
    candor.import_model(model, rows[200:], labels[200:], name="cards", out=root)
    running = launch(
        tmp_path_factory.mktemp("reasons"),
        bundles=root,
        default_model="cards",
        policies=None,
        keep_inputs="sought",
    )
    put = running.http.put("/v1/models/cards/policies/all", json=POLICY)
    epoch = running.http.get("/v1/models/cards/revisions").headers["etag"]
    path = f"/v1/models/cards/revisions/{put.json()['id']}/activate"
    moved = running.http.post(path, json={"reason": "a test"}, headers={"if-match": epoch})
    assert moved.status_code == 200, moved.text
    answer = running.http.post("/predict", json={"inputs": rows[:12].to_dict("records")})
    assert answer.status_code == 200, answer.text
    assert running.runtime.log.flush()
    yield running
    running.close()
