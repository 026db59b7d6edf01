"""Pages of other origins: a browser may hand them answers only where the settings name their origin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from service.rest.direct import Direct
from service.rest.paths import Target
from service.settings import Settings
from service.state.keys import KeyStore
from tests.waiting import until

PAGE = "https://app.example"
BODY = {"inputs": np.zeros((1, 8, 8, 1), int).tolist()}
ASKING = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}


@pytest.fixture(scope="module")
def open_to_pages(launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """A service with a key, open to two origins, and that key as headers."""
    running = launch(tmp_path_factory.mktemp("pages"), cors_origins=f"{PAGE}, http://localhost:3000")
    _, text = KeyStore(running.runtime.database).create("page", ["predict"])
    until(lambda: running.http.get("/v1/models").status_code == 401)
    yield running, {"authorization": f"Bearer {text}"}
    running.close()


def allowed(response: Any) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith("access-control-")}


def test_a_prediction_has_the_same_headers_with_and_without_asgi(
    open_to_pages: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, key = open_to_pages
    taken: list[str] = []
    call = Direct.__call__

    def noting(self: Direct, target: Target, scope: Any) -> Any:
        taken.append(target.path)
        return call(self, target, scope)

    monkeypatch.setattr(Direct, "__call__", noting)
    plain = service.http.post("/predict", json=BODY, headers={**key, "origin": PAGE})
    assert taken == ["/predict"]
    chunked = service.http.post("/predict", content=iter([plain.request.content]), headers={
        **key, "origin": PAGE, "content-type": "application/json",
    })  # fmt: skip
    assert taken == ["/predict"]
    for response in (plain, chunked):
        assert response.status_code == 200
        assert response.headers["vary"] == "origin"
        assert allowed(response)["access-control-allow-origin"] == PAGE
        assert "X-Candor-Revision" in allowed(response)["access-control-expose-headers"]
    assert list(plain.headers) == list(chunked.headers)


@pytest.mark.parametrize(
    "origin", ["https://evil.example", f"{PAGE}:444", "http://app.example", f"{PAGE}.evil", "null", None]
)
def test_other_origins_are_answered_without(open_to_pages: tuple[Any, Any], origin: str | None) -> None:
    service, key = open_to_pages
    headers = {} if origin is None else {"origin": origin}
    response = service.http.post("/predict", json=BODY, headers={**key, **headers})
    assert (response.status_code, allowed(response), response.headers["vary"]) == (200, {}, "origin")
    asked = service.http.options("/predict", headers={**headers, **ASKING})
    assert (asked.status_code, allowed(asked)) == (401, {})


@pytest.mark.parametrize("path", ["/predict", "/v1/models/digits/revisions/r1/activate", "/v2/models/digits/infer"])
def test_a_browser_may_ask_first_and_has_no_key_then(open_to_pages: tuple[Any, Any], path: str) -> None:
    service, _ = open_to_pages
    asked = service.http.options(path, headers={"origin": PAGE, **ASKING})
    assert (asked.status_code, asked.content) == (204, b"")
    assert "access-control-allow-credentials" not in asked.headers, "the dashboard's cookie is of no use elsewhere"
    assert allowed(asked)["access-control-allow-origin"] == PAGE
    assert "POST" in allowed(asked)["access-control-allow-methods"]
    assert allowed(asked)["access-control-allow-headers"] == "authorization,content-type"


def test_a_page_may_read_why_it_was_refused(open_to_pages: tuple[Any, Any]) -> None:
    service, key = open_to_pages
    for path, status in (("/feedback", 403), ("/predict", 400), ("/nowhere", 404)):
        refused = service.http.post(path, content=b"{", headers={
            **key, "origin": "http://localhost:3000", "content-type": "application/json",
        })  # fmt: skip
        assert refused.status_code == status
        assert allowed(refused)["access-control-allow-origin"] == "http://localhost:3000"
    nobody = service.http.post("/predict", json=BODY, headers={"origin": PAGE})
    assert (nobody.status_code, allowed(nobody)["access-control-allow-origin"]) == (401, PAGE)


def test_it_is_off_by_default(shared: Any) -> None:
    answer = shared.http.post("/predict", json=BODY, headers={"origin": shared.url})
    assert (answer.status_code, allowed(answer), "vary" in answer.headers) == (200, {}, False)
    assert shared.http.options("/predict", headers={"origin": shared.url, **ASKING}).status_code == 405


@pytest.mark.parametrize(
    "origins", ["*", "https://*.example", f"{PAGE}/", "app.example", "null", f"{PAGE} https://b.example"]
)
def test_only_exact_origins_are_settings(origins: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANDOR_CORS_ORIGINS", origins)
    with pytest.raises(ValidationError, match="is not an origin"):
        Settings()


def test_origins_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANDOR_CORS_ORIGINS", f"{PAGE}, http://[::1]:3000,")
    assert Settings().cors_origins == (PAGE, "http://[::1]:3000")
