"""The dashboard over plain HTTP: who gets in, what forms must carry, what is said when something is wrong."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from sqlalchemy import select, update

import service.dashboard
from candor.contract.gate import CapName
from service.dashboard import overview, words
from service.dashboard.session import ATTEMPTS, SESSION_COOKIE, Sessions
from service.errors import RateLimitedError, UnauthenticatedError
from service.operations.access import Access
from service.operations.rates import Rates
from service.state import audit, tables
from service.state.database import now_us
from service.state.keys import KeyStore
from service.state.sessions import IDLE_S, LIFETIME_S, MOST_OF_A_KEY
from tests.service.conftest import Digits, InThread
from tests.waiting import PATIENCE_S, until

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
    running = start(bundles=tmp_path, policies=None)
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
        ({"epoch": "x"}, 422),
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


def test_a_key_for_metrics_shows_no_page(guarded: tuple[InThread, str]) -> None:
    running, _ = guarded
    assert login(running, KeyStore(running.runtime.database).create("prometheus", ["metrics"])[1]).status_code == 303
    for path in ("", "/models/digits", "/jobs"):
        assert running.http.get(f"/dashboard{path}").status_code == 403, path


def test_a_key_for_a_model_sees_no_other_in_lists(guarded: tuple[InThread, str]) -> None:
    running, _ = guarded
    login(running, KeyStore(running.runtime.database).create("of birds", ["admin"], models=["birds"])[1])
    page = running.http.get("/dashboard/audit?model=birds")
    assert page.status_code == 200
    assert "digits" not in page.text
    for path in ("jobs?model=birds", "audit", "audit?model=birds&model=", "audit?model=birds&model=digits"):
        assert running.http.get(f"/dashboard/{path}").status_code == 403, path


def test_a_key_opens_a_session_with_its_scopes(guarded: tuple[InThread, str]) -> None:
    running, key = guarded
    sent_away = running.http.get("/dashboard/models/digits/cases?order=due&after=%2B")
    assert (sent_away.status_code, sent_away.headers["location"]) == (
        303,
        "/dashboard/login?next=/dashboard/models/digits/cases%3Forder%3Ddue%26after%3D%252B",
    )
    asked = running.http.get(sent_away.headers["location"]).text
    assert 'name="next" value="/dashboard/models/digits/cases?order=due&amp;after=%2B"' in asked
    by_script = running.http.get("/dashboard", headers={"hx-request": "true"})
    assert (by_script.status_code, by_script.headers["hx-redirect"]) == (401, "/dashboard/login?next=/dashboard")
    answer = login(running, key)
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/models/digits")
    cookie = answer.headers["set-cookie"]
    for attribute in ("HttpOnly", "SameSite=strict", "Path=/dashboard"):
        assert attribute.lower() in cookie.lower()
    assert key not in cookie
    assert key.split("_", 2)[2] not in cookie
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


def visit(running: InThread, session: str, **headers: str) -> int:
    """Return the status of the front page for a session of one's own."""
    cookie = f"{SESSION_COOKIE}={session}"
    return httpx.get(f"{running.url}/dashboard", headers={"cookie": cookie} | headers, timeout=PATIENCE_S).status_code


def test_a_session_ends_with_its_key(guarded: tuple[InThread, str]) -> None:
    running, key = guarded
    login(running, key)
    assert running.http.get("/dashboard").status_code == 200
    KeyStore(running.runtime.database).revoke(key.split("_")[1])
    running.application._access.refresh()
    assert running.http.get("/dashboard").status_code == 303


