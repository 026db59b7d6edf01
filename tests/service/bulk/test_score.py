"""`candor score`: what is written and logged, how an interrupted run goes on, and what is refused."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import fsspec
import numpy as np
import pytest
from arro3.core import Array, DataType, RecordBatch, RecordBatchReader
from arro3.io import read_parquet, write_parquet
from sqlalchemy import select
from typer.testing import CliRunner

from service.bulk import Options, Summary, score
from service.bulk.inputs import Source
from service.bulk.output import Folder
from service.cli import app
from service.errors import CandorError, ConfigurationError, InputValueError
from service.settings import Settings
from service.state import tables
from tests.children import children_of
from tests.conftest import BIN
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

from .. import remote_models
from ..conftest import Digits, InThread
from ..payments import HEADER, LABELS, expected, folders_of, payments, read, written

ADDED = ["prediction_id", "label", "confidence", "p_genuine", "p_fraud", "action", "revision"]


@pytest.fixture(scope="module")
def folders(digits: Digits, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return folders_of(digits, tmp_path_factory)


@pytest.fixture(scope="module")
def served(launch_many: Callable[..., InThread], folders: dict[str, Path], tmp_path_factory: Any) -> Iterator[InThread]:
    running = launch_many(tmp_path_factory.mktemp("state"), **folders)
    yield running
    running.close()


@pytest.fixture
def settings(folders: dict[str, Path]) -> Settings:
    return Settings(**folders)


def scored(settings: Settings, source: Any, output: Any, **options: Any) -> Summary:
    """Score in this process, unless told otherwise."""
    return score(source, output, Options(**{"model": "payments", "processes": 1} | options), settings=settings)


def rows_of(output: Path) -> list[dict[str, Any]]:
    """Return the rows of all parts, in order."""
    found: list[dict[str, Any]] = []
    for part in sorted(output.glob("part-*")):
        if part.suffix == ".csv":
            found += read(part)
        elif part.suffix == ".ndjson":
            found += [json.loads(line) for line in part.read_text().splitlines()]
        else:
            table = read_parquet(part).read_all()
            columns = [table.column(name).to_pylist() for name in table.schema.names]
            found += [dict(zip(table.schema.names, cells, strict=True)) for cells in zip(*columns, strict=True)]
    return found


def fraud_of(rows: list[dict[str, Any]]) -> list[float]:
    return [float(row["p_fraud"]) for row in rows]


class TestRows:
    def test_every_row_is_written_with_its_decision_by_several_processes(
        self, folders: dict[str, Path], tmp_path: Path
    ) -> None:
        rows = payments(700)
        file, out = written(tmp_path / "größe.csv", rows), tmp_path / "scored"
        arguments = ["--model", "payments", "--processes", "2", "--json"]
        arguments += ["--bundles", folders["bundles"], "--policies", folders["policies"]]
        done = subprocess.run(
            [BIN / "candor", "score", file, out, "--policy", "triage", "--part-rows", "150", *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        summary = json.loads(done.stdout)
        assert (summary["rows"], summary["parts"], summary["revision"], summary["policy"]) == (
            *(700, 5, "v1"),
            "triage@1",
        )
        assert {path.name for path in out.iterdir()} == {f"part-{n:05d}.csv" for n in range(5)} | {"manifest.json"}
        found = rows_of(out)
        assert list(found[0]) == [*HEADER, *ADDED]
        assert [[row[name] for name in HEADER] for row in found] == rows
        fraud = expected(rows)
        np.testing.assert_allclose(fraud_of(found), fraud, atol=1e-5)
        assert [row["label"] for row in found] == [LABELS[int(p > 0.5)] for p in fraud]
        assert [row["action"] for row in found] == ["block" if p >= 0.9 else "allow" for p in fraud]
        assert sum(summary["actions"].values()) == 700
        assert len({row["prediction_id"] for row in found}) == 700

    def test_a_promise_that_is_not_certified_is_said(self, folders: dict[str, Path], tmp_path: Path) -> None:
        policy = tmp_path / "policies" / "payments" / "strict.yaml"
        policy.parent.mkdir(parents=True)
        bands = "[{action: block, when: {min_precision: 0.9999}}, {action: review}]"
        policy.write_text(f"id: strict\npositive: fraud\nbands: {bands}\n")
        file, out = written(tmp_path / "rows.csv", payments(5)), tmp_path / "out"
        arguments = ["score", file, out, "--model", "payments", "--policy", "strict", "--processes", "1"]
        arguments += ["--bundles", folders["bundles"], "--policies", tmp_path / "policies"]
        done = CliRunner().invoke(app, list(map(str, arguments)))
        assert done.exit_code == 0, (done.output, done.exception)
        assert done.stderr.startswith("Every row gets 'review': block is not certified, because ")
        done = CliRunner().invoke(app, [*map(str, arguments), "--resume", "--json"])
        (said,) = json.loads(done.stdout)["warnings"]
        assert said.startswith("Every row gets 'review'")

    def test_formats_in_and_out_hold_the_same_rows(self, settings: Settings, tmp_path: Path) -> None:
        rows = payments(50)
        fraud = expected(rows)
        amounts = [None if row[1] == "" else float(row[1]) for row in rows]
        texts = {name: [row[place] or None for row in rows] for place, name in enumerate(HEADER)}
        plain = written(tmp_path / "rows.csv", rows).read_bytes()
        (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(plain))
        (tmp_path / "rows.csv.bz2").write_bytes(bz2.compress(plain))
        (tmp_path / "rows.ndjson").write_text(
            "".join(
                json.dumps({**{name: texts[name][row] for name in HEADER}, "amount": amounts[row]}) + "\n"
                for row in range(50)
            )
        )
        columns = {name: Array(texts[name], type=DataType.string()) for name in HEADER}
        batch = RecordBatch.from_pydict(columns | {"amount": Array(amounts, type=DataType.float32())})
        write_parquet(RecordBatchReader.from_batches(batch.schema, [batch]), tmp_path / "rows.parquet")
        arrays = {name: np.array([text or "" for text in texts[name]]) for name in HEADER}
        amount = np.array([np.nan if each is None else each for each in amounts], np.float32)
        np.savez(tmp_path / "rows.npz", **arrays | {"amount": amount, "pixels": np.zeros((50, 2, 2))})
        for source in ("rows.csv", "rows.csv.gz", "rows.csv.bz2", "rows.ndjson", "rows.parquet", "rows.npz"):
            for ending in ("ndjson",) if source == "rows.ndjson" else ("csv", "ndjson", "parquet"):
                out = tmp_path / f"{source}.{ending}"
                summary = scored(settings, tmp_path / source, out, format=ending, part_rows=20, reference="tx")
                assert (summary.rows, summary.parts) == (50, 3)
                found = rows_of(out)
                assert list(found[0]) == [*HEADER, *ADDED], (source, ending)
                np.testing.assert_allclose(fraud_of(found), fraud, atol=1e-5)
                assert [row["tx"] for row in found] == texts["tx"]
                assert [row["note"] or None for row in found] == texts["note"]

    def test_a_folder_is_scored_file_by_file_and_an_empty_one_is_no_rows(
        self, settings: Settings, tmp_path: Path
    ) -> None:
        rows = payments(90)
        (tmp_path / "days" / "march").mkdir(parents=True)
        for name, part in (("a.csv", rows[:40]), ("b.csv", []), ("march/c.csv", rows[40:])):
            written(tmp_path / "days" / name, part)
        (tmp_path / "days" / "_SUCCESS").touch()
        summary = scored(settings, tmp_path / "days", tmp_path / "out", drop=("note",), prefix="our_")
        assert (summary.rows, summary.parts) == (90, 2)
        found = rows_of(tmp_path / "out")
        assert list(found[0]) == [*HEADER[:3], *(f"our_{name}" for name in ADDED)]
        assert [row["tx"] for row in found] == [row[0] for row in rows]
        written(tmp_path / "none.csv", [])
        summary = scored(settings, tmp_path / "none.csv", tmp_path / "nothing")
        assert (summary.rows, summary.parts) == (0, 0)
        assert json.loads((tmp_path / "nothing" / "manifest.json").read_text())["finished"]

    def test_urls_of_fsspec_are_read_and_written(self, settings: Settings, tmp_path: Path) -> None:
        rows = payments(60)
        content = written(tmp_path / "rows.csv", rows).read_bytes()
        with fsspec.open("memory://payments/day/rows.csv", "wb") as file:
            file.write(content)
        summary = scored(settings, "memory://payments", "memory://scored/run", part_rows=25)
        assert (summary.rows, summary.parts) == (60, 3)
        files = fsspec.filesystem("memory")
        files.get("/scored/run", str(tmp_path / "copy"), recursive=True)
        np.testing.assert_allclose(fraud_of(rows_of(tmp_path / "copy")), expected(rows), atol=1e-5)
        with pytest.raises(InputValueError, match="finished"):
            scored(settings, "memory://payments", "memory://scored/run", part_rows=25)


class Ranges(SimpleHTTPRequestHandler):
    """A web server that gives parts of files, as most do and Python's does not; a folder `403` is closed."""

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if self.path.startswith("/403"):
            self.send_error(403)
        elif path.is_file():
            content = path.read_bytes()
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
            first, last = (0, len(content) - 1) if wanted is None else map(int, wanted.groups())
            part = content[first : last + 1]
            self.send_response(200 if wanted is None else 206)
            self.send_header("accept-ranges", "bytes")
            self.send_header("content-range", f"bytes {first}-{first + len(part) - 1}/{len(content)}")
            self.send_header("content-length", str(len(part)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else part)
        else:
            super().do_GET()

    do_HEAD = do_GET  # noqa: N815  # http.server's

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Address and folder of a web server."""
    folder = tmp_path / "web"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Ranges, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()
        thread.join()


class TestFilesOfAServer:
    """Files of fsspec read parts of what is stored, unlike those in memory."""

    @pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.ndjson", "rows.parquet", "rows.npz"])
    def test_every_format(self, web: tuple[str, Path], settings: Settings, tmp_path: Path, name: str) -> None:
        url, folder = web
        rows = payments(50)
        amounts = [None if row[1] == "" else float(row[1]) for row in rows]
        if name.endswith("npz"):
            countries = np.array([row[2] for row in rows])
            np.savez(folder / name, amount=np.array(amounts, np.float64), country=countries)
        elif name.endswith("parquet"):
            columns = {
                "amount": Array(amounts, DataType.float64()),
                "country": Array([r[2] or None for r in rows], DataType.string()),
            }
            write_parquet(RecordBatch.from_pydict(columns), folder / name)
        elif name.endswith("ndjson"):
            lines = ({"amount": a, "country": row[2] or None} for a, row in zip(amounts, rows, strict=True))
            (folder / name).write_text("\n".join(map(json.dumps, lines)))
        else:
            content = written(tmp_path / "rows.csv", rows).read_bytes()
            (folder / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        summary = scored(settings, f"{url}/{name}", tmp_path / "out", part_rows=20)
        assert (summary.rows, summary.parts) == (50, 3)
        np.testing.assert_allclose(fraud_of(rows_of(tmp_path / "out")), expected(rows), atol=1e-5)

    def test_a_folder(self, web: tuple[str, Path], settings: Settings, tmp_path: Path) -> None:
        url, folder = web
        for day in ("1", "2"):
            (folder / "days" / day).mkdir(parents=True)
            written(folder / "days" / day / "rows.csv", payments(20))
        summary = scored(settings, f"{url}/days/", tmp_path / "out")
        assert (summary.rows, summary.parts) == (40, 2)

    def test_what_the_server_says_is_said(self, web: tuple[str, Path], settings: Settings, tmp_path: Path) -> None:
        url, _ = web
        for address, said in {
            f"{url}/none.csv": "404",
            f"{url}/403/rows.csv": "403.*Forbidden",
            f"http://127.0.0.1:{free_port()}/rows.csv": "Cannot connect",
            "memory://nowhere/rows.csv": "nothing is there",
        }.items():
            with pytest.raises(ConfigurationError, match=f"cannot be read: .*{said}"):
                scored(settings, address, tmp_path / "out")


class TestAsTheService:
    """The answers of the service for the same rows."""

    def compared(self, served: InThread, tmp_path: Path, model: str, file: Path, body: Any, **options: Any) -> None:
        answer = served.http.post(f"/v1/models/{model}/predict", json=body).json()["predictions"]
        settings = served.runtime.settings
        url = settings.database_url
        out = tmp_path / f"{model}-{file.suffix}"
        summary = score(
            file, out, Options(**{"model": model, "processes": 1} | options), settings=settings, database_url=url
        )
        assert summary.revision == "r1"
        found = rows_of(out)
        assert [row["label"] for row in found] == [row["label"] for row in answer]
        actions = [row["decision"]["action"] if row.get("decision") else "" for row in answer]
        assert [row["action"] or "" for row in found] == actions
        for label in answer[0]["probabilities"]:
            wanted = [row["probabilities"][label] for row in answer]
            np.testing.assert_allclose([float(row[f"p_{label}"]) for row in found], wanted, atol=1e-6)

    def test_tables(self, served: InThread, tmp_path: Path) -> None:
        rows = payments(200)
        body = [{"amount": row[1], "country": row[2]} for row in rows]
        self.compared(served, tmp_path, "payments", written(tmp_path / "rows.csv", rows), {"inputs": body})

    def test_images(self, served: InThread, digits: Digits, tmp_path: Path) -> None:
        np.savez(tmp_path / "images.npz", inputs=digits.images[:60])
        self.compared(served, tmp_path, "digits", tmp_path / "images.npz", {"inputs": digits.images[:60].tolist()})
        settings = served.runtime.settings
        scored(settings, tmp_path / "images.npz", tmp_path / "lines", model="digits", format="ndjson")
        found = rows_of(tmp_path / "lines")
        assert len(found) == 60
        assert list(found[0])[:2] == ["prediction_id", "label"], "nothing of the input is kept"

    def test_named_tensors(self, served: InThread, tmp_path: Path) -> None:
        ids, mask = np.arange(35).reshape(7, 5) % 20, np.arange(35).reshape(7, 5) % 3 > 0
        rows = [{"ids": row.tolist(), "mask": kept.tolist()} for row, kept in zip(ids, mask, strict=True)]
        np.savez(tmp_path / "rows.npz", ids=ids, mask=mask)
        (tmp_path / "rows.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
        written(tmp_path / "rows.csv", [[json.dumps(row["ids"]), json.dumps(row["mask"])] for row in rows], [*rows[0]])
        for name in ("rows.npz", "rows.ndjson", "rows.csv"):
            self.compared(served, tmp_path, "sentences", tmp_path / name, {"inputs": rows})

    def test_scores_alone(self, served: InThread, tmp_path: Path) -> None:
        scores = np.random.default_rng(5).random(40).round(4)
        pairs = [[round(1 - p, 4), p] for p in scores.tolist()]
        file = written(tmp_path / "rows.csv", [[str(p), str(q)] for q, p in pairs], ["p1", "p0"])
        self.compared(served, tmp_path, "vendor", file, {"scores": scores.tolist()}, scores=("p1",))
        self.compared(served, tmp_path, "bureau", file, {"probabilities": pairs}, scores=("p0", "p1"))

    def test_segments(self, service: InThread, digits: Digits, tmp_path: Path) -> None:
        """Each row is decided with the thresholds of its segment; an empty cell is a row of none."""
        policy = {
            "positive": "top",
            "bands": [{"action": "accept", "when": {"min_probability": 0.9}}, {"action": "check"}],
            "segments": {"values": ["bright", "dim"], "fallback": "review"},
        }
        made = service.http.put("/v1/models/digits/policies/by-lamp", json=policy)
        assert made.status_code == 201, made.text
        service.activate(made.json()["id"])
        images, segments = digits.images[:120], ["bright", "dim", "west", ""] * 30
        np.savez(tmp_path / "rows.npz", inputs=images, lamp=np.array(segments))
        body = {"inputs": images.tolist(), "segments": [segment or None for segment in segments]}
        answer = service.http.post("/predict", params={"policy": "by-lamp"}, json=body).json()["predictions"]
        settings = service.runtime.settings
        options = Options(policy="by-lamp", segment="lamp", processes=1, log=True)
        url = settings.database_url
        summary = score(tmp_path / "rows.npz", tmp_path / "out", options, settings=settings, database_url=url)
        found = rows_of(tmp_path / "out")
        assert [row["action"] for row in found] == [row["decision"]["action"] for row in answer]
        assert set(summary.actions) > {"accept", "review"}
        assert {row["action"] for row in found[2::4]} == {"review"}
        logged = select(tables.predictions.c.id, tables.predictions.c.segment)
        with service.runtime.database.connect() as connection:
            stored = dict(map(tuple, connection.execute(logged)))
        assert [stored[row["prediction_id"]] for row in found] == body["segments"]

    def test_a_model_on_another_server(self, served: InThread, digits: Digits, tmp_path: Path) -> None:
        """Its batches go to that server, which has limits of its own; the answers are those of the model itself."""
        remote_models.write(tmp_path / "bundles", digits.bundle, remote_models.upstream_of(served.url))
        rows = np.resize(digits.images, (2_500, *digits.images.shape[1:]))
        np.savez(tmp_path / "rows.npz", inputs=rows)
        far = Settings(bundles=str(tmp_path / "bundles"))
        assert scored(far, tmp_path / "rows.npz", tmp_path / "far", model="far").rows == len(rows)
        scored(served.runtime.settings, tmp_path / "rows.npz", tmp_path / "near", model="digits")
        there, here = rows_of(tmp_path / "far"), rows_of(tmp_path / "near")
        assert [row["label"] for row in there] == [row["label"] for row in here]
        columns = [name for name in here[0] if name.startswith("p_")]
        for one, other in zip(there, here, strict=True):
            assert [float(one[name]) for name in columns] == pytest.approx(
                [float(other[name]) for name in columns], abs=1e-6
            )

    def test_a_server_that_is_gone_ends_the_run_which_goes_on_later(
        self, start: Callable[..., InThread], digits: Digits, tmp_path: Path
    ) -> None:
        near = start()
        hostile = remote_models.Hostile(near.url)
        np.savez(tmp_path / "rows.npz", inputs=digits.images[:90])
        try:
            remote_models.write(tmp_path / "bundles", digits.bundle, remote_models.upstream_of(hostile.url))
            far = Settings(bundles=str(tmp_path / "bundles"))
            whole = scored(far, tmp_path / "rows.npz", tmp_path / "whole", model="far", part_rows=30)
            assert whole.rows == 90
            asked, hostile.asked = hostile.asked, 0

            def break_off(handler: Any, found: Any) -> None:
                names = ("content-type", "inference-header-content-length")
                kept = {name: found.headers[name] for name in names if name in found.headers}
                if hostile.asked < asked:
                    remote_models.give(handler, found.content, found.status_code, **kept)
                else:
                    remote_models.give(handler, b"overloaded", 503)

            hostile.answer = break_off
            with pytest.raises(CandorError, match="does not answer") as caught:
                scored(far, tmp_path / "rows.npz", tmp_path / "out", model="far", part_rows=30)
            assert not isinstance(caught.value, InputValueError), "no row is at fault"
            hostile.answer = None
            summary = scored(far, tmp_path / "rows.npz", tmp_path / "out", model="far", part_rows=30, resume=True)
            assert (summary.rows, summary.kept) == (90, 60)
        finally:
            hostile.close()


class TestLogged:
    def test_labels_join_by_reference_and_by_id_once(self, on_both: InThread, digits: Digits, tmp_path: Path) -> None:
        """Bulk rows are in the state that a running service writes to, on SQLite and on PostgreSQL."""
        images = np.resize(digits.images, (1_200, *digits.images.shape[1:]))
        np.savez(tmp_path / "rows.npz", inputs=images, scan=np.arange(1_200), patient=np.arange(1_200) // 3)
        settings = on_both.runtime.settings
        options = Options(processes=1, reference="scan", group="patient", part_rows=1_100, log=True)
        summary = score(
            tmp_path / "rows.npz", tmp_path / "out", options, settings=settings, database_url=settings.database_url
        )
        assert summary.rows == 1_200
        found = rows_of(tmp_path / "out")
        items = [{"reference": "17", "label": "3"}, {"prediction_id": found[1_150]["prediction_id"], "label": "5"}]
        answer = on_both.http.post("/feedback", json={"items": items}).json()
        assert [item["status"] for item in answer["items"]] == ["stored", "stored"]
        logged = "SELECT count(*), count(DISTINCT cluster), min(confidence) FROM predictions"
        with on_both.runtime.database.connect() as connection:
            before = connection.exec_driver_sql(logged).one()
        assert before[:2] == (1_200, 400)
        manifest = tmp_path / "out" / "manifest.json"
        document = json.loads(manifest.read_text())
        manifest.write_text(json.dumps(document | {"finished": False, "parts": []}))
        again = Options(**{**vars(options), "resume": True})
        score(tmp_path / "rows.npz", tmp_path / "out", again, settings=settings, database_url=settings.database_url)
        with on_both.runtime.database.connect() as connection:
            assert connection.exec_driver_sql(logged).one() == before, "what is scored again is logged once"

    def test_logging_needs_a_state(self, settings: Settings, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="needs the state"):
            scored(settings, written(tmp_path / "rows.csv", payments(3)), tmp_path / "out", log=True)


class TestRefusedRows:
    BAD = ((0, "a lot"), (7, "inf"), (8, "12,5"), (299, "x"))

    def bad_rows(self, tmp_path: Path) -> tuple[list[list[str]], Path]:
        rows = payments(300)
        for bad, amount in self.BAD:
            rows[bad][1] = amount
        rows[40][0] = "x" * 201  # longer than a reference may be
        return rows, written(tmp_path / "rows.csv", rows)

    def test_they_are_written_apart_with_their_line_and_the_exit_code_is_1(
        self, folders: dict[str, Path], tmp_path: Path
    ) -> None:
        rows, file = self.bad_rows(tmp_path)
        out = tmp_path / "out"
        arguments = ["score", file, out, "--model", "payments", "--reference", "tx", "--on-error", "skip"]
        arguments += ["--part-rows", "100", "--processes", "1", "--bundles", folders["bundles"]]
        done = CliRunner().invoke(app, list(map(str, arguments)))
        assert done.exit_code == 1, (done.output, done.exception)
        assert "Refused rows: 5. See rejects-" in done.stderr
        good = [row for row in range(300) if row not in (0, 7, 8, 40, 299)]
        found = rows_of(out)
        assert [row["tx"] for row in found] == [rows[row][0] for row in good]
        np.testing.assert_allclose(fraud_of(found), expected([rows[row] for row in good]), atol=1e-5)
        rejects = [json.loads(line) for part in sorted(out.glob("rejects-*")) for line in part.read_text().splitlines()]
        lines = [2 + bad + sum("\n" in row[3] for row in rows[:bad]) for bad in (0, 7, 8, 40, 299)]
        assert [reject["place"] for reject in rejects] == [f"line {line}" for line in lines]
        assert rejects[0]["row"] == dict(zip(HEADER, rows[0], strict=True))
        assert rejects[0]["found"] == "'a lot'"

    def test_the_first_ends_the_run_which_can_then_skip_them(self, settings: Settings, tmp_path: Path) -> None:
        rows, file = self.bad_rows(tmp_path)
        rows[0][1] = "1"
        written(file, rows)
        out = tmp_path / "out"
        line = 2 + 7 + sum("\n" in row[3] for row in rows[:7])
        with pytest.raises(InputValueError, match="is not a number") as caught:
            scored(settings, file, out, part_rows=5, format="parquet")
        assert caught.value.where == f"{file}, line {line}"
        assert len(list(out.glob("part-*"))) == 1
        assert not list(out.glob(".unfinished-*"))
        summary = scored(settings, file, out, part_rows=5, format="parquet", on_error="skip", resume=True)
        assert (summary.rows, summary.kept, summary.rejected) == (297, 5, 3)

    @pytest.mark.parametrize("format_", ["csv", "ndjson", "parquet"])
    def test_a_part_may_have_no_other_rows(self, settings: Settings, tmp_path: Path, format_: str) -> None:
        rows = payments(20)
        for row in rows[:15]:
            row[1] = "a lot"
        out, options = tmp_path / "out", {"part_rows": 10, "format": format_, "on_error": "skip"}
        summary = scored(settings, written(tmp_path / "rows.csv", rows), out, **options)
        assert (summary.rows, summary.rejected, summary.parts) == (5, 15, 2)
        assert [row["tx"] for row in rows_of(out)] == [row[0] for row in rows[15:]]

    def test_scores_that_are_not_finite_are_refused(self, served: InThread, tmp_path: Path) -> None:
        np.savez(tmp_path / "rows.npz", amount=np.array([1.0, 3e38, 2.0]), country=np.array(["DE"] * 3))
        settings = served.runtime.settings
        summary = scored(settings, tmp_path / "rows.npz", tmp_path / "out", on_error="skip")
        assert summary.rows + summary.rejected == 3


class TestInputsThatCannotBeScored:
    def test_an_option_that_does_not_fit_leaves_nothing_behind(self, settings: Settings, tmp_path: Path) -> None:
        file, out = written(tmp_path / "rows.csv", payments(20)), tmp_path / "out"
        with pytest.raises(InputValueError, match="has no column `nope`"):
            scored(settings, file, out, reference="nope")
        for folder, elsewhere in (("bundles", str(tmp_path / "nowhere")), ("policies", tmp_path / "nowhere")):
            with pytest.raises(ConfigurationError, match=f"folder of {folder}"):
                scored(settings.model_copy(update={folder: elsewhere}), file, out)
        assert not out.exists() or not list(out.iterdir())
        assert scored(settings, file, out, reference="tx").rows == 20

    @pytest.mark.parametrize(
        ("name", "content", "options", "said"),
        [
            ("rows.csv", "", {}, "no header"),
            ("rows.csv", "Amuont,country\n1,DE\n", {}, "lacks 1 of the columns"),
            ("rows.csv", "amount,country\n1,DE\n2\n", {}, "one cell for each column"),
            ("rows.csv", b"amount,country\n1,\xff\n", {}, "not UTF-8"),
            ("rows.ndjson", '{"amount": 1, "country": "DE"\n', {}, "Line 1 is not valid JSON"),
            ("rows.ndjson", "[1]\n", {}, "Line 1 is not a JSON object"),
            ("rows.csv", "amount,amount\n1,2\n", {}, "Duplicate column"),
            ("rows.csv.gz", gzip.compress(b"amount,country\n1,DE\n" * 5_000)[:60], {}, "damaged"),
            ("rows.ndjson", '{"amount": 1, "country": "DE"}\n{"amount"', {}, "Line 2"),
            ("rows.ndjson", '{"amount": 1, "country": "DE", "label": 2}\n', {}, "as the output does"),
            ("rows.ndjson", '{"amount": 1, "country": "DE"}\n', {"format": "csv"}, "from line to line"),
            ("rows.parquet", "PAR1", {}, "not a valid Parquet file"),
            ("rows.npz", "PK", {}, "archive cannot be read"),
            ("rows.xlsx", "", {}, "unknown ending"),
            ("rows.csv", "amount,country,id\n1,DE,2\n", {"reference": "ids"}, "no column `ids`"),
            ("rows.csv", "amount,country,label\n1,DE,2\n", {}, "as the output does"),
            ("rows.csv", "amount,country\n1,DE\n", {"drop": ("note",)}, "no column `note`"),
            ("rows.csv", "amount,country\n1,DE\n", {"policy": "nobody"}, "no policy 'nobody'"),
            ("rows.csv", "amount,country\n1,DE\n", {"model": "nobody"}, "no model 'nobody'"),
        ],
    )
    def test_no_part_is_written(
        self, settings: Settings, tmp_path: Path, name: str, content: str | bytes, options: dict[str, Any], said: str
    ) -> None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(Exception, match=said):
            scored(settings, tmp_path / name, tmp_path / "out", **options)
        assert not list((tmp_path / "out").glob("part-*"))

    def test_files_of_a_folder_must_agree(self, settings: Settings, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        written(tmp_path / "in" / "a.csv", payments(3))
        (tmp_path / "in" / "b.csv").write_text("country,amount\nDE,1\n")
        with pytest.raises(InputValueError, match="other columns"):
            scored(settings, tmp_path / "in", tmp_path / "out")
        (tmp_path / "in" / "b.ndjson").write_text("{}\n")
        with pytest.raises(InputValueError, match="several formats"):
            scored(settings, tmp_path / "in", tmp_path / "out2")
        with pytest.raises(ConfigurationError, match="cannot be read"):
            scored(settings, tmp_path / "absent.csv", tmp_path / "out2")

    def test_an_output_with_something_else_in_it_is_refused(self, settings: Settings, tmp_path: Path) -> None:
        file, out = written(tmp_path / "rows.csv", payments(3)), tmp_path / "out"
        out.mkdir()
        (out / "mine.txt").touch()
        with pytest.raises(InputValueError, match="not empty"):
            scored(settings, file, out)
        with pytest.raises(InputValueError, match="inside the input"):
            scored(settings, tmp_path, out)
        with pytest.raises(ConfigurationError, match="cannot be written"):
            scored(settings, file, tmp_path / "out" / "mine.txt" / "out")
        with Folder(tmp_path / "busy").locked(), pytest.raises(ConfigurationError, match="Another process"):
            scored(settings, file, tmp_path / "busy")


class TestInterruptedRuns:
    def spawned(self, folders: dict[str, Path], file: Path, out: Path, *options: str) -> subprocess.Popen[str]:
        arguments = ["--model", "payments", "--part-rows", "100", "--processes", "2", *options]
        return subprocess.Popen(
            # Shells ignore interrupts in the background.
            ["env", "--default-signal=INT", BIN / "candor", "score", file, out, *arguments],
            env=os.environ | {"CANDOR_BUNDLES": str(folders["bundles"]), "CANDOR_POLICIES": str(folders["policies"])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @pytest.mark.parametrize("ends_by", [signal.SIGKILL, signal.SIGINT])
    def test_what_goes_on_is_as_if_it_had_never_stopped(
        self, folders: dict[str, Path], settings: Settings, tmp_path: Path, ends_by: signal.Signals
    ) -> None:
        rows = payments(20_000)
        file, out = written(tmp_path / "rows.csv", rows), tmp_path / "out"
        run = self.spawned(folders, file, out)
        until(lambda: len(list(out.glob("part-*"))) > 1)
        os.killpg(run.pid, ends_by) if ends_by == signal.SIGINT else run.kill()
        _, said = run.communicate(timeout=PATIENCE_S)
        parts = {path.name: path.read_bytes() for path in out.glob("part-*")}
        assert 1 < len(parts) < 200, "it was stopped midway"
        if ends_by == signal.SIGINT:
            assert run.returncode == 130
            assert "--resume" in said
            assert not list(out.glob(".unfinished-*"))
        with pytest.raises(InputValueError, match="unfinished"):
            scored(settings, file, out, part_rows=100)
        summary = scored(settings, file, out, part_rows=100, resume=True)
        assert (summary.rows, summary.parts) == (20_000, 200)
        np.testing.assert_allclose(fraud_of(rows_of(out)), expected(rows), atol=1e-5)
        assert all((out / name).read_bytes() == content for name, content in parts.items())

        whole = tmp_path / "whole"  # the same run, never stopped
        whole.mkdir()
        document = json.loads((out / "manifest.json").read_text()) | {"finished": False, "parts": []}
        (whole / "manifest.json").write_text(json.dumps(document))
        scored(settings, file, whole, part_rows=100, resume=True)
        names = {path.name for path in out.iterdir()}
        assert names == {path.name for path in whole.iterdir()}
        assert all((out / name).read_bytes() == (whole / name).read_bytes() for name in names)

    def test_another_input_model_or_policy_is_refused(
        self, folders: dict[str, Path], settings: Settings, tmp_path: Path
    ) -> None:
        rows = payments(40)
        rows[30][1] = "a lot"
        file, out = written(tmp_path / "rows.csv", rows), tmp_path / "out"
        options = {"part_rows": 10, "resume": True}
        with pytest.raises(InputValueError, match="not a"):
            scored(settings, file, out, **options)
        for other in ({"policy": None, "model": "vendor", "scores": ("amount",)}, {"prefix": "x_"}, {"part_rows": 20}):
            with pytest.raises(InputValueError, match="differs in"):
                scored(settings, file, out, **options | other)
        with pytest.raises(InputValueError, match="differs in: digest, policy"):
            scored(settings.model_copy(update={"policies": None}), file, out, **options)
        rows[30][1] = "5"
        written(file, rows)
        with pytest.raises(InputValueError, match=r"rows\.csv has changed"):
            scored(settings, file, out, **options)

    def test_parts_of_a_file_without_a_digest_are_scored_again(self, settings: Settings, tmp_path: Path) -> None:
        """As when the run was killed before it had read the file to its end."""
        rows = payments(40)
        file, out = written(tmp_path / "rows.csv", rows), tmp_path / "out"
        scored(settings, file, out, part_rows=10)
        document = json.loads((out / "manifest.json").read_text())
        (out / "manifest.json").write_text(json.dumps(document | {"finished": False, "parts": [], "inputs": {}}))
        written(file, rows[:25])
        summary = scored(settings, file, out, part_rows=10, resume=True)
        assert (summary.rows, summary.kept) == (25, 0)
        assert len(rows_of(out)) == 25

    def test_a_part_is_recorded_once_the_digest_of_its_file_is_known(
        self, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file, out = written(tmp_path / "rows.csv", payments(40)), tmp_path / "out"
        recorded: list[tuple[int, int]] = []
        read, digest = Event(), Source.digest

        def slow(source: Source) -> str:
            assert read.wait(PATIENCE_S)
            return digest(source)

        def progress(rows: int, *_: Any) -> None:
            until_now = json.loads((out / "manifest.json").read_text())
            recorded.append((rows, len(until_now["parts"])))
            if rows == 30:
                read.set()

        monkeypatch.setattr(Source, "digest", slow)
        monkeypatch.setattr("service.bulk.manifest._PAUSE_S", 0.0)
        score(file, out, Options(model="payments", processes=1, part_rows=10), settings=settings, progress=progress)
        assert recorded[:4] == [(0, 0), (10, 0), (20, 0), (30, 0)]
        assert len(json.loads((out / "manifest.json").read_text())["parts"]) == 4

    def test_a_process_that_is_killed_is_said(self, folders: dict[str, Path], tmp_path: Path) -> None:
        file, out = written(tmp_path / "rows.csv", payments(20_000)), tmp_path / "out"
        run = self.spawned(folders, file, out)
        until(lambda: len(list(out.glob("part-*"))) > 1)
        (server,) = (pid for pid in children_of(run.pid) if b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(children_of(server)[0], signal.SIGKILL)
        _, said = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 2, said
        assert "ended unexpectedly" in said
        assert "exit code -9" in said


# `ru_maxrss` would be that of the process which started this one, where that is larger.
PEAK = """
import re, sys
from service.bulk import Options, score
score(sys.argv[1], sys.argv[2], Options(model="payments", processes=1, part_rows=20_000))
print(re.search("VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_memory_does_not_grow_with_the_rows(folders: dict[str, Path], tmp_path: Path, format_: str) -> None:
    peaks = []
    for rows in (40_000, 200_000):
        draw = np.random.default_rng(rows)
        file = tmp_path / f"{rows}.{format_}"
        amounts = draw.uniform(0, 300, rows).astype(np.float32)
        if format_ == "csv":
            file.write_text("amount,country\n" + "".join(f"{amount:.3f},DE\n" for amount in amounts.tolist()))
        else:
            batch = RecordBatch.from_pydict(
                {"amount": Array.from_numpy(amounts), "country": Array(["DE"] * rows, type=DataType.string())}
            )
            reader = RecordBatchReader.from_batches(batch.schema, [batch])
            write_parquet(reader, file, max_row_group_size=40_000)
        done = subprocess.run(
            [sys.executable, "-c", PEAK, file, tmp_path / f"out-{rows}"],
            env=os.environ | {"CANDOR_BUNDLES": str(folders["bundles"])},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        peaks.append(int(done.stdout) / 1024)
        file.unlink()
    assert peaks[1] < peaks[0] + 12, f"{peaks} MiB for 40,000 and 200,000 rows"
