"""Keys and scopes: who may do what, and from when on no longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from sqlalchemy import select

from service.errors import ConfigurationError, ForbiddenError
from service.operations import access
from service.operations.access import Access
from service.operations.principal import Principal
from service.operations.rates import Rates
from service.settings import is_loopback
from service.state.database import Database, now_us
from service.state.keys import SCOPES, KeyStore
from service.state.tables import feedback, jobs
from tests.waiting import PATIENCE_S, until

# Every endpoint below /v1 with the scope that it takes; the answer without the scope is 403 whatever else is wrong.
ENDPOINTS = [
    ("POST", "/predict", "predict"),
    ("POST", "/v1/models/digits/predict", "predict"),
    ("POST", "/v1/models/digits:predict", "predict"),
    ("GET", "/v1/multilabel", None),
    ("POST", "/v1/multilabel/digits/predict", "predict"),
    ("POST", "/v1/multilabel/digits/feedback", "feedback"),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/digits", None),
    ("GET", "/v1/models/digits/revisions", None),
    ("GET", "/v1/models/digits/revisions/r1", None),
    ("GET", "/v1/models/digits/policies/auto-read", None),
    ("GET", "/v1/models/digits/monitoring", None),
    ("GET", "/v1/models/digits/challengers", None),
    ("GET", "/v1/models/digits/challengers/rival", None),
    ("PUT", "/v1/models/digits/challengers/rival", "calibrate"),
    ("DELETE", "/v1/models/digits/challengers/rival", "calibrate"),
    ("GET", "/v1/models/digits/labelled-sets", None),
    ("GET", "/v1/models/digits/labelled-sets/ls1", None),
    ("GET", "/v1/jobs", None),
    ("GET", "/v1/jobs/j1", None),
    ("DELETE", "/v1/jobs/j1", "calibrate"),
    ("POST", "/v1/jobs/j1/propose", "calibrate"),
    ("POST", "/feedback", "feedback"),
    ("POST", "/v1/models/digits/feedback", "feedback"),
    ("GET", "/v1/models/digits/cases", "review"),
    ("GET", "/v1/models/digits/cases/c1", "review"),
    ("POST", "/v1/models/digits/cases/claim", "review"),
    ("POST", "/v1/models/digits/cases/c1/claim", "review"),
    ("POST", "/v1/models/digits/cases/c1/label", "review"),
    ("POST", "/v1/models/digits/cases/c1/skip", "review"),
    ("POST", "/v1/models/digits/cases/c1/release", "review"),
    ("POST", "/v1/models/digits/cases/c1/assign", "review"),
    ("POST", "/recalibrate", "calibrate"),
    ("POST", "/v1/models/digits/recalibrate", "calibrate"),
    ("POST", "/v1/models/digits/prior-shift", "calibrate"),
    ("PUT", "/v1/models/digits/policies/mine", "calibrate"),
    ("POST", "/v1/models/digits/policies/mine/simulate", "calibrate"),
    ("POST", "/v1/models/digits/policies/mine/backtest", "calibrate"),
    ("POST", "/v1/models/digits/labelled-sets", "calibrate"),
    ("DELETE", "/v1/models/digits/labelled-sets/ls1", "calibrate"),
    ("GET", "/v1/models/digits/revisions/r1/traffic", "calibrate"),
    ("POST", "/v1/models/digits/revisions/r1/activate", "approve"),
    ("POST", "/v1/models/digits/revisions/r1/reject", "approve"),
    ("GET", "/v1/models/digits/audit", "read"),
    ("POST", "/v1/models/digits/rollback", "approve"),
    ("POST", "/v1/models/digits/erase", "admin"),
    ("POST", "/v1/models/digits/unload", "admin"),
    ("POST", "/v1/models/digits/load", "admin"),  # last: whoever comes after wants the model back
]
ALSO = {"review": "feedback", "read": "approve"}  # what keys from before these scopes go on doing
BODIES = {
    "feedback": {"items": [{"reference": "a", "label": "1"}]},
    "reject": {"reason": "a test"},
    "label": {"label": "1"},
    "skip": {"reason": "a test"},
    "assign": {"to": "ann"},
    "predict": {"inputs": [[[0] * 8] * 8]},
    "digits:predict": {"instances": [[[0] * 8] * 8]},
    "rival": {"revision": "r99"},
    "mine": {"positive": "top", "bands": [{"action": "review"}]},
}


def ask(service: Any, method: str, path: str, key: str | None) -> Any:
    headers = {"if-match": '"0"'} | ({"authorization": f"Bearer {key}"} if key else {})
    body = BODIES.get(path.rpartition("/")[2]) if method not in ("GET", "DELETE") else None
    return service.http.request(method, path, json=body, headers=headers)


@pytest.fixture(scope="module")
def locked(launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service that has keys, and reads them again at once for each unknown one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(access, "_REREAD_AFTER_S", 0.0)
        running = launch(tmp_path_factory.mktemp("locked"))
        yield running
        running.close()


@pytest.fixture(scope="module")
def keys(locked: Any) -> dict[str, str]:
    """One key for each scope."""
    store = KeyStore(locked.runtime.database)
    made = {scope: store.create(scope, [scope])[1] for scope in SCOPES}
    until(lambda: ask(locked, "GET", "/v1/models", None).status_code == 401)  # until the first key has been noticed
    return made


@pytest.mark.parametrize(("method", "path", "scope"), ENDPOINTS)
def test_every_endpoint_takes_its_scope_and_no_other(
    locked: Any, keys: dict[str, str], method: str, path: str, scope: str | None
) -> None:
    for name, key in keys.items():
        response = ask(locked, method, path, key)
        if name in (scope, "admin", ALSO.get(scope or "")) or (scope is None and name != "metrics"):
            assert response.status_code not in (401, 403), (name, response.text)
        else:
            assert response.status_code == 403, (name, response.text)
            document = response.json()
            assert (document["type"], document["found"], document["expected"]) == (
                "/errors/forbidden", [name], scope or "any scope but metrics",
            )  # fmt: skip
    for wrong in (None, "cnd_", "cnd_0_0", keys["admin"][:-1], keys["admin"] + "x", "é"):
        headers = {} if wrong is None else {"authorization": f"Bearer {wrong}".encode()}
        response = locked.http.request(method, path, headers=headers)
        assert response.status_code == 401
        assert response.json()["type"] == "/errors/unauthenticated"
        assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(("method", "path", "scope"), [endpoint for endpoint in ENDPOINTS if endpoint[2] is not None])
def test_no_other_way_to_write_an_address_needs_less(
    locked: Any, keys: dict[str, str], method: str, path: str, scope: str
) -> None:
    """A route's pattern ends before a last line break as well as at the end."""
    weak = keys["predict" if scope != "predict" else "feedback"]
    for other in (f"{path}%0A", f"{path}%0D", f"/{path}", f"{path}/", path.replace("digits", "digits%0A")):
        assert ask(locked, method, other, weak).status_code in (307, 403, 404), other


