"""Health as load balancers ask for it, and the addresses that they use."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from service.state.keys import KeyStore
from tests.waiting import until


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/v2/health/live", "/metrics", "/v1/models", "/dashboard/login"])
def test_the_head_alone_may_be_asked_for(shared: Any, path: str) -> None:
    whole, head = shared.http.get(path), shared.http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert list(head.headers) == list(whole.headers)


@pytest.mark.parametrize(("scope", "status"), [("read", 200), ("metrics", 403)])
def test_a_head_requires_what_the_whole_does(start: Any, scope: str, status: int) -> None:
    service = start()
    _, key = KeyStore(service.runtime.database).create("someone", [scope])
    until(lambda: service.http.head("/v1/models").status_code == 401)  # the service has heard of the key
    headers = {"authorization": f"Bearer {key}"}
    answers = [service.http.request(method, "/v1/models/digits/audit", headers=headers) for method in ("GET", "HEAD")]
    assert [answer.status_code for answer in answers] == [status, status]


def test_a_head_says_what_is_not_ready(start: Any) -> None:
    service = start(poll_interval_s=3600.0)  # a poll would mend it
    service.runtime.models.get("digits").problem = "its bundle is damaged"
    for path in ("/readyz", "/v2/health/ready"):
        assert service.http.head(path).status_code == service.http.get(path).status_code == 503


FULL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON numbers EXECUTE FUNCTION full_disk();
CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON desired EXECUTE FUNCTION full_disk();
"""


def test_a_state_that_cannot_be_written_makes_the_service_unready(start: Any, digits: Any, postgresql_url: str) -> None:
    """PostgreSQL answers as it does on a full disk. Nothing tells clients where it is."""
    service = start(state=postgresql_url.replace("postgresql://", "postgresql+psycopg://"))
    ready = service.http.get("/readyz")
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute(FULL)
        unready = until(lambda: found if (found := service.http.get("/readyz")).status_code == 503 else None)
        assert unready.json().keys() == ready.json().keys()
        assert unready.json()["problems"] == {"state": "The state can be read but not written."}
        assert len(service.predict(digits.images[:2])) == 2
        refused = service.http.post("/v1/models/digits/unload")
        assert (refused.status_code, refused.json()["type"]) == (503, "/errors/state-unavailable")
        other = service.http.post("/v2/repository/models/digits/unload")
        assert other.status_code == 503
        for told in (unready.text, refused.text, other.text):
            assert not any(
                part in told for part in (urlsplit(postgresql_url).path[1:], "postgresql", "127.0.0.1", "5432")
            )
        connection.execute("DROP FUNCTION full_disk CASCADE")
    until(lambda: service.http.get("/readyz").status_code == 200)


def test_the_server_of_v2_has_two_addresses(shared: Any) -> None:
    assert shared.http.get("/v2/").json() == shared.http.get("/v2").json()
    assert shared.http.get("/v2/").json()["name"] == "candor"
