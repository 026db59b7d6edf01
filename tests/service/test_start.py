"""How the service starts, what it refuses to start on, what it never imports, and that all of it goes when it stops."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

import bundle as bundles
from bundle import BundleContents
from service.cli import app
from service.errors import BundleRefusedError, ConfigurationError, NotReadyError, PolicyError
from service.inference.providers import resolve_provider
from service.inference.session import Session
from service.serving.models import Models
from service.settings import Settings
from service.state.database import Database
from service.state.revisions import RevisionStore
from tests.ports import free_port
from tests.waiting import PATIENCE_S

from .conftest import contents

FILES = sorted(["manifest.json", "model.onnx", "calibrator.json", "reference.npz", "golden.npz", "report/report.json"])


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.fixture
def other_golden(digits: Any) -> BundleContents:
    """A bundle whose digests are right and whose model does not give its golden logits."""
    golden = digits.bundle.golden
    return contents(
        digits.bundle, golden=bundles.Golden(golden.inputs, golden.logits + np.float32(0.5), golden.encoded)
    )


class TestProcess:
    def test_a_flipped_bit_is_refused_with_the_name_of_the_file(self, spawn: Any, root: Path) -> None:
        flip(root / "digits" / "1" / "model.onnx")
        status, said = spawn(wait=False, bundles=str(root)).end()
        assert status == 2, said
        assert "Bundle refused" in said
        assert "model.onnx" in said
        assert "Traceback" not in said

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"host": "0.0.0.0"}, "candor keys create"),
            ({"database_url": "postgresql+psycopg://postgres@127.0.0.1:1/x"}, "postgresql"),
            ({"max_batch_size": "0"}, "CANDOR_MAX_BATCH_SIZE"),
        ],
    )
    def test_settings_that_cannot_work_end_with_code_2_and_a_sentence(
        self, spawn: Any, changes: dict[str, str], says: str
    ) -> None:
        status, said = spawn(wait=False, **changes).end()
        assert status == 2, said
        assert says in said
        assert "Traceback" not in said

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"provider": "cuda"}, "cuda provider was requested"),
            ({"provider": "tpu"}, "CANDOR_PROVIDER"),
            ({"threads": "0"}, "CANDOR_THREADS"),
            ({"workers": "few"}, "CANDOR_WORKERS: Input should be a valid integer"),
            ({"workers": "few"}, "or: Input should be 'auto'"),
            (
                {"oidc_scopes": '{"risk": "approve"}'},
                "CANDOR_OIDC_SCOPES: expected a list in [ ], even of one item, in risk",
            ),
            ({"threads": "4096"}, "more threads than processors"),
            ({"database_url": "sqlite://"}, "Unusable configuration"),
            ({"database_url": "nonsense"}, "Unusable configuration"),
            ({"bundles": "nope"}, "folder of bundles nope does not exist"),
            ({"policies": "nope"}, "folder of policies nope does not exist"),
            ({"port": "8001", "grpc_port": "8001"}, "CANDOR_PORT and CANDOR_GRPC_PORT must differ: both are 8001"),
            ({"models": "digits"}, "CANDOR_MODELS: requires CANDOR_BACKGROUND=false"),
            ({"limit_flipped": "None"}, "or: none (no limit)"),
        ],
    )
    def test_other_settings_that_cannot_work(
        self, spawn: Any, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], says: str
    ) -> None:
        """The same without a process for each."""
        if changes.get("provider") == "cuda" and resolve_provider("auto") == "cuda":
            pytest.skip("this machine has CUDA")
        for name, value in spawn.environment.items():
            if name.startswith("CANDOR_"):
                monkeypatch.setenv(name, value)
        for name, value in {"port": str(free_port()), **changes}.items():
            monkeypatch.setenv(f"CANDOR_{name.upper()}", value)
        monkeypatch.setattr("service.telemetry.logs.configure_logs", lambda *_: None)
        monkeypatch.setattr("gc.disable", lambda: None)
        done = CliRunner().invoke(app, ["serve"])
        assert done.exit_code == 2, done.output
        assert says in done.stderr

    @pytest.mark.parametrize(("command", "ends_by"), [("serve", "candor keys create"), ("worker", "Use PostgreSQL")])
    def test_a_mistyped_setting_is_logged_and_an_empty_one_is_unset(
        self, spawn: Any, command: str, ends_by: str
    ) -> None:
        status, said = spawn(
            command, wait=False, host="0.0.0.0", retention_day="30", grpc_port="", registry_user="me"
        ).end()
        assert (status, ends_by in said) == (2, True), said
        (warning,) = (json.loads(line) for line in said.splitlines() if "unknown setting" in line)
        assert warning["variable"] == "CANDOR_RETENTION_DAY"
        assert warning["remedy"] == "Did you mean CANDOR_RETENTION_DAYS?"

    def test_a_policy_that_cannot_be_used_is_named_by_its_file(self, spawn: Any, tmp_path: Path) -> None:
        folder = tmp_path / "policies" / "digits"
        folder.mkdir(parents=True)
        (folder / "mine.yaml").write_text("id: mine\npositive: eleven\nbands: [{action: review}]\n")
        status, said = spawn(wait=False, policies=str(folder.parent)).end()
        assert status == 2, said
        assert "mine.yaml" in said
        assert "eleven" in said
        (folder / "mine.yaml").write_text("id: [")
        status, said = spawn(wait=False, policies=str(folder.parent)).end()
        assert status == 2, said
        assert "mine.yaml is not a readable YAML file" in " ".join(said.split())

    def test_a_taken_port_and_a_second_server_on_the_same_state_are_refused(self, spawn: Any, tmp_path: Path) -> None:
        first = spawn()
        second = spawn(wait=False)
        status, said = second.end()
        assert status == 2, said
        assert str(first.popen.pid) in said
        port = first.url.rpartition(":")[2]
        done = spawn.process("serve", "--port", port, database_url=f"{spawn.environment['CANDOR_DATABASE_URL']}.other")
        assert done.returncode == 2, done.stderr
        assert f"127.0.0.1:{port}" in done.stderr
        assert not list(tmp_path.rglob("*.other")), "the state was made before the port was tried"
        assert "Traceback" not in done.stderr
        assert first.http.get("/readyz").status_code == 200

    def test_without_bundles_it_lives_and_is_not_ready(self, spawn: Any, tmp_path: Path) -> None:
        empty = tmp_path / "empty"
        empty.mkdir()
        running = spawn(bundles=str(empty))
        assert running.http.get("/livez").status_code == 200
        ready = running.http.get("/readyz")
        assert (ready.status_code, ready.json()["ready"]) == (503, False)
        answer = running.http.post("/predict", json={"inputs": [0]})
        assert answer.status_code == 404
        assert str(empty) in answer.json()["remedy"]

    def test_a_stop_ends_politely(self, spawn: Any) -> None:
        running = spawn()
        running.http.get("/livez")
        running.popen.terminate()
        _, said = running.end()
        assert "Traceback" not in said
        assert "Finished server process" in said


# Runs in an interpreter of its own: serves one prediction over ASGI, then says which modules came with it.
PROBE = """
import asyncio, json, sys
from service.settings import Settings
from service.app import create_app