def test_the_endpoints_above_are_all(locked: Any) -> None:
    document = locked.application.api.openapi()
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    named = {
        (method, path.replace("/digits", "/{model}").replace("/r1", "/{revision}").replace("/j1", "/{job}"))
        for method, path, _ in ENDPOINTS
    }
    named = {(method, path.replace("/auto-read", "/{policy}").replace("/mine", "/{policy}")) for method, path in named}
    named = {(method, path.replace("/ls1", "/{labelled_set}").replace("/c1", "/{case}")) for method, path in named}
    named = {(method, path.replace("/rival", "/{challenger}")) for method, path in named}
    rest = {path for _, path in described - named}
    assert named <= described
    assert not {path for path in rest if path.startswith("/v1")}


@pytest.mark.parametrize(("default", "own"), [(1e-6, None), (None, 1e-6), (1e9, 1e-6)])
def test_rows_are_counted_once_they_are_answered(
    start: Callable[..., Any], digits: Any, default: float | None, own: float | None
) -> None:
    service = start(key_rows_per_s=default)
    store = KeyStore(service.runtime.database)
    texts = [store.create(name, ["predict"], rows_per_s=own)[1] for name in ("first", "second")]
    service.application._access.refresh()
    body = {"inputs": digits.images[:2].tolist()}
    answers = [
        service.http.post("/predict", json=body, headers={"authorization": f"Bearer {text}"})
        for text in (texts[0], texts[0], texts[1])
    ]
    assert [answer.status_code for answer in answers] == [200, 429, 200]
    assert "too many rows" in answers[1].json()["detail"]
    assert int(answers[1].headers["retry-after"]) > 1_000_000


