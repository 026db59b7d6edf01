"""No body that anyone may send keeps the event loop, and with it all other requests, waiting."""

from __future__ import annotations

import gc
import gzip
import io
import json
import os
import re
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest
from fastapi.routing import APIRoute
from PIL import Image

from candor.contract.backtests import MOST_BACKTESTED
from candor.contract.cases import MOST_AT_ONCE
from candor.contract.conditions import MOST_BANDS
from candor.contract.feedback import MOST_ITEMS
from candor.contract.policies import MOST_PARTS, MOST_SEGMENTS
from candor.contract.prior_shift import MOST_ESTIMATED
from candor.contract.simulation import MOST_SIMULATED
from service.commands.process import SWITCH_S
from service.dashboard import routes as dashboard
from service.dashboard import session
from service.operations import oidc
from service.rest.paths import MOST_POLICY_BYTES, most_bytes, predicts
from service.state.keys import KeyStore
from tests.array_files import npy, npz
from tests.service import imported_models, labels_of_comments
from tests.service.conftest import Digits, InThread
from tests.service.identity_provider import AUDIENCE, CLIENT, IdentityProvider, part
from tests.service.operations.test_access import ENDPOINTS
from tests.waiting import PATIENCE_S

LONGEST_S: Final = 0.05
TRIES: Final = 20  # a processor that others keep busy may hold up the loop's thread while another of ours runs
MODEL: Final = "/v1/models/digits"
COMMENTS: Final = "/v1/multilabel/comments"
LARGE: Final = 8 * 1024 * 1024 - 1024
JSON: Final = {"content-type": "application/json"}
FORM: Final = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
GZIP: Final = {"content-encoding": "gzip"}
PREDICTS: Final = ("/predict", f"{MODEL}:predict", "/v2/models/digits/infer")
FEEDBACK: Final = "/feedback"
LABELS: Final = (FEEDBACK, f"{COMMENTS}{FEEDBACK}")
CONTROLS: Final = (
    *(
        (method, path.replace("digits/unload", "birds/unload"))  # the model is still wanted
        for method, path, _ in ENDPOINTS
        if method in ("POST", "PUT") and not predicts(path) and not path.endswith(FEEDBACK)
    ),
    ("POST", "/v2/repository/models/digits/load"),
    ("POST", "/v2/repository/models/birds/unload"),
    ("POST", "/v2/repository/index"),
)
OPEN: Final = ("/dashboard/login", "/dashboard/theme", "/livez", "/docs")
FORMS: Final = tuple(
    re.sub(r"{\w+}", "x1", route.path.replace("{model}", "digits"))
    for router in dashboard.routers()
    for route in router.routes
    if isinstance(route, APIRoute) and "POST" in route.methods
)


def pace() -> float:
    """Return how many times as long as a processor of 2022 this one takes at the moment for the same Python."""
    found = []
    for _ in range(9):
        began = time.thread_time()
        sum(range(200_000))
        found.append(time.thread_time() - began)
    return max(1.0, statistics.median(found) / 0.002)


class Beats:
    """Looks at the processor time of this process each time that the event loop comes round.

    That of other processes is not in it, so that a busy machine makes no difference; that of threads which keep
    Python's lock is, unless the loop's thread had the lock to itself and waited for a processor.
    """

    def __init__(self, service: InThread) -> None:
        self._loop = service._server.servers[0].get_loop()
        self._ended = threading.Event()
        self._file: int | None = None

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Look while something happens."""
        self._longest, self._last, self._on = 0.0, None, True
        self._ended.clear()
        self._loop.call_soon_threadsafe(self._beat)
        yield
        self._on = False
        assert self._ended.wait(PATIENCE_S)
        assert self._file is not None
        os.close(self._file)

    @property
    def longest_s(self) -> float:
        """Processor seconds of the longest time without a look."""
        return self._longest

    _last: tuple[float, float] | None

    def _beat(self) -> None:
        if self._last is None:  # it is on the loop's thread that the kernel is asked about the thread
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        assert self._file is not None
        waited_s = int(os.pread(self._file, 100, 0).split()[1]) / 1e9
        now = time.process_time(), time.perf_counter() - waited_s
        if self._last is not None:
            self._longest = max(self._longest, min(now[0] - self._last[0], now[1] - self._last[1]))
        self._last = now
        if self._on:
            self._loop.call_later(0.001, self._beat)
        else:
            self._ended.set()


@pytest.fixture(scope="module", autouse=True)
def as_served() -> Iterator[None]:
    """Threads take turns as in `candor serve`, and what other tests left behind is not passed over by the collector."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    sys.setswitchinterval(before)