def test_a_copy_of_the_state_opens_no_session(guarded: tuple[InThread, str]) -> None:
    running, key = guarded
    login(running, key)
    session = running.http.cookies[SESSION_COOKIE]
    assert visit(running, session) == 200
    with running.runtime.database.connect() as connection:
        rows = [row for table in tables.metadata.sorted_tables for row in connection.execute(select(table))]
    held = [value for row in rows for value in row]
    assert session not in held
    secrets_held = [value for value in held if isinstance(value, bytes)]
    texts = [value.hex() for value in secrets_held]
    texts += [base64.urlsafe_b64encode(value).decode().strip("=") for value in secrets_held]
    prefix, over = key.split("_")[1], int(time.time()) + 3600
    for secret in secrets_held:  # as sessions were signed once
        derived = hmac.digest(secret, b"dashboard sessions", "sha256")
        signed = hmac.digest(derived, f"session\0{prefix}.{over}".encode(), "sha256").hex()
        texts.append(f"{prefix}.{over}.{signed}")
    for text in (*texts, session[:-1], f"{session}x", "x", ""):
        assert visit(running, text) == 303, text


def test_a_session_ends_everywhere_when_its_user_logs_out_or_in_again(guarded: tuple[InThread, str]) -> None:
    running, key = guarded
    login(running, key)
    first = running.http.cookies[SESSION_COOKIE]
    login(running, key)
    copied = running.http.cookies[SESSION_COOKIE]
    assert (visit(running, first), visit(running, copied)) == (303, 200)
    form = {"token": token(running.http.get("/dashboard"))}
    assert running.http.post("/dashboard/logout", data=form, headers=SAME).status_code == 303
    assert visit(running, copied) == 303


def test_a_service_that_is_alone_ends_all_sessions_with_its_restart(
    guarded: tuple[InThread, str], start: Callable[..., InThread]
) -> None:
    running, key = guarded
    login(running, key)
    session = running.http.cookies[SESSION_COOKIE]
    assert visit(running, session) == 200
    running.close()
    restarted = start()
    assert visit(restarted, session) == 303
    login(restarted, key)
    assert visit(restarted, restarted.http.cookies[SESSION_COOKIE]) == 200


def test_every_replica_knows_a_session_after_a_restart_too(start: Callable[..., InThread], postgresql_url: str) -> None:
    one = start(state=postgresql_url)
    _, key = KeyStore(one.runtime.database).create("guest", ["predict"])
    one.application._access.refresh()
    other = start(state=postgresql_url)
    login(one, key)
    session = one.http.cookies[SESSION_COOKIE]
    assert visit(other, session) == 200
    one.close()
    restarted = start(state=postgresql_url)
    assert visit(restarted, session) == 200
    with httpx.Client(base_url=restarted.url, cookies={SESSION_COOKIE: session}, timeout=PATIENCE_S) as browser:
        form = {"token": token(browser.get("/dashboard"))}
        assert browser.post("/dashboard/logout", data=form, headers=SAME).status_code == 303
    until(lambda: visit(other, session) == 303, "the session has not ended on the other replica")


def test_an_operator_ends_all_sessions_at_once(guarded: tuple[InThread, str]) -> None:
    running, key = guarded
    login(running, key)
    first = running.http.cookies[SESSION_COOKIE]
    running.http.cookies.clear()
    login(running, key)
    both = [first, running.http.cookies[SESSION_COOKIE]]
    assert [visit(running, session) for session in both] == [200, 200]
    keys = KeyStore(running.runtime.database)
    assert keys.end_sessions() == 2
    until(lambda: [visit(running, session) for session in both] == [303, 303], "a session goes on")
    last = audit.read(running.runtime.database)[0]
    assert (last.action, last.subject, last.detail) == ("end_sessions", "all", {"sessions": 2})
    assert keys.ring().authenticate(key), "keys stay valid"


