"""Who came, who was refused, and what was exported: the audit log of a running service, checked by its command."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from pydantic import ValidationError

from candor.contract.audit import AuditHead
from candor.contract.webhooks import check
from service.errors import ConfigurationError
from service.monitoring.audit_export import AuditExport
from service.settings import Settings
from service.state.answered_ids import digest_of
from service.state.database import Database
from service.state.keys import KeyStore
from service.state.tables import audit
from tests.service.cases.test_webhooks import SECRET, Receiver
from tests.service.conftest import Digits, InThread
from tests.waiting import PATIENCE_S, until

SAME = {"sec-fetch-site": "same-origin"}


@pytest.fixture(scope="module")
def signing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a key pair."""
    folder = tmp_path_factory.mktemp("signing")
    key = Ed25519PrivateKey.generate()
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "public.pem").write_bytes(public)
    return folder


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    folder = tmp_path / "receiver"
    folder.mkdir()
    made = Receiver(folder)
    made.start()
    yield made
    made.kill()


def entries(running: InThread) -> list[Any]:
    """Return everything that is written down so far, oldest first."""
    running.runtime.access_record.take(last=True)
    running.runtime.access_record.write()
    with running.runtime.database.connect() as connection:
        return list(connection.execute(audit.select().order_by(audit.c.id)))


