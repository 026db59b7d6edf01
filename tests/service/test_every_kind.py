"""Every kind of model that people bring, the whole way: imported by one command, served, as exact as its own library,
recalibrated on labels."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from importing.cli import app
from service.bulk import Options, score
from tests.conftest import ROOT
from tests.waiting import WAIT

from . import brought
from .brought import Brought

MAGIKA = ROOT / "build" / "magika" / "magika"
TREES = ("lightgbm", "lightgbm_maps", "lightgbm_tensor", "xgboost", "xgboost_maps", "xgboost_tensor")
WITHOUT = pytest.mark.skipif(not MAGIKA.is_dir(), reason="magika is not installed: make magika")
KINDS = (*TREES, "catboost", "sklearn", "convolution", "transformer", pytest.param("magika", marks=WITHOUT))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Brought]:
    folder = tmp_path_factory.mktemp("brought")
    made = dict(brought.trees_and_pipelines(folder))
    made |= {"convolution": brought.convolution(folder), "transformer": brought.transformer(folder)}
    if MAGIKA.is_dir():
        made["magika"] = brought.file_types(folder, MAGIKA)
    return made


@pytest.fixture(scope="module")
def served(launch_many: Any, models: dict[str, Brought], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One service with a bundle of each model, none of them calibrated, and a policy that sends all to review."""
    root, policies = tmp_path_factory.mktemp("bundles"), tmp_path_factory.mktemp("policies")
    for name, model in models.items():
        command = [*model.command, "--name", name, "--calibrator", "identity", "--out", str(root)]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, f"{name}: {result.output}"
        (policies / name).mkdir()
        (policies / name / "look.yaml").write_text("{id: look, positive: top, bands: [{action: review}]}")
    running = launch_many(
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
    done = served.http.post(f"{path}/recalibrate", json=body, headers=WAIT)
    assert done.status_code == 200, done.text
    recalibration = done.json()
    assert sum(recalibration["rows"][part] for part in ("fit", "certify", "gate")) == len(items)
    assert served.http.get(f"/v1/jobs/{recalibration['job']}").json()["state"] == "done"


@pytest.mark.parametrize("name", KINDS)
def test_files_are_scored_as_the_service_answers(
    served: Any, models: dict[str, Brought], name: str, tmp_path: Path
) -> None:
    rows = [row if isinstance(row, dict) else {"inputs": row} for row in models[name].inputs]
    (tmp_path / "rows.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        texts = (
            {key: json.dumps(cell) if isinstance(cell, list) else cell for key, cell in row.items()} for row in rows
        )
        writer.writerows(texts)
    answer = served.http.post(f"/v1/models/{name}/predict", json={"inputs": models[name].inputs}).json()
    wanted = [[*row["probabilities"].values()] for row in answer["predictions"]]
    settings = served.runtime.settings
    for source in ("rows.ndjson", "rows.csv")[: 1 if name == "magika" else 2]:  # which takes seconds to open
        out = tmp_path / f"of-{source}"
        options = Options(model=name, format="ndjson", processes=1)
        score(tmp_path / source, out, options, settings=settings, database_url=settings.database_url)
        found = [json.loads(line) for part in sorted(out.glob("part-*")) for line in part.read_text().splitlines()]
        labels = list(answer["predictions"][0]["probabilities"])
        np.testing.assert_allclose(
            [[row[f"p_{label}"] for label in labels] for row in found], wanted, rtol=0, atol=1e-6
        )
        assert [row["label"] for row in found] == [row["label"] for row in answer["predictions"]]
        assert {row["action"] for row in found} == {"review"}


@pytest.mark.parametrize("name", ["lightgbm", "sklearn"])
@pytest.mark.usefixtures("refits_here")
def test_a_model_that_others_trained_is_recalibrated_proposed_and_activated(
    served: Any, models: dict[str, Brought], name: str
) -> None:
    model, path = models[name], f"/v1/models/{name}"

    def predict() -> tuple[dict[str, Any], np.ndarray]:
        answer = served.http.post(f"{path}/predict", json={"inputs": model.inputs}).json()
        return answer, np.array([[*row["probabilities"].values()] for row in answer["predictions"]])

    before, raw = predict()
    items = [
        {"prediction_id": row["prediction_id"], "label": label, "source": "reviewer"}
        for row, label in zip(before["predictions"], model.labels, strict=True)
    ]
    assert served.http.post(f"{path}/feedback", json={"items": items}).status_code == 200
    body = {"mode": "propose", "calibrator": "temperature"}
    done = served.http.post(f"{path}/recalibrate", json=body, headers=WAIT)
    assert done.status_code == 200, done.text
    proposed = done.json()["revision"]
    revisions = served.http.get(f"{path}/revisions")
    moved = served.http.post(
        f"{path}/revisions/{proposed}/activate",
        json={"reason": "a test", "accept_change": True},
        headers={"if-match": revisions.headers["etag"]},
    )
    assert moved.status_code == 200, moved.text
    after, calibrated = predict()
    assert (before["revision"], after["revision"]) == ("r1", proposed)
    assert {row["decision"]["action"] for row in after["predictions"]} == {"review"}
    # One temperature for all rows: the log-odds of the own library's answers, divided by it.
    temperatures = np.log(raw[:, 1] / raw[:, 0]) / np.log(calibrated[:, 1] / calibrated[:, 0])
    np.testing.assert_allclose(temperatures, np.median(temperatures), rtol=1e-3)
    assert abs(np.median(temperatures) - 1) > 1e-3
