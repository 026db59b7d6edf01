"""Two keys, rejected proposals, warnings, and the log of it all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import bundle as bundles
import calibrators
from bundle import LabelledLogits, Reference, signatures
from candor import Client
from candor.contract.audit import AuditPage
from candor.contract.revisions import Pointer, RevisionPage
from service.errors import BundleRefusedError
from service.state.keys import KeyStore

from ..conftest import contents

pytestmark = pytest.mark.usefixtures("proofs_here", "refits_here")


@pytest.fixture(scope="module")
def guarded(launch: Callable[..., Any], digits: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service that asks for two pairs of eyes, and two keys."""
    service = launch(tmp_path_factory.mktemp("guarded"), four_eyes=True)
    try:
        service.teach(digits.dimmed, digits.labels)
        store = KeyStore(service.runtime.database)
        service.keys = [store.create(name, ["calibrate", "approve"])[1] for name in ("ann", "bob")]
        service.application._access.refresh()
        use(service, 0)
        yield service
    finally:
        service.close()


def use(service: Any, key: int) -> None:
    service.http.headers["authorization"] = f"Bearer {service.keys[key]}"


def test_another_key_must_activate_what_this_one_has_proposed(guarded: Any) -> None:
    done = guarded.recalibrate(mode="activate").json()
    assert done["gate"]["unattended"]
    assert (done["state"], done["summary"].endswith("Another key must activate it.")) == ("proposed", True)
    epoch = guarded.revisions()["epoch"]
    own = guarded.move(f"revisions/{done['revision']}/activate", epoch, reason="mine")
    assert own.status_code == 403
    assert "this key proposed it" in own.json()["detail"]
    use(guarded, 1)
    accepted = {"accept_change": True, "reason": "the lamp is dim"}
    other = guarded.move(f"revisions/{done['revision']}/activate", epoch, **accepted)
    assert other.status_code == 200, other.text
    Pointer.model_validate(other.json(), extra="forbid")
    guarded.rollback()
    use(guarded, 0)
    again = guarded.move(f"revisions/{done['revision']}/activate", guarded.revisions()["epoch"], **accepted)
    assert again.status_code == 200  # it was in service: somebody else has approved it
    guarded.rollback()


def test_a_policy_is_a_proposal_too(guarded: Any) -> None:
    use(guarded, 0)
    revision = guarded.propose_policy("other", 0.1)
    epoch = guarded.revisions()["epoch"]
    assert guarded.move(f"revisions/{revision}/activate", epoch).status_code == 403
    use(guarded, 1)
    assert guarded.move(f"revisions/{revision}/activate", epoch).status_code == 200
    guarded.rollback()


def add_cold(root: Path, digits: Any) -> Path:
    """Add a bundle of the same model file: overconfident, with made-up rows and verdicts."""
    numbers = np.arange(200) % 10
    rows = LabelledLogits(np.eye(10, dtype=np.float32)[numbers] * 20, numbers)
    cold = calibrators.from_dict(
        {"method": "temperature", "version": 1, "classes": 10, "temperature": 0.05, "at_bound": True}
    )
    report = {"gate": {"passed": True}, "summary": "Better: the gate passed.", "read_at": "2999-01-01T00:00:00Z"}
    changes = {"calibrator": cold, "reference": Reference(rows, rows, rows), "report": report}
    return bundles.write(root, contents(digits.bundle, **changes))


def test_a_bundle_of_the_same_model_file_needs_a_reason_and_says_nothing_about_itself(
    start: Callable[..., Any], digits: Any, root: Path
) -> None:
    service = start(bundles=root)
    add_cold(root, digits)
    assert service.http.post("/v1/models/digits/load").status_code == 200
    found = service.http.get("/v1/models/digits/revisions/r2").json()
    assert found["model_digest"] == service.http.get("/v1/models/digits/revisions/r1").json()["model_digest"]
    assert (found["gate"], found["summary"], found["report"]) == ("not_run", None, {})
    refused = service.move("revisions/r2/activate", service.revisions()["epoch"])
    assert (refused.status_code, refused.json()["where"]) == (409, "/reason")
    assert "candor activate --reason" in refused.json()["remedy"]
    assert "another bundle of the same model file" in refused.json()["detail"]
    assert service.revisions()["active"] == "r1"


def test_two_people_approve_a_bundle_that_nobody_signed(start: Callable[..., Any], digits: Any, root: Path) -> None:
    service = start(bundles=root, four_eyes=True)
    add_cold(root, digits)
    assert service.http.post("/v1/models/digits/load").status_code == 200
    store = KeyStore(service.runtime.database)
    ann, *others = [store.create(name, ["calibrate", "approve"]) for name in ("ann", "Ann", "bob")]
    service.keys = [ann[1], store.rotate(ann[0].prefix, grace_us=10**12)[1], *(text for _, text in others)]
    service.application._access.refresh()
    use(service, 0)
    epoch = service.revisions()["epoch"]
    wanted = {"reason": "it looks better", "accept_change": True}
    for key in (0, 0, 1, 2):  # the same person, with a rotated key too, and with a name spelled otherwise
        use(service, key)
        first = service.move("revisions/r2/activate", epoch, **wanted)
        assert (first.status_code, first.json()["found"]) == (403, "one approval")
    entry = service.http.get("/v1/models/digits/audit").json()["items"][0]
    assert [entry[key] for key in ("by", "action", "subject", "detail")] == [
        *("ann", "approve", "r2"),
        {"reason": "it looks better"},
    ]
    use(service, 3)
    assert service.move("revisions/r2/activate", epoch, **wanted).status_code == 200