def test_a_key_for_a_model_reaches_that_model_and_no_other(locked: Any, keys: dict[str, str]) -> None:
    store = KeyStore(locked.runtime.database)
    (_, own), (_, other) = (store.create(f"for {name}", ["admin"], models=[name]) for name in ("digits", "birds"))
    until(lambda: ask(locked, "GET", "/v1/models", other).status_code == 200)
    assert [model["model"] for model in ask(locked, "GET", "/v1/models", own).json()["items"]] == ["digits"]
    assert ask(locked, "GET", "/v1/models", other).json()["items"] == []
    for method, path, _ in ENDPOINTS:
        if path in ("/v1/models", "/v1/multilabel"):  # lists leave other models out
            continue
        response = ask(locked, method, path, other)
        if path.startswith("/v1/jobs/"):  # there is none
            assert response.status_code == 404, path
            continue
        assert response.status_code == 403, path
        assert response.json()["expected"] == ["birds"], path
        if not path.endswith(("/unload", "/v1/jobs")):
            assert ask(locked, method, path, own).status_code not in (401, 403), path
    for path in ("/v2/models/digits", "/v2/models/stats", "/v2/repository/index", "/v1/jobs?model=digits", "/nowhere"):
        assert ask(locked, "GET", path, other).status_code == 403, path
    assert ask(locked, "GET", "/v1/jobs?model=digits", own).status_code == 200
    for query in ("", "?model=digits&model=", "?model=&model=digits", "?model=digits&model=birds", "?MODEL=digits"):
        assert ask(locked, "GET", f"/v1/jobs{query}", own).status_code == 403, query
    for path in ("/metrics", "/v2/models/stats", "/v2/repository/index", "/nowhere"):  # a model in the query: not read
        method = "POST" if path.endswith("/index") else "GET"
        assert ask(locked, method, f"{path}?model=digits", own).status_code == 403, path
    image = {"inputs": [{"name": "input", "datatype": "UINT8", "shape": [1, 8, 8, 1], "data": [0] * 64}]}
    for key, status in ((own, 200), (other, 403)):
        headers = {"authorization": f"Bearer {key}"}
        sent = locked.http.post("/v2/models/digits/infer", json=image, headers=headers)
        assert sent.status_code == status, sent.text


def test_a_job_is_of_the_model_of_its_key(locked: Any, keys: dict[str, str]) -> None:
    fields = {"kind": "recalibrate", "state": "failed", "request": {}, "by": "ops", "progress": "", "created_at": 1}
    with locked.runtime.database.begin() as connection:
        connection.execute(jobs.insert().values(number=9_000, model="digits", **fields))
    store = KeyStore(locked.runtime.database)
    _, other = store.create("elsewhere", ["admin"], models=["birds"])
    until(lambda: ask(locked, "GET", "/v1/models", other).status_code == 200)
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/propose")):
        assert ask(locked, method, f"/v1/jobs/j9000{path}", other).status_code == 403


