"""`candor predict TABLE`: what is sent, what is written, and how an interrupted run goes on."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arro3.core import Array, DataType, RecordBatch, RecordBatchReader
from arro3.io import read_parquet, write_parquet
from typer.testing import CliRunner

from service.cli import app
from tests.conftest import BIN
from tests.waiting import PATIENCE_S, until

from ..conftest import Digits, HeldUp, InThread, Spawn
from ..payments import HEADER, LABELS, expected, folders_of, payments, read, written

ADDED = ["prediction_id", "label", "confidence", "p_genuine", "p_fraud", "action", "revision", "error"]


@pytest.fixture(scope="module")
def folders(digits: Digits, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return folders_of(digits, tmp_path_factory)


@pytest.fixture(scope="module")
def served(launch_many: Callable[..., InThread], folders: dict[str, Path], tmp_path_factory: Any) -> Iterator[InThread]:
    running = launch_many(tmp_path_factory.mktemp("state"), **folders)
    yield running
    running.close()


@pytest.fixture
def own(start: Callable[..., InThread], folders: dict[str, Path]) -> InThread:
    return start(**folders)


def predict(service: InThread, file: Path, *arguments: str | Path, model: str = "payments") -> Any:
    options = ("--url", service.url, "--model", model, *map(str, arguments))
    return CliRunner().invoke(app, ["predict", str(file), *options], env={"COLUMNS": "200", "NO_COLOR": "1"})


def spawn_predict(spawn: Spawn, service: InThread, file: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [BIN / "candor", "predict", file, "--model", "payments", *arguments],
        env=spawn.environment | {"CANDOR_URL": service.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def predicted_rows(service: InThread) -> float:
    return service.metric("candor_predictions_total", model="payments")


class TestRows:
    def test_every_row_is_written_with_its_decision(self, served: InThread, tmp_path: Path) -> None:
        rows = payments(700)
        file = written(tmp_path / "größe.csv", rows)
        done = predict(served, file, "--policy", "triage", "--reference", "tx", "--batch", "64")
        assert (done.exit_code, done.stderr) == (0, "")
        assert "700 rows" in done.stdout
        assert {path.name for path in tmp_path.iterdir()} == {"größe.csv", "größe.predictions.csv"}
        found = read(tmp_path / "größe.predictions.csv")
        assert list(found[0]) == [*HEADER, *ADDED]
        assert [[row[name] for name in HEADER] for row in found] == rows
        fraud = expected(rows)
        np.testing.assert_allclose([float(row["p_fraud"]) for row in found], fraud, atol=1e-5)
        np.testing.assert_allclose([float(row["p_genuine"]) for row in found], 1 - fraud, atol=1e-5)
        assert [row["label"] for row in found] == [LABELS[int(p > 0.5)] for p in fraud]
        assert [row["action"] for row in found] == ["block" if p >= 0.9 else "allow" for p in fraud]
        assert {(row["revision"], row["error"]) for row in found} == {("r1", "")}
        assert len({row["prediction_id"] for row in found}) == 700

        assert served.runtime.log.flush()
        answers = served.http.post(
            "/v1/models/payments/feedback", json={"items": [{"reference": row[0], "label": "fraud"} for row in rows]}
        ).json()
        assert answers["stored"] == 700

    def test_formats_in_and_out_hold_the_same_rows(self, served: InThread, tmp_path: Path) -> None:
        rows = payments(50)
        amounts = [None if row[1] == "" else float(row[1]) for row in rows]
        texts = [[row[column] or None for row in rows] for column in range(4)]
        written(tmp_path / "rows.csv", rows)
        (tmp_path / "rows.ndjson").write_text(
            "".join(
                json.dumps({"tx": i, "amount": amount, "country": country, "note": note}) + "\n"
                for i, amount, country, note in zip(texts[0], amounts, texts[2], texts[3], strict=True)
            )
        )
        batch = RecordBatch.from_pydict(
            {
                "tx": Array(texts[0], type=DataType.string()),
                "amount": Array(amounts, type=DataType.float32()),
                "country": Array(texts[2], type=DataType.string()),
                "note": Array(texts[3], type=DataType.string()),
            }
        )
        write_parquet(RecordBatchReader.from_batches(batch.schema, [batch]), tmp_path / "rows.parquet")
        np.savez(
            tmp_path / "rows.npz",
            tx=np.array(texts[0]),
            amount=np.array([np.nan if amount is None else amount for amount in amounts], np.float32),
            country=np.array([row[2] for row in rows]),
            note=np.array([row[3] for row in rows]),
        )
        fraud = expected(rows)
        for source in ("rows.csv", "rows.ndjson", "rows.parquet", "rows.npz"):
            for ending in ("csv", "ndjson", "parquet"):
                out = tmp_path / f"{source}.out.{ending}"
                done = predict(served, tmp_path / source, "--out", out)
                assert (done.exit_code, done.stderr) == (0, ""), (source, ending, done.stderr, done.exception)
                if ending == "csv":
                    table = {name: [row[name] for row in read(out)] for name in [*HEADER, *ADDED]}
                    numbers = [float(p) for p in table["p_fraud"]]
                    assert table["note"] == [row[3] for row in rows]
                elif ending == "ndjson":
                    lines = [json.loads(line) for line in out.read_text().splitlines()]
                    assert {tuple(line) for line in lines} == {(*HEADER, *ADDED)}
                    numbers = [line["p_fraud"] for line in lines]
                    table = {name: [line[name] for line in lines] for name in [*HEADER, *ADDED]}
                else:
                    columns = read_parquet(out).read_all()
                    assert columns.schema.names == [*HEADER, *ADDED]
                    table = {name: columns.column(name).to_pylist() for name in columns.schema.names}
                    numbers = table["p_fraud"]
                    kept = DataType.float32() if source == "rows.parquet" else DataType.float64()
                    assert columns.schema.field("amount").type == (DataType.string() if source == "rows.csv" else kept)
                np.testing.assert_allclose(numbers, fraud, atol=1e-5)
                assert table["tx"] == texts[0]
                assert [name or None for name in table["country"]] == texts[2]

    def test_top_writes_the_largest_probabilities(self, served: InThread, digits: Digits, tmp_path: Path) -> None:
        """Inputs that are no rows of a table come as whole arrays."""
        np.savez(tmp_path / "images.npz", inputs=digits.images[:30], scan=np.arange(30))
        out = tmp_path / "top.csv"
        options = ("--top", "2", "--drop", "inputs", "--reference", "scan", "--out", out)
        done = predict(served, tmp_path / "images.npz", *options, model="digits")
        assert (done.exit_code, done.stderr) == (0, "")
        found = read(out)
        assert list(found[0]) == [
            *("scan", "prediction_id", "label", "confidence", "label_1", "p_1", "label_2", "p_2"),
            *("action", "revision", "error"),
        ]
        assert all(row["label"] == row["label_1"] and row["confidence"] == row["p_1"] for row in found)
        assert np.mean([row["label"] == label for row, label in zip(found, digits.labels, strict=False)]) > 0.8
        lines = tmp_path / "images.ndjson"
        lines.write_text("".join(json.dumps({"inputs": image.tolist()}) + "\n" for image in digits.images[:30]))
        assert predict(served, lines, "--top", "0", "--out", out, model="digits").exit_code == 0
        again = read(out)
        assert [row["confidence"] for row in again] == [row["confidence"] for row in found]
        assert json.loads(again[0]["inputs"]) == digits.images[0].tolist()

    def test_tensors_are_columns_of_arrays(self, served: InThread, tmp_path: Path) -> None:
        ids, mask = np.arange(35).reshape(7, 5) % 20, np.arange(35).reshape(7, 5) % 3 > 0
        rows = [{"ids": row.tolist(), "mask": kept.tolist()} for row, kept in zip(ids, mask, strict=True)]
        answer = served.http.post("/v1/models/sentences/predict", json={"inputs": rows}).json()
        wanted = [row["confidence"] for row in answer["predictions"]]
        np.savez(tmp_path / "rows.npz", ids=ids, mask=mask)
        (tmp_path / "rows.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
        written(tmp_path / "rows.csv", [[json.dumps(row["ids"]), json.dumps(row["mask"])] for row in rows], [*rows[0]])
        for name in ("rows.npz", "rows.ndjson", "rows.csv"):
            done = predict(served, tmp_path / name, "--out", tmp_path / "out.csv", model="sentences")
            assert (done.exit_code, done.stderr) == (0, "")
            found = read(tmp_path / "out.csv")
            np.testing.assert_allclose([float(row["confidence"]) for row in found], wanted, atol=1e-6)
            assert [json.loads(row["ids"]) for row in found] == ids.tolist()

    def test_true_and_false_are_numbers_as_in_an_import(self, served: InThread, tmp_path: Path) -> None:
        rows = [["", "true", "DE", ""], ["", "FALSE", "DE", ""], ["", "1", "DE", ""]]
        lines = tmp_path / "rows.ndjson"
        lines.write_text("".join(json.dumps({"amount": amount, "country": "DE"}) + "\n" for amount in (True, False, 1)))
        for file in (written(tmp_path / "rows.csv", rows), lines):
            done = predict(served, file, "--out", tmp_path / "out.csv")
            assert (done.exit_code, done.stderr) == (0, "")
            found = [float(row["p_fraud"]) for row in read(tmp_path / "out.csv")]
            np.testing.assert_allclose(found, expected([["", amount, "DE"] for amount in "101"]), atol=1e-6)

    def test_scores_alone_are_columns(self, served: InThread, tmp_path: Path) -> None:
        scores = np.random.default_rng(5).random(40).round(4)
        rows = [[f"tx-{at}", str(p), str(round(1 - p, 4))] for at, p in enumerate(scores)]
        file = written(tmp_path / "rows.csv", rows, ["tx", "p1", "p0"])
        found = {}
        for model, field, sent, options in (
            ("vendor", "scores", scores.tolist(), ("--score", "p1")),
            ("bureau", "probabilities", [[round(1 - p, 4), p] for p in scores.tolist()], ("--scores", "p0,p1")),
        ):
            done = predict(served, file, *options, "--reference", "tx", model=model)
            assert (done.exit_code, done.stderr) == (0, "")
            answer = served.http.post(f"/v1/models/{model}/predict", json={field: sent}).json()
            found[model] = [float(row["p_fraud"]) for row in read(tmp_path / "rows.predictions.csv")]
            wanted = [row["probabilities"]["fraud"] for row in answer["predictions"]]
            np.testing.assert_allclose(found[model], wanted, atol=1e-6)
        lacking = predict(served, file, model="vendor")
        assert (lacking.exit_code, "Name the columns of the scores: --score risk" in lacking.stderr) == (2, True)
        assert predict(served, file, "--score", "p1").exit_code == 2, "a model that computes its scores"
        by_name = written(tmp_path / "named.csv", [row[1:] for row in rows], ["fraud", "genuine"])
        assert predict(served, by_name, model="bureau").exit_code == 0
        again = [float(row["p_fraud"]) for row in read(tmp_path / "named.predictions.csv")]
        np.testing.assert_allclose(again, found["bureau"], atol=1e-6)
        bad = written(tmp_path / "bad.csv", [["0.5"], ["1.5"], ["much"], [""]], ["scores"])
        assert predict(served, bad, model="vendor").exit_code == 1
        assert [bool(row["error"]) for row in read(tmp_path / "bad.predictions.csv")] == [False, True, True, True]


class TestRefusedRows:
    def test_they_are_written_with_the_reason_and_the_exit_code_is_1(
        self, served: InThread, spawn: Spawn, tmp_path: Path
    ) -> None:
        rows = payments(300)
        for bad, amount in ((0, "a lot"), (7, "inf"), (8, "12,5"), (299, "x")):
            rows[bad][1] = amount
        rows[40][0] = "x" * 201  # longer than a reference may be
        done = predict(served, written(tmp_path / "rows.csv", rows), "--reference", "tx", "--batch", "50")
        assert done.exit_code == 1, done.stderr
        assert "The service refused 5 of 300 rows: see the column `error`." in done.stderr
        found = read(tmp_path / "rows.predictions.csv")
        assert [place for place, row in enumerate(found) if row["error"]] == [0, 7, 8, 40, 299]
        assert all((row["error"] == "") == (row["prediction_id"] != "") for row in found)
        assert "'a lot'" in found[0]["error"]
        good = [place for place, row in enumerate(found) if not row["error"]]
        fraud = expected([rows[place] for place in good])
        np.testing.assert_allclose([float(found[place]["p_fraud"]) for place in good], fraud, atol=1e-5)
        done = spawn.run("predict", tmp_path / "rows.csv", "--model", "payments", "--json", url=served.url)
        assert (done.returncode, json.loads(done.stdout)["refused"]) == (1, 4), "without the reference"

    def test_a_batch_that_is_too_large_is_split(self, start: Any, folders: dict[str, Path], tmp_path: Path) -> None:
        service = start(**folders, max_rows_per_request=8, max_body_bytes=600)
        rows = payments(50)
        rows[3][2] = "x" * 700
        done = predict(service, written(tmp_path / "rows.csv", rows))
        assert done.exit_code == 1
        found = read(tmp_path / "rows.predictions.csv")
        assert [place for place, row in enumerate(found) if row["error"]] == [3]
        assert predicted_rows(service) == 49

    def test_strict_stops_and_names_the_line(self, served: InThread, tmp_path: Path) -> None:
        rows = payments(30)
        rows[20][1] = "a lot"
        line = 2 + 20 + sum("\n" in row[3] for row in rows[:20])
        done = predict(served, written(tmp_path / "rows.csv", rows), "--strict", "--batch", "5", "--connections", "1")
        assert done.exit_code == 4
        assert f"rows.csv, line {line}" in done.stderr
        assert "--resume" in done.stderr
        assert not (tmp_path / "rows.predictions.csv").exists()


class TestFilesThatCannotBePredicted:
    @pytest.mark.parametrize(
        ("name", "text", "options", "said"),
        [
            ("rows.csv", "", (), "no rows"),
            ("rows.csv", "amount,country\n", (), "no rows"),
            ("rows.ndjson", "\n\n", (), "no rows"),
            ("rows.csv", "Amuont,country\n1,DE\n", (), "did you mean `Amuont`?"),
            ("rows.csv", "country\nDE\n", (), "amount"),
            ("rows.csv", "amount,country\n1,DE\n2\n", (), "Line 3"),
            ("rows.csv", b"amount,country\n1,\xff\n", (), "not UTF-8"),
            ("rows.ndjson", '{"amount": 1, "country": "DE"}\n{"amount"', (), "Line 2"),
            ("rows.parquet", "PAR1", (), "not a valid Parquet file"),
            ("rows.npz", "PK", (), "archive cannot be read"),
            ("rows.csv", "amount,country,id\n1,DE,2\n", ("--reference", "ids"), "did you mean `id`?"),
            ("rows.csv", "amount,country\n1,DE\n", ("--drop", "note"), "no column `note`"),
            ("rows.csv", "amount,country,label\n1,DE,x\n", (), "--drop label"),
            ("rows.csv", "amount,country\n1,DE\n", ("--out", "rows.xlsx"), ".parquet"),
            ("rows.csv", "amount,country\n1,DE\n", ("--out", "missing/rows.csv"), "cannot be written"),
        ],
    )
    def test_nothing_is_sent(
        self,
        served: InThread,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        text: str | bytes,
        options: tuple[str, ...],
        said: str,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
        before = predicted_rows(served)
        done = predict(served, Path(name), *options)
        assert done.exit_code == 2, (done.stderr, done.exception)
        assert said in done.stderr
        assert [path.name for path in tmp_path.iterdir()] == [name]
        assert predicted_rows(served) == before

    def test_a_table_is_not_overwritten_by_its_predictions(self, served: InThread, tmp_path: Path) -> None:
        file = written(tmp_path / "rows.csv", payments(3))
        assert predict(served, file, "--out", file).exit_code == 2
        assert len(read(file)) == 3

    def test_the_service_refuses_the_whole_run(self, served: InThread, tmp_path: Path) -> None:
        file = written(tmp_path / "rows.csv", payments(3))
        assert predict(served, file, "--policy", "nobody").exit_code == 4
        assert predict(served, file, model="nobody").exit_code == 4
        assert CliRunner().invoke(app, ["predict", str(file), "--url", served.url]).exit_code == 4, "two models"
        assert predict(served, file, "--url", "http://127.0.0.1:1").exit_code == 3
        assert list(tmp_path.iterdir()) == [file]

    @pytest.mark.parametrize("arguments", [("a.csv", "b.csv"), ("a.csv", "b.png"), ("b.png", "--resume")])
    def test_wrong_usage(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
        monkeypatch.chdir(tmp_path)
        for name in ("a.csv", "b.csv", "b.png"):
            Path(name).write_text("")
        assert CliRunner().invoke(app, ["predict", *arguments]).exit_code == 2


class TestInterruptedRuns:
    def test_ctrl_c_keeps_what_is_answered_and_resume_sends_only_the_rest(
        self, own: InThread, hold: Callable[..., HeldUp], spawn: Spawn, tmp_path: Path
    ) -> None:
        rows = payments(200)
        rows[3][1] = "a lot"
        file, out = written(tmp_path / "rows.csv", rows), tmp_path / "rows.predictions.csv"
        journal = tmp_path / "rows.predictions.csv.unfinished"
        held = hold(own.runtime.models.get("payments").plane)
        run = spawn_predict(spawn, own, file, "--batch", "10", "--connections", "2")
        held.wait_until_busy()
        run.send_signal(signal.SIGINT)
        assert run.stderr is not None
        first = run.stderr.readline()
        assert "Stopping" in first
        held.go.set()
        _, said = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 130, said
        assert "40 of 200 rows are finished" in said
        assert predicted_rows(own) == 39
        assert not out.exists()

        refused = predict(own, file)
        assert refused.exit_code == 2
        assert "--resume" in refused.stderr
        assert predict(own, file, "--resume", "--policy", "triage").exit_code == 2, "other options"
        journal.write_bytes(journal.read_bytes() + b'{"prediction_id": "half a l')  # as a power cut leaves it
        done = predict(own, file, "--resume", "--batch", "64")
        assert done.exit_code == 1, done.stderr
        assert "200 rows, 40 of them before" in done.stdout
        assert predicted_rows(own) == 199
        found = read(out)
        assert [place for place, row in enumerate(found) if row["error"]] == [3]
        assert len({row["prediction_id"] for row in found}) == 200
        assert [row["tx"] for row in found] == [row[0] for row in rows]
        assert sorted(path.name for path in tmp_path.glob("rows*")) == ["rows.csv", "rows.predictions.csv"]

    def test_a_file_that_has_changed_is_not_resumed(self, own: InThread, tmp_path: Path) -> None:
        rows = payments(60)
        rows[30][1] = "a lot"
        file = written(tmp_path / "rows.csv", rows)
        options = ("--strict", "--batch", "10", "--connections", "1", "--resume")
        done = predict(own, file, *options)
        assert done.exit_code == 4, (done.stderr, done.exception)
        rows[30][1] = "5"
        written(file, rows)
        done = predict(own, file, *options)
        assert done.exit_code == 2, (done.stderr, done.exception)
        assert "differs in: file" in done.stderr
        (tmp_path / "rows.predictions.csv.unfinished").unlink()
        done = predict(own, file, *options)
        assert done.exit_code == 0, (done.stderr, done.exception)

    def test_a_restart_of_the_service_is_waited_for(
        self, start: Callable[..., InThread], folders: dict[str, Path], spawn: Spawn, tmp_path: Path
    ) -> None:
        service = start(**folders)
        rows = payments(1200)
        file = written(tmp_path / "rows.csv", rows)
        journal = tmp_path / "rows.predictions.csv.unfinished"
        run = spawn_predict(spawn, service, file, "--batch", "4")
        until(lambda: journal.exists() and journal.read_bytes().count(b"\n") > 1)
        service.close()
        first = journal.read_bytes().count(b"\n") - 1
        start(**folders, port=int(service.url.rpartition(":")[2]))
        said, complaints = run.communicate(timeout=PATIENCE_S)
        assert first < 1200
        assert (run.returncode, complaints) == (0, "")
        assert "1,200 rows" in said
        found = read(tmp_path / "rows.predictions.csv")
        np.testing.assert_allclose([float(row["p_fraud"]) for row in found], expected(rows), atol=1e-5)
