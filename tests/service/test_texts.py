"""A text model with its own tokenizer, imported by one command: over HTTP, the answers of both by hand."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import bundle as bundles
from importing.cli import app
from service.cli import app as candor
from tests import complaints
from tests.waiting import WAIT

NAMES = ("input_ids", "attention_mask")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of bundles after one command."""
    folder = tmp_path_factory.mktemp("texts")
    texts, labels = complaints.texts(240)
    with (folder / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("body", "kind"), *zip(texts, labels, strict=True)])
    export = complaints.folder(folder / "export")
    options = ["--name", "complaints", "--validation", str(folder / "rows.csv"), "--label", "kind"]
    options += ["--calibrator", "temperature", "--out", str(folder / "bundles")]
    result = CliRunner().invoke(app, ["huggingface", str(export), *options])
    assert result.exit_code == 0, result.output
    return folder / "bundles"


@pytest.fixture(scope="module")
def served(launch: Any, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    state = tmp_path_factory.mktemp("state")
    running = launch(state, bundles=root, default_model="complaints", policies=None, keep_inputs="all", log_mode="sync")
    yield running
    running.close()


def by_hand(root: Path, texts: list[str]) -> np.ndarray:
    calibrator = bundles.verify(root / "complaints" / "1").calibrator
    return calibrator.predict_proba(complaints.logits_by_hand(texts))


def probabilities(response: Any) -> np.ndarray:
    assert response.status_code == 200, response.text
    return np.array([[*row["probabilities"].values()] for row in response.json()["predictions"]])


TEXTS = ["The bill is WRONG, again!", "", "größer 42 " * 400, "Which card should I order? \U0001f600\x00", "a" * 20_000]


def test_texts_get_the_answers_of_tokenizer_and_model_by_hand(served: Any, root: Path) -> None:
    wanted = by_hand(root, TEXTS)
    found = probabilities(served.http.post("/predict", json={"inputs": TEXTS, "references": list("abcde")}))
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    form = served.http.post("/predict", files=[("inputs", (None, text.encode())) for text in TEXTS])
    np.testing.assert_allclose(probabilities(form), wanted, atol=1e-6)
    for text, row in zip(TEXTS, wanted, strict=True):
        plain = served.http.post("/predict", content=text.encode(), headers={"content-type": "text/plain"})
        np.testing.assert_allclose(probabilities(plain)[0], row, atol=1e-6)
    ids = complaints.by_hand(TEXTS)
    rows = [{name: ids[name][row].tolist() for name in NAMES} for row in range(len(TEXTS))]
    np.testing.assert_allclose(probabilities(served.http.post("/predict", json={"inputs": rows})), wanted, atol=1e-6)


def test_the_open_inference_protocol_takes_texts(served: Any, root: Path) -> None:
    assert served.http.get("/v2/models/complaints").json()["inputs"] == [
        {"name": "input", "datatype": "BYTES", "shape": [-1]}
    ]
    texts = [{"name": "input", "shape": [len(TEXTS)], "datatype": "BYTES", "data": TEXTS}]
    ids = [
        {"name": name, "shape": list(values.shape), "datatype": "INT64", "data": values.tolist()}
        for name, values in complaints.by_hand(TEXTS).items()
    ]
    for inputs in (texts, ids):
        answer = served.http.post("/v2/models/complaints/infer", json={"inputs": inputs})
        assert answer.status_code == 200, answer.text
        outputs = {output["name"]: output for output in answer.json()["outputs"]}
        found = np.reshape(outputs["probabilities"]["data"], outputs["probabilities"]["shape"])
        np.testing.assert_allclose(found, by_hand(root, TEXTS), atol=1e-6)
    wrong = [{"name": "input", "shape": [1, 2], "datatype": "INT64", "data": [1, 2]}]
    refused = served.http.post("/v2/models/complaints/infer", json={"inputs": wrong})
    assert refused.status_code == 422
    assert "BYTES" in refused.json()["error"]


@pytest.mark.parametrize(
    ("inputs", "where", "title"),
    [
        (["fine", "x" * 1_000_001], "/inputs/1", "The text is too long."),
        (["fine", 5], "/inputs/1", "The inputs are not all of the same kind."),
        ([5], "/inputs/0", "The model takes rows of named values."),
    ],
)
def test_what_is_not_a_text_is_refused_by_its_row(served: Any, inputs: Any, where: str, title: str) -> None:
    answer = served.http.post("/predict", json={"inputs": inputs})
    assert (answer.status_code, answer.json()["where"]) == (422, where), answer.text
    assert answer.json()["detail"].startswith(title)


def test_models_say_that_they_take_texts(served: Any) -> None:
    (model,) = served.http.get("/v1/models").json()["items"]
    assert model["texts"]
    assert [tensor["name"] for tensor in model["input"]["tensors"]] == list(NAMES)


@pytest.mark.usefixtures("refits_here")
def test_labelled_texts_recalibrate_it(served: Any) -> None:
    texts, labels = complaints.texts(900, seed=10)
    lines = [json.dumps({"inputs": text, "label": label}) for text, label in zip(texts, labels, strict=True)]
    done = served.http.post(
        "/recalibrate",
        params={"mode": "propose", "calibrator": "temperature"},
        content="\n".join(lines),
        headers={"content-type": "application/x-ndjson", **WAIT},
    )
    assert done.status_code == 200, done.text
    assert done.json()["rows"]["fit"] > 100


def test_the_bundle_keeps_the_file_as_it_came(root: Path) -> None:
    tokenizer = bundles.verify(root / "complaints" / "1").tokenizer
    assert tokenizer is not None
    assert tokenizer.dump() == complaints.tokenizer_json()


def test_a_file_of_texts_is_predicted_from_the_command_line(served: Any, root: Path, tmp_path: Path) -> None:
    texts = [*complaints.texts(5)[0], "[1, 2]", "5"]
    file = tmp_path / "texts.csv"
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["inputs"], *([text] for text in texts)])
    done = CliRunner().invoke(candor, ["predict", str(file), "--url", served.url])
    assert (done.exit_code, done.stderr) == (0, "")
    with (tmp_path / "texts.predictions.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["inputs"] for row in rows] == texts
    found = [[float(row[f"p_{label}"]) for label in complaints.LABELS] for row in rows]
    np.testing.assert_allclose(found, by_hand(root, texts), atol=1e-5)


def test_a_case_shows_the_text_as_the_model_saw_it(served: Any) -> None:
    put = served.http.put("/v1/models/complaints/policies/all", json={"bands": [{"action": "review"}], "review": {}})
    assert put.status_code == 201, put.text
    path = f"/v1/models/complaints/revisions/{put.json()['id']}"
    epoch = {"if-match": served.http.get("/v1/models/complaints/revisions").headers["etag"]}
    assert served.http.post(f"{path}/activate", json={"reason": "a test"}, headers=epoch).status_code == 200
    ids = complaints.by_hand(["When does it open?"])
    encoded = {name: ids[name][0].tolist() for name in NAMES}
    answer = served.http.post("/predict", json={"inputs": ["Thank YOU for the quick help", ""]})
    more = served.http.post("/predict", json={"inputs": [encoded]})
    cases = [row["prediction_id"] for one in (answer, more) for row in one.json()["predictions"]]
    found = [served.http.get(f"/v1/models/complaints/cases/{case}").json()["inputs"] for case in cases]
    assert [text.replace(" ##", "") for text in found] == ["thank you for the quick help", "", "when does it open ?"]
    page = served.http.get(f"/dashboard/models/complaints/cases/{cases[0]}").text
    assert re.search(rf"text</bdi></dt><dd><bdi[^>]*>{re.escape(found[0])}<", page)
