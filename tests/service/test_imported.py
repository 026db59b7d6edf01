"""Imported graphs and scores of clients, asked over HTTP: the same answers as the graph gives by itself."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from typer.testing import CliRunner

import bundle as bundles
from bundle.images import encode_png
from candor import Client
from service.cli import app

from . import imported_models


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("imported")


@pytest.fixture(scope="module")
def made(root: Path) -> dict[str, Any]:
    """Inputs of each model, by its name."""
    imported_models.vendor(root)
    imported_models.vendor(root, "upstream", "probabilities")
    makers = (imported_models.photographs, imported_models.sentences, imported_models.payments)
    return {make.__name__: make(root) for make in makers}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def served(launch: Any, made: Any, root: Path, state: Path) -> Iterator[Any]:
    running = launch(state, bundles=root, default_model="payments", policies=None, keep_inputs="all", log_mode="sync")
    yield running
    running.close()


def ask(service: Any, model: str, **body: Any) -> Any:
    return service.http.post(f"/v1/models/{model}/predict", json=body)


def predicted(service: Any, model: str, **body: Any) -> np.ndarray:
    response = ask(service, model, **body)
    assert response.status_code == 200, response.text
    return np.array([[*row["probabilities"].values()] for row in response.json()["predictions"]])


def expected(root: Path, model: str, inputs: np.ndarray) -> np.ndarray:
    """The answer by ONNX Runtime alone, calibrated by the calibrator alone."""
    bundle = bundles.verify(root / model / "1")
    graph = bundle.manifest.graph
    assert graph is not None
    found = ort.InferenceSession(bundle.model_bytes).run([graph.output.name], graph.feeds(inputs))[0]
    return bundle.calibrator.predict_proba(graph.output.logits(found, len(bundle.manifest.labels)))


def test_a_convolution_on_floats_with_its_channels_first_takes_images(served: Any, made: Any, root: Path) -> None:
    images = made["photographs"][:5]
    wanted = expected(root, "photographs", images)
    np.testing.assert_allclose(predicted(served, "photographs", inputs=images.tolist()), wanted, atol=1e-6)
    png = served.http.post(
        "/v1/models/photographs/predict", content=encode_png(images[0]), headers={"content-type": "image/png"}
    )
    np.testing.assert_allclose([*png.json()["predictions"][0]["probabilities"].values()], wanted[0], atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_graph_of_two_tensors_runs_in_batches_of_the_size_that_it_fixes(
    served: Any, made: Any, root: Path, count: int
) -> None:
    rows = made["sentences"][:count]
    sent = [{"ids": row["ids"].tolist(), "mask": row["mask"].tolist()} for row in rows]
    twice = np.resize(rows, 6)
    wanted = np.concatenate([expected(root, "sentences", twice[at : at + 2]) for at in (0, 2, 4)])[:count]
    np.testing.assert_allclose(predicted(served, "sentences", inputs=sent), wanted, atol=1e-6)


def test_texts_and_doubles_are_columns_of_a_table(served: Any, made: Any, root: Path) -> None:
    rows = made["payments"][:20]
    bundle = bundles.verify(root / "payments" / "1")
    assert bundle.columns is not None
    wanted = expected(root, "payments", bundle.columns.encode(rows, bundle.manifest.input))
    np.testing.assert_allclose(predicted(served, "payments", inputs=rows), wanted, atol=1e-6)
    told = served.http.get("/v1/models/payments/monitoring").json()
    assert (told["drift"], told["no_drift"]) == (
        None,
        "The bundle has no profile of its columns. Import or train the model again.",
    )


@pytest.mark.parametrize(
    ("model", "row", "found", "wanted"),
    [
        ("payments", {}, "None", "one of de, fr"),
        ("payments", {"country": "de"}, "None", "a number"),
        ("payments", {"country": "it", "amount": 1}, "'it'", "one of de, fr"),
        ("payments", {"country": "de", "amount": None}, "None", "a number"),
        ("payments", {"country": "de", "amount": "much"}, "'much'", "a finite number or a missing value"),
        ("sentences", {}, "[]", "['ids', 'mask']"),
        ("sentences", {"ids": [1, 2, 3, 4, 5]}, "['ids']", "['ids', 'mask']"),
        ("sentences", {"ids": [1, 2], "mask": [True] * 5}, "[2]", "[5]"),
        ("sentences", {"ids": [1.5] * 5, "mask": [True] * 5}, "float64", "int64"),
        ("sentences", {"ids": [2**63] * 5, "mask": [True] * 5}, str(2**63), f"{-(2**63)} to {2**63 - 1}"),
        ("sentences", {"ids": [1] * 5, "mask": ["yes"] * 5}, "str", "bool"),
        ("sentences", {"ids": [[1], 2, 3, 4, 5], "mask": [True] * 5}, "[]", "[5]"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_by_its_number(
    served: Any, made: Any, model: str, row: Any, found: str, wanted: str
) -> None:
    good: Any = made["payments"][0]
    if model == "sentences":
        good = {"ids": [1] * 5, "mask": [True] * 5}
    answer = ask(served, model, inputs=[good, row])
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert (problem["where"], problem["found"], problem["expected"]) == ("/inputs/1", found, wanted)


def test_scores_are_enough(served: Any) -> None:
    scores = [0.0, 0.25, 0.5, 0.9, 1.0]
    found = predicted(served, "vendor", scores=scores, references=[f"tx-{n}" for n in range(5)])
    assert (np.diff(found[:, 1]) > 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)
    for body, where in (
        ({"scores": [0.5, 1.5]}, "/scores/1"),
        ({"scores": [0.5, "much"]}, "/scores/1"),
        ({"scores": [[0.5, 0.5]]}, "/scores/0"),
        ({"scores": []}, "/scores"),
        ({"scores": 0.5}, "/scores"),
        ({"inputs": [0.5]}, "/inputs"),
    ):
        answer = ask(served, "vendor", **body)
        assert (answer.status_code, answer.json()["where"]) in ((422, where), (400, where)), answer.text


def test_equal_scores_are_not_of_one_group_and_equal_inputs_are(served: Any, made: Any, state: Path) -> None:
    def groups(model: str, **body: Any) -> int:
        ids = [row["prediction_id"] for row in ask(served, model, **body).json()["predictions"]]
        marks = ", ".join("?" * len(ids))
        with sqlite3.connect(state / "state.db") as database:
            found = database.execute(f"SELECT count(DISTINCT cluster) FROM predictions WHERE id IN ({marks})", ids)
            return int(found.fetchone()[0])

    assert groups("vendor", scores=[0.5] * 6) == 6
    assert groups("vendor", scores=[0.5] * 6, groups=["card"] * 6) == 1
    assert groups("payments", inputs=[made["payments"][0]] * 6) == 1


def test_what_a_model_takes_is_told(served: Any) -> None:
    models = {model["model"]: model for model in served.http.get("/v1/models").json()["items"]}
    assert models["vendor"]["input"]["kind"] == "scores"
    assert models["vendor"]["provider"] == "none"
    assert [tensor["name"] for tensor in models["sentences"]["input"]["tensors"]] == ["ids", "mask"]
    assert models["vendor"]["column_types"] is models["vendor"]["columns"] is None
    assert models["payments"]["columns"] == ["country", "amount"]
    assert models["payments"]["column_types"] == [
        {
            "name": "country",
            "kind": "text",
            "categories": ["de", "fr"],
            "category_count": 2,
            "on_missing": "refuse",
            "on_unknown": "refuse",
        },
        {
            "name": "amount",
            "kind": "number",
            "categories": None,
            "category_count": None,
            "on_missing": "refuse",
            "on_unknown": "accept",
        },
    ]
    metadata = served.http.get("/v2/models/payments").json()
    assert metadata["inputs"] == [
        {"name": "country", "datatype": "BYTES", "shape": [-1, 1]},
        {"name": "amount", "datatype": "FP64", "shape": [-1, 1]},
    ]


def test_labels_recalibrate_scores(served: Any) -> None:
    rng = np.random.default_rng(3)
    policy = {"id": "look", "positive": "top", "bands": [{"action": "review"}]}
    put = served.http.put("/v1/models/vendor/policies/look", json=policy)
    assert put.status_code in (200, 201), put.text
    epoch = served.http.get("/v1/models/vendor/revisions").headers["etag"]
    moved = served.http.post(
        f"/v1/models/vendor/revisions/{put.json()['id']}/activate", headers={"if-match": epoch}, json={"reason": "new"}
    )
    assert moved.status_code == 200, moved.text
    groups = [f"group-{row}" for row in range(900)]
    answer = ask(served, "vendor", scores=rng.random(900).tolist(), groups=groups)
    assert answer.status_code == 200, answer.text
    items = [
        {
            "prediction_id": row["prediction_id"],
            "label": "fraud" if rng.random() < 0.5 else "genuine",
            "source": "reviewer",
        }
        for row in answer.json()["predictions"]
    ]
    assert served.http.post("/v1/models/vendor/feedback", json={"items": items}).status_code == 200
    done = served.http.post(
        "/v1/models/vendor/recalibrate",
        json={"mode": "propose", "calibrator": "temperature"},
        headers={"prefer": "wait=120"},
    )
    assert done.status_code == 200, done.text
    assert done.json()["rows"]["fit"] > 100


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def ndjson(rows: Any) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def csv(header: str, rows: Any) -> bytes:
    lines = [",".join('"' + str(cell).replace('"', '""') + '"' for cell in row) for row in rows]
    return "\n".join([header, *lines]).encode()


NPZ, NDJSON, CSV = "application/x-npz", "application/x-ndjson", "text/csv"


def uploads(made: Any, count: int = 300) -> dict[str, list[tuple[str, bytes]]]:
    """The same labelled rows of each model in several formats."""
    rng = np.random.default_rng(8)
    scores, positive = rng.random(count).round(3), rng.random(count) < 0.5
    pairs = np.stack([1 - scores, scores], axis=1)
    labels = np.where(positive, "fraud", "genuine")
    groups = [f"g{row}" for row in range(count)]
    found: dict[str, list[tuple[str, bytes]]] = {
        "vendor": [
            (NPZ, npz(label=labels, scores=scores, group=groups)),
            (CSV, csv("label,scores,group", zip(labels, scores, groups, strict=True))),
            (
                NDJSON,
                ndjson(
                    {"label": a, "scores": b, "group": c}
                    for a, b, c in zip(labels, scores.tolist(), groups, strict=True)
                ),
            ),
        ],
        "upstream": [
            (NPZ, npz(label=labels, probabilities=pairs, group=groups)),
            (CSV, csv("label,probabilities,group", zip(labels, pairs.tolist(), groups, strict=True))),
        ],
    }
    rows = np.resize(made["sentences"], count)
    verdicts = np.where(positive, "good", "bad")
    cells = [(row["ids"].tolist(), row["mask"].tolist()) for row in rows]
    found["sentences"] = [
        (NPZ, npz(label=verdicts, ids=rows["ids"], mask=rows["mask"], group=groups)),
        (
            CSV,
            csv(
                "label,ids,mask,group",
                (
                    (label, ids, json.dumps(mask), g)
                    for label, (ids, mask), g in zip(verdicts, cells, groups, strict=True)
                ),
            ),
        ),
        (
            NDJSON,
            ndjson(
                {"label": label, "inputs": {"ids": ids, "mask": mask}, "group": g}
                for label, (ids, mask), g in zip(verdicts, cells, groups, strict=True)
            ),
        ),
    ]
    table = [made["payments"][row % 90] for row in range(count)]
    found["payments"] = [
        (
            NDJSON,
            ndjson({"label": label, **row, "group": g} for label, row, g in zip(labels, table, groups, strict=True)),
        ),
        (
            CSV,
            csv(
                "label,country,amount,group",
                ((label, *row.values(), g) for label, row, g in zip(labels, table, groups, strict=True)),
            ),
        ),
    ]
    return found


@pytest.mark.parametrize("model", ["vendor", "upstream", "sentences", "payments"])
@pytest.mark.usefixtures("checks_here", "refits_here")
def test_uploaded_rows_recalibrate_in_every_format_alike(served: Any, made: Any, model: str) -> None:
    store, stored = served.runtime.labelled_sets, []
    for media_type, body in uploads(made)[model]:
        found = served.http.post(
            f"/v1/models/{model}/labelled-sets", content=body, headers={"content-type": media_type}
        )
        assert found.status_code == 201, found.text
        stored.append([chunk.values for chunk in store.chunks(store.get(model, found.json()["id"]))])
    for values in stored:
        np.testing.assert_array_equal(np.concatenate(values), np.concatenate(stored[0]))
    done = served.http.post(
        f"/v1/models/{model}/recalibrate",
        json={"mode": "dry_run", "calibrator": "temperature", "source": {"labelled_set": found.json()["id"]}},
        headers={"prefer": "wait=120"},
    )
    assert done.status_code == 200, done.text
    assert sum(done.json()["rows"][part] for part in ("fit", "certify", "gate")) == 300


@pytest.mark.parametrize(
    ("model", "media_type", "body", "text"),
    [
        ("vendor", CSV, b"label,scores\nfraud,0.5\ngenuine,1.5", '"line 3, column scores","found":"1.5"'),
        ("vendor", CSV, b"label,scores\nfraud,high", "line 2, column scores"),
        ("vendor", CSV, b"label,score\nfraud,0.5", "scores"),
        ("vendor", NDJSON, b'{"label": "fraud", "inputs": [0, 1]}', "`scores`, or logits"),
        ("upstream", NDJSON, b'{"label": "fraud", "probabilities": [0.5, 0.6]}', "do not add up to 1"),
        ("sentences", NDJSON, b'{"label": "good", "ids": [1, 2, 3, 4, 5]}', '"where":"mask"'),
        ("sentences", NDJSON, b'{"label": "good", "ids": [1, 2], "mask": [true]}', '"line 1, field ids"'),
        ("sentences", CSV, b"label,ids,mask\ngood,x,y", "A cell is not valid JSON."),
        ("sentences", NDJSON, b'{"label": "good", "inputs": [1, 2]}', '"expected":"a dict'),
        ("payments", CSV, b"label,country,amount\nfraud,de,1\nfraud,it,1", "unknown value"),
    ],
)
@pytest.mark.usefixtures("checks_here")
def test_uploaded_rows_that_do_not_fit_are_refused_at_their_place(
    served: Any, model: str, media_type: str, body: bytes, text: str
) -> None:
    answer = served.http.post(f"/v1/models/{model}/labelled-sets", content=body, headers={"content-type": media_type})
    assert answer.status_code in (400, 422), answer.text
    assert text in answer.text


def test_the_client_sends_scores_and_tensors(served: Any, made: Any) -> None:
    with Client(served.url, model="vendor") as candor:
        scored = candor.predict(scores=np.array([0.1, 0.9]), references=["a", "b"])
        assert [row.reference for row in scored.predictions] == ["a", "b"]
        for given in ({}, {"inputs": [[0.5]], "scores": [0.5]}, {"scores": [0.5], "logits": [[0, 1]]}):
            with pytest.raises(TypeError, match="expected one of inputs, scores, probabilities, logits"):
                candor.predict(**given)
        by_name = {model.model: model for model in candor.models()}
        types = by_name["payments"].column_types
        assert types is not None
        assert [(column.name, column.kind) for column in types] == [("country", "text"), ("amount", "number")]
    with Client(served.url, model="upstream") as candor:
        pairs = candor.predict(probabilities=[[0.9, 0.1], [0.1, 0.9]])
        assert len(pairs.predictions) == 2
    with Client(served.url, model="sentences") as candor:
        row = made["sentences"][0]
        assert len(candor.predict([{"ids": row["ids"], "mask": row["mask"]}]).predictions) == 1


def test_what_the_documentation_shows_is_answered(served: Any) -> None:
    operations = served.http.get("/openapi.json").json()["paths"]
    content = operations["/v1/models/{model}/predict"]["post"]["requestBody"]["content"]
    examples = content["application/json"]["examples"]
    for model, name in (("sentences", "tensors"), ("vendor", "scores")):
        answer = ask(served, model, **examples[name]["value"])
        assert answer.status_code == 200, answer.text


def test_only_a_graph_with_logits_is_exported_with_its_calibrator(made: Any, root: Path, tmp_path: Path) -> None:
    out = tmp_path / "calibrated.onnx"
    done = CliRunner().invoke(app, ["export-onnx", str(out), "--bundle", str(root / "payments" / "1")])
    assert (done.exit_code, "does not give logits" in done.stderr, out.exists()) == (2, True, False)
