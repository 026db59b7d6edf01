"""The log of a real service: what its lines hold, and what they never hold."""

from __future__ import annotations

import errno
import io
import json
import logging
import sys
from typing import Any

import pytest
import structlog

from service.telemetry.logs import _Lines, configure_logs
from tests.waiting import WAIT, until


def lines(service: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in service.log]


def requests(service: Any, **having: Any) -> list[dict[str, Any]]:
    found = [line for line in lines(service) if line["event"] == "request"]
    return [line for line in found if all(line.get(key) == value for key, value in having.items())]


def stop(service: Any) -> None:
    service.popen.terminate()
    assert service.end()[0] == 0


def test_requests_are_logged_with_what_they_were_about(spawn: Any, digits: Any) -> None:
    key = spawn.run("keys", "create", "--name", "ops", "--scope", "admin").stdout.strip()
    service = spawn(access_log="1")
    service.http.headers["authorization"] = f"Bearer {key}"
    body = {"inputs": digits.images[:12].tolist()}
    answer = service.http.post("/predict", json=body, headers={"x-request-id": "mine-1"}).json()
    service.http.get("/v1/models/digits/revisions/r1", headers={"x-request-id": "mine-2"})
    service.teach(digits.dimmed[:300], digits.labels[:300])
    until(lambda: service.metric("candor_log_written_total") >= 312)
    service.http.post("/recalibrate", json={}, headers={**WAIT, "x-request-id": "mine-3"})
    service.http.get("/livez")
    service.http.get("/metrics")
    stop(service)
    [predict] = requests(service, request_id="mine-1")
    assert (predict["request_id"], predict["status"], predict["method"]) == ("mine-1", 200, "POST")
    assert (predict["model"], predict["revision"], predict["predictions"]) == ("digits", "r1", 12)
    assert predict["prediction_ids"] == [row["prediction_id"] for row in answer["predictions"][:10]]
    assert predict["key"] == key.split("_")[1]
    assert 0 < predict["duration_s"] < 60
    [control] = requests(service, request_id="mine-2")
    assert (control["model"], control["revision"], control["status"]) == ("digits", "r1", 200)
    [refit] = [line for line in lines(service) if line["event"] == "refit ended"]
    assert refit["request_id"] == "mine-3"  # which asked for it
    assert refit["job"].startswith("j")
    assert not [line for line in lines(service) if line.get("route") in ("/livez", "/metrics")]
    assert key.split("_", 2)[2] not in "".join(service.log)


def test_predictions_are_not_logged_unless_asked_for(spawn: Any, digits: Any) -> None:
    service = spawn(log_level="debug")
    service.predict(digits.images[:2])
    service.http.get("/v1/models")
    service.http.get("/livez")
    stop(service)
    assert [line["route"] for line in requests(service)] == ["/v1/models", "/livez"]
    assert requests(service, route="/livez")[0]["level"] == "debug"


@pytest.mark.parametrize("level", ["debug", "error"])
def test_secrets_are_in_no_line_whoever_writes_it(capfd: Any, level: str) -> None:
    """Also in exceptions, and whatever the level."""
    key = "cnd_0123456789ab_" + "S3cret-" * 6
    url = "postgresql://candor:hunter22@db/candor"
    before = structlog.get_config()
    root, levels = logging.getLogger(), {name: logging.getLogger(name).level for name in ("service", "uvicorn")}
    handlers, root_level = root.handlers[:], root.level
    try:
        configure_logs(level, ["p@ss wörd", "q\"u\\o't\ne", ":"])
        log = structlog.get_logger("service.test")
        for text in (
            key,
            f"Bearer {key}",
            "Authorization: Bearer abcdefghijklmnop",
            url,
            "password=hunter22",
            "p@ss w\u00f6rd",
            "p%40ss%20w%C3%B6rd",
            "q\"u\\o't\ne",
        ):
            log.error("said", text=text, nested={"deep": [text]})
            logging.getLogger("sqlalchemy").error("said %s", text)
            try:
                int(text)
            except ValueError:
                log.exception("raised")
    finally:
        structlog.configure(**before)
        root.handlers[:], root.level = handlers, root_level
        for name, old in levels.items():
            logging.getLogger(name).setLevel(old)
    written = capfd.readouterr().err
    assert len(written.splitlines()) == 24
    for line in written.splitlines():
        json.loads(line)
    for secret in ("S3cret", "hunter22", "abcdefghijklmnop", "p@ss", "p%40ss", "q\\", "u\\"):
        assert secret not in written
    assert "cnd_0123456789ab_" in written  # the prefix names the key


def test_a_line_that_cannot_be_written_disturbs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, text)

    monkeypatch.setattr(sys, "stderr", Full())
    lines = _Lines("service.test")
    with pytest.raises(OSError, match="line"):
        sys.stderr.write("line")
    for method in ("info", "warning", "error", "exception"):
        getattr(lines, method)("line")


def test_the_password_of_the_state_is_not_logged_when_it_cannot_be_reached(spawn: Any) -> None:
    done = spawn.process(
        "serve", database_url="postgresql+psycopg://candor:hunter22@127.0.0.1:1/candor", log_level="debug"
    )
    assert done.returncode != 0
    assert "hunter22" not in done.stdout + done.stderr