@pytest.fixture(scope="module")
def guarded(
    launch: Callable[..., InThread], digits: Digits, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[InThread, str]]:
    """A service with traffic, labels, waiting cases and keys, and an administrator's key."""
    running = launch(tmp_path_factory.mktemp("guarded"))
    document = {"positive": "top", "review": {}, "bands": policy(2, 0)["bands"]}
    document["bands"][0]["when"] = {"min_probability": 1.0}
    running.activate(running.http.put(f"{MODEL}/policies/queue", json=document).json()["id"])
    running.teach(digits.dimmed, digits.labels)
    running.predict(digits.dimmed, policy="queue")
    assert running.runtime.log.flush()
    _, key = KeyStore(running.runtime.database).create("ops", ["admin"])
    running.application._access.refresh()
    running.http.get("/dashboard/login")  # what the first page takes is taken once
    gc.collect()
    gc.freeze()  # as `candor serve` does once it has started
    yield running, key
    running.close()


def send(service: InThread, method: str, path: str, body: bytes, headers: dict[str, str]) -> int:
    """Send a request, whole if the service takes it; return the status."""
    head = {"host": "localhost", "content-length": str(len(body)), "connection": "close", "if-match": '"0"'} | headers
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    answer = b""
    with socket.create_connection(service._socket.getsockname()[:2], timeout=PATIENCE_S) as connection:
        try:
            connection.sendall("\r\n".join(lines).encode() + body)
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionError:
            pass
    return int(answer.split()[1]) if answer else 0


def check(
    service: InThread,
    method: str,
    path: str,
    body: bytes,
    headers: dict[str, str],
    before: Callable[[], object] = lambda: None,
) -> int:
    """Send a request that may not keep the loop waiting, after `before` each time; return its status."""
    beats = Beats(service)
    found = []
    for _ in range(TRIES):
        before()
        with beats.counted():
            status = send(service, method, path, body, headers)
        if beats.longest_s < LONGEST_S:
            return status
        found.append(beats.longest_s / pace())
        if found[-1] < LONGEST_S:
            return status
    raise AssertionError(f"{method} {path}: {status}, the loop waited for {min(found):.3f} s each time")


