"""The dashboard over plain HTTP: who gets in, what forms must carry, what is said when something is wrong."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

import service.dashboard
from candor.contract.gate import CapName
from service.dashboard import overview, words
from service.dashboard.session import ATTEMPTS, SESSION_COOKIE, Sessions
from service.errors import UnauthenticatedError
from service.operations.access import Access
from service.operations.rates import Rates
from service.state.keys import KeyStore
from tests.service.conftest import Digits, InThread

HERE = Path(service.dashboard.__file__).parent
SAME = {"sec-fetch-site": "same-origin"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


@pytest.fixture
def guarded(start: Callable[..., InThread]) -> Iterator[tuple[InThread, str]]:
    """A service with one key, for the scope predict, and that key."""
    running = start()
    _, key = KeyStore(running.runtime.database).create("guest", ["predict"])
    running.application._access.refresh()
    return running, key


def token(page: httpx.Response) -> str:
    found = re.search(r'name="token" value="([0-9a-f]{64})"', page.text)
    assert found, page.text
    return found[1]


def login(running: InThread, key: str) -> httpx.Response:
    fields = {"key": key, "token": token(running.http.get("/dashboard/login")), "next": "/dashboard/models/digits"}
    return running.http.post("/dashboard/login", data=fields, headers=SAME)


def test_every_answer_carries_the_policy(shared: InThread) -> None:
    for path in ("", "/login", "/static/dashboard.css", "/nothing", "/models/nobody", "/audit?before=x"):
        answer = shared.http.get(f"/dashboard{path}")
        assert answer.headers["content-security-policy"] == POLICY, path
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        if "static" not in path:
            assert answer.headers["cache-control"] == "no-store"


def test_pages_hold_nothing_that_the_policy_forbids() -> None:
    for template in HERE.glob("templates/*.html"):
        text = template.read_text()
        assert not re.search(
            r"\sstyle=|<style|\son[a-z]+=|javascript:|<script(?! src=)|hx-on|hx-vals=.js|\|safe", text
        ), template


def test_htmx_is_what_its_note_says() -> None:
    note = (HERE / "static" / "htmx.md").read_text()
    digest = hashlib.sha256((HERE / "static" / "htmx.min.js").read_bytes()).hexdigest()
    assert digest in note
    version = re.search(r"\| version \| ([0-9.]+) \|", note)
    assert version
    assert f'version:"{version[1]}"' in (HERE / "static" / "htmx.min.js").read_text()


def test_problems_are_pages_that_say_what_to_do(shared: InThread) -> None:
    for path, status, word in (
        ("/models/nobody", 404, "Unknown model"),
        ("/models/digits/revisions/r9999", 404, "has no revision"),
        ("/models/digits/revisions/<b>", 404, "&lt;b&gt;"),
        ("/models/digits/policies/nobody/simulate", 404, "no policy"),
        ("/models/digits/policies/auto-read/simulate?band-0=x", 422, "A threshold is a probability"),
        ("/models/digits/policies/auto-read/simulate?band-0=nan", 422, "A threshold is a probability"),
        ("/models/digits/policies/auto-read/simulate?band-2=0.5", 422, "Unknown band"),
        ("/jobs/j999", 404, "Unknown job"),
        ("/audit?before=x", 422, "Unusable input"),
        ("/static/..%2fpages.py", 404, "Not"),
        ("/models/digits/revisions/r1/activate?epoch=0", 412, "The active revision has changed"),
    ):
        answer = shared.http.get(f"/dashboard{path}")
        assert answer.status_code == status, (path, answer.text)
        assert answer.headers["content-type"].startswith("text/html"), path
        assert word in answer.text, path


def test_a_model_without_predictions_is_shown(service: InThread) -> None:
    assert "No predictions since this process started." in service.http.get("/dashboard").text
    page = service.http.get("/dashboard/models/digits/policies/auto-read/simulate")
    assert page.status_code == 200
    assert "there is nothing to try it on" in page.text


def test_without_a_model_it_says_what_to_do(start: Callable[..., InThread], tmp_path: Path) -> None:
    running = start(bundles=tmp_path / "none", policies=None)
    page = running.http.get("/dashboard")
    assert page.status_code == 200
    assert "No model yet." in page.text


def test_an_unloaded_model_is_shown(service: InThread) -> None:
    service.http.post("/v1/models/digits/unload")
    assert "Unloaded: requests are refused." in service.http.get("/dashboard").text
    assert service.http.get("/dashboard/models/digits").status_code == 200
    assert service.http.get("/dashboard/models/digits/recalibrate").status_code == 503


@pytest.mark.parametrize(
    ("headers", "right_token"),
    [
        ({}, True),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"sec-fetch-site": "same-site"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"origin": "http://localhost:1"}, True),
        (SAME, False),
    ],
)
def test_a_form_of_another_site_is_refused(service: InThread, headers: dict[str, str], right_token: bool) -> None:
    known = token(service.http.get("/dashboard"))
    fields = {"epoch": str(service.revisions()["epoch"]), "token": known if right_token else "0" * 64}
    other = service.propose_policy()
    path = f"/dashboard/models/digits/revisions/{other}/activate"
    answer = service.http.post(path, data=fields, headers=headers)
    assert answer.status_code == 403, answer.text
    assert service.revisions()["active"] != other


def test_an_older_browser_is_told_by_its_origin(service: InThread) -> None:
    other = service.propose_policy()
    fields = {"epoch": str(service.revisions()["epoch"]), "token": token(service.http.get("/dashboard"))}
    path = f"/dashboard/models/digits/revisions/{other}/activate"
    answer = service.http.post(path, data=fields, headers={"origin": service.url})
    assert answer.status_code == 303, answer.text
    assert service.revisions()["active"] == other


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 428),
        ({"epoch": "x"}, 412),
        ({"epoch": "1", "reason": "\0"}, 422),
        ({"epoch": "1", "reason": "y" * 2000}, 422),
    ],
)
def test_a_form_that_cannot_be_used_does_nothing(service: InThread, fields: dict[str, str], status: int) -> None:
    other = service.propose_policy()
    known = {"token": token(service.http.get("/dashboard"))}
    path = f"/dashboard/models/digits/revisions/{other}/activate"
    assert service.http.post(path, data=fields | known, headers=SAME).status_code == status
    assert service.revisions()["active"] != other
    binary = service.http.post(path, content=b"\xff\xfe=\xff", headers=SAME)
    assert binary.status_code == 400


def test_a_key_opens_a_session_with_its_scopes(guarded: tuple[InThread, str]) -> None:
    running, key = guarded
    sent_away = running.http.get("/dashboard/models/digits")
    assert (sent_away.status_code, sent_away.headers["location"]) == (
        303,
        "/dashboard/login?next=/dashboard/models/digits",
    )
    by_script = running.http.get("/dashboard", headers={"hx-request": "true"})
    assert (by_script.status_code, by_script.headers["hx-redirect"]) == (401, "/dashboard/login?next=/dashboard")
    answer = login(running, key)
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/models/digits")
    cookie = answer.headers["set-cookie"]
    for attribute in ("HttpOnly", "SameSite=strict", "Path=/dashboard"):
        assert attribute.lower() in cookie.lower()
    assert key not in cookie
    assert key.rsplit("_", 1)[1] not in cookie
    assert "Recalibrate" not in running.http.get("/dashboard/models/digits").text
    assert running.http.get("/v1/models").status_code == 401  # the cookie opens the dashboard only
    for path in ("recalibrate", "rollback?epoch=1", "policies/auto-read/simulate"):
        assert running.http.get(f"/dashboard/models/digits/{path}").status_code == 403, path
    known = token(running.http.get("/dashboard"))
    for path in ("recalibrate", "rollback", "revisions/r1/activate"):
        posted = running.http.post(
            f"/dashboard/models/digits/{path}", data={"token": known, "epoch": "1"}, headers=SAME
        )
        assert posted.status_code == 403, path
        assert "may not do this" in posted.text


def test_a_session_ends_with_its_key_and_cannot_be_made_up(guarded: tuple[InThread, str]) -> None:
    running, key = guarded
    login(running, key)
    assert running.http.get("/dashboard").status_code == 200
    session = running.http.cookies[SESSION_COOKIE]
    prefix, until, mac = session.split(".")
    for forged in (
        f"{prefix}.{int(until) + 1}.{mac}",
        f"{'0' * 12}.{until}.{mac}",
        f"{prefix}.{until}.{'0' * 64}",
        "x",
    ):
        answer = httpx.get(f"{running.url}/dashboard", cookies={SESSION_COOKIE: forged})
        assert answer.status_code == 303, forged
    KeyStore(running.runtime.database).revoke(key.split("_")[1])
    running.application._access.refresh()
    assert running.http.get("/dashboard").status_code == 303


def test_another_machine_gets_a_cookie_for_tls_only(guarded: tuple[InThread, str]) -> None:
    running, key = guarded
    there = {"host": "candor.example"}
    page = running.http.get("/dashboard/login", headers=there)
    assert "Over plain HTTP, browsers keep a session" in page.text
    answer = running.http.post("/dashboard/login", data={"key": key, "token": token(page)}, headers=SAME | there)
    assert "secure" in answer.headers["set-cookie"].lower()


def test_wrong_keys_are_counted(guarded: tuple[InThread, str]) -> None:
    running, key = guarded
    for _ in range(ATTEMPTS):
        assert login(running, "cnd_000000000000_wrong").status_code == 401
    refused = login(running, key)
    assert refused.status_code == 429
    assert "set-cookie" not in refused.headers


def test_wrong_keys_are_counted_however_many_come_at_once(guarded: tuple[InThread, str]) -> None:
    running, _ = guarded
    sessions = Sessions(Access(KeyStore(running.runtime.database), Rates(None)), secrets.token_bytes(32))

    async def all_at_once() -> list[Any]:
        guesses = (sessions.open({"client": ("192.0.2.1", 1)}, f"cnd_{guess}") for guess in range(3 * ATTEMPTS))
        return await asyncio.gather(*guesses, return_exceptions=True)

    assert [type(answer) for answer in asyncio.run(all_at_once())].count(UnauthenticatedError) == ATTEMPTS


@pytest.mark.parametrize("headers", [{"host": "["}, {"host": "localhost:x"}, {"origin": "http://["}, {"host": ""}])
def test_an_address_that_cannot_be_read_is_not_this_machine(service: InThread, headers: dict[str, str]) -> None:
    for path in ("/dashboard", "/dashboard/login", "/v1/models"):
        assert service.http.get(path, headers=headers).status_code in (200, 403), path
    assert service.http.post("/dashboard/theme", data={"theme": "dark"}, headers=headers).status_code == 403


def test_a_number_that_no_database_holds(service: InThread) -> None:
    for path in ("/dashboard/audit", "/v1/models/digits/audit"):
        assert service.http.get(f"{path}?before=99999999999999999999").status_code == 422, path


def test_what_every_kind_of_revision_shows(service: InThread, digits: Digits) -> None:
    service.teach(digits.dimmed, digits.labels)
    refit = service.recalibrate(mode="propose", limits={"flag_rate_ratio": 3, "probability_change": 0.2}).json()
    asked = {"mode": "propose", "target": {"7": 0.3}}
    shifted = service.http.post("/v1/models/digits/prior-shift", json=asked).json()
    service.propose_policy()
    listed = service.revisions()["items"]
    assert {item["cause"] for item in listed} == words.CAUSES.keys()
    for path in ("", *(f"/{item['id']}" for item in listed)):
        page = service.http.get(f"/dashboard/models/digits/revisions{path}")
        assert page.status_code == 200, (path, page.text)
    capped = service.http.get(f"/dashboard/models/digits/revisions/{refit['revision']}").text
    assert {cap["name"] for cap in refit["gate"]["caps"]} == words.CAPS.keys() == set(get_args(CapName))
    assert [said for said in (*words.CAPS.values(), "×3<", "0.200<") if said not in capped] == []
    assert "shares of the classes" in service.http.get(f"/dashboard/models/digits/revisions/{shifted['revision']}").text


@pytest.mark.parametrize(
    "elsewhere", ["//elsewhere.example", "https://elsewhere.example/dashboard", "/docs", "/dashboard\\@x", "//["]
)
def test_a_login_leads_nowhere_else(guarded: tuple[InThread, str], elsewhere: str) -> None:
    running, key = guarded
    fields = {"key": key, "token": token(running.http.get("/dashboard/login")), "next": elsewhere}
    answer = running.http.post("/dashboard/login", data=fields, headers=SAME)
    assert answer.headers["location"] == "/dashboard"


def test_another_page_of_this_machine_gets_nothing_without_keys(service: InThread) -> None:
    assert service.http.get("/dashboard", headers={"host": "evil.example"}).status_code == 403


def test_what_the_overview_counts(service: InThread, digits: Digits) -> None:
    service.predict(digits.images[:40], policy="auto-read")
    assert service.runtime.log.flush()
    page = service.http.get("/dashboard").text
    assert "Last 24 hours: 40 predictions" in page
    counted = overview._actions(service.runtime.all_metrics(), "digits")
    assert sum(counted.values()) == 40
    assert {policy for policy, _ in counted} == {"auto-read"}


def test_other_shares_of_the_classes_are_shown_before_and_after(service: InThread) -> None:
    body = {"mode": "propose", "target": {"7": 0.3}}
    answer = service.http.post("/v1/models/digits/prior-shift", json=body).json()
    assert "prior shift" in service.http.get("/dashboard/models/digits/revisions").text
    shown = service.http.get(f"/dashboard/models/digits/revisions/{answer['revision']}").text
    rows = re.findall(r"<bdi class=.name.>(\w)</bdi></th><td[^>]*>([\d.]+)\s%</td><td[^>]*>([\d.]+)\s%", shown)
    said = {label: (float(before), float(after)) for label, before, after in rows}
    for label, prior in answer["priors"].items():
        assert said[label] == pytest.approx((100 * prior["source"], 100 * prior["target"]), abs=0.006)
    assert rows[0][0] == "7"  # it changes most
    assert "Nothing to draw" in shown  # reference rows have the shares that it corrects
    service.activate(answer["revision"])
    assert "Nothing to draw" in service.http.get("/dashboard/models/digits").text


def test_a_rejection_takes_a_reason(service: InThread) -> None:
    proposed = service.propose_policy()
    page = f"/dashboard/models/digits/revisions/{proposed}"
    asked = service.http.get(f"{page}/reject")
    for reason, status in (("  ", 422), ("not now", 303), ("again", 409)):
        fields = {"token": token(asked), "reason": reason}
        assert service.http.post(f"{page}/reject", data=fields, headers=SAME).status_code == status
        state = service.http.get(f"/v1/models/digits/revisions/{proposed}").json()["state"]
        assert state == ("proposed" if status == 422 else "rejected")
    assert "/reject" not in service.http.get(page).text


def test_jobs_are_changed_by_keys_that_may_and_the_log_is_for_those_that_may_read_it(
    guarded: tuple[InThread, str],
) -> None:
    running, key = guarded
    running.http.cookies.set(SESSION_COOKIE, login(running, key).cookies[SESSION_COOKIE], path="/dashboard")
    front = running.http.get("/dashboard")
    assert "/dashboard/jobs" in front.text
    assert "/dashboard/audit" not in front.text
    assert "/dashboard/audit" not in running.http.get("/dashboard/models/digits").text
    assert running.http.get("/dashboard/audit").status_code == 403
    for form in ("cancel", "propose"):
        answer = running.http.post(f"/dashboard/jobs/j1/{form}", data={"token": token(front)}, headers=SAME)
        assert answer.status_code == 403
