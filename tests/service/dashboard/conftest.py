"""A real headless Chromium, and a real service for it to look at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from service.state.database import Database
from service.state.keys import KeyStore
from tests.ports import free_port
from tests.service.conftest import NO_CAPS, POLICIES, Digits, Process
from tests.waiting import PATIENCE_S, PROMPT_REFITS, until

DESKTOP, PHONE = (1280, 900), (390, 844)
_QUIET = ("status of 401", "status of 403", "status of 404", "status of 412", "status of 429")  # what tests provoke


class Browser:
    """One tab of Chromium, spoken to as a person would: by what is written on links and buttons."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self.base = ""

    def open(self, path: str) -> None:
        self.driver.get(f"{self.base}{path}")

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def click(self, text: str) -> None:
        """Click the link or button with this text, and wait for the page that it leads to."""
        with self.leaving():
            self.press(text)

    def press(self, text: str) -> None:
        """Click the link or button with this text, which may leave the browser on the page that it is on."""

        def pressed() -> bool:
            for element in self.all("main a, main button, .who button"):
                if element.text.strip() == text:
                    element.click()
                    return True
            return False

        self.until(pressed, f"a link or button {text!r}")

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Wait until what happens inside has replaced the page: else the next look may still see the old one."""
        page = self.find("html")
        yield
        self.until(lambda: self._is_gone(page), "another page")

    def fill(self, selector: str, text: str) -> None:
        self.find(selector).send_keys(text)

    def choose(self, selector: str, value: str) -> None:
        Select(self.find(selector)).select_by_value(value)

    def until(self, holds: Callable[[], Any], what: str) -> None:
        """Wait for something to become true."""
        until(lambda: self._holds(holds), lambda: f"{what} did not come about on:\n{self.text}")

    def sees(self, text: str) -> None:
        """Wait until the page says something."""
        self.until(lambda: text in self.text, repr(text))

    @property
    def text(self) -> str:
        return self.find("body").text

    @property
    def path(self) -> str:
        return self.driver.current_url.removeprefix(self.base)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def command(self, name: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, parameters)

    def prefer(self, theme: str) -> None:
        """Set the colours that the system of the person prefers."""
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def size(self, size: tuple[int, int]) -> None:
        fields = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.command("Emulation.setDeviceMetricsOverride", **fields)

    def scripts(self, *, on: bool) -> None:
        self.command("Emulation.setScriptExecutionDisabled", value=not on)

    def complaints(self) -> list[str]:
        """Return what the console has said since it was asked last: errors, and what the page's policy refused."""
        said = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]  # type: ignore[no-untyped-call]
        return [message for message in said if not any(known in message for known in _QUIET)]

    def login(self, key: str) -> None:
        self.open("/dashboard/login")
        self.fill("#key", key)
        self.click("Log in")

    def _is_gone(self, page: WebElement) -> bool:
        try:
            page.is_enabled()
        except (StaleElementReferenceException, NoSuchElementException):
            return True
        return False

    def _holds(self, holds: Callable[[], Any]) -> bool:
        try:
            return bool(holds())
        except Exception:  # noqa: BLE001 — a script has swapped the element between the look and the question
            return False


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI needs {name}: apt-get install chromium chromium-driver")
        pytest.skip(f"no {name} here: apt-get install chromium chromium-driver")
    return path


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    options = Options()
    options.binary_location = _tool("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(_tool("chromedriver")))
    driver.set_script_timeout(PATIENCE_S)
    yield Browser(driver)
    driver.quit()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """The browser as a person with a large screen has it, without cookies; whoever takes it sets `base`."""
    chromium.driver.get("about:blank")  # a page of the test before would go on asking a service that has ended
    chromium.complaints()
    chromium.command("Network.clearBrowserCookies")
    chromium.size(DESKTOP)
    chromium.prefer("light")
    yield chromium
    chromium.scripts(on=True)
    assert chromium.complaints() == []


class Operated(Process):
    """A service with keys, an operator who may calibrate and approve, and a guest who may do neither."""

    operator: str
    guest: str


@pytest.fixture(scope="module")
def operated(digits: Digits, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """`candor serve` in a process of its own, with labelled predictions of digits under a dying lamp."""
    folder: Path = tmp_path_factory.mktemp("operated")
    url = f"sqlite:///{folder}/state.db"
    database = Database.open(url)
    keys = KeyStore(database)
    _, operator = keys.create("operator", ["predict", "feedback", "calibrate", "approve"])
    _, guest = keys.create("guest <b>", ["predict"])
    database.close()
    port = free_port()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CANDOR_")}
    running = Operated(
        environment
        | PROMPT_REFITS
        | NO_CAPS
        | {
            "CANDOR_BUNDLES": str(digits.root),
            "CANDOR_POLICIES": str(POLICIES),
            "CANDOR_DATABASE_URL": url,
            "CANDOR_POLL_INTERVAL_S": "0.25",
            "CANDOR_DEADLINE_S": f"{PATIENCE_S}",
        },
        port=port,
    )
    try:
        running.operator, running.guest = operator, guest
        running.http.headers["authorization"] = f"Bearer {operator}"
        running.wait_until_it_listens()
        running.teach(digits.dimmed, digits.labels)
        until(lambda: running.metric("candor_log_written_total") >= len(digits.labels), "the log was not written")
        yield running
    finally:
        running.close()


@pytest.fixture
def operator(browser: Browser, operated: Operated) -> Browser:
    """The browser of the operator, logged in."""
    browser.base = operated.url
    browser.login(operated.operator)
    return browser