def test_a_key_bound_to_a_source_sends_no_other(locked: Any, keys: dict[str, str]) -> None:
    store = KeyStore(locked.runtime.database)
    _, bound = store.create("chargebacks", ["feedback"], source="chargeback")
    until(lambda: ask(locked, "GET", "/v1/models", bound).status_code == 200)
    headers = {"authorization": f"Bearer {bound}"}
    refused = locked.http.post(
        "/feedback", json={"items": [{"reference": "s", "label": "1", "source": "reviewer"}]}, headers=headers
    )
    assert (refused.status_code, refused.json()["expected"], refused.json()["where"]) == (
        422,
        "chargeback",
        "/items/0/source",
    )
    for item in ({"reference": "s", "label": "1"}, {"reference": "s", "label": "2", "source": "chargeback"}):
        assert locked.http.post("/feedback", json={"items": [item]}, headers=headers).status_code == 200
    with locked.runtime.database.connect() as connection:
        sources = connection.execute(select(feedback.c.source).where(feedback.c.target == "s")).all()
    assert sources == [("chargeback",), ("chargeback",)]
    assert ask(locked, "POST", "/v1/models/digits/cases/c1/label", bound).status_code == 403


def test_a_key_for_metrics_reads_metrics_and_nothing_else(locked: Any, keys: dict[str, str]) -> None:
    for name, key in keys.items():
        assert "candor_ready" in ask(locked, "GET", "/metrics", key).text, name
    for path in ("/v2", "/v2/", "/v2/models/stats", "/v1/models", "/nowhere"):
        assert ask(locked, "GET", path, keys["metrics"]).status_code == 403, path
    assert ask(locked, "GET", "/readyz", keys["metrics"]).json().keys() == {"ready", "stale_for_s"}


def test_activate_through_a_refit_needs_the_scope_to_approve(locked: Any, keys: dict[str, str]) -> None:
    headers = {"authorization": f"Bearer {keys['calibrate']}"}
    response = locked.http.post("/recalibrate", json={"mode": "activate"}, headers=headers)
    assert response.status_code == 403
    assert response.json()["expected"] == "approve"


@pytest.mark.parametrize("path", ["/metrics", "/nowhere", "/v1", "/openapi.jsonx", "/livez/"])
def test_what_is_not_named_open_needs_a_key(locked: Any, keys: dict[str, str], path: str) -> None:
    assert locked.http.get(path).status_code == 401


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
def test_the_documentation_is_open(locked: Any, keys: dict[str, str], path: str) -> None:
    assert locked.http.get(path).status_code == 200


def test_liveness_and_readiness_are_open(locked: Any, keys: dict[str, str]) -> None:
    assert locked.http.get("/livez").json()["live"] is True
    ready = locked.http.get("/readyz").json()
    assert ready.pop("stale_for_s") >= 0
    assert ready == {"ready": True}  # what is served is nobody else's business
    wrong = locked.http.get("/readyz", headers={"authorization": "Bearer cnd_1_2"})
    assert (wrong.status_code, wrong.json().keys()) == (200, {"ready", "stale_for_s"})
    known = ask(locked, "GET", "/readyz", keys["predict"]).json()
    assert (known["models"], known["problems"]) == ({"digits": "r1"}, {})


def test_a_revoked_key_stops_within_a_poll_and_the_audit_log_names_callers(service: Any) -> None:
    store = KeyStore(service.runtime.database)
    _, admin = store.create("boss", ["admin"])
    key, secret = store.create("temp", ["calibrate"])
    until(lambda: ask(service, "GET", "/v1/models", None).status_code == 401)
    made = ask(service, "PUT", "/v1/models/digits/policies/mine", secret)
    assert made.status_code == 201
    assert made.json()["by"] == "temp"
    store.revoke(key.prefix)
    until(lambda: ask(service, "PUT", "/v1/models/digits/policies/mine", secret).status_code == 401)
    assert ask(service, "GET", "/v1/models", admin).status_code == 200