application = create_app(Settings())
sent = []

async def ask():
    messages = [{"type": "http.request", "body": json.dumps({"inputs": [[[0] * 8] * 8]}).encode()}]
    async def receive():
        return messages.pop() if messages else await asyncio.Future()
    async def send(message):
        sent.append(message)
    scope = {"type": "http", "method": "POST", "path": "/predict", "query_string": b"", "headers": []}
    await application(scope, receive, send)

asyncio.run(ask())
assert sent[0]["status"] == 200, sent
application.runtime.close()
print(json.dumps(sorted(name for name in sys.modules if name.count(".") < 2)))
"""


class TestImports:
    def test_a_service_that_has_predicted_holds_no_torch_no_training_and_no_plotting(self, spawn: Any) -> None:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROBE],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env=spawn.environment,
        )
        assert done.returncode == 0, done.stderr
        modules = set(json.loads(done.stdout.splitlines()[-1]))
        assert {"service", "onnxruntime", "numpy"} <= modules
        assert not modules & {"torch", "training", "matplotlib", "sklearn", "onnx", "pandas", "pytest"}
        assert "scipy.optimize" not in modules  # only fits need it, and it takes a sixth of the start

    def test_the_command_line_needs_no_server_to_say_what_it_can_do(self, spawn: Any) -> None:
        code = "import sys; import service.cli; print('\\n'.join(sys.modules))"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        assert not set(done.stdout.split()) & {"fastapi", "onnxruntime", "sqlalchemy", "uvicorn", "torch", "numpy"}

    def test_a_start_imports_nothing_that_few_services_need(self) -> None:
        code = "import sys; import service.commands.local, service.commands.process; print('\\n'.join(sys.modules))"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        slow = {"scipy.special", "httpcore", "candor.blocking", "service.commands.remote", "alembic"}
        assert not set(done.stdout.split()) & slow

    def test_onnx_runtime_does_not_report_to_its_makers(self, tmp_path: Path) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
        command = [sys.executable, "-c", "import service.inference.session"]
        environment |= {"TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
        subprocess.run(command, timeout=PATIENCE_S, check=True, env=environment)
        assert list(tmp_path.iterdir()) == []  # else there is the name under which it reports


class TestBundles:
    @pytest.fixture
    def open_models(self, tmp_path: Path) -> Any:
        """Start models on a folder of bundles, as the service does."""
        databases = []

        def run(root: Path) -> Models:
            database = Database.open(f"sqlite:///{tmp_path}/models.db")
            databases.append(database)
            models = Models(Settings(bundles=root, policies=None), database, lambda *_: None)
            models.start()
            return models

        yield run
        for database in databases:
            database.close()

    @pytest.mark.parametrize("file", FILES)
    def test_one_flipped_bit_in_any_file_is_refused(self, open_models: Any, root: Path, file: str) -> None:
        flip(root / "digits" / "1" / file)
        with pytest.raises(BundleRefusedError) as caught:
            open_models(root)
        assert caught.value.where == file
        assert file in str(caught.value)

    def test_one_damaged_bundle_of_two_leaves_the_other_model_in_service(
        self, open_models: Any, root: Path, digits: Any, tmp_path: Path
    ) -> None:
        damaged = bundles.write(root, contents(digits.bundle, model="another"))
        whole = Path(shutil.copytree(damaged, tmp_path / "whole"))
        flip(damaged / "model.onnx")
        models = open_models(root)
        assert models.get("digits").served.revision.id == "r1"
        assert models.get("another").plane.served is None
        assert "model.onnx" in models.problems()["another"]
        assert list(models.problems()) == ["another"]
        with pytest.raises(NotReadyError, match="another"):
            models.get("another").served  # noqa: B018
        shutil.rmtree(damaged)
        shutil.copytree(whole, damaged)
        for model in models.all():
            model.plane.close()
        models._models.clear()
        models.start()
        assert models.problems() == {}
        assert models.get("another").served.revision.id == "r1"
        models.close()

    def test_the_files_above_are_all_but_the_diagrams(self, digits: Any) -> None:
        there = {str(path.relative_to(digits.bundle.path)) for path in digits.bundle.path.rglob("*") if path.is_file()}
        assert {name for name in there if not name.endswith(".svg")} == set(FILES)

    def test_other_logits_than_the_golden_ones_are_refused(
        self, open_models: Any, tmp_path: Path, other_golden: BundleContents
    ) -> None:
        bundles.write(tmp_path / "wrong", other_golden)
        with pytest.raises(BundleRefusedError, match="golden inputs give different logits") as caught:
            open_models(tmp_path / "wrong")
        assert "0.5" in caught.value.found

    def test_a_model_that_cannot_be_loaded_is_refused(self, digits: Any, tmp_path: Path) -> None:
        model_bytes = digits.bundle.model_bytes.replace(b"Conv", b"Vnoc")
        path = bundles.write(tmp_path, contents(digits.bundle, model_bytes=model_bytes))
        with pytest.raises(BundleRefusedError, match=r"cannot load model\.onnx"):
            Session(bundles.verify(path), provider="cpu", threads=1)

    def test_an_unknown_provider_is_a_configuration_error(self, digits: Any) -> None:
        if resolve_provider("auto") == "cuda":
            pytest.skip("this machine has CUDA")
        with pytest.raises(ConfigurationError, match="cuda") as caught:
            Session(digits.bundle, provider="cuda", threads=1)
        assert "gpu" in str(caught.value.remedy)

    def test_a_newer_damaged_bundle_leaves_the_old_one_in_service(self, start: Any, root: Path, digits: Any) -> None:
        first = start(bundles=root)
        before = first.predict(digits.images[:5])
        first.close()
        newer = bundles.write(root, contents(digits.bundle))
        flip(newer / "model.onnx")
        second = start(bundles=root)
        assert second.http.get("/readyz").status_code == 200
        assert [item["id"] for item in second.revisions()["items"]] == ["r1"]
        after = second.predict(digits.images[:5])
        assert [row["probabilities"] for row in after] == [row["probabilities"] for row in before]

    def test_a_newer_good_bundle_is_a_proposal_that_needs_a_reason(self, start: Any, root: Path, digits: Any) -> None:
        start(bundles=root).close()
        other_file = digits.bundle.model_bytes + b"\x32\x01x"  # ONNX's doc_string: "x"
        bundles.write(root, contents(digits.bundle, model_bytes=other_file))
        service = start(bundles=root)
        newest = service.revisions()["items"][0]
        assert (newest["id"], newest["state"], newest["cause"], newest["bundle"]) == ("r2", "proposed", "bundle", 2)
        path = "revisions/r2/activate"
        without = service.move(path, service.revisions()["epoch"])
        assert (without.status_code, without.json()["type"]) == (409, "/errors/revision-state")
        service.activate("r2", reason="trained on more data")
        answer = service.http.post("/predict", json={"inputs": digits.images[:1].tolist()}).json()
        assert answer["revision"] == "r2"
        service.close()
        again = start(bundles=root)  # nothing new: nothing proposed
        assert [item["id"] for item in again.revisions()["items"]] == ["r2", "r1"]
        assert again.revisions()["active"] == "r2"
        assert again.rollback()["active"] == "r1"

    def test_a_proposal_whose_model_fails_its_golden_inputs_cannot_be_activated(
        self, start: Any, root: Path, digits: Any, other_golden: BundleContents
    ) -> None:
        start(bundles=root).close()
        bundles.write(root, other_golden)
        service = start(bundles=root)
        if "r2" in {item["id"] for item in service.revisions()["items"]}:
            refused = service.move("revisions/r2/activate", service.revisions()["epoch"], reason="hope")
            assert (refused.status_code, refused.json()["type"]) == (409, "/errors/bundle-refused")
        assert service.http.get("/readyz").status_code == 200
        assert service.revisions()["active"] == "r1"
        assert service.predict(digits.images[:1])

    def test_an_active_bundle_that_was_exchanged_is_refused(self, start: Any, root: Path, digits: Any) -> None:
        start(bundles=root).close()
        shutil.rmtree(root / "digits" / "1")
        written = bundles.write(root / "new", contents(digits.bundle, report={"note": "another"}))
        shutil.move(written, root / "digits" / "1")
        with pytest.raises(BundleRefusedError, match="differs from the bundle of revision r1"):
            start(bundles=root)
        shutil.rmtree(root / "digits" / "1")
        with pytest.raises(BundleRefusedError, match="No such file"):
            start(bundles=root)

    def test_a_first_policy_that_names_an_unknown_label_leaves_nothing_behind(self, start: Any, tmp_path: Path) -> None:
        folder = tmp_path / "policies" / "digits"
        folder.mkdir(parents=True)
        (folder / "mine.yaml").write_text("id: mine\npositive: eleven\nbands: [{action: review}]\n")
        with pytest.raises(PolicyError):
            start(policies=folder.parent)
        database = Database.open(f"sqlite:///{tmp_path}/state.db")
        assert RevisionStore(database).pointers() == {}
        database.close()
        (folder / "mine.yaml").write_text("id: mine\npositive: '1'\nbands: [{action: review}]\n")
        assert start(policies=folder.parent).http.get("/readyz").status_code == 200


def test_a_bundle_in_another_ones_place_is_refused(digits: Any, tmp_path: Path, spawn: Any) -> None:
    shutil.copytree(digits.root / "digits" / "1", tmp_path / "copied" / "digits" / "3")
    status, said = spawn(wait=False, bundles=str(tmp_path / "copied")).end()
    assert status == 2, said
    assert "found: digits/1" in said
    assert "expected: digits/3" in said


def test_a_folder_of_policies_that_is_not_there_is_an_error(digits: Any, tmp_path: Path, spawn: Any) -> None:
    status, said = spawn(wait=False, policies=str(tmp_path / "nowhere")).end()
    assert status == 2, said
    assert "does not exist" in said


def test_a_service_that_has_stopped_leaves_nothing_in_memory(launch: Any, digits: Any, tmp_path: Path) -> None:
    service = launch(tmp_path)
    assert service.predict(digits.images[:1])
    assert service.http.get("/openapi.json").status_code == service.http.get("/dashboard").status_code == 200
    runtime = service.runtime
    parts = [service.application, service.application.api, runtime.database, runtime.models, runtime.log, runtime.jobs]
    left = [weakref.ref(part) for part in (*parts, runtime.models.get("digits").served.session)]
    service.close()
    del service, runtime, parts
    gc.collect()
    assert [part for each in left if (part := each()) is not None] == []


class TestPolicyFiles:
    def test_files_that_decide_nothing_are_named_with_what_to_do(self, start: Any, tmp_path: Path) -> None:
        folder = tmp_path / "policies"
        own = folder / "digits"
        own.mkdir(parents=True)

        def write(path: Path, share: float) -> None:
            bands = [{"action": "accept", "when": {"min_probability": share}}, {"action": "review"}]
            path.write_text(json.dumps({"id": path.stem, "positive": "top", "bands": bands}))

        write(own / "kept.yaml", 0.5)
        write(own / "changed.yaml", 0.5)
        with capture_logs() as said:
            start(policies=folder).close()
        assert not [line for line in said if "not in force" in line["event"]], "the first start reads them all"
        write(own / "changed.yaml", 0.6)
        write(own / "added.yml", 0.5)
        write(own / "named.json", 0.5)
        write(folder / "outside.yaml", 0.5)
        (own / "broken.yaml").write_text("bands: []")
        for name in ("other", "digits/..2026"):
            (folder / name).mkdir()
            write(folder / name / "there.yaml", 0.5)
        with capture_logs() as said:
            start(policies=folder)
        lines = [line for line in said if "not in force" in line["event"]]
        found = {Path(line["file"]).relative_to(folder).as_posix(): line for line in lines}
        assert set(found) == {
            "digits/added.yml", "digits/broken.yaml", "digits/changed.yaml", "digits/named.json", "other/there.yaml",
            "outside.yaml",
        }  # fmt: skip
        assert found["digits/changed.yaml"]["why"] == "It differs from changed@1, which is in force."
        assert f"candor policy put {own / 'added.yml'} --model digits" in found["digits/added.yml"]["remedy"]
        assert "MODEL being one of ['digits']" in found["outside.yaml"]["remedy"]
