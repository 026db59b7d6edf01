"""Labelled sets over HTTP: uploaded whole or not at all, refitted with, and what they may certify."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import socket
import zipfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest
from typer.testing import CliRunner

from candor import AsyncClient, Client
from service.cli import app
from service.inference.session import Session
from service.state.keys import KeyStore
from tests.array_files import npz
from tests.waiting import WAIT, until

NPZ = "application/x-npz"
CSV = "text/csv"
NDJSON = "application/x-ndjson"
PARQUET = "application/vnd.apache.parquet"
SETS = "/v1/models/digits/labelled-sets"
K = 10
# Without a process for each file and each recalibration, where the process is not what is tested.
here = pytest.mark.usefixtures("checks_here", "refits_here")


def upload(service: Any, body: bytes | str, kind: str = NPZ, **options: Any) -> httpx.Response:
    headers = {"content-type": kind} | options.pop("headers", {})
    return service.http.post(SETS, content=body, headers=headers, params=options)


def made(response: httpx.Response, status: int = 201) -> dict[str, Any]:
    assert response.status_code == status, response.text
    document = response.json()
    assert response.headers["location"] == f"{SETS}/{document['id']}"
    return document


def refused(response: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    document = response.json()
    assert document["type"] == f"/errors/{kind}", document
    return document


def refit(service: Any, labelled_set: str, **body: Any) -> dict[str, Any]:
    response = service.recalibrate(source={"labelled_set": labelled_set}, **body)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.fixture(scope="module")
def logits(digits: Any) -> npt.NDArray[np.float32]:
    """What the model makes of the dimmed images."""
    session = Session(digits.bundle, provider="cpu", threads=1)
    return np.concatenate([session.run(digits.dimmed[i : i + 64]) for i in range(0, len(digits.dimmed), 64)])


def left_in(service: Any) -> list[Path]:
    folder = service.runtime.settings.uploads
    return list(folder.iterdir()) if folder.exists() else []


@pytest.fixture
def processes_once(request: pytest.FixtureRequest, on_both: Any) -> None:
    """Let processes of their own check and recalibrate beside SQLite alone.

    On PostgreSQL they do when a set is uploaded at one replica and refitted at another.
    """
    if request.node.callspec.params["on_both"] != "sqlite":
        for here_ in ("checks_here", "refits_here"):
            request.getfixturevalue(here_)


@pytest.mark.usefixtures("processes_once")
def test_a_declared_set_refits_certifies_and_gates(on_both: Any, digits: Any, logits: Any) -> None:
    labels = np.array(digits.labels)
    found = made(upload(on_both, npz(label=labels, logits=logits), represents="traffic"))
    assert (found["rows"], found["kind"], sum(found["labels"].values())) == (len(labels), "logits", len(labels))
    assert found["labels"]["7"] == digits.labels.count("7")
    assert on_both.http.get(SETS).json() == {"items": [found]}
    assert on_both.http.get(f"{SETS}/{found['id']}").json() == found

    again = made(upload(on_both, npz(label=labels, logits=logits), represents="traffic"), status=200)
    assert again == found, "the same bytes are the same set"
    refused(upload(on_both, npz(label=labels, logits=logits)), 409, "labelled-set-state")

    answer = refit(on_both, found["id"], mode="propose", calibrator="temperature")
    same = {"labelled_set": found["id"]} | {key: found[key] for key in ("sha256", "represents", "rows", "kind")}
    assert answer["source"] == same | {
        "uploaded_by": found["by"],
        "uploaded_by_key": None,
        "uploaded_at": found["created_at"],
    }
    assert answer["gate"]["passed"], answer["summary"]
    assert sum(answer["rows"][part] for part in ("fit", "certify", "gate")) == len(labels)
    certificate = answer["policies"]["auto-read"]["certified"]["accept"]
    assert (certificate["basis"], certificate["window"], certificate["looks"]) == ("uploaded", None, 1)
    assert answer["gate"]["attempt"] == 1

    # Looks count for all rows that are uploaded, whatever set they come in.
    fewer = made(upload(on_both, npz(label=labels[:-1], logits=logits[:-1]), represents="traffic"))
    second = refit(on_both, fewer["id"], mode="dry_run", calibrator="temperature")
    assert second["gate"]["attempt"] == 2
    assert second["policies"]["auto-read"]["certified"]["accept"]["looks"] == 2

    assert on_both.http.delete(f"{SETS}/{found['id']}").json() == found
    refused(on_both.http.get(f"{SETS}/{found['id']}"), 404, "unknown-labelled-set")
    refused(on_both.recalibrate(source={"labelled_set": found["id"]}), 404, "unknown-labelled-set")
    assert left_in(on_both) == []


@here
def test_inputs_give_what_their_logits_give(service: Any, digits: Any, logits: Any) -> None:
    groups = np.array([f"g{row}" for row in range(len(logits))])
    same = {"label": np.array(digits.labels), "group": groups}
    answers = [
        refit(service, made(upload(service, npz(**same, **values)))["id"], calibrator="temperature")
        for values in ({"logits": logits}, {"inputs": digits.dimmed})
    ]
    first, second = (answer["calibrator"]["after"]["temperature"] for answer in answers)
    assert first == pytest.approx(second, rel=1e-4)
    assert answers[0]["rows"] == answers[1]["rows"], "groups decide the roles"


@here
def test_an_undeclared_set_certifies_nothing_and_is_never_activated_unattended(
    service: Any, digits: Any, logits: Any
) -> None:
    found = made(upload(service, npz(label=np.array(digits.labels), logits=logits)))
    answer = refit(service, found["id"], mode="activate", calibrator="temperature")
    assert answer["state"] == "proposed"
    assert "declared" in answer["gate"]["unattended_reason"]
    assert answer["policies"]["auto-read"]["certified"]["accept"]["basis"] == "reference"


@here
def test_a_set_is_the_word_of_its_uploader(service: Any, digits: Any, logits: Any) -> None:
    """Nothing tells made-up rows from these, so whoever activates it is told where they come from."""
    found = made(upload(service, npz(label=np.array(digits.labels), logits=logits), represents="traffic"))
    answer = refit(service, found["id"], mode="activate", calibrator="temperature")
    assert answer["gate"]["passed"], answer["summary"]
    assert answer["state"] == "proposed"
    assert "uploaded" in answer["gate"]["unattended_reason"]
    revision, epoch = answer["revision"], service.revisions()["epoch"]
    refusal = refused(service.move(f"revisions/{revision}/activate", epoch, accept_change=True), 409, "revision-state")
    assert f"fitted on {found['id']}, which was uploaded by" in refusal["detail"]
    assert "model's outputs" in refusal["detail"]
    for page in (f"{revision}/activate?epoch={epoch}", revision):
        shown = service.http.get(f"/dashboard/models/digits/revisions/{page}").text
        assert f"Labels: labelled set {found['id']}, uploaded by {found['by']}" in shown
    assert service.http.get(f"/v1/models/digits/revisions/{revision}").json()["report"]["source"] == answer["source"]
    assert service.activate(revision)["active"] == revision
    service.rollback()


@here
def test_four_eyes_count_the_uploader(launch: Any, tmp_path: Path, digits: Any, logits: Any) -> None:
    service = launch(tmp_path, four_eyes=True)
    store = KeyStore(service.runtime.database)
    keys = {name: store.create(name, ["feedback", "calibrate", "approve"])[1] for name in ("ann", "bob", "eve")}
    service.application._access.refresh()

    def use(name: str) -> None:
        service.http.headers["authorization"] = f"Bearer {keys[name]}"

    try:
        use("eve")
        found = made(upload(service, npz(label=np.array(digits.labels), logits=logits), represents="traffic"))
        use("bob")
        revision = refit(service, found["id"], mode="propose", calibrator="temperature")["revision"]
        wanted, epoch = {"reason": "it fits", "accept_change": True}, service.revisions()["epoch"]
        for name, status in (("bob", 403), ("eve", 403), ("ann", 200)):
            use(name)
            assert service.move(f"revisions/{revision}/activate", epoch, **wanted).status_code == status
    finally:
        service.close()


@here
def test_rows_may_be_the_body_of_a_refit(service: Any, digits: Any, logits: Any) -> None:
    names = [str(label) for label in range(K)]
    lines = [",".join(["label", *names])]
    lines += [",".join([label, *map(str, row)]) for label, row in zip(digits.labels, logits.tolist(), strict=True)]
    options = {"mode": "propose", "calibrator": "temperature", "represents": "traffic", "flipped": "0.0001"}
    response = service.http.post(
        "/recalibrate",
        params=options,
        content=gzip.compress("\n".join(lines).encode()),
        headers={"content-type": CSV, "content-encoding": "gzip", **WAIT},
    )
    assert response.status_code == 200, response.text
    (found,) = service.http.get(SETS).json()["items"]
    assert response.json()["source"]["labelled_set"] == found["id"]
    caps = [one for one in response.json()["gate"]["caps"] if one["name"] == "flipped"]
    assert {one["at_most"] for one in caps} == {0.0001}
    assert not all(one["holds"] for one in caps)
    by_array = made(upload(service, npz(label=np.array(digits.labels), logits=logits), represents="traffic"))
    same = refit(service, by_array["id"], mode="dry_run", calibrator="temperature")
    assert same["calibrator"]["after"] == response.json()["calibrator"]["after"], "the format makes no difference"
    for wrong in ("calibrator=magic", "flipped=much", "flipped=nan", "flipped=2", "limits=0.1"):
        response = service.http.post(f"/recalibrate?{wrong}", content=b"", headers={"content-type": CSV})
        assert response.status_code == 422, response.text
        assert wrong.partition("=")[0] in response.json()["where"]


@here
def test_every_format_says_the_same(shared: Any, digits: Any, logits: Any) -> None:
    arro3_core, arro3_io = pytest.importorskip("arro3.core"), pytest.importorskip("arro3.io")
    rows = [
        {"label": label, "logits": row, "group": f"g{i}", "segment": "DE" if i % 2 else None, "propensity": 0.5}
        for i, (label, row) in enumerate(zip(digits.labels[:50], logits[:50].tolist(), strict=True))
    ]
    ndjson = "\n".join(map(json.dumps, rows))
    csv = "label,logits,group,segment,propensity\n" + "".join(
        f'{row["label"]},"{row["logits"]}",{row["group"]},{row["segment"] or ""},0.5\n' for row in rows
    )
    flat = arro3_core.Array(np.ascontiguousarray(logits[:50]).ravel())
    columns = {
        "label": arro3_core.Array(np.array(digits.labels[:50], dtype=np.int64).astype(np.int64)),
        "logits": arro3_core.fixed_size_list_array(flat, K),
    }
    stream = io.BytesIO()
    arro3_io.write_parquet(arro3_core.Table.from_pydict(columns), stream)
    found = [made(upload(shared, body, kind)) for body, kind in ((ndjson, NDJSON), (csv, CSV))]
    found.append(made(upload(shared, stream.getvalue(), PARQUET)))
    assert found[0]["labels"] == found[1]["labels"] == found[2]["labels"]
    assert found[0]["segments"] == found[1]["segments"] == ["DE"]
    store = shared.runtime.labelled_sets
    first, second, third = (next(iter(store.chunks(store.get("digits", one["id"])))) for one in found)
    np.testing.assert_array_equal(first.values, logits[:50])
    for other in (second, third):
        np.testing.assert_array_equal(first.values, other.values)
        np.testing.assert_array_equal(first.columns["label"], other.columns["label"])
    for name, column in first.columns.items():
        np.testing.assert_array_equal(column, second.columns[name])


LINE = '{"label": "1", "logits": [0,1,2,3,4,5,6,7,8,9]}'
HEADER = "label," + ",".join(map(str, range(K)))
ZEROS = np.zeros((3, K), dtype=np.float32)
IMAGES = np.zeros((3, 8, 8, 1), dtype=np.uint8)
SCORES = {str(label): np.zeros(3) for label in range(K)}


def rows_with(row: int, value: float) -> npt.NDArray[np.float32]:
    logits = ZEROS.copy()
    logits[row] = value
    return logits


@pytest.mark.parametrize(
    ("body", "kind", "status", "error", "where"),
    [
        (b"", NPZ, 400, "malformed-body", None),
        (b"PK\x03\x04 not an archive", NPZ, 400, "malformed-body", None),
        (npz(label=np.array(["1"] * 3), logits=ZEROS)[:-40], NPZ, 400, "malformed-body", None),
        (npz(label=np.array(["1"] * 3), logits=np.full((3, K), None)), NPZ, 422, "input-type", "logits"),
        (npz(label=np.array(["1"] * 3), logits=ZEROS[:, :9]), NPZ, 422, "input-shape", "row 1, logits"),
        (npz(label=np.array(["1"] * 2), logits=ZEROS), NPZ, 422, "input-shape", None),
        (npz(logits=ZEROS), NPZ, 422, "input-value", "label"),
        (npz(label=np.array(["1"] * 3)), NPZ, 422, "input-value", "logits"),
        (npz(label=np.array(["1"] * 3), logits=ZEROS, weight=np.ones(3)), NPZ, 422, "input-value", "weight"),
        (npz(label=np.array(["1"] * 3), logits=ZEROS, inputs=IMAGES), NPZ, 422, "input-value", "inputs"),
        (npz(label=np.array(["1"] * 3), inputs=IMAGES, **SCORES), NPZ, 422, "input-value", "0"),
        (npz(label=np.array(["1", "x", "y"]), logits=ZEROS), NPZ, 422, "unknown-label", "row 2, label"),
        (
            npz(label=np.array(["1"] * 3), logits=rows_with(1, np.nan)),
            NPZ,
            422,
            "input-value",
            "row 2, logits",
        ),
        (
            npz(label=np.array(["1"] * 3), logits=rows_with(2, np.inf)),
            NPZ,
            422,
            "input-value",
            "row 3, logits",
        ),
        (
            npz(label=np.array(["1"] * 3), logits=rows_with(0, -np.inf)),
            NPZ,
            422,
            "input-value",
            "row 1, logits",
        ),
        (npz(label=np.array(["1"] * 3), logits=np.full((3, K), 1e39)), NPZ, 422, "input-value", "row 1, logits"),
        (
            npz(label=np.array(["1"] * 3), logits=ZEROS, propensity=np.array([1, 0.5, 0])),
            NPZ,
            422,
            "input-value",
            "row 3, propensity",
        ),
        (
            npz(label=np.array(["1"] * 3), inputs=np.zeros((3, 7, 8, 1), dtype=np.uint8)),
            NPZ,
            422,
            "input-shape",
            "row 1, inputs",
        ),
        (f"{HEADER}\n", CSV, 422, "input-shape", None),
        (f"{HEADER}\n1,0,1,2,3,4,5,6,7,8\n", CSV, 400, "malformed-body", "line 2, column 11"),
        (f"{HEADER}\n1,0,1,2,3,4,5,6,7,8,nine\n", CSV, 422, "input-type", "line 2, column 9"),
        (f"{HEADER}\n1,0,1,2,3,4,5,6,7,8,\n", CSV, 422, "input-type", "line 2, column 9"),
        ("label,0\n1,2\n", CSV, 422, "input-value", "1"),
        (f"{LINE}\n{LINE[:-1]}", NDJSON, 400, "malformed-body", f"line 2, column {len(LINE)}"),
        (LINE.replace("}", ', "label": "2"}'), NDJSON, 400, "malformed-body", "line 1"),
        (f"{LINE}\n" + LINE.replace("9]", "true]"), NDJSON, 422, "input-type", "line 2, field logits"),
        (f"{LINE}\n" + LINE.replace("}", ', "group": "a"}'), NDJSON, 422, "input-value", "line 2, field group"),
        (LINE.replace("}", ', "labelled_at": "2999-01-01T00:00:00Z"}'), NDJSON, 422, "input-value", None),
        (LINE.replace("}", ', "labelled_at": "2026-01-01"}'), NDJSON, 422, "input-value", None),
        (b"PAR1 nothing PAR1", PARQUET, 400, "malformed-body", None),
        (b"label", "text/plain", 415, "unsupported-media-type", None),
    ],
)
@here
def test_what_is_no_labelled_set(
    shared: Any, body: bytes | str, kind: str, status: int, error: str, where: str | None
) -> None:
    if kind == PARQUET:
        pytest.importorskip("arro3.io")
    before = shared.http.get(SETS).json()
    document = refused(upload(shared, body, kind), status, error)
    assert where is None or document["where"] == where
    assert document["expected"]
    assert "unwrap" not in document["detail"]
    assert shared.http.get(SETS).json() == before
    assert left_in(shared) == []


def test_a_parameter_that_nothing_reads_is_refused(shared: Any) -> None:
    before = shared.http.get(SETS).json(), shared.http.get("/v1/jobs").json()
    misspelt = shared.http.post(f"{SETS}?represent=traffic", content=LINE, headers={"content-type": NDJSON})
    assert refused(misspelt, 422, "input-value")["where"] == "?represent"
    for body in ({}, {"content": b""}, {"json": {"gate": "superior"}}):
        beside = shared.http.post("/recalibrate?mode=propose", **body)
        assert refused(beside, 422, "input-value")["where"] == "?mode"
    assert (shared.http.get(SETS).json(), shared.http.get("/v1/jobs").json()) == before


@here
def test_unknown_labels_are_listed(shared: Any) -> None:
    labels = np.array(["1", "ten", "eleven", "ten"])
    document = refused(upload(shared, npz(label=labels, logits=np.zeros((4, K)))), 422, "unknown-label")
    assert document["found"] == ["ten", "eleven"]


@pytest.mark.usefixtures("checks_here")
def test_a_body_over_the_limit_is_given_up_as_it_comes_and_as_it_unpacks(start: Any) -> None:
    service = start(max_upload_bytes=100_000)
    refused(upload(service, b"x" * 100_001, CSV), 413, "body-too-large")
    refused(upload(service, iter([b"x" * 60_000] * 3), CSV), 413, "body-too-large")
    packed = gzip.compress(b"x" * 10_000_000)
    refused(upload(service, packed, CSV, headers={"content-encoding": "gzip"}), 413, "body-too-large")
    refused(upload(service, packed[:-9], CSV, headers={"content-encoding": "gzip"}), 413, "body-too-large")
    bomb = io.BytesIO()
    np.savez_compressed(bomb, label=np.full(50_000, "1"), logits=np.zeros((50_000, K)))
    assert len(bomb.getvalue()) < 100_000
    refused(upload(service, bomb.getvalue()), 413, "body-too-large")
    lying = io.BytesIO()
    with zipfile.ZipFile(lying, "w") as archive:
        archive.writestr("label.npy", npz(label=np.array(["1"]))[:50])
    refused(upload(service, lying.getvalue()), 400, "malformed-body")
    assert left_in(service) == []


def test_two_kilobytes_of_parquet_that_unfold_to_a_gigabyte_are_refused(shared: Any) -> None:
    arro3_core, arro3_io = pytest.importorskip("arro3.core"), pytest.importorskip("arro3.io")
    once = arro3_core.Array(["7" * (32 << 20)], arro3_core.DataType.utf8())
    kind = arro3_core.DataType.dictionary(arro3_core.DataType.int32(), arro3_core.DataType.utf8())
    label = once.cast(kind).take(arro3_core.Array(np.zeros(40, dtype=np.int32)))
    stream = io.BytesIO()
    table = arro3_core.Table.from_pydict({"label": label, "logits": arro3_core.Array(np.zeros(40))})
    arro3_io.write_parquet(table, stream, compression="zstd(3)")
    assert len(stream.getvalue()) < 10_000
    refused(upload(shared, stream.getvalue(), PARQUET), 413, "body-too-large")
    assert left_in(shared) == []


def test_what_an_interrupted_upload_leaves_is_swept_at_the_start(start: Any, tmp_path: Path) -> None:
    remains = tmp_path / "uploads" / "upload-dead"
    remains.mkdir(parents=True)
    (remains / "body").write_bytes(b"half of it")
    service = start(uploads=tmp_path / "uploads")
    assert left_in(service) == []


@pytest.mark.usefixtures("checks_here")
def test_a_set_in_use_is_not_deleted(on_both: Any, digits: Any, logits: Any) -> None:
    found = made(upload(on_both, npz(label=np.array(digits.labels), logits=logits)))
    job = on_both.http.post("/recalibrate", json={"source": {"labelled_set": found["id"]}})
    assert job.status_code == 202
    deleted = on_both.http.delete(f"{SETS}/{found['id']}")
    state = on_both.http.get(job.headers["location"]).json()["state"]
    if state in ("queued", "running"):  # it was so when the deletion was refused, too
        assert refused(deleted, 409, "labelled-set-state")["found"] == [job.json()["job"]]
    on_both.job(job.headers["location"])
    if deleted.status_code == 409:
        assert on_both.http.delete(f"{SETS}/{found['id']}").status_code == 200


@here
def test_a_refit_has_one_source(shared: Any) -> None:
    response = shared.recalibrate(source={"feedback": {}, "labelled_set": "ls1"})
    assert "one of feedback and labelled_set" in refused(response, 422, "input")["detail"]
    refused(shared.recalibrate(source={"labelled_set": "ls999999"}), 404, "unknown-labelled-set")
    refused(shared.recalibrate(source={"labelled_set": "first"}), 404, "unknown-labelled-set")


@here
def test_too_few_rows_are_refused_at_once(shared: Any) -> None:
    found = made(upload(shared, npz(label=np.array(["1", "2"]), logits=np.eye(2, K))))
    assert refused(shared.recalibrate(source={"labelled_set": found["id"]}), 422, "too-few-labels")["found"] == "2 rows"


@here
def test_an_uploader_has_so_much_room(start: Any) -> None:
    bodies = [npz(label=np.array(["1", "2"]), logits=np.eye(2, K) * scale) for scale in (1, 2, 3)]
    service = start(max_labelled_sets_per_key=2, max_labelled_bytes_per_key=2 * len(bodies[0]))
    first, _ = (made(upload(service, body)) for body in bodies[:2])
    assert made(upload(service, bodies[0]), 200)["id"] == first["id"]  # takes no more room
    refused(upload(service, bodies[2]), 409, "labelled-set-state")
    assert service.http.delete(f"{SETS}/{first['id']}").status_code == 200
    larger = upload(service, npz(label=np.array(["1"] * 9), logits=np.ones((9, K))))
    assert "'local' has reached the limit" in refused(larger, 409, "labelled-set-state")["detail"]
    made(upload(service, bodies[2]))
    assert left_in(service) == []


@here
def test_one_uploader_leaves_room_for_others(start: Any) -> None:
    """Two uploads of one key, and four of all, come in at once."""
    service = start()
    store = KeyStore(service.runtime.database)
    keys = {name: {"authorization": f"Bearer {store.create(name, ['calibrate'])[1]}"} for name in ("ann", "bob", "eve")}
    service.application._access.refresh()
    coming = service.application.api.state.intake._coming
    with ExitStack() as stack:

        def begin(name: str, now: int) -> None:
            lines = [f"POST {SETS} HTTP/1.1", "host: localhost", f"content-type: {CSV}", "content-length: 9"]
            lines += [f"authorization: {keys[name]['authorization']}", "", "label"]
            connection = stack.enter_context(socket.create_connection(service._socket.getsockname()))
            connection.sendall("\r\n".join(lines).encode())
            until(lambda: coming.total() == now, "an upload that goes on")

        for name, others, first in (("ann", "bob", 1), ("bob", "eve", 3)):
            begin(name, first)
            begin(name, first + 1)
            document = refused(upload(service, LINE, NDJSON, headers=keys[name]), 503, "overloaded")
            assert (document["found"], document["expected"]) == (
                (2, "fewer than 2") if first == 1 else (4, "fewer than 4")
            )
            answer = upload(service, LINE, NDJSON, headers=keys[others])
            assert answer.status_code == (201 if first == 1 else 503), answer.text
        assert "retry-after" in answer.headers
    until(lambda: not coming, "their end")
    assert upload(service, LINE, NDJSON, headers=keys["ann"]).status_code == 200


@here
def test_the_client_and_the_command_line(service: Any, digits: Any, logits: Any, tmp_path: Path) -> None:
    file = tmp_path / "rows.npz"
    file.write_bytes(npz(label=np.array(digits.labels), logits=logits))
    with Client(service.url) as client:
        found = client.upload_labelled_set(file)
        assert (found.id, found.rows, found.represents) == ("ls1", len(logits), None)
        assert client.labelled_sets() == (found,)
        answer = client.recalibrate(calibrator="temperature", labelled_set=found.id)
        assert answer.document["source"]["labelled_set"] == found.id
        with pytest.raises(ValueError, match="never from both"):
            client.recalibrate(labelled_set=found.id, since="2026-01-01T00:00:00Z")
        with pytest.raises(ValueError, match="expected a file ending in"):
            client.upload_labelled_set(b"label")

    async def again() -> Any:
        async with AsyncClient(service.url) as client:
            return await client.upload_labelled_set(file)

    assert asyncio.run(again()) == found

    def candor(*arguments: str) -> Any:
        done = CliRunner().invoke(app, [*arguments, "--url", service.url, "--json"])
        assert done.exit_code in (0, 1), done.output
        return json.loads(done.stdout)

    assert candor("labelled-sets", "list") == [found.document]
    assert candor("labelled-sets", "upload", str(file)) == found.document
    by_file = candor("recalibrate", "--calibrator", "temperature", "--file", str(file))
    assert by_file["source"]["labelled_set"] == found.id
    assert candor("recalibrate", "--calibrator", "temperature", "--labelled-set", found.id)["gate"]["attempt"] == 3
    assert candor("labelled-sets", "delete", found.id) == found.document
    assert candor("labelled-sets", "list") == []