def test_a_load_delays_neither_a_revocation_nor_readiness(on_both: Any) -> None:
    store = KeyStore(on_both.runtime.database)
    (revoked, text), (_, other) = (store.create(name, ["admin"]) for name in ("ops", "backup"))
    until(lambda: ask(on_both, "GET", "/v1/models", None).status_code == 401)
    loading, loaded = Event(), Event()

    def load() -> None:
        with on_both.runtime.models._swap.lock:  # as every load does
            loading.set()
            loaded.wait()

    loads = [Thread(target=load), *(Thread(target=on_both.application.follow) for _ in range(8))]
    for thread in loads:
        thread.start()
        assert loading.wait(PATIENCE_S)
    try:
        assert store.revoke(revoked.prefix)
        until(lambda: ask(on_both, "GET", "/v1/models", text).status_code == 401)
        for key in (None, other, text, "cnd_unknown"):
            assert ask(on_both, "GET", "/readyz", key).status_code == 200
    finally:
        loaded.set()
        for thread in loads:
            thread.join()


def test_revoking_the_last_key_opens_nothing(service: Any) -> None:
    store = KeyStore(service.runtime.database)
    key, secret = store.create("only", ["admin"])
    until(lambda: ask(service, "GET", "/v1/models", None).status_code == 401)
    store.revoke(key.prefix)
    until(lambda: ask(service, "GET", "/v1/models", secret).status_code == 401)
    for _ in range(3):
        assert ask(service, "GET", "/v1/models", None).status_code == 401


class TestUnit:
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[KeyStore]:
        database = Database.open(f"sqlite:///{tmp_path}/state.db")
        yield KeyStore(database)
        database.close()

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", ""])
    def test_beyond_loopback_a_key_is_needed(self, store: KeyStore, host: str) -> None:
        keys = Access(store, Rates(None))
        with pytest.raises(ConfigurationError) as caught:
            keys.check_bind(host)
        assert "candor keys create" in str(caught.value.remedy)
        store.create("late", ["predict"], expires_at=now_us() - 1)
        with pytest.raises(ConfigurationError):
            keys.check_bind(host)
        store.create("ops", ["admin"])
        keys.check_bind(host)

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
    def test_loopback_needs_none(self, store: KeyStore, host: str) -> None:
        Access(store, Rates(None)).check_bind(host)
        assert is_loopback(host)

    def test_admin_may_do_everything_and_others_what_they_name(self) -> None:
        for scope in SCOPES:
            Principal("boss", frozenset({"admin"}), None).require(scope)
        Principal("both", frozenset({"metrics", "predict"}), None).require(None)
        with pytest.raises(ForbiddenError):
            Principal("reader", frozenset({"predict", "feedback", "calibrate"}), None).require("approve")

    @pytest.mark.parametrize(("model", "remedy"), [(None, "without --model"), ("birds", "create --model")])
    def test_a_key_for_some_models_is_told_which_one_it_needs(self, model: str | None, remedy: str) -> None:
        with pytest.raises(ForbiddenError) as refused:
            Principal("shop", frozenset({"admin"}), "abc", models=frozenset({"digits"})).reach(model)
        assert remedy in str(refused.value.remedy)


def test_the_scope_is_checked_before_the_body_is_read(locked: Any, keys: dict[str, str]) -> None:
    junk = b'{"items": [' + b"0," * 10
    headers = {"authorization": f"Bearer {keys['predict']}", "content-type": "application/json"}
    assert locked.http.post("/feedback", content=junk, headers=headers).status_code == 403


@pytest.mark.parametrize(
    "headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}], ids=str
)
def test_without_keys_a_web_page_is_not_answered(service: Any, headers: dict[str, str]) -> None:
    response = service.http.post("/recalibrate", headers=headers)
    assert response.status_code == 403
    assert response.json()["type"] == "/errors/forbidden"
    assert service.http.get("/v1/models", headers={"origin": service.url}).status_code == 200


