"""The `candor` command: what it prints, and its exit codes; some of it in a process of its own, as users run it."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bundle.images import encode_png
from service.cli import app
from service.version import VERSION
from tests.waiting import until

BIN = Path(sys.executable).parent


@pytest.fixture
def candor(spawn: Any) -> Any:
    """Run `candor` against a service."""

    def run(*arguments: str | Path, service: Any = None, apart: bool = False, **changes: str) -> Any:
        url = {"url": service.url} if service else {}
        return (spawn.process if apart else spawn.run)(*arguments, **(url | changes))

    return run


@pytest.fixture
def seven(digits: Any, tmp_path: Path) -> Path:
    path = tmp_path / "seven.png"
    path.write_bytes(encode_png(digits.images[digits.labels.index("7")]))
    return path


@pytest.mark.usefixtures("refits_here")
def test_the_main_job_from_a_terminal(candor: Any, service: Any, digits: Any, seven: Path, tmp_path: Path) -> None:
    """predict, feedback from files, recalibrate, revisions, activate, roll back; for people and for scripts."""
    shown = candor("predict", seven, "--policy", "auto-read", service=service, apart=True)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "seven.png" in shown.stdout
    assert "digits r1" in shown.stdout
    answer = json.loads(candor("predict", seven, "--json", service=service).stdout)
    (prediction,) = answer["predictions"]
    assert len(prediction["probabilities"]) == 10
    assert service.runtime.log.flush()

    one = candor("feedback", prediction["prediction_id"], "7", "--json", service=service)
    assert json.loads(one.stdout)["stored"] == 1

    predictions = service.predict(digits.dimmed[:1000], policy="auto-read")
    assert service.runtime.log.flush()
    rows = [(row["prediction_id"], label) for row, label in zip(predictions, digits.labels[:1000], strict=True)]
    table = tmp_path / "labels.csv"
    table.write_text("prediction_id,label\n" + "".join(f"{i},{label}\n" for i, label in rows[:500]))
    lines = tmp_path / "labels.ndjson"
    lines.write_text(
        "".join(json.dumps({"prediction_id": i, "label": label, "source": "x"}) + "\n" for i, label in rows[500:])
    )
    for file in (table, lines):
        done = candor("feedback", "--file", file, "--source", "reviewer", service=service, apart=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "500 stored, 0 pending, 0 duplicates, 0 conflicts of 500\n"

    proposed = candor("recalibrate", "--mode", "propose", "--json", service=service, apart=True)
    assert proposed.returncode == 0, proposed.stderr
    result = json.loads(proposed.stdout)
    assert result["gate"]["passed"] is True

    shown = candor("activate", result["revision"], "--dry-run", service=service)
    assert "on the newest" in shown.stdout
    assert shown.returncode == ("would change the share of" in shown.stdout)  # depends on what was drawn to certify
    moved = candor("activate", result["revision"], "--yes-i-mean", "--reason", "dim", "--json", service=service)
    assert json.loads(moved.stdout)["active"] == result["revision"]
    refused = candor("recalibrate", service=service, apart=True)
    assert refused.returncode == 1
    assert "Refused" in refused.stdout
    assert "if it were calibrated" in refused.stdout  # no ECE without its null value

    listed = candor("revisions", service=service)
    assert listed.returncode == 0
    assert result["revision"] in listed.stdout
    assert json.loads(candor("revisions", "--json", service=service).stdout)["active"] == result["revision"]
    assert json.loads(candor("revisions", "r1", service=service).stdout)["id"] == "r1"
    back = candor("rollback", service=service)
    assert (back.returncode, back.stdout) == (0, "r1 is active (epoch 3)\n")


def test_a_label_by_reference_or_by_id(candor: Any, service: Any, digits: Any, tmp_path: Path) -> None:
    body = {"inputs": digits.images[:3].tolist(), "references": ["tx-91", "tx-92", "tx-93"]}
    predictions = service.http.post("/predict", json=body).json()["predictions"]
    assert service.runtime.log.flush()
    table = tmp_path / "labels.csv"
    table.write_text("reference,label\ntx-93,7\n")
    for options in (
        ("--reference", "tx-91", "7"),
        ("--id", predictions[1]["prediction_id"], "--label", "7"),
        ("--file", table),
    ):
        receipt = json.loads(candor("feedback", *options, "--json", service=service).stdout)
        assert (receipt["stored"], receipt["pending"]) == (1, 0), options


def test_a_known_change_of_the_shares_from_a_terminal(candor: Any, shared: Any) -> None:
    told = candor("prior-shift", "--target", "7=0.5", service=shared)
    assert (told.returncode, told.stderr) == (0, "")
    [seven] = [line.split() for line in told.stdout.splitlines() if line.split()[:1] == ["7"]]
    assert seven[2:] == ["0.5000", "—"]
    document = json.loads(candor("prior-shift", "--target", "7=0.5", "--json", service=shared).stdout)
    assert (document["state"], document["priors"]["7"]["target"]) == ("dry_run", 0.5)


@pytest.mark.parametrize("since", ["2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01T02:00:00+02:00"])
def test_a_time_with_or_without_its_zone(candor: Any, shared: Any, since: str) -> None:
    for command in ("recalibrate", "prior-shift"):
        told = candor(command, "--since", since, "--mode", "dry_run", service=shared)
        assert "Traceback" not in told.stderr
        assert told.returncode == 0 or "Too few" in told.stderr, told.stderr  # the time was read


def test_ids_are_whole_even_where_the_output_is_narrow(candor: Any, service: Any, seven: Path, spawn: Any) -> None:
    spawn.environment["COLUMNS"] = "80"
    seven = seven.rename(seven.with_name("a-long-name-that-somebody-gave-to-the-scan-of-a-seven.png"))
    done = candor("predict", seven, service=service, apart=True)
    answer = json.loads(candor("predict", seven, "--json", service=service).stdout)
    identifier = answer["predictions"][0]["prediction_id"]
    assert any(len(word) == len(identifier) and word.startswith(identifier[:3]) for word in done.stdout.split())


def test_what_feedback_lacks_is_told(candor: Any) -> None:
    done = candor("feedback", "--reference", "tx-91", "--id", "a", "--label", "7", apart=True)
    told = " ".join(done.stderr.replace("│", " ").split())
    assert done.returncode == 2
    assert "Name one prediction (PREDICTION_ID, --id or --reference) and one true label (LABEL or --label)" in told
    assert "Found: 2 names of predictions, 1 labels, no file." in told


class TestExitCodes:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("predict", "no-such-file.png"),
            ("feedback",),
            ("feedback", "only-an-id"),
            ("feedback", "--reference", "tx-91"),
            ("feedback", "--label", "7"),
            ("feedback", "--id", "a", "--reference", "tx-91", "--label", "7"),
            ("feedback", "an-id", "7", "--label", "7"),
            ("recalibrate", "--mode", "yolo"),
            ("recalibrate", "--limit", "flipped"),
            ("recalibrate", "--labelled-set", "ls1", "--rescore"),
            ("recalibrate", "--labelled-set", "ls1", "--unknown-propensity", "fit"),
            ("recalibrate", "--limit", "flipped=0.1", "--limit", "flipped=0.2"),
            ("recalibrate", "--implicit-negative", "[]"),
            ("recalibrate", "--implicit-negative", "{"),
            ("prior-shift", "--target", "7=many"),
            ("prior-shift", "--target", "7=nan"),
            ("challenger", "add", "next", "--revision", "r2", "--share", "nan"),
            ("prior-shift", "--target", "7=0.5", "--since", "2026-01-01"),
            ("activate",),
            ("nonsense",),
            ("serve", "--port", "0"),
            ("keys", "create", "--name", "a", "--scope", "magic"),
            ("keys", "create", "--name", "a", "--scope", "read", "--expires-in", "0d"),
            ("keys", "create", "--name", "a", "--scope", "read", "--expires-in", "999999w"),
            ("keys", "create", "--name", "a", "--scope", "metrics", "--model", "digits"),
        ],
    )
    def test_2_wrong_usage(self, arguments: tuple[str, ...]) -> None:
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 2, done.output + done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("labels.ndjson", "{"),
            ("labels.ndjson", "5\n"),
            ("labels.ndjson", "[]\n"),
            ("labels.csv", "prediction_id,label\na,b,c,d\n"),
            ("labels.csv", ""),
            ("labels.ndjson", ""),
            ("labels.csv", b"\xff\xfe"),
            ("labels.csv", "prediction_id,lable\na,b\n"),
            ("labels.txt", "prediction_id,label\na,b\n"),
        ],
    )
    def test_2_files_that_are_none(self, shared: Any, tmp_path: Path, name: str, text: str | bytes) -> None:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        done = CliRunner().invoke(app, ["feedback", "--file", str(path), "--url", shared.url])
        assert done.exit_code == 2, done.output + done.stderr
        assert "Traceback" not in done.stderr
        assert name in done.stderr

    @pytest.mark.parametrize(
        ("name", "head", "row", "wrong", "place"),
        [
            ("labels.csv", "reference,label\n", "a-{},7\n", "b,ten\n", "line 5004, column label"),
            (
                "labels.ndjson",
                "\n",
                '{{"reference": "a-{}", "label": "7"}}\n',
                '{"reference": "", "label": "7"}',
                "line 5004, field reference",
            ),
        ],
    )
    def test_4_a_label_that_is_refused_is_named_by_its_line(
        self, candor: Any, shared: Any, tmp_path: Path, name: str, head: str, row: str, wrong: str, place: str
    ) -> None:
        path = tmp_path / name
        path.write_text(head + "".join(row.format(number) for number in range(5_002)) + wrong)
        done = candor("feedback", "--file", path, service=shared)
        assert done.returncode == 4, done.stdout + done.stderr
        assert f"{name}, {place}" in done.stderr

    def test_2_a_file_of_an_unknown_kind(self, candor: Any, service: Any, tmp_path: Path) -> None:
        path = tmp_path / "image.gif"
        path.write_bytes(b"GIF89a")
        done = candor("predict", path, service=service)
        assert done.returncode == 2
        assert "image.gif" in done.stderr

    @pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "http://[::1", "ftp://127.0.0.1"])
    def test_3_nobody_answers(self, candor: Any, url: str) -> None:
        done = candor("revisions", url=url, apart=url == "http://127.0.0.1:1")
        assert done.returncode in (2, 3) if url != "http://127.0.0.1:1" else done.returncode == 3, done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr

    def test_4_the_service_refuses(self, candor: Any, shared: Any, tmp_path: Path) -> None:
        path = tmp_path / "wrong.npy"
        np.save(path, np.zeros((7, 7)))
        for arguments in (
            ("predict", path),
            ("feedback", "banana", "1"),
            ("activate", "r99"),
            ("activate", "r1", "--epoch", "77"),
            ("rollback",),
            ("revisions", "r99"),
            ("revisions", "--model", "nobody"),
        ):
            done = candor(*arguments, service=shared)
            assert done.returncode == 4, (arguments, done.stdout, done.stderr)
            assert "Traceback" not in done.stderr
            assert done.stdout == ""
            assert done.stderr

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            (("--limit", "flipped=2"), "/limits/flipped"),
            (("--implicit-negative", '{"label": "7", "source": "x"}'), "/source/feedback/implicit_negative"),
        ],
    )
    def test_4_what_a_refit_may_not_be_asked(
        self, candor: Any, shared: Any, arguments: tuple[str, ...], named: str
    ) -> None:
        done = candor("recalibrate", *arguments, service=shared)
        assert (done.returncode, done.stdout) == (4, "")
        assert named in done.stderr.replace("\n", "")

    def test_5_the_service_fails(self, candor: Any, start: Any, seven: Path) -> None:
        done = candor("predict", seven, service=start(deadline_s=1e-9), apart=True)
        assert done.returncode == 5
        assert "Deadline exceeded" in done.stderr

    def test_0_help_names_every_verb(self, candor: Any) -> None:
        done = candor("--help", apart=True)
        assert done.returncode == 0
        for verb in ("serve", "predict", "feedback", "recalibrate", "revisions", "activate", "rollback", "keys"):
            assert verb in done.stdout


def test_keys_beside_a_running_service(candor: Any, spawn: Any, tmp_path: Path) -> None:
    service = spawn()
    secret_file = tmp_path / "key"
    made = candor("keys", "create", "--name", "boss", "--scope", "admin", "--file", secret_file)
    assert made.returncode == 0, made.stderr
    assert stat.S_IMODE(secret_file.stat().st_mode) == 0o600
    admin = secret_file.read_text().strip()
    assert admin not in made.stdout + made.stderr
    again = candor("keys", "create", "--name", "boss", "--scope", "admin", "--file", secret_file)
    assert again.returncode == 2
    assert secret_file.read_text().strip() == admin
    nothing = candor("keys", "create", "--name", "x", "--scope", "admin", "--if-none")
    assert (nothing.returncode, nothing.stdout) == (0, "")

    printed = candor(
        "keys", "create", "--name", "reader", "--scope", "predict", "--scope", "feedback", "--rows-rate", "50"
    )
    reader = printed.stdout.strip()
    assert reader.startswith("cnd_")
    until(lambda: service.http.get("/v1/models").status_code == 401)
    refused = candor("revisions", service=service)
    assert refused.returncode == 4
    assert "candor keys create" in refused.stderr
    assert candor("revisions", service=service, api_key=reader).returncode == 0

    listed = candor("keys", "list").stdout
    prefix = reader.split("_")[1]
    assert prefix in listed
    assert "reader" in listed
    assert reader not in listed
    document = next(key for key in json.loads(candor("keys", "list", "--json").stdout) if key["prefix"] == prefix)
    assert (document["scopes"], document["state"], document["expires_at"]) == (["feedback", "predict"], "valid", None)
    assert (document["rows_per_s"], document["requests_per_s"]) == (50, None)
    replaced = json.loads(candor("keys", "rotate", prefix, "--grace", "2h", "--json").stdout)
    assert candor("revisions", service=service, api_key=replaced["key"]).returncode == 0
    assert candor("revisions", service=service, api_key=reader).returncode == 0
    assert candor("keys", "rotate", prefix, "--grace", "soon").returncode == 2
    assert candor("keys", "create", "--name", "boss", "--scope", "predict").returncode == 2
    short = candor("keys", "create", "--name", "short", "--scope", "predict", "--expires-in", "0s").stdout.strip()
    assert candor("revisions", service=service, api_key=short).returncode == 4

    assert candor("keys", "revoke", prefix).returncode == 0
    assert candor("keys", "revoke", prefix).returncode == 1
    until(lambda: service.http.get("/v1/models", headers={"authorization": f"Bearer {reader}"}).status_code == 401)
    assert service.http.get("/v1/models", headers={"authorization": f"Bearer {admin}"}).status_code == 200
    assert "revoked" in candor("keys", "list").stdout
    assert candor("keys", "end-sessions").stdout.strip() == "ended 0"


def test_a_key_from_a_file_is_added_once(spawn: Any, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"cnd_0123456789ab_{'made-elsewhere-' * 3}\n")
    command = ["keys", "add", file, "--name", "first", "--scope", "admin", "--rate", "5", "--rows-rate", "50"]
    assert spawn.run(*command).stdout == "added 0123456789ab\n"
    (added,) = json.loads(spawn.run("keys", "list", "--json").stdout)
    assert (added["requests_per_s"], added["rows_per_s"]) == (5, 50)
    again = spawn.run(*command)
    assert (again.returncode, again.stdout, "exists already" in again.stderr) == (0, "", True)
    other = spawn.run(*command, "--scope", "metrics", "--model", "digits")
    assert (other.returncode, "found: scopes: admin; models: any" in other.stderr) == (2, True)
    assert "expected: scopes: admin, metrics; models: digits" in other.stderr
    assert spawn.run("keys", "revoke", "0123456789ab").returncode == 0
    revoked = spawn.run(*command)
    assert (revoked.returncode, "is revoked" in revoked.stderr) == (1, True)
    file.write_text("secret")
    refused = spawn.run(*command)
    assert (refused.returncode, "not the text of an API key" in refused.stderr) == (2, True)
    assert f"where: {file}" in refused.stderr.replace("\n", "")


def test_a_first_key_that_locks_everybody_out_is_told_of(candor: Any) -> None:
    made = candor("keys", "create", "--name", "reader", "--scope", "predict")
    assert made.returncode == 0
    assert made.stdout.startswith("cnd_")
    assert "No key has the scope admin" in made.stderr
    again = candor("keys", "create", "--name", "boss", "--scope", "admin")
    assert again.stderr == ""


def test_a_piped_table_is_not_squeezed(spawn: Any) -> None:
    name = "n" * 100
    environment = {key: value for key, value in spawn.environment.items() if key != "COLUMNS"}
    run = {"env": environment, "capture_output": True, "text": True, "check": True}
    subprocess.run([BIN / "candor", "keys", "create", "--name", name, "--scope", "admin"], **run)
    assert name in subprocess.run([BIN / "candor", "keys", "list"], **run).stdout


def test_the_version(spawn: Any) -> None:
    assert spawn.run("--version").stdout == f"candor {VERSION}\n"


def test_keys_where_there_is_no_state_ask_a_person(tmp_path: Path) -> None:
    person, terminal = pty.openpty()
    with os.fdopen(person, "wb"), os.fdopen(terminal, "rb") as stdin:
        os.write(person, b"n\n")
        made = subprocess.run(
            [BIN / "candor", "keys", "create", "--name", "ops", "--scope", "admin"],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (made.returncode, "Create a new one?" in made.stderr) == (1, True), made.stderr
    assert list(tmp_path.rglob("*.db")) == []