def listed(start: bytes, entry: bytes, end: bytes, size: int) -> bytes:
    """Return a document of `size` bytes or a little less that repeats an entry."""
    return start + b",".join([entry] * ((size - len(start) - len(end)) // (len(entry) + 1))) + end


def keys(size: int) -> bytes:
    """Return a document of unknown keys."""
    return b"{" + b",".join(b'"k%07d":0' % number for number in range(size // 13)) + b"}"


LARGE_KEYS: Final = keys(LARGE)
ESCAPES: Final = b"key=" + b"%41" * (LARGE // 3 - 2)
ZIPPED_ESCAPES: Final = gzip.compress(ESCAPES)


def policy(bands: int, segments: int) -> dict[str, Any]:
    made = [{"action": f"a{band}", "when": {"min_precision": 0.99 - band / 1e5}} for band in range(bands - 1)]
    document: dict[str, Any] = {"positive": "top", "bands": [*made, {"action": "review"}]}
    return document | ({"segments": {"values": [f"s{one}" for one in range(segments)]}} if segments else {})


def test_the_routes_above_are_all(guarded: tuple[InThread, str]) -> None:
    service, _ = guarded
    tried = [path for _, path in CONTROLS] + [*PREDICTS, FEEDBACK]
    tried += [f"{MODEL}{FEEDBACK}", "/v1/models/digits/predict", "/v2/models/digits/versions/1/infer"]
    tried += [f"{COMMENTS}/predict", f"{COMMENTS}/feedback"]
    described = service.application.api.openapi()["paths"]
    reading = {path for path, methods in described.items() if methods.keys() & {"post", "put", "patch"}}
    assert len(reading) > 20
    assert len(FORMS) > 10
    patterns = {path: re.compile(re.sub(r"{\w+}", r"[^/]+", path)) for path in reading}
    assert [path for path, pattern in patterns.items() if not any(map(pattern.fullmatch, tried))] == []


@pytest.mark.parametrize("path", FORMS)
def test_forms_of_a_session(guarded: tuple[InThread, str], path: str) -> None:
    service, key = guarded
    browser = httpx.Client(base_url=service.url, headers={"sec-fetch-site": "same-origin"}, timeout=PATIENCE_S)
    with browser:
        token = re.search(r'name="token" value="([0-9a-f]{64})"', browser.get("/dashboard/login").text)
        assert token
        assert browser.post("/dashboard/login", data={"token": token[1], "key": key}).status_code == 303
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        token = re.search(r'name="token" value="([0-9a-f]{64})"', browser.get("/dashboard").text)
    assert token
    start = f"token={token[1]}&reason=".encode()
    for rest in (b"%41" * 5_000, b"&".join([b"a=1"] * 4_000), b"&" * 16_000):
        body = (start + rest)[: 16 * 1024]
        assert check(service, "POST", path, body, FORM | {"cookie": cookie}) in (
            303,
            400,
            401,
            403,
            404,
            409,
            412,
            413,
            422,
        )


@pytest.mark.parametrize(
    ("method", "path", "others"),
    [
        *(("POST", path, (303, 400, 403, 405, 413)) for path in dict.fromkeys((*OPEN, *FORMS))),
        *((method, path, ()) for method, path in (*CONTROLS, *(("POST", path) for path in (*PREDICTS, *LABELS)))),
    ],
)
def test_without_a_key(guarded: tuple[InThread, str], method: str, path: str, others: tuple[int, ...]) -> None:
    service, _ = guarded
    for body, headers in (
        (ZIPPED_ESCAPES, FORM | GZIP),
        (ESCAPES, FORM),
        (ESCAPES[: 16 * 1024], FORM),
        (b"&".join([b"a"] * 8000), FORM),
        (LARGE_KEYS, {"origin": "http://elsewhere.example"} | JSON),
    ):
        assert check(service, method, path, body, headers) in (0, 401, *others)


@pytest.mark.parametrize(("method", "path"), CONTROLS)
def test_documents_of_operators(guarded: tuple[InThread, str], method: str, path: str) -> None:
    service, key = guarded
    given = JSON | {"authorization": f"Bearer {key}"}
    most = most_bytes(path)
    assert most is not None
    for body in (
        keys(most),
        listed(b'{"items":[', b"{}", b"]}", most),
        listed(b'{"document":{"bands":[', b"[]", b"]}}", most),
    ):
        assert check(service, method, path, body, given) in (200, 400, 404, 409, 412, 415, 422, 428)
    for large, more in ((LARGE_KEYS, {}), (gzip.compress(LARGE_KEYS, 1), GZIP)):  # some read no body
        assert check(service, method, path, large, given | more) in (0, 200, 404, 409, 413, 415)


@pytest.mark.parametrize("path", PREDICTS)
def test_predictions(guarded: tuple[InThread, str], path: str) -> None:
    service, key = guarded
    given = JSON | {"authorization": f"Bearer {key}"}
    field = b"instances" if path.endswith(":predict") else b"inputs"
    for size in (LARGE, 500_000):
        for entry in (b"0", b"[]", b"{}", json.dumps([[0] * 8] * 8).encode()):
            body = listed(b'{"%s":[' % field, entry, b"]}", size)
            assert check(service, "POST", path, body, given) in (400, 413, 422)
        row = json.dumps([[[0] * 8] * 8]).encode()
        names = listed(b'{"%s":%s,"references":[' % (field, row), b'"a"', b"]}", size)
        tensor = listed(
            b'{"inputs":[{"name":"input","shape":[1,8,8,1],"datatype":"UINT8","data":[', b"0", b"]}]}", size
        )
        for body in (keys(size), names, tensor, b'{"%s":"%s"}' % (field, b"a" * size)):
            assert check(service, "POST", path, body, given) in (400, 413, 422)


def test_rows_of_tables(launch: Callable[..., InThread], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Named columns, some of them texts; and scores of others' models."""
    root = tmp_path_factory.mktemp("tables")
    row = imported_models.payments(root)[0]
    imported_models.vendor(root)
    service = launch(root, bundles=root, policies=None)
    try:
        for size in (LARGE, 500_000):
            wide = b"{" + b",".join(b'"c%07d":0' % number for number in range(size // 30)) + b"}"
            long = json.dumps(row | {"country": "x" * (size // 2)}).encode()
            for entry in (
                json.dumps(row).encode(),
                wide,
                long,
                b"[0.5,0.5]",
                b'{"country":null}',
                b'{"amount":"1e999"}',
            ):
                body = listed(b'{"inputs":[', entry, b"]}", size)
                for model in ("payments", "vendor"):
                    path = f"/v1/models/{model}/predict"
                    assert check(service, "POST", path, body, JSON) in (200, 400, 413, 422)
            columns = json.dumps({"inputs": {name: [value] * (size // 30) for name, value in row.items()}}).encode()
            assert check(service, "POST", "/v1/models/payments/predict", columns[:LARGE], JSON) in (400, 413, 422)
        most = json.dumps({"inputs": [row] * 1024}).encode()
        assert check(service, "POST", "/v1/models/payments/predict", most, JSON) == 200
    finally:
        service.close()


def test_large_answers(launch: Callable[..., InThread], tmp_path_factory: pytest.TempPathFactory) -> None:
    """A thousand classes: 1,024 rows are answered by 21 MB of JSON."""
    root = tmp_path_factory.mktemp("thousand")
    imported_models.thousand(root)
    service = launch(root, bundles=root, policies=None)
    try:
        rows = [[(number * 7 + at) % 10 for at in range(1000)] for number in range(1024)]
        v1 = json.dumps({"logits": rows}, separators=(",", ":")).encode()
        numbers = [number for row in rows for number in row]
        tensor = {"name": "logits", "shape": [1024, 1000], "datatype": "FP32", "data": numbers}
        v2 = json.dumps({"inputs": [tensor]}, separators=(",", ":")).encode()
        for path, body in (("/v1/models/thousand/predict", v1), ("/v2/models/thousand/infer", v2)):
            assert check(service, "POST", path, body, JSON) == 200
    finally:
        service.close()


def png(side: int) -> bytes:
    stream = io.BytesIO()
    Image.new("L", (side, side)).save(stream, "PNG")
    return stream.getvalue()


def test_predictions_in_other_forms(guarded: tuple[InThread, str]) -> None:
    service, key = guarded
    given = {"authorization": f"Bearer {key}"}
    part = b'--x\r\ncontent-disposition: form-data; name="image"; filename="a"\r\ncontent-type: image/png\r\n\r\n'
    form = "multipart/form-data; boundary=x"
    for kind, body in (
        ("application/x-npy", npy(np.zeros((LARGE // 64, 8, 8, 1), "u1"))),
        ("application/x-npy", npy(np.zeros((1, 8, LARGE // 8), "u1"))),
        ("application/x-npy", npy(np.zeros((LARGE // 16, 2), "f8"))),
        ("image/png", png(4_000)),
        ("image/png", png(20_000)),
        (form, (part + b"\r\n") * (LARGE // len(part) - 1) + b"--x--\r\n"),
        (form, part + png(4_000) + b"\r\n--x--\r\n"),
        (form, b"--x\r\n" + b"a: b\r\n" * (LARGE // 6)),
    ):
        assert check(service, "POST", "/predict", body, given | {"content-type": kind}) in (0, 200, 400, 413, 422)
    rows = (LARGE - 2_000) // 64
    for shape, size in (([rows, 8, 8, 1], rows * 64), ([1] * 400 + [8, 8], 64), ([2**40, 8, 8, 1], 64)):
        tensor = {"name": "input", "shape": shape, "datatype": "UINT8", "parameters": {"binary_data_size": size}}
        head = json.dumps({"inputs": [tensor]}).encode()
        binary = given | {"inference-header-content-length": str(len(head)), "content-type": "application/octet-stream"}
        body = head + bytes(size)
        assert check(service, "POST", "/v2/models/digits/infer", body, binary) in (0, 200, 400, 413, 422)


def test_labels(guarded: tuple[InThread, str]) -> None:
    service, key = guarded
    given = {"authorization": f"Bearer {key}"}
    entry = {"reference": "r" * 200, "label": "7", "source": "s" * 100, "labelled_at": "2026-01-01T00:00:00Z"}
    items = [entry | {"reference": f"{number:0200d}"} for number in range(MOST_ITEMS)]
    whole = json.dumps({"items": items}).encode()
    assert check(service, "POST", "/feedback", whole, given | JSON | {"idempotency-key": "whole"}) == 200
    table = "reference,label,source\n" + "".join(f"{number:0200d},7,{'s' * 100}\n" for number in range(MOST_ITEMS))
    assert check(service, "POST", "/feedback", table.encode(), given | {"content-type": "text/csv"}) == 200
    lines = "\n".join(map(json.dumps, items)).encode()
    assert check(service, "POST", "/feedback", lines, given | {"content-type": "application/x-ndjson"}) == 200
    for size in (LARGE, 300_000):
        for start, one, end in ((b'{"items":[', b"{}", b"]}"), (b"[", b"0", b"]"), (b'{"items":[', b"[]", b"]}")):
            assert check(service, "POST", "/feedback", listed(start, one, end, size), given | JSON) in (413, 422)
        assert check(service, "POST", "/feedback", keys(size), given | JSON) in (413, 422)


def test_labels_of_rows(launch: Callable[..., InThread], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Predictions and labels of a model with several labels per row, to a service without keys."""
    root = tmp_path_factory.mktemp("comments")
    labels_of_comments.imported(root, labels_of_comments.sigmoids())
    service = launch(root, bundles=root / "bundles", policies=root / "policies")
    most = most_bytes(f"{COMMENTS}/feedback")
    assert most is not None
    try:
        rows = labels_of_comments.drawn(1024, 7)[0].tolist()
        references = [f"{number:0190d}" for number in range(1024)]
        whole = json.dumps({"inputs": rows, "references": references}).encode()
        assert check(service, "POST", f"{COMMENTS}/predict", whole, JSON) == 200
        for size in (LARGE, 500_000):
            for entry in (b"0", b"[]", b"{}", b"[0,0,0]"):
                body = listed(b'{"inputs":[', entry, b"]}", size)
                assert check(service, "POST", f"{COMMENTS}/predict", body, JSON) in (413, 422)
            assert check(service, "POST", f"{COMMENTS}/predict", keys(size), JSON) in (400, 413, 422)

        marks = dict.fromkeys(labels_of_comments.LABELS, True)
        items = [{"reference": reference, "labels": marks, "source": "s"} for reference in references]
        body = json.dumps({"items": items[:900]}, separators=(",", ":")).encode()
        assert most - 20_000 < len(body) <= most
        assert check(service, "POST", f"{COMMENTS}/feedback", body, JSON) == 200
        for one in (b'"%06d":0', b'"%06d":"x"', b'"%06d":null'):
            named = b",".join(one % number for number in range((most - 100) // len(one % 0 + b",")))
            body = b'{"items":[{"reference":"a","labels":{%s}}]}' % named
            assert check(service, "POST", f"{COMMENTS}/feedback", body, JSON) == 422
        for entry in (b"{}", b"0", b'{"reference":"a","labels":{"toxic":"x"}}', b'{"labels":{}}'):
            body = listed(b'{"items":[', entry, b"]}", most)
            assert check(service, "POST", f"{COMMENTS}/feedback", body, JSON) == 422
        assert check(service, "POST", f"{COMMENTS}/feedback", keys(most), JSON) == 422
        for body, more in ((LARGE_KEYS, {}), (gzip.compress(LARGE_KEYS, 1), GZIP)):
            assert check(service, "POST", f"{COMMENTS}/feedback", body, JSON | more) in (0, 413)
    finally:
        service.close()


def test_policies(guarded: tuple[InThread, str]) -> None:
    service, key = guarded
    given = JSON | {"authorization": f"Bearer {key}"}
    path = f"{MODEL}/policies/mine"
    assert check(service, "PUT", path, json.dumps(policy(MOST_BANDS, 0)).encode(), given) == 201
    assert (
        check(service, "PUT", path, json.dumps(policy(MOST_PARTS // MOST_SEGMENTS, MOST_SEGMENTS)).encode(), given)
        == 201
    )
    for document in (policy(3, MOST_SEGMENTS), policy(MOST_BANDS, 0)):
        for method, most in (("simulate", MOST_SIMULATED), ("backtest", MOST_BACKTESTED)):
            replayed = json.dumps({"document": document, "against": "queue", "rows": most}).encode()
            assert check(service, "POST", f"{path}/{method}", replayed, given) == 200
    for refused in (policy(MOST_BANDS + 1, 0), policy(3, MOST_SEGMENTS + 1), policy(MOST_BANDS, MOST_SEGMENTS)):
        assert check(service, "PUT", path, json.dumps(refused).encode(), given) == 422
    for most in (keys(MOST_POLICY_BYTES), listed(b'{"bands":[', b"{}", b"]}", MOST_POLICY_BYTES)):
        assert check(service, "PUT", path, most, given) == 422
        assert check(service, "PUT", path, most, given | {"content-type": "application/yaml"}) in (400, 422)
    assert check(service, "PUT", path, json.dumps(policy(20_000, 0)).encode(), given) in (0, 413)


def padded(document: dict[str, Any]) -> bytes:
    """Return a document that a control route takes, as long as it may be."""
    body = json.dumps(document).encode()
    return body + b" " * (64 * 1024 - len(body))


def test_what_operators_may_ask_for(guarded: tuple[InThread, str]) -> None:
    """Valid documents about a service with traffic, labels and cases; refused ones as long as they may be."""
    service, key = guarded
    given = JSON | {"authorization": f"Bearer {key}"}
    claim, shift = f"{MODEL}/cases/claim", f"{MODEL}/prior-shift"
    assert check(service, "POST", claim, padded({"count": MOST_AT_ONCE}), given) == 200
    waiting = service.http.get(f"{MODEL}/cases", headers=given, params={"state": "claimed"}).json()["items"]
    assert len(waiting) >= 5
    for case, (action, document, refused) in zip(
        waiting,
        (
            ("claim", {"lease_s": 86_400}, {"lease_s": "x" * 60_000}),
            ("label", {"label": "7"}, {"label": "x" * 60_000}),
            ("skip", {"reason": "x" * 500}, {"reason": "x" * 60_000}),
            ("assign", {"to": "ops"}, {"to": "x" * 60_000}),
            ("release", {}, {"lease": "x" * 60_000}),
        ),
        strict=False,
    ):
        path = f"{MODEL}/cases/{case['id']}/{action}"
        assert check(service, "POST", path, padded(refused), given) in (404, 422)
        assert check(service, "POST", path, padded(document), given) in (200, 204)
    assert check(service, "POST", shift, padded({"estimate": {"rows": MOST_ESTIMATED}}), given) == 200
    assert check(service, "POST", shift, padded({"target": {"7": 0.5}}), given) == 200
    many = {"target": {f"label {number}": 1e-5 for number in range(2_500)}}
    assert check(service, "POST", shift, padded(many), given) == 422
    wanted = {"mode": "dry_run", "calibrator": "temperature", "source": {"feedback": {}}}
    assert check(service, "POST", f"{MODEL}/recalibrate", padded(wanted), given) == 202
    for document in ({"calibrator": "x" * 60_000}, {"source": {"labelled_set": "x" * 60_000}}):
        assert check(service, "POST", f"{MODEL}/recalibrate", padded(document), given) in (404, 422)
    cancel_jobs(service, given)


def cancel_jobs(service: InThread, given: dict[str, str]) -> None:
    for job in service.http.get("/v1/jobs", headers=given).json()["items"]:
        service.http.delete(f"/v1/jobs/{job['job']}", headers=given)


def rows_of(digits: Digits, count: int) -> dict[str, Any]:
    """Return columns of valid labelled rows."""
    inputs = np.resize(digits.images, (count, 8, 8, 1))
    return {"label": np.resize(digits.labels, count), "inputs": inputs}


def csv_of(**columns: Any) -> bytes:
    pairs = zip(columns["label"], columns["inputs"].reshape(-1, 8, 8, 1).tolist(), strict=True)
    return "\n".join(["label,inputs", *(f'{label},"{row}"' for label, row in pairs)]).encode()


def parquet_of(**columns: Any) -> bytes:
    core, files = pytest.importorskip("arro3.core"), pytest.importorskip("arro3.io")
    stream, scores = io.BytesIO(), np.arange(len(columns["label"]), dtype=np.float64) % 7
    values = {"label": core.Array([str(label) for label in columns["label"]], core.DataType.utf8())}
    files.write_parquet(core.Table.from_pydict(values | {str(at): core.Array(scores) for at in range(10)}), stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("kind", "made", "count"),
    [
        ("text/csv", csv_of, 8_000),
        ("application/x-npz", npz, 300_000),
        ("application/vnd.apache.parquet", parquet_of, 30_000),
    ],
)
def test_files_of_valid_rows(
    guarded: tuple[InThread, str], digits: Digits, kind: str, made: Callable[..., bytes], count: int
) -> None:
    service, key = guarded
    given = {"authorization": f"Bearer {key}", "content-type": kind}
    body, sets = made(**rows_of(digits, count)), f"{MODEL}/labelled-sets"

    def forget() -> None:  # the same bytes again would not be checked and stored
        for stored in service.http.get(sets, headers=given).json()["items"]:
            assert service.http.delete(f"{sets}/{stored['id']}", headers=given).status_code == 200

    assert check(service, "POST", sets, body, given, forget) == 201
    assert check(service, "POST", sets, gzip.compress(body, 1), given | GZIP) == 200
    assert check(service, "POST", "/recalibrate", body, given) == 202
    cancel_jobs(service, given)


@pytest.mark.parametrize("path", [f"{MODEL}/labelled-sets", "/recalibrate"])
def test_files_of_rows(guarded: tuple[InThread, str], path: str) -> None:
    service, key = guarded
    given = {"authorization": f"Bearer {key}"}
    for kind, body in (
        ("text/csv", b"label,inputs\n" + b"7,[]\n" * 50_000),
        ("application/x-ndjson", b'{"label":"7","inputs":[[0]]}\n' * 10_000),
        ("application/x-npz", b"PK\x03\x04" + bytes(LARGE)),
    ):
        typed = given | {"content-type": kind}
        assert check(service, "POST", path, gzip.compress(body, 1), typed | GZIP) in (0, 400, 415, 422)


def test_people_and_their_provider(
    launch: Callable[..., InThread], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = IdentityProvider()
    monkeypatch.setattr(oidc, "REFETCH_S", 0.0)  # each unknown key makes the service read the provider's keys
    callback = "http://127.0.0.1/dashboard/login/callback"
    client = {"oidc_client_id": CLIENT, "oidc_redirect_url": callback, "oidc_audience": AUDIENCE}
    service = launch(tmp_path, oidc_issuer=provider.issuer, oidc_scopes={"ops": ("read",)}, **client)
    try:
        service.http.get("/dashboard/login")  # what the first page takes is taken once
        head = part({"alg": "RS256", "kid": "unknown"})
        for token in (
            provider.token(),
            f"{head}.{'A' * 15_000}.A",
            f"{part(b'[' * 11_000)}.A.A",
            f"{part(b'{}' + b' ' * 11_000)}.A.A",
            "." * 15_000,
        ):
            given = {"authorization": f"Bearer {token}"}
            assert check(service, "GET", "/v1/models", b"", given) in (200, 401), token[:50]
        for query, cookie in (
            ("code=x&state=y", f"candor_login={'1' * 12}.{'x' * 43}.{'x' * 2000}"),
            ("&".join(["code=%41"] * 1500), "; ".join(["candor_login=x"] * 800)),
        ):
            path = f"/dashboard/login/callback?{query}"
            assert check(service, "GET", path, b"", {"cookie": cookie}) == 401
        cookie = f"{int(time.time())}.{'x' * 43}.%2Fdashboard"
        state = session._part(cookie, "state")
        path = f"/dashboard/login/callback?code=x&state={state}"
        assert check(service, "GET", path, b"", {"cookie": f"candor_login={cookie}"}) == 401
        assert check(service, "GET", f"/dashboard/login/begin?next=/dashboard/{'x' * 12_000}", b"", {}) == 303
    finally:
        service.close()
        provider.close()
