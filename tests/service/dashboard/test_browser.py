"""The dashboard in a real Chromium: what an operator does with it, by clicks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.ports import free_port
from tests.service.conftest import Digits, InThread
from tests.service.dashboard.conftest import DESKTOP, PHONE, Browser, Operated
from tests.service.dashboard.contrast import FAINT_TEXT
from tests.service.identity_provider import CLIENT, IdentityProvider

MODEL = "/dashboard/models/digits"
HOSTILE = ("<script>window.owned=1</script>", "\u202eطويل جدا" * 12, "🦆" * 60, "<img src=x onerror=window.owned=1>")


@pytest.fixture(scope="module")
def proposal(operated: Operated) -> str:
    """A refit that its gate let through, proposed over the API."""
    answer = operated.recalibrate(mode="propose", calibrator="temperature").json()
    assert answer["state"] == "proposed", answer
    return str(answer["revision"])


@pytest.fixture(scope="module")
def hostile(operated: Operated) -> str:
    """A proposed policy whose segments are named to do harm."""
    document = {
        "positive": "7",
        "bands": [{"action": "flag", "when": {"min_precision": 0.9}}, {"action": "allow"}],
        "segments": {"values": list(HOSTILE)},
    }
    answer = operated.http.put("/v1/models/digits/policies/seven", json=document)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


@pytest.fixture(scope="module")
def shifted(operated: Operated) -> str:
    """A proposal for other shares of the classes."""
    body = {"mode": "propose", "target": {"7": 0.3}}
    answer = operated.http.post("/v1/models/digits/prior-shift", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["revision"])


def pages(operated: Operated, proposal: str, hostile: str, shifted: str) -> Iterator[tuple[str, str]]:
    """Yield every kind of page, with a word that it says."""
    epoch = operated.revisions()["epoch"]
    jobs = operated.http.get("/v1/jobs").json()["items"]
    (job,) = (job["job"] for job in jobs if job["revision"] == proposal)
    yield "/dashboard", "Open proposals"
    yield MODEL, "Policies and certificates"
    yield f"{MODEL}/trends?days=1", "Kaplan–Meier"
    yield f"{MODEL}/revisions", "made at"
    yield f"{MODEL}/revisions/{proposal}", "Before and after"
    yield f"{MODEL}/revisions/{hostile}", "about the label"
    yield f"{MODEL}/revisions/{shifted}", "Shares of the classes"
    yield f"{MODEL}/revisions/{proposal}/activate?epoch={epoch}", "audit log"
    yield f"{MODEL}/recalibrate", "Calibrator"
    yield f"{MODEL}/policies/auto-read/simulate?band-0=0.4", "decisions change"
    yield f"/dashboard/jobs/{job}", "Inspect"
    yield "/dashboard/jobs", "requested at"
    yield f"{MODEL}/revisions/{proposal}/reject", "The audit log keeps it."
    yield "/dashboard/audit", "particulars"
    yield "/dashboard/login", "API key"
    yield "/dashboard/nothing", "Not Found"


def accept_change(operator: Browser) -> None:
    """Accept what an activation does to the traffic, if it is asked: what certifies is drawn, and so is the change."""
    if operator.all("[name=accept_change]"):
        operator.find("[name=accept_change]").click()
        operator.fill("#reason", "the lamp has faded")


def test_a_refit_is_started_inspected_activated_and_rolled_back_by_clicks(
    operator: Browser, operated: Operated
) -> None:
    before = operated.revisions()["active"]
    operator.open(MODEL)
    operator.click("Recalibrate")
    operator.choose("#calibrator", "temperature")
    operator.click("Start")
    assert operator.path.startswith("/dashboard/jobs/j")
    operator.until(lambda: operator.all("main .actions a.primary"), "the end of the job, without a reload")
    operator.click(operator.find("main .actions a.primary").text)
    operator.sees("Better: log loss falls by at least")
    operator.sees("Before and after")
    assert len(operator.all("svg.chart title")) >= 6
    proposed = operator.path.rsplit("/", 1)[1]
    assert operated.revisions()["active"] == before

    operator.click("Activate")
    operator.sees(f"Activate {proposed}?")
    accept_change(operator)
    operator.click(f"Activate {proposed}")
    operator.sees("The revision is active now.")
    assert operated.revisions()["active"] == proposed

    operator.click(f"Roll back to {before}")
    operator.fill("#reason", "the lamp was replaced")
    operator.click(f"Roll back to {before}")
    operator.sees("The previous revision is active again.")
    assert operated.revisions()["active"] == before
    operator.open("/dashboard/audit")
    operator.sees("the lamp was replaced")
    assert "operator" in operator.text


def test_a_page_that_somebody_else_has_overtaken_says_so_and_does_nothing(
    operator: Browser, operated: Operated, proposal: str
) -> None:
    operator.open(f"{MODEL}/revisions/{proposal}")
    operator.click("Activate")
    operator.sees(f"Activate {proposal}?")
    other = operated.propose_policy(share=0.7)
    operated.activate(other)
    accept_change(operator)
    operator.click(f"Activate {proposal}")
    operator.sees("The active revision has changed")
    assert operated.revisions()["active"] == other
    operated.rollback()


def test_what_may_do_harm_needs_a_reason(operator: Browser, operated: Operated) -> None:
    first, second = operated.propose_policy("first", 0.6), operated.propose_policy("second", 0.6)
    operated.activate(first)
    operator.open(f"{MODEL}/revisions/{second}")
    operator.click("Activate")
    operator.sees("Activating it requires a reason.")
    operator.press(f"Activate {second}")  # the browser asks for the field, and sends nothing
    assert operated.revisions()["active"] == first
    accept_change(operator)
    operator.fill("#reason", "checked by hand")
    operator.click(f"Activate {second}")
    operator.sees("The revision is active now.")
    operated.rollback()
    operated.rollback()


def test_a_proposal_is_rejected_with_a_reason(operator: Browser, operated: Operated) -> None:
    unwanted = operated.propose_policy("unwanted", 0.45)
    operator.open(f"{MODEL}/revisions/{unwanted}")
    operator.click("Reject")
    operator.sees(f"Reject {unwanted}?")
    operator.fill("#reason", "not now")
    operator.click(f"Reject {unwanted}")
    operator.sees("The proposal is rejected.")
    assert next(item["state"] for item in operated.revisions()["items"] if item["id"] == unwanted) == "rejected"
    operator.click("Activate")
    operator.sees("Activating it requires a reason.")


def test_a_dry_run_can_be_kept(operator: Browser, operated: Operated) -> None:
    done = operated.recalibrate(mode="dry_run", calibrator="temperature").json()
    operator.open(f"/dashboard/jobs/{done['job']}")
    operator.sees("nothing was kept")
    operator.click("Propose it")
    operator.sees("Before and after")
    kept = operator.path.rsplit("/", 1)[1]
    operator.open("/dashboard/jobs")
    operator.click(done["job"])
    operator.click(f"Inspect {kept}")
    operator.sees("Before and after")


def test_a_running_refit_shows_its_steps_and_is_cancelled(
    browser: Browser, service: InThread, digits: Digits, slow: Callable[[bool], None]
) -> None:
    slow(False)
    service.teach(digits.dimmed[:100], digits.labels[:100])
    browser.base = service.url
    browser.open(f"{MODEL}/recalibrate")
    browser.click("Start")
    browser.sees("Step 4 of 6")  # without a reload
    browser.until(lambda: browser.find("progress").get_attribute("value") == "4", "a bar that stands at step 4")
    button = browser.find("#cancel-job")
    with browser.leaving():
        button.send_keys(Keys.ENTER)  # the very element: what loads itself again leaves it alone
    browser.sees("The job is cancelled.")
    browser.sees("no look is used")
    assert not browser.all("#cancel-job")
    job = service.http.get("/v1/jobs").json()["items"][0]
    assert job["state"] == "cancelled"
    browser.open("/dashboard/jobs")
    browser.sees("no look is used")


def test_the_slider_moves_the_numbers(operator: Browser, proposal: str) -> None:
    operator.open(f"{MODEL}/policies/auto-read/simulate")

    def rates() -> list[str]:
        return [cell.text for cell in operator.all("[data-metric]")]

    operator.sees("0 of")
    before = rates()
    slider = operator.find("#band-0")
    slider.send_keys(Keys.HOME)
    operator.until(lambda: rates()[0].startswith("100.0"), "a first band that takes every row")
    everything = rates()
    assert everything != before
    assert operator.find("output").text == "0.000"
    slider.send_keys(Keys.PAGE_UP * 4)
    operator.until(lambda: rates() != everything, "other numbers again")
    assert operator.path.endswith("/simulate")  # without a reload


def test_whoever_may_not_do_it_sees_no_button_and_is_refused(
    browser: Browser, operated: Operated, proposal: str
) -> None:
    browser.base = operated.url
    browser.open(f"{MODEL}/revisions/{proposal}")
    browser.sees("Log in")  # and comes back to the page that was asked for
    browser.fill("#key", operated.guest)
    browser.click("Log in")
    browser.sees("Before and after")
    assert browser.path == f"{MODEL}/revisions/{proposal}"
    labels = {element.text.strip() for element in browser.all("main a, main button")}
    assert not {"Activate", "Reject", "Recalibrate", "Start"} & labels
    token = browser.find("input[name=token]").get_attribute("value")
    epoch = operated.revisions()["epoch"]
    for path in (f"revisions/{proposal}/activate", "rollback", "recalibrate", f"revisions/{proposal}/reject"):
        status = browser.driver.execute_async_script(
            "fetch(arguments[0], {method: 'POST', body: new URLSearchParams(arguments[1])})"
            ".then(answer => arguments[2](answer.status))",
            f"{MODEL}/{path}",
            {"token": token, "epoch": str(epoch)},
        )
        assert status == 403, path
    browser.open(f"{MODEL}/recalibrate")
    browser.sees("Not allowed")
    assert operated.revisions()["epoch"] == epoch
    browser.click("Log out")
    browser.open("/dashboard")
    browser.sees("API key")


def test_a_wrong_key_opens_nothing(browser: Browser, operated: Operated) -> None:
    browser.base = operated.url
    browser.login("cnd_000000000000_wrong")
    browser.sees("This API key is not valid.")
    assert browser.driver.get_cookie("candor_session") is None


def test_it_works_without_scripts(operator: Browser, operated: Operated) -> None:
    operator.scripts(on=False)
    proposed = operated.propose_policy("plain", 0.4)
    operator.open("/dashboard")
    operator.click("digits")
    operator.click("Revisions")
    operator.click(proposed)
    operator.click("Activate")
    accept_change(operator)
    operator.click(f"Activate {proposed}")
    operator.sees("The revision is active now.")
    operated.rollback()
    operator.open(f"{MODEL}/policies/auto-read/simulate?band-0=0.2")
    operator.click("Show")
    operator.until(lambda: "band-0=0.2&band-1=0.3" in operator.path, "what the form says")
    operator.sees("decisions change")
    operator.open(f"{MODEL}/recalibrate")
    operator.find("input[value=dry_run]").click()
    operator.click("Start")
    operator.sees("This was a dry run: nothing was kept.")  # the page loads itself again and again


def test_every_page_is_readable_in_both_colours_and_on_a_phone(
    operator: Browser, operated: Operated, proposal: str, hostile: str, shifted: str
) -> None:
    for path, word in pages(operated, proposal, hostile, shifted):
        for theme, size in (("light", DESKTOP), ("dark", PHONE)):
            operator.prefer(theme)
            operator.size(size)
            operator.open(path)
            assert word in operator.text, path
            assert operator.run(FAINT_TEXT) == [], (path, theme)
            wide = operator.run("return [document.documentElement.scrollWidth, window.innerWidth]")
            assert wide[0] <= wide[1], (path, wide)
            assert operator.complaints() == [], path


def test_names_that_are_meant_to_do_harm_are_only_shown(operator: Browser, operated: Operated, hostile: str) -> None:
    operated.activate(hostile, reason=f"{HOSTILE[0]} {HOSTILE[3]}")
    try:
        for path in (f"{MODEL}/revisions/{hostile}", MODEL, "/dashboard/audit", f"{MODEL}/policies/seven/simulate"):
            operator.open(path)
            assert operator.run("return window.owned") is None, path
            assert not operator.all("main script, main img"), path
            if "simulate" not in path:
                operator.sees(HOSTILE[0])
    finally:
        operated.rollback()


def test_the_keyboard_reaches_everything_and_one_sees_where_it_is(
    operator: Browser, operated: Operated, proposal: str
) -> None:
    operator.open(f"{MODEL}/revisions/{proposal}/activate?epoch={operated.revisions()['epoch']}")
    reached = []
    for _ in range(30):
        focused = operator.driver.switch_to.active_element
        focused.send_keys(Keys.TAB)
        focused = operator.driver.switch_to.active_element
        if focused.tag_name == "body":
            break
        reached.append(focused.text.strip() or focused.get_attribute("id") or focused.get_attribute("value"))
        outline = operator.run(
            "const style = getComputedStyle(arguments[0]); return [style.outlineStyle, parseFloat(style.outlineWidth)]",
            focused,
        )
        assert outline[0] != "none", reached
        assert outline[1] >= 2, reached
    assert reached[0] == "Skip to the content"
    assert reached.index("reason") < reached.index(f"Activate {proposal}") < reached.index("Cancel")


def test_colours_can_be_chosen_and_stay(operator: Browser) -> None:
    colours = "return getComputedStyle(document.documentElement).colorScheme"
    operator.open(MODEL)
    for theme, scheme in (("dark", "dark"), ("light", "light"), ("auto", "light dark")):
        operator.find(f"button[value={theme}]").click()
        operator.until(lambda scheme=scheme: operator.run(colours) == scheme, f"colours are {scheme}")  # type: ignore[misc]
        assert operator.path == MODEL
        assert operator.find(f"button[value={theme}]").get_attribute("aria-pressed") == "true"


def test_charts_have_names_and_tables(operator: Browser, proposal: str) -> None:
    operator.open(f"{MODEL}/revisions/{proposal}")
    charts = operator.all("figure svg.chart")
    assert len(charts) == 4
    for chart in charts:
        assert chart.accessible_name.startswith(("Reliability", "Confidence"))
    tables = operator.all("figure details")
    assert len(tables) == 4
    tables[0].find_element(By.TAG_NAME, "summary").click()
    assert "95 % interval" in tables[0].text


def test_without_keys_it_is_open_on_this_machine(browser: Browser, shared: InThread, digits: Digits) -> None:
    shared.predict(digits.images[:3], policy="auto-read")
    browser.base = shared.url
    browser.open("/dashboard")
    browser.sees("digits")
    assert "Log out" not in browser.text
    browser.click("digits")
    browser.sees("Policies and certificates")


def test_a_person_logs_in_through_a_provider_of_another_site(
    browser: Browser, launch: Callable[..., InThread], tmp_path: Path
) -> None:
    port = free_port()
    provider = IdentityProvider()
    provider.callback = f"http://localhost:{port}/dashboard/login/callback"  # the provider is at 127.0.0.1
    settings = {"oidc_issuer": provider.issuer, "oidc_client_id": CLIENT, "oidc_redirect_url": provider.callback}
    running = launch(tmp_path, port=port, oidc_scopes={"ops": ("read",)}, **settings)
    try:
        browser.base = f"http://localhost:{port}"
        browser.open("/dashboard/jobs")
        browser.click("Log in with your organisation's account")
        browser.until(lambda: browser.path == "/dashboard/jobs", "the page that was asked for")
        browser.sees("ana@bank.example")
        browser.click("Log out")
        browser.open("/dashboard/jobs")
        assert browser.path.startswith("/dashboard/login")
    finally:
        browser.driver.get("about:blank")
        running.close()
        provider.close()
