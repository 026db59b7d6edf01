"""The main job over HTTP: predict, feedback, recalibrate, activate, roll back."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bundle.images import decode_image, encode_png
from service.inference.session import Session
from service.state import audit
from tests.array_files import npy


def jpeg(image: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image[..., 0]).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def probabilities(response: Any) -> np.ndarray:
    assert response.status_code == 200, response.text
    return np.array([list(row["probabilities"].values()) for row in response.json()["predictions"]], dtype=np.float32)


class TestPredict:
    def test_every_form_of_an_image_gets_the_calibrated_probabilities_of_the_bundle(
        self, shared: Any, digits: Any, session: Session
    ) -> None:
        image = digits.images[3]
        expected = digits.bundle.calibrator.predict_proba(session.run(image[None]))
        body = {"inputs": image[None].tolist()}
        answers = [
            shared.http.post("/predict", json=body),
            shared.http.post("/v1/models/digits/predict", json=body),
            shared.http.post("/predict", content=npy(image[None]), headers={"content-type": "application/x-npy"}),
            shared.http.post("/predict", content=encode_png(image), headers={"content-type": "image/png"}),
        ]
        for answer in answers:
            np.testing.assert_allclose(probabilities(answer), expected, atol=1e-6)
        spec = digits.bundle.manifest.input
        encoded = jpeg(image)
        lossy = digits.bundle.calibrator.predict_proba(session.run(decode_image(encoded, spec, max_pixels=1000)[None]))
        answer = shared.http.post("/predict", content=encoded, headers={"content-type": "image/jpeg"})
        np.testing.assert_allclose(probabilities(answer), lossy, atol=1e-6)

    def test_a_batch_larger_than_the_model_takes_at_once_is_answered_in_order(
        self, shared: Any, digits: Any, session: Session
    ) -> None:
        images = digits.images[:100]
        expected = digits.bundle.calibrator.predict_proba(session.run(images))
        got = probabilities(
            shared.http.post("/predict", content=npy(images), headers={"content-type": "application/x-npy"})
        )
        np.testing.assert_allclose(got, expected, atol=1e-5)

    @pytest.mark.parametrize(
        "form",
        [
            lambda image: image,
            lambda image: image[None],
            lambda image: image[..., 0],
            lambda image: image[None, ..., 0],
            lambda image: image[None].astype(np.int64),
            lambda image: image[None].astype(">u2"),
            lambda image: np.asfortranarray(image[None].astype(np.uint16)),
        ],
    )
    def test_shape_and_width_of_an_array_may_vary_where_nothing_is_lost(
        self, shared: Any, digits: Any, form: Any
    ) -> None:
        image = digits.images[5]
        headers = {"content-type": "application/octet-stream"}
        whole = probabilities(shared.http.post("/predict", content=npy(image[None]), headers=headers))
        np.testing.assert_array_equal(
            probabilities(shared.http.post("/predict", content=npy(form(image)), headers=headers)), whole
        )

    def test_an_answer_names_the_row_the_revision_and_the_certified_policy(self, shared: Any, digits: Any) -> None:
        body = {
            "inputs": digits.images[:3].tolist(),
            "references": ["a", None, "c"],
            "groups": ["g", "g", None],
        }
        response = shared.http.post("/predict?policy=auto-read&top=2", json=body)
        document = response.json()
        assert response.headers["x-candor-revision"] == document["revision"] == "r1"
        assert document["model"] == "digits"
        assert document["policy"]["id"] == "auto-read@1"
        certificate = document["policy"]["certified"]["accept"]
        assert (certificate["metric"], certificate["at_least"], certificate["basis"]) == (
            "precision",
            0.95,
            "reference",
        )
        assert [row["reference"] for row in document["predictions"]] == ["a", None, "c"]
        assert len({row["prediction_id"] for row in document["predictions"]}) == 3
        for row in document["predictions"]:
            shown = list(row["probabilities"].items())
            assert len(shown) == 2
            assert shown[0] == (row["label"], row["confidence"])
            assert shown[0][1] >= shown[1][1]
            assert row["decision"]["action"] in {"accept", "review", "block"}
            assert row["decision"]["label_sought"] is True  # the policy explores everything

    def test_what_cannot_be_certified_is_reviewed_and_the_answer_says_why(self, shared: Any, digits: Any) -> None:
        body = {"inputs": digits.images[:20].tolist()}
        document = shared.http.post("/predict?policy=flag-zero", json=body).json()
        certificate = document["policy"]["certified"]["block"]
        assert certificate["valid"] is False
        assert certificate["reason"]
        assert certificate["needed"] > 0
        assert {row["decision"]["action"] for row in document["predictions"]} == {"review"}

    def test_among_several_policies_none_is_the_default(self, shared: Any, digits: Any) -> None:
        document = shared.http.post("/predict", json={"inputs": digits.images[:1].tolist()}).json()
        assert document["policy"] is None
        assert document["predictions"][0]["decision"] is None


class TestFeedback:
    def test_labels_are_stored_once(self, service: Any, digits: Any) -> None:
        first = service.teach(digits.images[:5], digits.labels[:5])
        assert (first["stored"], first["duplicates"]) == (5, 0)

    def test_the_same_key_and_body_replays_and_another_body_conflicts(self, service: Any, digits: Any) -> None:
        ids = [row["prediction_id"] for row in service.predict(digits.images[:2])]
        assert service.runtime.log.flush()
        body = {"items": [{"prediction_id": ids[0], "label": "1"}]}
        headers = {"idempotency-key": "k-1"}
        first = service.http.post("/feedback", json=body, headers=headers)
        again = service.http.post("/feedback", json=body, headers=headers)
        assert (first.status_code, first.json()["stored"]) == (200, 1)
        assert again.json() == first.json()
        other = service.http.post(
            "/feedback", json={"items": [{"prediction_id": ids[1], "label": "1"}]}, headers=headers
        )
        assert other.status_code == 409
        assert other.json()["type"] == "/errors/idempotency-conflict"
        without = service.http.post("/feedback", json=body)
        assert without.json()["items"] == [{"status": "duplicate"}]

    def test_a_label_may_come_by_reference_before_its_prediction_and_may_conflict(
        self, service: Any, digits: Any
    ) -> None:
        early = service.http.post("/feedback", json={"items": [{"reference": "scan-1", "label": "4"}]})
        assert early.json()["items"] == [{"status": "pending"}]
        body = {"inputs": digits.images[:1].tolist(), "references": ["scan-1"]}
        assert service.http.post("/predict", json=body).status_code == 200
        assert service.runtime.log.flush()
        other = service.http.post("/feedback", json={"items": [{"reference": "scan-1", "label": "5"}]})
        assert other.json()["items"] == [{"status": "conflict"}]
        assert other.json()["conflicts"] == 1


class TestRecalibration:
    @pytest.mark.usefixtures("refits_here")
    def test_drift_labels_refit_activate_roll_back(self, on_both: Any, digits: Any) -> None:
        service = on_both
        shown = digits.dimmed[:1000]
        assert service.teach(shown, digits.labels[:1000])["stored"] == 1000
        image = digits.dimmed[:1]
        before = service.predict(image)[0]["probabilities"]

        dry = service.recalibrate(mode="dry_run", calibrator="temperature")
        assert dry.status_code == 200, dry.text
        found = dry.json()
        assert (found["mode"], found["state"], found["revision"], found["base"]) == ("dry_run", "dry_run", None, "r1")
        assert found["gate"]["passed"] is True
        assert found["gate"]["attempt"] == 1
        assert found["gate"]["upper"] < 0
        assert found["metrics"]["nll"]["after"] < found["metrics"]["nll"]["before"]
        assert set(found["metrics"]["ece"]["null"]) == {"mean", "q95"}
        assert sum(found["rows"][role] for role in ("fit", "certify", "gate")) == 1000
        assert service.revisions()["active"] == "r1"
        assert len(service.revisions()["items"]) == 1

        proposed = service.recalibrate(mode="propose").json()
        assert (proposed["state"], proposed["gate"]["attempt"]) == ("proposed", 2)
        assert service.predict(image)[0]["probabilities"] == before
        listed = service.revisions()
        assert [(item["id"], item["state"], item["gate"]) for item in listed["items"]] == [
            (proposed["revision"], "proposed", "passed"),
            ("r1", "active", "not_run"),
        ]

        moved = service.activate(proposed["revision"], reason="the lamp is dim")
        assert (moved["active"], moved["previous"]) == (proposed["revision"], "r1")
        after = service.predict(image)[0]["probabilities"]
        assert after != before

        refused = service.recalibrate(mode="propose").json()
        assert refused["gate"]["passed"] is False
        assert refused["state"] == "refused"
        assert refused["summary"].startswith("Refused. Nothing gained")
        assert refused["gate"]["reason"]
        blocked = service.move(f"revisions/{refused['revision']}/activate", service.revisions()["epoch"])
        assert blocked.status_code == 409
        assert blocked.json()["where"] == "/reason"

        back = service.rollback()
        assert (back["active"], back["previous"]) == ("r1", None)
        np.testing.assert_array_equal(list(service.predict(image)[0]["probabilities"].values()), list(before.values()))
        states = {item["id"]: item["state"] for item in service.revisions()["items"]}
        assert states == {"r1": "active", proposed["revision"]: "superseded", refused["revision"]: "refused"}

        entries = audit.read(service.runtime.database, "digits", limit=1000)
        done = [(entry.action, entry.subject) for entry in reversed(entries) if entry.action != "look"]
        assert done == [
            ("propose", "r1"),
            ("activate", "r1"),
            ("recalibrate", "j1"),
            ("recalibrate", "j2"),
            ("propose", proposed["revision"]),
            ("activate", proposed["revision"]),
            ("recalibrate", "j3"),
            ("propose", refused["revision"]),
            ("rollback", "r1"),
        ]
        reasons = [entry.detail.get("reason") for entry in entries if entry.action == "activate"]
        assert "the lamp is dim" in reasons
        assert sum(entry.action == "look" and entry.subject == "gate" for entry in entries) == 3

    def test_activate_puts_a_refit_that_passes_into_service_at_once(self, start: Any, digits: Any) -> None:
        service = start(limit_action_change=1.0)
        service.teach(digits.dimmed[:1000], digits.labels[:1000])
        result = service.recalibrate(mode="activate").json()
        assert (result["state"], result["gate"]["passed"]) == ("active", True)
        listed = service.revisions()
        assert listed["active"] == result["revision"]
        assert listed["epoch"] == result["epoch"]
        assert (
            service.http.post("/predict", json={"inputs": digits.dimmed[:1].tolist()}).json()["revision"]
            == (result["revision"])
        )

    @pytest.mark.usefixtures("refits_here")
    def test_without_prefer_a_job_is_named_and_can_be_followed(self, service: Any, digits: Any) -> None:
        service.teach(digits.dimmed[:300], digits.labels[:300])
        answer = service.http.post("/v1/models/digits/recalibrate", json={"mode": "dry_run"})
        assert answer.status_code == 202
        assert answer.headers["location"] == f"/v1/jobs/{answer.json()['job']}"
        assert answer.json()["state"] in {"queued", "running"}
        job = service.job(answer.headers["location"])
        assert job["state"] == "done"
        assert job["error"] is None
        assert job["result"]["state"] == "dry_run"
        assert job["created_at"] <= job["started_at"] <= job["finished_at"]

    @pytest.mark.usefixtures("refits_here")
    def test_without_a_body_it_is_a_dry_run(self, service: Any, digits: Any) -> None:
        service.teach(digits.images[:200], digits.labels[:200])
        answer = service.http.post("/recalibrate", headers={"prefer": "respond-async, wait=600"})
        assert answer.status_code == 200
        assert answer.json()["mode"] == "dry_run"


class TestRevisions:
    def test_the_etag_is_the_epoch_that_moves_want_back(self, service: Any) -> None:
        first = service.http.get("/v1/models/digits/revisions")
        assert first.headers["etag"] == f'"{first.json()["epoch"]}"'
        proposal = service.propose_policy()
        path = f"/v1/models/digits/revisions/{proposal}/activate"

        missing = service.http.post(path)
        assert missing.status_code == 428
        assert missing.json()["type"] == "/errors/epoch-required"
        stale = service.http.post(path, headers={"if-match": '"999"'})
        assert stale.status_code == 412
        assert stale.json()["type"] == "/errors/epoch-stale"
        assert stale.json()["found"] == first.json()["epoch"]
        assert stale.json()["expected"] == 999
        assert service.http.post(path, headers={"if-match": '"banana"'}).status_code == 412
        assert service.revisions()["active"] == "r1"

        moved = service.http.post(path, headers={"if-match": first.headers["etag"]})
        assert moved.status_code == 200
        assert moved.headers["etag"] == f'"{moved.json()["epoch"]}"' != first.headers["etag"]
        assert service.http.post(path, headers={"if-match": first.headers["etag"]}).status_code == 412
        again = service.http.post(path, headers={"if-match": moved.headers["etag"]})
        assert (again.status_code, again.json()["type"]) == (409, "/errors/revision-state")
        service.rollback()
        nothing = service.move("rollback", service.revisions()["epoch"])
        assert (nothing.status_code, nothing.json()["type"]) == (409, "/errors/revision-state")

    def test_pages_hold_every_revision_once(self, service: Any) -> None:
        made = ["r1"] + [service.propose_policy(share=share / 10) for share in range(1, 6)]
        seen, before = [], None
        while True:
            parameters = {"limit": 2} | ({"before": before} if before else {})
            page = service.http.get("/v1/models/digits/revisions", params=parameters).json()
            seen += [item["id"] for item in page["items"]]
            before = page["next"]
            if before is None:
                break
        assert seen == made[::-1]

    def test_one_revision_shows_all_of_it(self, shared: Any, digits: Any) -> None:
        document = shared.http.get("/v1/models/digits/revisions/r1").json()
        assert document["bundle_id"] == digits.bundle.id
        assert document["calibrator"] == digits.bundle.calibrator.to_dict()
        assert set(document["policies"]) == {"auto-read", "flag-zero"}
        assert (document["state"], document["cause"], document["parent"]) == ("active", "bundle", None)

    def test_models_say_what_they_take(self, shared: Any) -> None:
        (model,) = shared.http.get("/v1/models").json()["items"]
        assert model["model"] == "digits"
        assert model["labels"] == [str(digit) for digit in range(10)]
        assert model["input"] == {"kind": "image", "dtype": "uint8", "shape": [8, 8, 1], "resize": False}
        assert model["policies"] == ["auto-read", "flag-zero"]
        assert model["problem"] is None


class TestPolicies:
    def test_a_changed_policy_is_a_proposal_with_the_next_version(self, service: Any, digits: Any) -> None:
        revision = service.propose_policy("auto-read", 0.75)
        shown = service.http.get("/v1/models/digits/policies/auto-read").json()
        assert shown["version"] == 1
        service.activate(revision)
        changed = service.http.get("/v1/models/digits/policies/auto-read").json()
        assert changed["version"] == 2
        for row in service.predict(digits.images[:50], policy="auto-read"):
            assert (row["decision"]["action"] == "accept") == (np.float32(row["confidence"]) >= np.float32(0.75))


def test_a_proposal_made_from_another_revision_needs_a_reason(service: Any) -> None:
    """Activating both of two proposals, one after the other, would silently take the first back."""
    first, second = service.propose_policy("mine"), service.propose_policy("yours")
    assert service.move(f"revisions/{first}/activate", service.revisions()["epoch"]).status_code == 200
    blocked = service.move(f"revisions/{second}/activate", service.revisions()["epoch"])
    assert blocked.status_code == 409
    document = blocked.json()
    assert document["type"] == "/errors/revision-state"
    assert f"{second} was made from r1, but {first} is active" in document["detail"]
    assert service.activate(second, reason="mine was a mistake")["active"] == second


@pytest.mark.parametrize("name", ["r02", "R2", "r2 ", "r²"])
def test_a_revision_has_one_name(service: Any, name: str) -> None:
    service.propose_policy()
    assert service.http.get(f"/v1/models/digits/revisions/{name}").status_code == 404
    assert service.move(f"revisions/{name}/activate", service.revisions()["epoch"], reason="no").status_code == 404
    assert service.revisions()["active"] == "r1"
