"""`candor doctor` finds what keeps a service from starting as it was told to."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Literal

import onnxruntime
import pytest
from sqlalchemy import text

from service.commands import doctor
from service.inference import cuda, providers
from service.settings import Settings
from service.state import migrating
from service.state.database import Database
from tests.ports import free_port

from ..authority import Authority
from ..conftest import Digits, InThread, Spawn
from ..state.conftest import drop_tables


def examine(spawn: Spawn, **changes: str) -> tuple[int, dict[str, dict[str, Any]]]:
    return findings(spawn.run("doctor", "--json", **changes))


def findings(done: subprocess.CompletedProcess[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    assert done.stderr == ""
    return done.returncode, {finding["subject"]: finding for finding in json.loads(done.stdout)}


def test_a_machine_on_which_all_is_well(spawn: Spawn, digits: Digits) -> None:
    status, found = examine(spawn)
    assert status == 0
    assert onnxruntime.__version__ in found["ONNX Runtime"]["found"]
    assert digits.bundle.model_digest[:12] in found["bundle digits/1"]["found"]
    assert found["state"] == {
        "subject": "state",
        "state": "note",
        "found": "none yet; it is made at the first start",
        "remedy": None,
    }


def test_beside_a_running_service_it_names_what_is_active(spawn: Spawn, service: InThread) -> None:
    status, found = examine(spawn)
    assert status == 0
    assert found["state"]["found"] == "sqlite; active: digits r1"


@pytest.mark.skipif(cuda.cuda().problem is None, reason="this machine has a GPU that can be used")
def test_cuda_that_is_not_there_is_explained(spawn: Spawn) -> None:
    status, found = examine(spawn, provider="cuda")
    assert status == 1
    assert found["provider"]["state"] == "bad"
    assert str(cuda.cuda().problem) in found["provider"]["found"]
    assert found["provider"]["remedy"]
    # What else there is to say is said all the same.
    assert found["bundle digits/1"]["state"] == "ok"


def test_two_packages_of_onnx_runtime_at_once_are_told(spawn: Spawn, tmp_path: Path) -> None:
    """Pip keeps a folder for each, and they share the one with the code."""
    for wheel in cuda.WHEELS:
        folder = tmp_path / f"{wheel.replace('-', '_')}-1.0.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {wheel}\nVersion: 1.0.0\n")
    spawn.environment["PYTHONPATH"] = str(tmp_path)
    status, found = findings(spawn.process("doctor", "--json"))
    assert status == 1
    assert "onnxruntime 1.0.0, onnxruntime-gpu 1.0.0" in found["ONNX Runtime"]["found"]
    assert "pip uninstall onnxruntime onnxruntime-gpu" in found["ONNX Runtime"]["remedy"]


def test_a_damaged_bundle_is_named(spawn: Spawn, digits: Digits, tmp_path: Path) -> None:
    shutil.copytree(digits.root, tmp_path / "bundles")
    (tmp_path / "bundles/digits/1/calibrator.json").write_text("{}")
    status, found = examine(spawn, bundles=str(tmp_path / "bundles"))
    assert status == 1
    assert "calibrator.json" in found["bundle digits/1"]["found"]


def test_folders_and_states_that_cannot_be_used(spawn: Spawn, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.db"
    damaged.write_text("no database, and long enough not to be taken for an empty one" * 20)
    status, found = examine(
        spawn,
        bundles=str(tmp_path / "nothing"),
        policies=str(tmp_path / "nowhere"),
        database_url=f"sqlite:///{damaged}",
    )
    assert status == 1
    assert {subject for subject, one in found.items() if one["state"] == "bad"} == {"bundles", "policies", "state"}
    assert examine(spawn, bundles=str(tmp_path))[1]["bundles"]["state"] == "note"


def test_what_cannot_be_read_or_written_later_is_told_now(spawn: Spawn, tmp_path: Path) -> None:
    (file := tmp_path / "file").write_text("neither a folder nor a key")
    status, found = examine(
        spawn,
        uploads=f"{file}/uploads",
        audit_key_file=str(file),
        default_model="digit",
        log_sink="nowhere://log",
        tls_cert=str(file),
        tls_key=str(file),
        webhook_url="http://127.0.0.1/",
        webhook_secret_file=str(file),
    )
    assert status == 1
    bad = {subject: one["found"] for subject, one in found.items() if one["state"] == "bad"}
    assert bad.keys() == {"folders", "audit key", "default model", "log sink", "TLS", "webhook"}
    assert bad["folders"].startswith("CANDOR_UPLOADS")
    assert "cannot be read as a private key" in bad["audit key"]
    assert "digits" in found["default model"]["remedy"]
    assert "The files of TLS cannot be used" in bad["TLS"]
    assert "not a file of secrets" in bad["webhook"]
    assert "CANDOR_LOG_SINK" in examine(spawn, log_sink=str(file))[1]["folders"]["found"]
    assert "CANDOR_UDS" in examine(spawn, uds=str(tmp_path / "nowhere/candor.sock"))[1]["folders"]["found"]


def test_a_state_of_another_version_is_updated_or_refused(spawn: Spawn) -> None:
    database = Database.open(spawn.environment["CANDOR_DATABASE_URL"])
    for schema, status, state, told in (
        ("0035", 0, "note", f"schema 0035; the next start updates it to schema {migrating.newest()}"),
        ("9999", 1, "bad", "The state database was written by a newer version of Candor."),
    ):
        with database.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :schema"), {"schema": schema})
        code, found = examine(spawn)
        assert (code, found["state"]["state"], found["state"]["found"]) == (status, state, told)
        assert found["state"]["remedy"]
    database.close()


def test_an_empty_postgresql_is_filled_by_the_first_start(spawn: Spawn, postgres_url: str) -> None:
    drop_tables(postgres_url)
    status, found = examine(spawn, database_url=postgres_url)
    assert (status, found["state"]["found"]) == (0, "none yet; it is made at the first start")


@pytest.mark.parametrize(("days", "state"), [(-1, "bad"), (1, "note"), (30, None)])
def test_a_certificate_that_has_expired_or_soon_will_is_told(
    spawn: Spawn, tmp_path: Path, days: int, state: str | None
) -> None:
    cert, key = Authority(tmp_path).issue("server", days=days)
    status, found = examine(spawn, tls_cert=str(cert), tls_key=str(key))
    assert (status, found.get("TLS", {}).get("state")) == (int(state == "bad"), state)
    assert state is None or found["TLS"]["found"].startswith(f"{cert} is valid until 20")


def test_the_databases_beside_the_state_are_asked(spawn: Spawn, postgresql_url: str, tmp_path: Path) -> None:
    nobody = f"postgresql://postgres@127.0.0.1:{free_port()}/candor"
    urls = {"database_read_url": nobody, "database_direct_url": f"sqlite:///{tmp_path}/state.db"}
    status, found = examine(spawn, **urls)
    assert status == 1
    assert found["CANDOR_DATABASE_READ_URL"]["state"] == "note"
    assert "recalibrations read from CANDOR_DATABASE_URL" in found["CANDOR_DATABASE_READ_URL"]["found"]
    assert found["CANDOR_DATABASE_DIRECT_URL"]["state"] == "bad"
    Database.open(postgresql_url).close()
    assert examine(spawn, database_read_url=postgresql_url)[1]["CANDOR_DATABASE_READ_URL"]["state"] == "ok"
    found = examine(spawn, background="false", models="digits,digit")[1]
    assert found["models"]["found"].startswith("digit (CANDOR_MODELS) not in ")
    assert found["state"]["found"] == "A state in SQLite has one server, which runs everything."


def test_people_get_a_table(spawn: Spawn) -> None:
    done = spawn.run("doctor", workers="512")
    assert done.returncode == 0
    assert "1 for one run of each of 512 workers: more workers than processors" in done.stdout
    assert "Lower CANDOR_WORKERS" in done.stdout


def test_threads_that_no_processor_would_run_are_told_of(spawn: Spawn) -> None:
    status, found = examine(spawn, threads="4096")
    assert (status, found["processors"]["state"]) == (1, "bad")
    assert "4096 threads in one worker" in found["processors"]["found"]


@pytest.mark.parametrize(
    ("workers", "state", "why"),
    [
        (1, "ok", "1 (CANDOR_WORKERS=1): a GPU runs one large batch faster than several small ones"),
        (3, "note", "3 (CANDOR_WORKERS=3): on a GPU each has a copy of every model and takes turns with the others"),
        ("auto", "ok", "1 (CANDOR_WORKERS=auto): a GPU runs one large batch faster than several small ones"),
    ],
)
def test_it_says_why_a_gpu_has_one_worker(
    workers: int | Literal["auto"], state: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "resolve_provider", lambda _: "cuda")
    (finding,) = doctor._workers(Settings(workers=workers))
    assert (finding.state, finding.found) == (state, why)
    assert (finding.remedy is None) == (state == "ok")


def test_a_setting_that_nothing_reads_is_told_of(spawn: Spawn) -> None:
    status, found = examine(spawn, max_batchsize="8")
    assert status == 0
    assert found["settings"]["state"] == "note"
    assert "CANDOR_MAX_BATCH_SIZE" in found["settings"]["remedy"]


def test_keys_are_looked_at(spawn: Spawn) -> None:
    assert examine(spawn)[1]["keys"]["state"] == "ok"
    status, found = examine(spawn, host="0.0.0.0")
    assert (status, found["keys"]["state"]) == (1, "bad")
    made = spawn.run("keys", "create", "--name", "till", "--scope", "predict", "--expires-in", "2d", "--json")
    status, found = examine(spawn, host="0.0.0.0")
    assert (status, found["keys"]["state"]) == (0, "note")
    assert json.loads(made.stdout)["prefix"] in found["keys"]["remedy"]
