"""Imported graphs and scores of clients, asked over HTTP: the same answers as the graph gives by itself."""

from __future__ import annotations

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
from service.dashboard.positive import drawn
from tests.array_files import npz
from tests.waiting import WAIT

from . import imported_models


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("imported")


@pytest.fixture(scope="module")
def made(root: Path) -> dict[str, Any]:
    """Inputs of each model, by its name."""
    imported_models.vendor(root)
    imported_models.vendor(root, "upstream", "probabilities")
    imported_models.vendor(root, "elsewhere", "logits")
    makers = (
        imported_models.photographs,
        imported_models.sentences,
        imported_models.payments,
        imported_models.spelled,
    )
    return {make.__name__: make(root) for make in makers}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def served(launch: Any, made: Any, root: Path, state: Path) -> Iterator[Any]:
    running = launch(state, bundles=root, default_model="payments", policies=None, keep_inputs="all", log_mode="sync")
    yield running
    running.close()


def test_the_dashboard_draws_how_well_the_class_that_matters_is_found(served: Any, root: Path) -> None:
    section = bundles.verify(root / "payments" / "1").report["positive"]
    page = served.http.get("/dashboard/models/payments/revisions/r1").text
    shown = page[page.index('<section aria-labelledby="positive">') :]
    assert f'Finding <bdi class="name">{section["label"]}</bdi>' in shown
    assert f"{section['positives']} of them" in shown
    for key in ("before", "after"):
        found = section[key]
        told = f"Average precision {found['average_precision']['value']:.4f}, AUROC {found['auroc']['value']:.4f}."
        assert told in shown
        for what in ("Reliability of the probability", "Precision and recall"):
            assert f">{what} of {section['label']} {key} calibration</title>" in shown
    bins = section["after"]["reliability"]
    assert shown.count('class="point') == 2 * len(bins["count"])
    assert f'<td class="n">{100 * bins["probability"][0]:.2f}\N{NO-BREAK SPACE}%</td>' in shown
    assert "Finding" not in served.http.get("/dashboard/models/photographs/revisions/r1").text, "three classes"


@pytest.mark.parametrize("spoilt", [{}, {"after": {}}, {"base_rate": "?"}, {"rows": None}, {"before": []}, []])
def test_a_report_of_another_form_is_not_drawn(made: Any, root: Path, spoilt: Any) -> None:
    report = bundles.verify(root / "payments" / "1").report
    assert drawn(report) is not None
    assert drawn({**report, "positive": {**report["positive"], **spoilt} if spoilt else spoilt}) is None


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


def test_a_row_that_the_graph_refuses_when_it_runs_is_named(
    served: Any, made: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The table of its Gather has 20 rows."""
    sent = [{"ids": row["ids"].tolist(), "mask": row["mask"].tolist()} for row in made["sentences"][:40]]
    good = predicted(served, "sentences", inputs=sent)
    sent[35] = {**sent[35], "ids": [1, 2, 99, 4, 5]}
    response = ask(served, "sentences", inputs=sent)
    told = response.json()
    assert (response.status_code, told["type"], told["where"]) == (422, "/errors/input-value", "/inputs/35")
    assert told["found"] == "indices element out of data bounds, idx=99 must be within the inclusive range [-20,19]"

    file = tmp_path / "rows.ndjson"
    file.write_text("\n".join(map(json.dumps, sent)))
    result = CliRunner().invoke(app, ["predict", str(file), "--url", served.url, "--model", "sentences"])
    assert result.exit_code == 1, result.output
    written = [json.loads(line) for line in (tmp_path / "rows.predictions.ndjson").read_text().splitlines()]
    assert [place for place, row in enumerate(written) if row["error"]] == [35]
    assert "idx=99" in written[35]["error"]
    found = np.array([[row["p_bad"], row["p_good"]] for row in written[:35] + written[36:]])
    np.testing.assert_allclose(found, np.delete(good, 35, axis=0), atol=1e-6)

    file.write_text(json.dumps(sent[35]))  # no row is good
    again = CliRunner().invoke(app, ["predict", str(file), "--url", served.url, "--model", "sentences"])
    assert again.exit_code == 1, again.output
    logged = capfd.readouterr().err
    assert ("Traceback" in logged, "onnxruntime" in logged) == (False, False), logged


def test_a_row_that_ends_a_run_is_named_and_its_neighbours_are_answered(
    served: Any, made: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """ONNX Runtime says RUNTIME_EXCEPTION where a step of the graph throws."""
    rows = [*made["spelled"][:6]]
    good = predicted(served, "spelled", inputs=rows)
    rows[4] = {"amount": "much"}
    response = ask(served, "spelled", inputs=rows)
    told = response.json()
    assert (response.status_code, told["type"], told["where"]) == (422, "/errors/input-value", "/inputs/4"), told
    np.testing.assert_allclose(predicted(served, "spelled", inputs=rows[:4]), good[:4], atol=1e-6)
    logged = capfd.readouterr().err
    assert ("Traceback" in logged, "onnxruntime" in logged) == (False, False), logged


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


def test_scores_per_class_are_calibrated_as_they_come(served: Any, root: Path) -> None:
    logits = np.float32([[0.0, 1.0], [3.5, -2.0], [-40.0, 40.0]])
    shares = np.array([[0.25, 0.75], [1.0, 0.0]])
    for model, field, given, scores in (
        ("elsewhere", "logits", logits, logits),
        ("upstream", "probabilities", shares, np.log(np.maximum(shares, 1e-7)).astype(np.float32)),
    ):
        wanted = bundles.verify(root / model / "1").calibrator.predict_proba(scores)
        np.testing.assert_allclose(predicted(served, model, **{field: given.tolist()}), wanted, atol=1e-6)
    for body, where in (
        ({"logits": [[0, 1], [0, 1, 2]]}, "/logits"),
        ({"logits": [[0, "much"]]}, "/logits"),
        ({"scores": [0.5]}, "/scores"),
    ):
        answer = ask(served, "elsewhere", **body)
        assert answer.status_code in (400, 422), answer.text
        assert answer.json()["where"].startswith(where), answer.text


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


@pytest.mark.usefixtures("refits_here")
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
        headers=WAIT,
    )
    assert done.status_code == 200, done.text
    assert done.json()["rows"]["fit"] > 100


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
        headers=WAIT,
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


def test_an_exported_file_gives_what_the_service_answers(served: Any, made: Any, root: Path, tmp_path: Path) -> None:
    out, rows = tmp_path / "calibrated.onnx", made["payments"][:20]
    done = CliRunner().invoke(app, ["export-onnx", str(out), "--bundle", str(root / "payments" / "1")])
    assert (done.exit_code, done.stderr) == (0, "")
    bundle = bundles.verify(root / "payments" / "1")
    assert bundle.columns is not None
    assert bundle.manifest.graph is not None
    assert bundle.manifest.graph.output.form != "logits"
    feeds = bundle.manifest.graph.feeds(bundle.columns.encode(rows, bundle.manifest.input))
    found = ort.InferenceSession(out).run(["probabilities"], feeds)[0]
    np.testing.assert_allclose(found, predicted(served, "payments", inputs=rows), atol=1e-6)


def test_scores_alone_are_not_exported(root: Path, made: Any, tmp_path: Path) -> None:
    out = tmp_path / "calibrated.onnx"
    done = CliRunner().invoke(app, ["export-onnx", str(out), "--bundle", str(root / "vendor" / "1")])
    assert (done.exit_code, "has no graph" in done.stderr, out.exists()) == (2, True, False)