def test_a_session_ends_without_use(guarded: tuple[InThread, str]) -> None:
    running, key = guarded
    login(running, key)
    session = running.http.cookies[SESSION_COOKIE]

    def used_ago(seconds: float, opened_s: float) -> None:
        now = now_us()
        times = {"used_at": now - int(seconds * 1e6), "opened_at": now - int(opened_s * 1e6)}
        with running.runtime.database.begin() as connection:
            connection.execute(update(tables.sessions).values(times))
        running.application._access.refresh()

    def used_at() -> int:
        with running.runtime.database.connect() as connection:
            return int(connection.execute(select(tables.sessions.c.used_at)).scalar_one())

    used_ago(IDLE_S / 2, IDLE_S)
    before = used_at()
    assert visit(running, session, **{"hx-request": "true", "hx-trigger": "live"}) == 200  # a page left open
    assert used_at() == before
    assert visit(running, session) == 200
    assert used_at() > before
    used_ago(IDLE_S + 1, IDLE_S + 1)
    assert visit(running, session) == 303
    used_ago(0, LIFETIME_S + 1)
    assert visit(running, session) == 303
    used_ago(-2 * LIFETIME_S, -LIFETIME_S)  # a row from the future lasts no longer
    assert visit(running, session) == 303
    used_ago(0, 0)
    assert visit(running, session) == 200


def test_a_key_has_only_so_many_sessions(guarded: tuple[InThread, str]) -> None:
    running, key = guarded
    store, prefix = running.application._sessions._store, key.split("_")[1]
    opened = [store.open(prefix, "guest", "192.0.2.1") for _ in range(MOST_OF_A_KEY + 2)]
    running.application._access.refresh()
    assert [visit(running, opened[place]) for place in (0, 1, 2, -1)] == [303, 303, 200, 200]


def test_another_machine_gets_a_cookie_for_tls_only(guarded: tuple[InThread, str]) -> None:
    running, key = guarded
    there = {"host": "candor.example"}
    page = running.http.get("/dashboard/login", headers=there)
    assert "Over plain HTTP, browsers keep a session" in page.text
    answer = running.http.post("/dashboard/login", data={"key": key, "token": token(page)}, headers=SAME | there)
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"__Host-{SESSION_COOKIE}=")
    for attribute in ("Secure", "Path=/", "HttpOnly"):
        assert f"; {attribute.lower()};" in f"{cookie.lower()};", attribute
    assert "domain" not in cookie.lower()
    session = cookie.partition("=")[2].partition(";")[0]
    for name, status in ((f"__Host-{SESSION_COOKIE}", 200), (SESSION_COOKIE, 303)):  # another host can set that one
        headers = there | {"cookie": f"{name}={session}"}
        assert httpx.get(f"{running.url}/dashboard", headers=headers, timeout=PATIENCE_S).status_code == status


def test_wrong_keys_are_counted_by_prefix(guarded: tuple[InThread, str]) -> None:
    running, key = guarded
    own = f"{key[:16]}_wrong"
    for _ in range(ATTEMPTS):
        assert login(running, "cnd_000000000000_wrong").status_code == 401
    assert login(running, "invented").status_code == 429
    assert login(running, key).status_code == 303  # behind a proxy all clients have this address
    for _ in range(ATTEMPTS):
        assert login(running, own).status_code == 401
    refused = login(running, key)
    assert refused.status_code == 429
    assert "set-cookie" not in refused.headers


