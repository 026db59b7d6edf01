"""Every kind of model that people bring, the whole way: imported by one command, served, as exact as its own library,
recalibrated on labels."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from importing.cli import app

from . import brought
from .brought import Brought

MAGIKA = find_spec("magika")
TREES = ("lightgbm", "lightgbm_maps", "lightgbm_tensor", "xgboost", "xgboost_maps", "xgboost_tensor")
WITHOUT = pytest.mark.skipif(MAGIKA is None, reason="needs `pip install --no-deps magika`")
KINDS = (*TREES, "catboost", "sklearn", "convolution", "transformer", pytest.param("magika", marks=WITHOUT))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Brought]:
    folder = tmp_path_factory.mktemp("brought")
    made = dict(brought.trees_and_pipelines(folder))
    made |= {"convolution": brought.convolution(folder), "transformer": brought.transformer(folder)}
    if MAGIKA is not None and MAGIKA.origin is not None:
        made["magika"] = brought.file_types(folder, Path(MAGIKA.origin).parent)
    return made


@pytest.fixture(scope="module")
def served(launch: Any, models: dict[str, Brought], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One service with a bundle of each model, none of them calibrated, and a policy that sends all to review."""
    root, policies = tmp_path_factory.mktemp("bundles"), tmp_path_factory.mktemp("policies")
    for name, model in models.items():
        command = [*model.command, "--name", name, "--calibrator", "identity", "--out", str(root)]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, f"{name}: {result.output}"
        (policies / name).mkdir()
        (policies / name / "look.yaml").write_text("{id: look, positive: top, bands: [{action: review}]}")
    running = launch(
        tmp_path_factory.mktemp("state"), bundles=root, default_model="sklearn", policies=policies, log_mode="sync"
    )
    yield running
    running.close()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("refits_here")
def test_a_model_is_as_exact_as_in_its_library_and_learns_from_labels(
    served: Any, models: dict[str, Brought], name: str
) -> None:
    model, path = models[name], f"/v1/models/{name}"
    answer = served.http.post(f"{path}/predict", json={"inputs": model.inputs})
    assert answer.status_code == 200, answer.text
    predictions = answer.json()["predictions"]
    found = np.array([[*row["probabilities"].values()] for row in predictions])
    np.testing.assert_allclose(found, model.answers, rtol=0, atol=1e-5)
    items = [
        {"prediction_id": row["prediction_id"], "label": label, "source": "reviewer"}
        for row, label in zip(predictions, model.labels, strict=True)
    ]
    stored = served.http.post(f"{path}/feedback", json={"items": items})
    assert (stored.status_code, stored.json()["stored"]) == (200, len(items)), stored.text
    body = {"mode": "dry_run", "calibrator": "temperature"}
    done = served.http.post(f"{path}/recalibrate", json=body, headers={"prefer": "wait=120"})
    assert done.status_code == 200, done.text
    recalibration = done.json()
    assert sum(recalibration["rows"][part] for part in ("fit", "certify", "gate")) == len(items)
    assert served.http.get(f"/v1/jobs/{recalibration['job']}").json()["state"] == "done"
