"""The dossier says what the state knows, as text that cannot break out of its page, and the audit log seals it."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pypdf import PdfReader
from sqlalchemy import insert

from service.monitoring.traffic_window import TrafficWindow
from service.state import audit
from service.state.database import Database
from service.state.dossier import _certificates
from service.state.tables import drift, monitors
from tests.service.conftest import Digits, InThread
from tests.service.decisions.test_voided import DIGEST, keys, policy

NASTY = "<script>alert(1)</script> | [x](javascript:y)"
OBEYED = "\x1b]0;obeyed\x07"  # by a terminal: its title
SECTIONS = [
    "Model", "Purpose", "Data and training", "Calibration", "Certificates and looks spent",
    "Gates passed and refused", "Approvals", "Overrides", "Alarms", "Input drift", "What it is evidence for",
]  # fmt: skip


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not {name for name, _ in attrs if name.startswith("on") or name in ("href", "src")}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def told(service: InThread) -> InThread:
    """A service with a rejected policy, an activation with a reason, and labels."""
    proposed = service.propose_policy()
    rejected = service.http.post(f"/v1/models/digits/revisions/{proposed}/reject", json={"reason": NASTY + OBEYED})
    assert rejected.status_code == 200, rejected.text
    again = service.http.post(
        f"/v1/models/digits/revisions/{proposed}/activate",
        json={"reason": "it is right after all"},
        headers={"if-match": f'"{service.revisions()["epoch"]}"'},
    )
    assert again.status_code == 200, again.text
    labels = {"items": [{"reference": f"tx-{number}", "label": "7", "source": "reviewer"} for number in range(3)]}
    assert service.http.post("/feedback", json=labels).status_code == 200
    return service


def test_a_dossier_is_sealed_by_the_audit_log(told: InThread, spawn: Any, digits: Digits, tmp_path: Path) -> None:
    database = told.runtime.database
    url = ("--database-url", told.runtime.settings.database_url)
    done = spawn.run("dossier", "digits", "--json", *url)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    sections = {title: (notes, grids) for title, notes, grids in document["sections"]}
    assert list(sections) == SECTIONS
    digest = hashlib.sha256(json.dumps(document["sections"], separators=(",", ":")).encode()).hexdigest()
    entry = audit.read(database, "digits")[0]
    assert (entry.action, entry.detail) == ("dossier", {"sha256": digest})
    assert document["seal"]["SHA-256 of the sections above"] == digest
    assert document["seal"]["its last entry"] == str(entry.id)
    verified = spawn.run("audit", "verify", "--json", *url)
    assert json.loads(verified.stdout)["head"] == document["seal"]["last link"]

    facts = dict(sections["Model"][1][0][1])
    active = told.runtime.models.get("digits").served
    assert facts["active revision"] == active.revision.id
    assert facts["bundle"].endswith(active.bundle.id)
    data = dict(sections["Data and training"][1][0][1])
    assert data["source"] == "trained"
    assert data["training.seed"] == str(active.bundle.manifest.training.seed)  # type: ignore[union-attr]
    assert [row[:3] for row in sections["Data and training"][1][1][1]] == [["reviewer", "local", "3"]]
    certified = [(row[0], row[1], row[6]) for row in sections["Certificates and looks spent"][1][0][1]]
    expected = [
        (name, band.action, str(band.certificate.looks))
        for name, solved in sorted(active.policies.items())
        for band in solved.bands
        if band.certificate is not None
    ]
    assert certified == expected != []
    made = {row[0]: row[-1] for row in sections["Gates passed and refused"][1][0][1]}
    assert [end for end in made.values() if NASTY in end]
    moves = sections["Approvals"][1][0][1]
    assert moves[-1][-1] == "it is right after all"
    assert {row[3]: row[5] for row in sections["Overrides"][1][0][1]}["activate"] == "it is right after all"

    page = tmp_path / "dossier.html"
    assert spawn.run("dossier", "digits", "--html", "--out", page, *url).returncode == 0
    tags = Tags()
    tags.feed(page.read_text())
    assert NASTY in tags.text
    assert "script" not in tags.tags
    paper = tmp_path / "dossier.pdf"
    done = spawn.run("dossier", "digits", "--pdf", "--out", paper, *url)
    assert done.returncode == 0, done.stderr
    printed = PdfReader(paper)
    read = "".join("".join(sheet.extract_text() for sheet in printed.pages).replace("\u200b", "").split())
    assert printed.metadata is not None
    assert printed.metadata.title == "Dossier of digits"
    assert "".join(NASTY.split()) in read, "names are no markup"
    assert "\ufffd]0;obeyed\ufffd" in read
    newest = audit.read(database, "digits")[0]
    assert newest.detail["sha256"] in read
    assert all("".join(section.split()) in read for section in [*SECTIONS, "Seal"])
    shown = spawn.run("dossier", "digits", *url).stdout
    assert [line[3:] for line in shown.splitlines() if line.startswith("## ")] == [*SECTIONS, "Seal"]
    assert "\\<script\\>" in shown
    assert NASTY not in shown
    assert "\ufffd\\]0;obeyed\ufffd" in shown
    assert "\x1b" not in shown


@pytest.mark.usefixtures("refits_here")
def test_refused_gates_alarms_drift_and_guidance_are_told(service: InThread, digits: Digits, spawn: Any) -> None:
    service.teach(digits.images, digits.labels)
    answer = service.recalibrate(mode="propose", calibrator="temperature").json()
    assert answer["gate"]["passed"] is False
    fields = dict.fromkeys(("place", "since", "through", "cohorts", "fired_at"), 1)
    window = TrafficWindow.empty(1, [2, 2]).to_dict()
    tested = {"window": window, "evidence": [12.5, 0.25], "alarms": ["the amount"], "until": 2}
    drifted = {"number": 2, "window": window, "tested": tested}
    with service.runtime.database.begin() as connection:
        of = {"model": "digits", "revision": "r1", "subject": "x"}
        monitor = {"kind": "calibration", "name": "the top label", "evidence": 9.25, "document": {}}
        connection.execute(insert(monitors).values(**of, **fields, **monitor))
        connection.execute(insert(drift).values(**of, place=1, level=0.005, change=1, document=drifted))
        audit.append(
            connection, model="digits", by="monitor", action="alarm", subject="r1", detail={"columns": ["the amount"]}
        )
    done = spawn.run("dossier", "digits", "--json", "--database-url", service.runtime.settings.database_url)
    assert done.returncode == 0, done.stderr
    grids = {title: [rows for _, rows in grids] for title, _, grids in json.loads(done.stdout)["sections"]}
    ((*_, verdict, loss, why),) = grids["Gates passed and refused"][1]
    assert (verdict, why) == ("refused", answer["summary"])
    assert f"upper {answer['gate']['upper']}" in loss
    running, told, *_ = grids["Alarms"]
    fired = [row for row in running if row[5] != "—"]
    assert [(row[0], row[1], row[4]) for row in fired] == [("calibration", "the top label", "9.25")]
    assert [row[2:] for row in told] == [["alarm", "r1", '{"columns": ["the amount"]}']]
    facts = dict(grids["Input drift"][0])
    assert (facts["level"], facts["tested.alarms"]) == ("0.005", '["the amount"]')
    assert facts["tested.evidence"] == "[12.5, 0.25]"
    texts = [" ".join(row) for row in grids["What it is evidence for"][0]]
    for wanted in ("SR 26-2", "replace SR 11-7", "detect financial fraud are excepted", "no exception for fraud"):
        assert any(wanted in text for text in texts), wanted


def test_a_dossier_as_pdf_lacks_no_letter(told: InThread, spawn: Any, tmp_path: Path) -> None:
    url = ("--database-url", told.runtime.settings.database_url)
    assert spawn.run("dossier", "digits", "--pdf", *url).returncode == 2, "it is no text"
    labels = {"items": [{"reference": "tx-9", "label": "7", "source": "\U0010fffd"}]}  # for private use: no font has it
    assert told.http.post("/feedback", json=labels).status_code == 200
    refused = spawn.run("dossier", "digits", "--pdf", "--out", tmp_path / "out", *url)
    assert refused.returncode == 2
    assert "install a font" in refused.stderr
    assert not (tmp_path / "out").exists()


def test_no_dossier_of_what_is_not_there_or_was_tampered_with(told: InThread, spawn: Any) -> None:
    url = ("--database-url", told.runtime.settings.database_url)
    assert spawn.run("dossier", "birds", *url).returncode == 2
    with told.runtime.database.engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER audit_refuses_update")
        connection.exec_driver_sql("UPDATE audit SET by = 'nobody' WHERE action = 'reject'")
    refused = spawn.run("dossier", "digits", *url)
    assert refused.returncode == 2
    assert "The audit log is not whole" in refused.stderr
    assert "was changed after it was written" in refused.stderr
    assert "dossier" not in {entry.action for entry in audit.read(told.runtime.database, "digits")}


def test_a_certificate_that_an_alarm_voided_is_not_valid(tmp_path: Path) -> None:
    solved = policy()
    active: Any = SimpleNamespace(policies={"p": solved.to_dict()}, model_digest=DIGEST)
    values = {"model": "pets", "kind": "certificate", "name": "x", "subject": "x", "revision": "r1", "evidence": 9.0}
    values |= dict.fromkeys(("place", "since", "through", "cohorts", "fired_at"), 1)
    with closing(Database.open(f"sqlite:///{tmp_path}/state.db")) as database:
        for state in ("valid", "not valid: alarm"):
            with database.begin() as connection:
                assert [row[-1] for row in _certificates(connection, "pets", active).grids[0].rows] == [state]
                connection.execute(insert(monitors).values(**values, certificate=keys(solved)[0], document={}))
                values["subject"] = "y"