def test_wrong_keys_take_little_memory(guarded: tuple[InThread, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.dashboard.session._MOST_COUNTED", 5)
    running = guarded[0]
    database = running.runtime.database
    store = running.application._sessions._store
    sessions = Sessions(Access(KeyStore(database), Rates(None)), store, secrets.token_bytes(32))

    async def all_in_turn() -> list[Any]:
        guesses = (sessions.open({"client": (f"192.0.2.{number // ATTEMPTS}", 1)}, "wrong") for number in range(100))
        return await asyncio.gather(*guesses, sessions.open({"client": ("192.0.2.9", 1)}, ""), return_exceptions=True)

    assert [type(answer) for answer in asyncio.run(all_in_turn())] == [UnauthenticatedError] * 100 + [RateLimitedError]
    assert [len(failures) for failures in sessions._failures.values()] == [ATTEMPTS] * 5


def test_wrong_keys_are_counted_however_many_come_at_once(guarded: tuple[InThread, str]) -> None:
    running, _ = guarded
    database = running.runtime.database
    store = running.application._sessions._store
    sessions = Sessions(Access(KeyStore(database), Rates(None)), store, secrets.token_bytes(32))

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


@pytest.mark.usefixtures("refits_here")
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


def test_prediction_sets_are_shown_with_their_certificates(service: InThread) -> None:
    for wanted, said in (({"coverage": 0.9, "per_class": False}, "0.9, lac"), ({"coverage": 0.9999}, "every label")):
        document = {"bands": [{"action": "show"}], "set": wanted}
        revision = service.http.put("/v1/models/digits/policies/sets", json=document).json()["id"]
        shown = service.http.get(f"/dashboard/models/digits/revisions/{revision}").text
        assert "Prediction sets of sets" in shown
        assert said in shown


def test_a_moved_threshold_is_proposed_from_the_simulator(service: InThread, digits: Digits) -> None:
    path = "/dashboard/models/digits/policies/auto-read/simulate"
    body = {"inputs": digits.images[60:70].tolist(), "groups": ["one"] * 9 + ["other"]}
    assert service.http.post("/predict", json=body).status_code == 200
    assert service.runtime.log.flush()
    unlabelled = service.http.get(path).text
    assert "what is caught, missed and lost is not known" in unlabelled
    assert "Actions, of 10 rows" in unlabelled
    assert "one row of each group, 2 in all" in unlabelled
    service.teach(digits.images[:60], digits.labels[:60])
    assert "Propose" not in service.http.get(path).text
    shown = service.http.get(f"{path}?band-0=0.9&band-1=0.3").text
    caught = re.search(r'data-outcome="caught">([0-9.]+)', shown)
    assert caught is not None
    assert float(caught[1]) > 40, "nearly every digit is read correctly"
    assert re.findall(r'name="(band-[0-9])" value="([0-9.]+)"', shown.partition("Caught")[2]) == [("band-0", "0.9")]
    token = re.search(r'name="token" value="([^"]+)"', shown)
    assert token is not None
    same = {"sec-fetch-site": "same-origin"}
    assert service.http.post(path, data={"token": token[1]}, headers=same).status_code == 422
    form = {"token": token[1], "band-0": "0.9", "band-1": "0.300"}
    done = service.http.post(path, data=form, headers=same)
    assert (done.status_code, done.headers["location"]) == (303, "/dashboard/models/digits/revisions/r2")
    bands = service.http.get("/v1/models/digits/revisions/r2").json()["policies"]["auto-read"]["policy"]["bands"]
    assert [band["when"] for band in bands[:2]] == [{"min_probability": 0.9}, {"min_probability": 0.3}]


def test_sliders_that_stay_where_they_are_change_nothing(service: InThread, digits: Digits) -> None:
    bands = [
        {"action": "accept", "when": {"min_precision": 0.99999}},
        {"action": "check", "when": {"min_probability": 0.30004}},
        {"action": "allow"},
    ]
    revision = service.http.put("/v1/models/digits/policies/odd", json={"bands": bands}).json()["id"]
    service.activate(revision, accept_change=True, reason="its first band fails")
    service.teach(digits.images[:60], digits.labels[:60])
    path = "/dashboard/models/digits/policies/odd/simulate"
    sent = dict(re.findall(r'name="(band-[0-9])" min[^>]* value="([0-9.]+)"', service.http.get(path).text))
    assert sent == {"band-0": "1.000", "band-1": "0.300"}
    shown = service.http.get(path, params=sent).text
    assert ("Propose" in shown, 'id="flips">0<' in shown) == (False, True)
    shown = service.http.get(path, params=sent | {"band-1": "0.4"}).text
    assert re.findall(r'type="hidden" name="(band-[0-9])"', shown) == ["band-1"]
