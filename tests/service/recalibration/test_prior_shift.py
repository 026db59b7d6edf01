"""Other shares of the classes, through a running service: what is known, what is estimated, and what it voids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from candor import Client

POLICY = {
    "positive": "7",
    "bands": [
        {"action": "flag", "when": {"min_precision": 0.5}},
        {"action": "look", "when": {"min_recall": 0.3}},
        {"action": "allow"},
    ],
    "certify": {"delta": 0.4, "looks": "unlimited"},
}


def shift(service: Any, **body: Any) -> Any:
    return service.http.post("/v1/models/digits/prior-shift", json=body)


def send(service: Any, digits: Any, sevens: float, rows: int = 1500) -> list[str]:
    """Predict images of which a share are sevens; returns their labels."""
    labels = np.array(digits.labels)
    rng = np.random.default_rng(5)
    seven = rng.random(rows) < sevens
    chosen = np.where(
        seven, rng.choice(np.flatnonzero(labels == "7"), rows), rng.choice(np.flatnonzero(labels != "7"), rows)
    )
    service.predict(digits.images[chosen], policy="auto-read")
    assert service.runtime.log.flush()
    return labels[chosen].tolist()


def test_known_shares_name_a_class(shared: Any) -> None:
    for empty in ({"target": {}}, {"estimate": {}, "source": {}}):
        assert shift(shared, **empty).status_code == 422


def test_an_estimate_finds_the_shares_and_voids_what_they_void(on_both: Any, digits: Any) -> None:
    service = on_both
    proposed = service.http.put("/v1/models/digits/policies/sevens", json=POLICY)
    assert proposed.status_code == 201, proposed.text
    service.activate(proposed.json()["id"])
    before = service.http.get("/v1/models/digits/policies/sevens").json()
    assert [band["certificate"]["valid"] for band in before["bands"][:2]] == [True, True]

    labels = send(service, digits, sevens=0.5)
    truth = labels.count("7") / len(labels)
    looked = shift(service, estimate={}).json()
    assert (looked["state"], looked["revision"], looked["rows"]) == ("dry_run", None, len(labels))
    found = looked["priors"]["7"]
    assert found["target"] == pytest.approx(truth, abs=0.04)
    assert found["interval"][0] <= found["target"] <= found["interval"][1]
    assert found["source"] < 0.2
    assert sum(prior["target"] for prior in looked["priors"].values()) == pytest.approx(1)
    assert len(service.revisions()["items"]) == 2  # nothing was kept

    answer = shift(service, mode="propose", estimate={})
    assert answer.status_code == 201, answer.text
    document = answer.json()
    assert answer.headers["location"].endswith(document["revision"])
    certified = document["policies"]["sevens"]["certified"]
    assert not certified["flag"]["valid"]
    assert certified["flag"]["reason"].startswith("prior_shift")
    assert certified["look"]["valid"]  # recall is about sevens alone
    assert document["decisions"]["of"] == len(labels)

    epoch = service.revisions()["epoch"]
    assert service.move(f"revisions/{document['revision']}/activate", epoch).status_code == 409  # nothing was compared
    service.activate(document["revision"])
    shifted = service.http.get(f"/v1/models/digits/revisions/{document['revision']}").json()
    assert (shifted["cause"], shifted["gate"], shifted["calibrator"]["method"]) == (
        "prior_shift",
        "not_run",
        "prior_shift",
    )
    again = shift(service, target={"7": 0.1}).json()  # starts from the bundle's shares, not from the last target
    assert again["priors"]["7"]["source"] == pytest.approx(found["source"])
    service.rollback()


def test_known_shares_move_the_probabilities_by_bayes_rule(service: Any, digits: Any) -> None:
    image = digits.images[:1]
    before = service.predict(image)[0]["probabilities"]
    answer = shift(service, mode="propose", target={"7": 0.6}).json()
    priors = answer["priors"]
    assert priors["7"]["target"] == pytest.approx(0.6)
    rest = {label: prior for label, prior in priors.items() if label != "7"}
    ratios = [prior["target"] / prior["source"] for prior in rest.values()]
    assert ratios == pytest.approx([ratios[0]] * len(ratios))
    assert all(prior["interval"] is None for prior in priors.values())
    service.activate(answer["revision"])
    after = service.predict(image)[0]["probabilities"]
    weighted = {label: p * priors[label]["target"] / priors[label]["source"] for label, p in before.items()}
    total = sum(weighted.values())
    assert after == pytest.approx({label: p / total for label, p in weighted.items()}, abs=1e-4)


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "/target"),
        ({"target": {"7": 0.5}, "estimate": {}}, "/target"),
        ({"target": {"eleven": 0.5}}, "/target/eleven"),
        ({"target": {"7": 0.0}}, "/target/7"),
        ({"target": {"7": 1.0}}, "/target/7"),
        ({"target": {"7": 0.6, "1": 0.5}}, "/target"),
        ({"target": {str(digit): 0.2 for digit in range(10)}}, "/target"),
        ({"target": {"7": 0.5}, "source": {"x": 0.5}}, "/source/x"),
        ({"estimate": {"rows": 1}}, "/estimate/rows"),
        ({"estimate": {"since": "2031-01-01T00:00:00Z"}}, "/estimate"),
        ({"estimate": {"since": "2031-01-01T00:00:00Z", "until": "2031-01-01T00:00:00Z"}}, "/estimate"),
        ({"target": {"7": "NaN"}}, "/target/7"),
    ],
)
def test_what_cannot_be_meant_is_refused(shared: Any, body: dict[str, Any], where: str) -> None:
    answer = shift(shared, **body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["where"] == where


@pytest.mark.usefixtures("refits_here")
def test_a_calibrator_of_traffic_needs_to_be_told_what_it_is_right_for(service: Any, digits: Any) -> None:
    service.teach(digits.dimmed[:900], digits.labels[:900])
    refit = service.recalibrate(mode="propose", gate="non_inferior").json()
    service.activate(refit["revision"])
    refused = shift(service, target={"7": 0.5})
    assert (refused.status_code, refused.json()["where"]) == (422, "/source")
    told = shift(service, target={"7": 0.5}, source={"7": 0.1})
    assert told.status_code == 200
    assert told.json()["priors"]["7"]["source"] == pytest.approx(0.1)


def test_the_client_asks_for_it(shared: Any) -> None:
    with Client(shared.url, model="digits") as client:
        known = client.prior_shift(target={"7": 0.3})
    assert (known.state, known.revision) == ("dry_run", None)
    assert known.priors["7"].target == pytest.approx(0.3)
    assert known.priors["7"].interval is None
