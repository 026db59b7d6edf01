"""The review queue in a real Chromium, by keys alone; and what its forms refuse over plain HTTP."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.keys import Keys
from sqlalchemy import update
from typer.testing import CliRunner

from service.cli import app
from service.commands.output import console
from service.state.keys import KeyStore
from service.state.tables import cases as table
from tests.service.conftest import Digits, InThread
from tests.service.dashboard.conftest import DESKTOP, Browser
from tests.service.dashboard.contrast import FAINT_TEXT
from tests.service.dashboard.test_pages import SAME, login, token
from tests.service.payments import folders_of

MODEL = "/dashboard/models/digits"
POLICY = {"positive": "top", "bands": [{"action": "accept", "when": {"min_probability": 1.0}}, {"action": "review"}]}


@pytest.fixture
def queue(start: Callable[..., InThread], digits: Digits) -> InThread:
    """A service with five cases in its queue."""
    running = start(policies=None, keep_inputs="sought")
    put = running.http.put("/v1/models/digits/policies/watch", json=POLICY | {"review": {"due": "1h"}})
    assert put.status_code == 201, put.text
    running.activate(put.json()["id"])
    body = {"inputs": digits.images[:5].tolist(), "groups": ["card-5"] * 5, "references": [f"tx-{n}" for n in range(5)]}
    assert running.http.post("/predict", json=body, params={"policy": "watch"}).status_code == 200
    assert running.runtime.log.flush()
    return running


def press(browser: Browser, key: str) -> None:
    """Press a key that leads to another page."""
    with browser.leaving():
        browser.find("body").send_keys(key)


def cases(running: InThread, state: str | None = None) -> list[dict[str, object]]:
    answer = running.http.get("/v1/models/digits/cases", params={} if state is None else {"state": state})
    found: list[dict[str, object]] = answer.json()["items"]
    return found


def test_a_queue_is_worked_by_keys_alone(browser: Browser, queue: InThread) -> None:
    browser.base = queue.url
    browser.open(f"{MODEL}/cases")
    browser.sees("Take the next case")
    press(browser, "n")
    browser.sees("What is it?")
    first = browser.path.partition("?")[0].rsplit("/", 1)[1]
    assert [case["id"] for case in cases(queue, "claimed")] == [first]
    assert browser.run(
        "const image = document.querySelector('img.input'); return [image.complete, image.naturalWidth]"
    ) == [True, 8]
    browser.sees("History of its group")
    assert len(browser.all("section[aria-labelledby=group] tbody tr")) == 4
    browser.find("body").send_keys("l")  # the tenth label has no button of its own
    assert browser.run("return document.activeElement.id") == "other"
    browser.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    label = browser.find("button[data-key='1'] bdi").text
    press(browser, "1")
    browser.sees(f"is labelled: {label}.")
    second = browser.path.partition("?")[0].rsplit("/", 1)[1]
    assert second != first
    assert [(case["id"], case["label"]) for case in cases(queue, "labelled")] == [(first, label)]

    press(browser, "u")
    assert browser.path.partition("?")[0].endswith(first)
    assert [case["id"] for case in cases(queue, "claimed")] == [first]  # the other was given back
    press(browser, "2")
    corrected = cases(queue, "labelled")[0]
    assert corrected["label"] != label

    browser.find("body").send_keys("s")
    assert browser.run("return document.activeElement.id") == "reason"
    skipped = browser.path.partition("?")[0].rsplit("/", 1)[1]
    with browser.leaving():
        browser.driver.switch_to.active_element.send_keys(
            "blurred 1 u n", Keys.ENTER
        )  # letters that are typed do nothing else
    browser.sees("is skipped.")
    assert [(case["id"], case["reason"]) for case in cases(queue, "skipped")] == [(skipped, "blurred 1 u n")]

    left = browser.path.partition("?")[0].rsplit("/", 1)[1]
    press(browser, "n")
    assert [case["id"] for case in cases(queue, "claimed")] != [left]
    for _ in range(3):
        press(browser, "1")
    browser.sees("No other case is free.")
    assert cases(queue) == []
    press(browser, "u")
    browser.sees("What is it?")
    press(browser, "q")
    browser.sees("Take the next case")


def test_a_case_works_without_scripts_in_both_colours_and_on_a_phone(browser: Browser, queue: InThread) -> None:
    browser.base = queue.url
    browser.scripts(on=False)
    browser.open(f"{MODEL}/cases")
    browser.find("main form[action$=next] button").send_keys(Keys.ENTER)
    browser.sees("What is it?")
    here = browser.path
    browser.scripts(on=True)
    for path in (here, f"{MODEL}/cases", f"{MODEL}/cases?state=claimed&order=due"):
        for theme, size in (("light", DESKTOP), ("dark", (400, 844))):
            browser.prefer(theme)
            browser.size(size)
            browser.open(path)
            assert browser.run(FAINT_TEXT) == [], (path, theme)
            wide = browser.run("return [document.documentElement.scrollWidth, window.innerWidth]")
            assert wide[0] <= wide[1], (path, wide)
    browser.scripts(on=False)
    browser.open(here)
    with browser.leaving():
        browser.find("button[data-key='1']").send_keys(Keys.ENTER)
    browser.sees("is labelled")
    with browser.leaving():
        browser.find(".undo button").send_keys(Keys.ENTER)
    browser.sees("What is it?")


def test_the_image_is_what_was_sent(queue: InThread, digits: Digits) -> None:
    by_reference = {case["reference"]: case["id"] for case in cases(queue)}
    answer = queue.http.get(f"{MODEL}/cases/{by_reference['tx-3']}/image")
    assert answer.headers["content-type"] == "image/png"
    pixels = np.asarray(Image.open(io.BytesIO(answer.content)))
    assert (pixels == digits.images[3].squeeze()).all()


def test_the_row_of_a_table_is_shown_by_column(
    start: Callable[..., InThread], digits: Digits, tmp_path_factory: pytest.TempPathFactory
) -> None:
    running = start(**folders_of(digits, tmp_path_factory), keep_inputs="sought", default_model="payments")
    root = "/v1/models/payments"
    bands = [{"action": "block", "when": {"min_probability": 0.999}}, {"action": "review"}]
    put = running.http.put(f"{root}/policies/triage", json={"positive": "fraud", "bands": bands, "review": {}})
    epoch = running.http.get(f"{root}/revisions").headers["etag"]
    moved = running.http.post(
        f"{root}/revisions/{put.json()['id']}/activate",
        json={"reason": "the test is about it", "accept_change": True},
        headers={"if-match": epoch},
    )
    assert moved.status_code == 200, moved.text
    sent = ((12.6, "Österreich"), (None, "DE"), (4.0, "DE"))
    rows = [{"amount": amount, "country": country} for amount, country in sent]
    body = {"inputs": rows, "references": ["<b>tx</b>", None, None]}
    answer = running.http.post(f"{root}/predict", json=body, params={"policy": "triage"})
    assert answer.status_code == 200, answer.text
    assert running.runtime.log.flush()
    one, other, whole = (
        running.http.get(f"/dashboard/models/payments/cases/{each['prediction_id']}").text
        for each in answer.json()["predictions"]
    )
    assert "&lt;b&gt;tx&lt;/b&gt;" in one
    assert "<b>tx" not in one
    fields = re.compile(r'<dt><bdi class="name">(.*?)</bdi></dt><dd><bdi class="name">(.*?)</bdi></dd>')
    assert fields.findall(one) == [("amount", "12.6"), ("country", "Österreich")]
    assert fields.findall(whole)[0] == ("amount", "4")
    assert fields.findall(other) == [("amount", "—"), ("country", "DE")]
    assert re.findall(r'data-key="\d"[^>]*><kbd>\d</kbd> <bdi class="name">(.*?)</bdi>', one) == ["genuine", "fraud"]


def test_forms_refuse_what_the_api_refuses(queue: InThread) -> None:
    known = {"token": token(queue.http.get("/dashboard"))}
    one = str(cases(queue)[0]["id"])
    path = f"{MODEL}/cases/{one}"
    for name, fields, status in (
        ("label", {"label": "nobody"}, 422),
        ("label", {}, 422),
        ("label", {"label": "7", "lease": "9"}, 409),
        ("skip", {"reason": ""}, 422),
        ("skip", {"reason": "y" * 501}, 422),
        ("undo", {}, 409),
    ):
        answer = queue.http.post(f"{path}/{name}", data=fields | known, headers=SAME)
        assert (answer.status_code, name) == (status, name), answer.text
        assert answer.headers["content-type"].startswith("text/html")
        assert queue.http.post(f"{path}/{name}", data=fields, headers=SAME).status_code == 403  # without the token
    for wrong, status in (
        ("cases/nobody", 404),
        ("cases?state=x", 422),
        ("cases?order=x", 422),
        ("cases?after=x", 422),
    ):
        assert queue.http.get(f"{MODEL}/{wrong}").status_code == status, wrong
    blank = queue.http.post(
        f"{path}/skip", data={"reason": "  "} | known, headers=SAME | {"referer": f"{queue.url}{path}?order=due"}
    ).text
    assert ('<dd><bdi class="name">reason</bdi></dd>' in blank, "String" in blank) == (True, False)
    assert f'href="{path}?order=due">Back</a>' in blank
    assert queue.http.get(f"{MODEL}/cases/nobody/image").status_code == 404
    assert queue.http.get(f"{path}?done=nobody").status_code == 200
    assert {case["state"] for case in cases(queue)} == {"open"}
    queue.runtime.case_counts._stale_at = 0.0
    assert "No case in this state." in queue.http.get(f"{MODEL}/cases?state=skipped").text


def test_amounts_keep_their_digits(queue: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    one = str(cases(queue)[0]["id"])
    with queue.runtime.database.begin() as connection:
        connection.execute(update(table).values(amount=1234567.5, probability=0.5))
    for path in ("cases", f"cases/{one}"):
        text = queue.http.get(f"{MODEL}/{path}").text
        assert "1\u202f234\u202f567.50" in text, path
        assert "617\u202f283.75" in text, "half of it is the expected loss"
    monkeypatch.setattr(console, "width", 200)
    listed = CliRunner().invoke(app, ["cases", "list", "--url", queue.url])
    assert "1,234,567.50" in listed.stdout
    assert "617,283.75" in listed.stdout


def test_what_was_labelled_and_reopened_is_not_skipped(queue: InThread) -> None:
    known = {"token": token(queue.http.get("/dashboard"))}
    path = f"{MODEL}/cases/{cases(queue)[0]['id']}"
    assert queue.http.post(f"{path}/label", data={"label": "7"} | known, headers=SAME).status_code == 303
    assert queue.http.post(f"{path}/undo", data=known, headers=SAME).status_code == 303
    refused = queue.http.post(f"{path}/skip", data={"reason": "unclear"} | known, headers=SAME)
    assert refused.status_code == 409
    assert "Label it again: the later label counts." in refused.text


def test_a_form_of_a_waiting_case_does_not_change_one_that_has_ended(queue: InThread) -> None:
    known = {"token": token(queue.http.get("/dashboard"))}
    one = str(cases(queue)[0]["id"])
    path = f"{MODEL}/cases/{one}"
    assert queue.http.post(f"{path}/claim", data=known, headers=SAME).status_code == 303
    stale = known | {"lease": "1"}
    for _ in range(2):  # a double click is no correction
        labelled = queue.http.post(f"{path}/label", data={"label": "7"} | stale, headers=SAME)
        assert (labelled.status_code, one in labelled.headers["location"].partition("?")[0]) == (303, False)
    for name, fields in (("label", {"label": "3"}), ("skip", {"reason": "dark"}), ("release", {})):
        refused = queue.http.post(f"{path}/{name}", data=fields | stale, headers=SAME)
        assert (refused.status_code, name) == (409, name)
        assert "already labelled 7, by local." in refused.text
        assert "To correct its label, label it again." in refused.text

    page = queue.http.get(path).text
    assert f"{path}/undo" in page
    form = dict(re.findall(r'type="hidden" name="(\w+)" value="(\w+)"', page.partition(f"{path}/label")[2]))
    corrected = queue.http.post(f"{path}/label", data=form | {"label": "3"}, headers=SAME)
    assert corrected.headers["location"].startswith(f"{path}?")
    assert [case["label"] for case in cases(queue, "labelled")] == ["3"]
    assert queue.http.post(f"{path}/undo", data=known, headers=SAME).status_code == 303
    for _ in range(2):
        assert queue.http.post(f"{path}/label", data={"label": "7"} | known, headers=SAME).status_code == 303


def test_a_case_is_reserved_for_names_of_keys_only(queue: InThread) -> None:
    one = str(cases(queue)[0]["id"])
    keys = KeyStore(queue.runtime.database)
    _, key = keys.create("ann", ["review", "read"])
    left, _ = keys.create("bob", ["review"])
    keys.revoke(left.prefix)
    queue.application._access.refresh()
    assert login(queue, key).status_code == 303
    known = {"token": token(queue.http.get("/dashboard"))}
    for name, status in (("anne", 422), ("bob", 422), ("ann", 303)):
        answer = queue.http.post(f"{MODEL}/cases/{one}/assign", data={"to": name} | known, headers=SAME)
        assert (answer.status_code, name) == (status, name)
        assert status == 303 or "No valid API key has the name" in answer.text
    page = queue.http.get("/dashboard/audit?model=digits").text
    assert "<td>assign</td>" in page
    assert "<summary>1 field</summary>" in page
    assert "<code>predict</code>" in page, "the page explains the gaps in its numbers"
    assert 'href="/dashboard/audit"' in page, "a key with `read` has the link"


def test_a_key_for_predictions_sees_no_case(queue: InThread) -> None:
    one = str(cases(queue)[0]["id"])
    _, key = KeyStore(queue.runtime.database).create("till", ["predict"])
    queue.application._access.refresh()
    assert login(queue, key).status_code == 303
    known = {"token": token(queue.http.get("/dashboard"))}
    assert f"{MODEL}/cases" not in queue.http.get(MODEL).text
    for path in ("", f"/{one}", f"/{one}/image"):
        assert queue.http.get(f"{MODEL}/cases{path}").status_code == 403, path
    for path in (
        "next",
        f"{one}/label",
        f"{one}/skip",
        f"{one}/undo",
        f"{one}/claim",
        f"{one}/release",
        f"{one}/assign",
    ):
        assert queue.http.post(f"{MODEL}/cases/{path}", data=known, headers=SAME).status_code == 403, path


def test_of_two_people_one_is_told(queue: InThread) -> None:
    known = {"token": token(queue.http.get("/dashboard"))}
    one = str(cases(queue)[0]["id"])
    queue.runtime.cases.claim("digits", one, "ann", lease_us=60_000_000)
    page = queue.http.get(f"{MODEL}/cases/{one}")
    assert "ann</bdi> has claimed this case." in page.text
    assert 'data-key="1"' not in page.text
    answer = queue.http.post(f"{MODEL}/cases/{one}/label", data={"label": "7"} | known, headers=SAME)
    assert answer.status_code == 409
    taken = queue.http.post(f"{MODEL}/cases/next", data=known, headers=SAME)
    assert one not in taken.headers["location"]


def test_a_case_is_reserved_for_a_person_and_given_back(queue: InThread) -> None:
    known = {"token": token(queue.http.get("/dashboard"))}
    one = str(cases(queue)[0]["id"])
    path = f"{MODEL}/cases/{one}"
    assert queue.http.post(f"{path}/release", data=known, headers=SAME).status_code == 409, "nobody has it"
    assert queue.http.post(f"{path}/claim", data=known, headers=SAME).status_code == 303
    assert "Give it back" in queue.http.get(path).text
    assert (
        queue.http.post(f"{path}/release", data=known, headers=SAME).headers["location"].startswith(f"{MODEL}/cases?")
    )
    assert queue.http.post(f"{path}/assign", data={"to": "ann"} | known, headers=SAME).status_code == 303
    shown = queue.http.get(path).text
    assert ("reserved for <bdi" in shown, "Give it back" in shown) == (True, False)
    queue.runtime.cases.assign("digits", one, None, by="bob")
    assert queue.http.post(f"{path}/claim", data=known, headers=SAME).status_code == 303
    assert queue.http.post(f"{path}/assign", data={"to": "ann"} | known, headers=SAME).status_code == 303
    assert 'data-key="1"' in queue.http.get(path).text, "the holder of the claim keeps the controls"
    assert queue.http.post(f"{path}/release", data=known, headers=SAME).status_code == 303
    assert queue.http.post(f"{path}/assign", data={"to": ""} | known, headers=SAME).status_code == 303
    found = queue.http.get(f"/v1/models/digits/cases/{one}").json()
    assert (found["state"], found["assignee"]) == ("open", None)