@pytest.mark.parametrize("name", ["X-Forwarded-For", "X-Forwarded-Proto", "Forwarded", "X-Real-IP", "Via"])
def test_without_keys_nothing_comes_through_a_proxy(service: Any, name: str) -> None:
    image = {"inputs": [[[0] * 8] * 8]}
    for method, path in (("POST", "/predict"), ("GET", "/v1/models"), ("GET", "/dashboard"), ("GET", "/metrics")):
        response = service.http.request(method, path, json=image, headers={name: "192.0.2.7"})
        assert response.status_code == 403, path
    assert service.http.get("/livez", headers={name: "192.0.2.7"}).status_code == 200


def test_insecure_or_with_a_key_a_proxy_may_forward(start: Callable[..., Any]) -> None:
    told = start(insecure=True)
    forwarded = {"x-forwarded-for": "192.0.2.7", "host": "candor.example"}
    assert told.http.get("/v1/models", headers=forwarded).status_code == 200
    assert told.http.get("/dashboard", headers=forwarded).status_code == 200
    unload = "/v2/repository/models/digits/unload"  # needs neither a body nor a header: any page could send it
    for other in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}):
        assert told.http.post(unload, headers=forwarded | other).status_code == 403
    link = forwarded | {"sec-fetch-site": "cross-site"}
    assert told.http.get("/dashboard", headers=link).status_code == 200
    _, key = KeyStore(told.runtime.database).create("ops", ["admin"])
    told.application._access.refresh()
    assert told.http.get("/v1/models", headers=forwarded).status_code == 401
    assert told.http.get("/v1/models", headers=forwarded | {"authorization": f"Bearer {key}"}).status_code == 200


def test_known_keys_work_while_the_state_is_gone(start: Callable[..., Any], tmp_path: Path, digits: Any) -> None:
    service = start()
    _, secret = KeyStore(service.runtime.database).create("reader", ["predict"])
    headers = {"authorization": f"Bearer {secret}"}
    until(lambda: service.http.get("/v1/models").status_code == 401)
    hidden = [path.rename(path.with_name(f"{path.name}.away")) for path in tmp_path.glob("state.db*")]
    try:
        service.runtime.database.engine.dispose()
        body = {"inputs": digits.images[:1].tolist()}
        assert service.http.post("/predict", json=body, headers=headers).status_code == 200
        unknown = service.http.post("/predict", json=body, headers={"authorization": "Bearer cnd_1_2"})
        assert unknown.status_code == 401
    finally:
        for path in hidden:
            path.rename(path.with_name(path.name.removesuffix(".away")))
        service.runtime.database.engine.dispose()  # its connections are to a file that has gone


def test_a_key_sends_no_more_than_its_rate(service: Any) -> None:
    store = KeyStore(service.runtime.database)
    _, slow = store.create("slow", ["admin"], requests_per_s=0.01)
    _, free = store.create("free", ["admin"])
    until(lambda: ask(service, "GET", "/v1/models", None).status_code == 401)
    assert ask(service, "GET", "/v1/models", slow).status_code == 200
    refused = ask(service, "POST", "/predict", slow)
    assert refused.status_code == 429
    assert 90 <= int(refused.headers["retry-after"]) <= 100
    assert refused.json()["type"] == "/errors/rate-limited"
    assert ask(service, "GET", "/v2/models/digits", slow).json()["error"]
    for _ in range(20):
        assert ask(service, "GET", "/v1/models", free).status_code == 200
    assert service.http.get("/livez").status_code == 200


@pytest.mark.parametrize("path", ["/livez", "/v1/models", "/nowhere", "/predict", "/docs", "/v2"])
def test_every_answer_tells_browsers_to_do_nothing_with_it(shared: Any, path: str) -> None:
    response = shared.http.get(path)
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
    assert (response.headers.get("cache-control") == "no-store") == (path != "/docs")