def test_a_signature_is_one_of_two_people(start: Callable[..., Any], digits: Any, root: Path) -> None:
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    with pytest.raises(BundleRefusedError, match="not signed"):
        start(bundles=root, trusted_keys=public)
    signatures.sign(bundles.verify(root / "digits" / "1"), key)
    service = start(bundles=root, four_eyes=True, trusted_keys=public)
    second = add_cold(root, digits)
    assert "not signed" in service.http.post("/v1/models/digits/load").text
    assert [item["id"] for item in service.revisions()["items"]] == ["r1"]
    signer = signatures.sign(bundles.verify(second), key)
    assert service.http.post("/v1/models/digits/load").status_code == 200
    assert service.http.get("/v1/models/digits/revisions/r2").json()["report"] == {"signed_by": signer}
    epoch = service.revisions()["epoch"]
    assert service.move("revisions/r2/activate", epoch).status_code == 409
    wanted = {"reason": "signed by ann", "accept_change": True}
    assert service.move("revisions/r2/activate", epoch, **wanted).status_code == 200


def test_a_rejected_proposal_takes_a_reason(shared: Any) -> None:
    revision = shared.propose_policy("unwanted")
    path = f"/v1/models/digits/revisions/{revision}/reject"
    assert shared.http.post(path).status_code == 422
    assert shared.http.post(path, json={"reason": ""}).status_code == 422
    with Client(shared.url, model="digits") as client:
        answer = client.reject(revision, reason="nobody asked for it")
        assert (answer.id, answer.state) == (revision, "rejected")
        assert client.revision(revision).state == "rejected"
        entry = client.audit(limit=1).items[0]
        assert (entry.action, entry.subject, entry.detail) == ("reject", revision, {"reason": "nobody asked for it"})
    assert shared.http.post(path, json={"reason": "again"}).status_code == 409
    refused = shared.move(f"revisions/{revision}/activate", shared.revisions()["epoch"])
    assert (refused.status_code, refused.json()["detail"]) == (409, f"Revision {revision} was rejected.")
    active = shared.revisions()["active"]
    in_service = shared.http.post(f"/v1/models/digits/revisions/{active}/reject", json={"reason": "no"})
    assert (in_service.status_code, in_service.json()["found"]) == (409, "it was active")
    assert shared.http.post("/v1/models/digits/revisions/r999/reject", json={"reason": "no"}).status_code == 404
    assert {item["id"]: item["state"] for item in shared.revisions()["items"]}[revision] == "rejected"
    RevisionPage.model_validate(shared.revisions(), extra="forbid")


def test_a_rejected_proposal_can_be_activated_with_a_reason(start: Callable[..., Any]) -> None:
    service = start()
    revision = service.propose_policy("second")
    service.http.post(f"/v1/models/digits/revisions/{revision}/reject", json={"reason": "not yet"})
    service.activate(revision, reason="now")
    assert service.revisions()["active"] == revision
    service.rollback()
    assert {item["id"]: item["state"] for item in service.revisions()["items"]}[revision] == "superseded"


def test_an_activation_names_the_certificates_that_it_loses(start: Callable[..., Any]) -> None:
    service = start()

    def promise(precision: float) -> str:
        document = {"bands": [{"action": "accept", "when": {"min_precision": precision}}, {"action": "review"}]}
        answer = service.http.put("/v1/models/digits/policies/easy", json=document).json()
        assert answer["policy"]["bands"][0]["certificate"]["valid"] == (precision < 0.9)
        revision: str = answer["id"]
        return revision

    easy = promise(0.6)
    assert service.activate(easy)["warnings"] == []
    told = f"Policy 'easy' loses the certificate of 'accept' that {easy} has."
    harder = promise(0.99999)
    refused = service.move(f"revisions/{harder}/activate", service.revisions()["epoch"], accept_change=True)
    assert (refused.status_code, refused.json()["where"], refused.json()["detail"]) == (409, "/reason", told)
    assert service.activate(harder)["warnings"] == [told]
    assert service.activate(service.propose_policy("more"))["warnings"] == []


def test_the_log_is_paged(shared: Any) -> None:
    shared.propose_policy("logged")
    first = shared.http.get("/v1/models/digits/audit", params={"limit": 1}).json()
    second = shared.http.get("/v1/models/digits/audit", params={"limit": 1, "before": first["next"]}).json()
    assert first["items"][0]["id"] > second["items"][0]["id"]
    AuditPage.model_validate(first, extra="forbid")
    everything = shared.http.get("/v1/models/digits/audit", params={"limit": 500}).json()
    ids = [entry["id"] for entry in everything["items"]]
    assert ids == sorted(ids, reverse=True)
    assert everything["next"] in (None, ids[-1])