def test_who_came_and_who_was_refused(start: Callable[..., InThread], digits: Digits) -> None:
    running = start()
    store = KeyStore(running.runtime.database)
    key, text = store.create("till", ["predict"])
    running.application._access.refresh()
    held = {"authorization": f"Bearer {text}"}
    body = {"inputs": digits.images[:3].tolist()}
    answers = [running.http.post("/predict", json=body, headers=held) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert running.http.post("/predict?policy=x", json=body).status_code == 401
    assert running.http.get("/v1/models", headers={"authorization": "Bearer cnd_wrong"}).status_code == 401
    assert running.http.post("/recalibrate", json={}, headers=held).status_code == 403
    for secret, status in (("cnd_000000000000_wrong", 401), (text, 303)):
        page = running.http.get("/dashboard/login").text
        found = re.search(r'name="token" value="([0-9a-f]{64})"', page)
        assert found
        fields = {"key": secret, "token": found[1]}
        assert running.http.post("/dashboard/login", data=fields, headers=SAME).status_code == status
    found = re.search(r'name="token" value="([0-9a-f]{64})"', running.http.get("/dashboard").text)
    assert found
    assert running.http.post("/dashboard/logout", data={"token": found[1]}, headers=SAME).status_code == 303
    log = {row.action: row for row in entries(running)}
    first, last = (answers[at].json()["predictions"][end]["prediction_id"] for at, end in ((0, 0), (1, -1)))
    assert (log["predict"].by, log["predict"].subject) == ("till", key.prefix)
    counts = {"requests": 2, "rows": 6, "first": first, "last": last}
    answered = [row["prediction_id"] for answer in answers for row in answer.json()["predictions"]]
    assert log["predict"].detail["models"] == {"digits": counts | {"sha256": digest_of("".join(answered).encode())}}
    came = {"status": 401, "address": "127.0.0.1", "key": None, "requests": 1}
    expected = [
        came | {"path": "/predict"},
        came | {"path": "/v1/models"},
        came | {"path": "/dashboard/login"},
        came | {"path": "/recalibrate", "status": 403, "key": key.prefix},
    ]
    refused = log["refuse_requests"]
    assert sorted(refused.detail["requests"], key=str) == sorted(expected, key=str)
    assert refused.subject == "4 requests"
    for action in ("log_in", "log_out"):
        assert (log[action].by, log[action].subject) == ("till", key.prefix)
        assert log[action].detail == {"address": "127.0.0.1"}


def test_heads_go_to_a_file_to_syslog_and_to_a_webhook_and_show_a_cut_off_end(
    start: Callable[..., InThread],
    receiver: Receiver,
    signing: Path,
    tmp_path: Path,
    spawn: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heads = tmp_path / "heads.jsonl"
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as syslog,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own,
    ):
        syslog.bind(("127.0.0.1", 0))
        own.bind(str(tmp_path / "log"))
        syslog.settimeout(PATIENCE_S)
        own.settimeout(PATIENCE_S)
        targets = [f"file://{heads}", f"syslog://127.0.0.1:{syslog.getsockname()[1]}", f"syslog://{tmp_path}/log"]
        running = start(
            audit_export=",".join([*targets, receiver.url]),
            audit_key_file=signing / "key.pem",
            webhook_secret_file=receiver.secret_file,
        )
        lines = [syslog.recv(4096), own.recv(4096)]
    until(lambda: receiver.notes("204"), "the receiver's head")
    (note,) = receiver.notes("204")
    check(note["body"].encode(), note["signature"], SECRET)
    sent = AuditHead.model_validate_json(note["body"])
    assert [json.loads(line) for line in heads.read_text().splitlines()] == [sent.model_dump()]
    for line in lines:
        assert line.startswith(b"<109>1 - ")
        assert line.endswith(note["body"].encode())
    until(lambda: running.metric("candor_audit_exports_total", outcome="exported") == 4, "the counts")
    (tmp_path / "syslog").write_bytes(b"\n".join([b"<13>1 - else", *lines]))

    KeyStore(running.runtime.database).create("ops", ["admin"])
    assert running.runtime.audit_export.export((targets[0],)) == ()
    url = ["--database-url", running.runtime.settings.database_url]
    keys = ["--public-key", signing / "public.pem", "--heads", heads, "--heads", tmp_path / "syslog"]
    whole = spawn.run("audit", "verify", *url, *keys)
    assert (whole.returncode, whole.stderr) == (0, "")
    assert re.match(r"The chain is whole: \d+ links, and has all 4 exported heads\.", whole.stdout), whole.stdout
    printed = spawn.run("audit", "head", *url, audit_key_file=str(signing / "key.pem"))
    assert json.loads(printed.stdout)["head"] == json.loads(heads.read_text().splitlines()[-1])["head"]

    end = json.loads(printed.stdout)
    with running.runtime.database.engine.begin() as connection:
        for table in ("audit", "audit_links"):
            for name in connection.exec_driver_sql(
                f"SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = '{table}'"
            ).all():
                connection.exec_driver_sql(f"DROP TRIGGER {name[0]}")
        connection.exec_driver_sql(f"DELETE FROM audit_links WHERE position = {end['position']}")
        connection.exec_driver_sql(f"DELETE FROM audit WHERE id = {end['entry']}")
        connection.exec_driver_sql("UPDATE numbers SET last = last - 1 WHERE series = 'audit'")
    assert spawn.run("audit", "verify", *url).returncode == 0
    cut = spawn.run("audit", "verify", *url, *keys)
    assert cut.returncode == 1
    assert f"The end was cut off after link {end['position'] - 1}" in cut.stderr

    forged = tmp_path / "forged"
    forged.write_text(heads.read_text().replace(f'"position":{end["position"]}', f'"position":{end["position"] - 1}'))
    refused = spawn.run("audit", "verify", *url, *keys[:2], "--heads", forged)
    assert refused.returncode == 2
    assert "forged:2 is not signed with the key" in refused.stderr
    without = spawn.run("audit", "verify", *url, "--heads", heads)
    assert without.returncode == 2
    assert "--public-key" in without.stderr

    monkeypatch.setattr("service.state.audit.now_us", lambda: 0)
    KeyStore(running.runtime.database).create("old", ["admin"])
    assert "is dated back" in spawn.run("audit", "verify", *url).stderr
    assert [spawn.run("audit", "verify", *more, *url).returncode for more in ([], ["--strict"])] == [0, 1]
    nowhere = tmp_path / "mistyped.db"
    for command in (["dossier", "digits"], ["labels", "list", "--model", "digits"], ["prune", "--older-than", "1d"]):
        refused = spawn.run(*command, "--database-url", f"sqlite:///{nowhere}")
        assert (refused.returncode, nowhere.exists()) == (2, False), refused.stderr


def test_a_target_that_fails_is_named_and_holds_up_no_other(tmp_path: Path, signing: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/state.db")
    gone, there = f"file://{tmp_path}/no/such/folder", f"file://{tmp_path}/heads"
    settings = Settings(audit_export=f"{gone},{there}", audit_key_file=signing / "key.pem")
    export = AuditExport(settings, database)
    assert export.export(export.targets) == (gone,)
    assert export.counts == {(gone, "failed"): 1, (there, "exported"): 1}
    database.close()


def test_heads_are_exported_on_schedule_and_what_failed_again_before(
    tmp_path: Path, signing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, there = f"file://{tmp_path}/late/heads", f"file://{tmp_path}/heads"
    named = {"audit_export": f"{late},{there}", "audit_key_file": signing / "key.pem"}
    with closing(Database.open(f"sqlite:///{tmp_path}/state.db")) as database:
        monkeypatch.setattr("service.monitoring.audit_export._AGAIN_S", 0.01)
        export = AuditExport(Settings(**named), database)  # type: ignore[arg-type]
        export.start()
        until(lambda: export.counts[late, "failed"] > 2, "repetitions")
        (tmp_path / "late").mkdir()
        until(lambda: export.counts[late, "exported"], "the head")
        export.close()
        assert (export.counts[late, "exported"], export.counts[there, "exported"]) == (1, 1), "the rest has an hour"

        export = AuditExport(Settings(audit_export_s=0.01, **named), database)  # type: ignore[arg-type]
        export.start()
        until(lambda: min(export.counts.values(), default=0) > 2, "heads")
        export.close()
        assert set(export.counts) == {(late, "exported"), (there, "exported")}
        for file in (tmp_path / "late" / "heads", tmp_path / "heads"):
            assert len(file.read_text().splitlines()) == 1 + export.counts[f"file://{file}", "exported"]


def test_a_stop_does_not_wait_for_a_receiver(tmp_path: Path, signing: Path, receiver: Receiver) -> None:
    with closing(Database.open(f"sqlite:///{tmp_path}/state.db")) as database:
        receiver.answer("hang")
        named = {"audit_key_file": signing / "key.pem", "webhook_secret_file": receiver.secret_file}
        export = AuditExport(Settings(audit_export=receiver.url, webhook_timeout_s=300, **named), database)  # type: ignore[arg-type]
        export.start()
        until(lambda: receiver.notes("hang"), "the request")
        stop = threading.Thread(target=export.close, daemon=True)
        stop.start()
        stop.join(PATIENCE_S)
        assert not stop.is_alive()
    assert export.counts == {(receiver.url, "failed"): 1}


@pytest.mark.parametrize("url", ["ftp://x", "file://host/path", "file:heads", "syslog:", "https://", "/var/log/heads"])
def test_what_is_no_target_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        Settings(audit_export=url)


def test_a_target_requires_a_key_and_a_webhook_a_secret(tmp_path: Path, signing: Path) -> None:
    rsa = tmp_path / "text"
    rsa.write_text("no key")
    for given, named in (
        ({"audit_export": "syslog:///dev/log"}, "CANDOR_AUDIT_KEY_FILE"),
        ({"audit_export": "syslog:///dev/log", "audit_key_file": rsa}, "CANDOR_AUDIT_KEY_FILE"),
        ({"audit_export": "https://x.example/", "audit_key_file": signing / "key.pem"}, "CANDOR_WEBHOOK_SECRET_FILE"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            AuditExport(Settings(**given), Database.__new__(Database))  # type: ignore[arg-type]
        assert refused.value.where == named
