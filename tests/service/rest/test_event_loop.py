"""No body that anyone may send keeps the event loop, and with it all other requests, waiting."""

from __future__ import annotations

import gzip
import io
import json
import re
import socket
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

from candor.contract.conditions import MOST_BANDS
from candor.contract.feedback import MOST_ITEMS
from candor.contract.policies import MOST_PARTS, MOST_SEGMENTS
from service.dashboard import routes as dashboard
from service.dashboard import session
from service.operations import oidc
from service.rest.paths import MOST_POLICY_BYTES, most_bytes, predicts
from service.state.keys import KeyStore
from tests.service import imported_models
from tests.service.conftest import InThread
from tests.service.identity_provider import AUDIENCE, CLIENT, IdentityProvider, part
from tests.service.operations.test_access import ENDPOINTS
from tests.waiting import PATIENCE_S


def _pace() -> float:
    """Return how many times as long as a processor of 2022 this one takes for the same Python, at least 1."""
    found = []
    for _ in range(9):
        began = time.thread_time()
        sum(range(200_000))
        found.append(time.thread_time() - began)
    return max(1.0, min(found) / 0.002)


LONGEST_S: Final = 0.05 * _pace()
TRIES: Final = 6  # a processor that others keep busy may hold up the loop's thread while another of ours runs
MODEL: Final = "/v1/models/digits"
LARGE: Final = 8 * 1024 * 1024 - 1024
JSON: Final = {"content-type": "application/json"}
FORM: Final = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
GZIP: Final = {"content-encoding": "gzip"}
PREDICTS: Final = ("/predict", f"{MODEL}:predict", "/v2/models/digits/infer")
FEEDBACK: Final = "/feedback"
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


class Beats:
    """Looks at the processor time of this process each time that the event loop comes round.

    That of other processes is not in it, so that a busy machine makes no difference; that of threads which keep
    Python's lock is.
    """

    def __init__(self, service: InThread) -> None:
        self._loop = service._server.servers[0].get_loop()
        self._ended = threading.Event()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Look while something happens."""
        self._longest, self._last, self._on = 0.0, None, True
        self._ended.clear()
        self._loop.call_soon_threadsafe(self._beat)
        yield
        self._on = False
        assert self._ended.wait(PATIENCE_S)

    @property
    def longest_s(self) -> float:
        """Processor seconds of the longest time without a look."""
        return self._longest

    _last: float | None

    def _beat(self) -> None:
        now = time.process_time()
        if self._last is not None:
            self._longest = max(self._longest, now - self._last)
        self._last = now
        if self._on:
            self._loop.call_later(0.001, self._beat)
        else:
            self._ended.set()


@pytest.fixture(scope="module")
def guarded(
    launch: Callable[..., InThread], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[InThread, str]]:
    """A service with keys, and an administrator's."""
    running = launch(tmp_path_factory.mktemp("guarded"))
    _, key = KeyStore(running.runtime.database).create("ops", ["admin"])
    running.application._access.refresh()
    running.http.get("/dashboard/login")  # what the first page takes is taken once
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


def check(service: InThread, method: str, path: str, body: bytes, headers: dict[str, str]) -> int:
    """Send a request that may not keep the loop waiting; return its status."""
    beats = Beats(service)
    found = []
    for _ in range(TRIES):
        with beats.counted():
            status = send(service, method, path, body, headers)
        found.append(beats.longest_s)
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


def policy(bands: int, segments: int) -> dict[str, Any]:
    made = [{"action": f"a{band}", "when": {"min_precision": 0.99 - band / 1e5}} for band in range(bands - 1)]
    document: dict[str, Any] = {"positive": "top", "bands": [*made, {"action": "review"}]}
    return document | ({"segments": {"values": [f"s{one}" for one in range(segments)]}} if segments else {})


def test_the_routes_above_are_all(guarded: tuple[InThread, str]) -> None:
    service, _ = guarded
    tried = [path for _, path in CONTROLS] + [*PREDICTS, FEEDBACK]
    tried += [f"{MODEL}{FEEDBACK}", "/v1/models/digits/predict", "/v2/models/digits/versions/1/infer"]
    # Multi-label models: predictions are read as all others, and labels of rows have at most 256 KiB.
    tried += ["/v1/multilabel/comments/predict", "/v1/multilabel/comments/feedback"]
    described = service.application.api.openapi()["paths"]
    reading = {path for path, methods in described.items() if methods.keys() & {"post", "put", "patch"}}
    assert len(reading) > 20
    assert len(FORMS) > 10
    patterns = {path: re.compile(re.sub(r"{\w+}", r"[^/]+", path)) for path in reading}
    assert [path for path, pattern in patterns.items() if not any(map(pattern.fullmatch, tried))] == []


@pytest.mark.parametrize("path", FORMS)
def test_forms_of_a_session(guarded: tuple[InThread, str], path: str) -> None:
    service, key = guarded
    browser = httpx.Client(base_url=service.url, headers={"sec-fetch-site": "same-origin"})
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


@pytest.mark.parametrize("path", [*OPEN, "/dashboard/logout", *PREDICTS])
def test_without_a_key(guarded: tuple[InThread, str], path: str) -> None:
    service, _ = guarded
    form = b"key=" + b"%41" * (LARGE // 3 - 2)
    statuses = [check(service, "POST", path, gzip.compress(form), FORM | GZIP)]
    statuses.append(check(service, "POST", path, form, FORM))
    statuses.append(check(service, "POST", path, form[: 16 * 1024], FORM))
    statuses.append(check(service, "POST", path, b"&".join([b"a"] * 8000), FORM))
    statuses.append(check(service, "POST", path, form, {"origin": "http://elsewhere.example"}))
    assert all(status in (0, 303, 400, 401, 403, 405, 413) for status in statuses), statuses


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
        assert check(service, method, path, large, given | more) in (0, 200, 404, 413, 415)


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


def npy(shape: tuple[int, ...], dtype: str) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.zeros(shape, dtype))
    return stream.getvalue()


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
        ("application/x-npy", npy((LARGE // 64, 8, 8, 1), "u1")),
        ("application/x-npy", npy((1, 8, LARGE // 8), "u1")),
        ("application/x-npy", npy((LARGE // 16, 2), "f8")),
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


def test_policies(guarded: tuple[InThread, str]) -> None:
    service, key = guarded
    given = JSON | {"authorization": f"Bearer {key}"}
    path = f"{MODEL}/policies/mine"
    assert check(service, "PUT", path, json.dumps(policy(MOST_BANDS, 0)).encode(), given) == 201
    assert (
        check(service, "PUT", path, json.dumps(policy(MOST_PARTS // MOST_SEGMENTS, MOST_SEGMENTS)).encode(), given)
        == 201
    )
    simulated = json.dumps({"document": policy(3, MOST_SEGMENTS)}).encode()
    assert check(service, "POST", f"{path}/simulate", simulated, given) == 200
    for refused in (policy(MOST_BANDS + 1, 0), policy(3, MOST_SEGMENTS + 1), policy(MOST_BANDS, MOST_SEGMENTS)):
        assert check(service, "PUT", path, json.dumps(refused).encode(), given) == 422
    for most in (keys(MOST_POLICY_BYTES), listed(b'{"bands":[', b"{}", b"]}", MOST_POLICY_BYTES)):
        assert check(service, "PUT", path, most, given) == 422
        assert check(service, "PUT", path, most, given | {"content-type": "application/yaml"}) in (400, 422)
    assert check(service, "PUT", path, json.dumps(policy(20_000, 0)).encode(), given) in (0, 413)


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
