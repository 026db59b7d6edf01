"""After a new bundle, rows of the old one join a refit in the scores of the new one, where their inputs were kept."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from sqlalchemy import func, select

import bundle as bundles
from calibrators import Temperature
from service.state.tables import inputs

from ..conftest import Digits, InThread, contents

pytestmark = pytest.mark.usefixtures("proofs_here", "refits_here")
ROWS = 300
RESCORE = {"feedback": {"rescore": True}}


def doubled(digits: Digits) -> Any:
    """Another model file: the same network with a last step that doubles its logits, and a calibrator to fit."""
    model = onnx.load_from_string(digits.bundle.model_bytes)
    graph = model.graph
    output = graph.output[0].name
    for node in graph.node:
        node.output[:] = ["half" if name == output else name for name in node.output]
    graph.node.append(onnx.helper.make_node("Add", ["half", "half"], [output]))
    reference, golden = digits.bundle.reference, digits.bundle.golden
    parts = {
        name: dataclasses.replace(part, logits=2 * part.logits)
        for name, part in (("fit", reference.fit), ("certify", reference.certify), ("gate", reference.gate))
    }
    calibrator = digits.bundle.calibrator.to_dict()
    return contents(
        digits.bundle,
        calibrator=Temperature.from_dict(calibrator | {"temperature": 2 * calibrator["temperature"]}),
        model_bytes=model.SerializeToString(),
        reference=dataclasses.replace(reference, **parts),
        golden=dataclasses.replace(golden, logits=2 * golden.logits),
    )


@pytest.fixture(params=["sqlite", "postgresql"])
def launch_on(
    request: pytest.FixtureRequest, start: Callable[..., InThread], digits: Digits, tmp_path: Path
) -> Callable[[str], InThread]:
    changes = {}
    if request.param == "postgresql":
        address: str = request.getfixturevalue("postgresql_url")
        changes["state"] = address.replace("postgresql://", "postgresql+psycopg://")
    root = Path(shutil.copytree(digits.root, tmp_path / "bundles"))
    return lambda keep: start(bundles=root, keep_inputs=keep, **changes)


def put_new_bundle_into_service(service: InThread, digits: Digits) -> None:
    bundles.write(service.runtime.settings.bundle_folder, doubled(digits))
    assert service.http.post("/v1/models/digits/load").json()["refused"] == {}
    proposal = service.revisions()["items"][0]
    assert proposal["bundle"] == 2
    service.activate(proposal["id"])


def test_rows_of_the_old_bundle_are_scored_again(launch_on: Callable[[str], InThread], digits: Digits) -> None:
    service = launch_on("all")
    service.teach(digits.dimmed[:ROWS], digits.labels[:ROWS])
    before = service.recalibrate(calibrator="temperature").json()
    assert before["rows"]["rescored"] == 0
    put_new_bundle_into_service(service, digits)
    assert service.recalibrate(calibrator="temperature").status_code == 422
    answer = service.recalibrate(calibrator="temperature", source=RESCORE)
    assert answer.status_code == 200, answer.text
    after = answer.json()
    assert after["rows"]["rescored"] == ROWS
    roles = ("fit", "certify", "gate")
    assert [after["rows"][role] for role in roles] == [before["rows"][role] for role in roles]
    was, now = (found["calibrator"]["after"]["temperature"] for found in (before, after))

    assert now == pytest.approx(2 * was, rel=1e-3)
    assert (before["gate"]["attempt"], after["gate"]["attempt"]) == (1, 2), (
        "the same labels, whatever model scores them"
    )

    service.teach(digits.images[:40], digits.labels[:40])
    joined = service.recalibrate(calibrator="temperature", source=RESCORE).json()["rows"]
    assert joined["rescored"] == ROWS
    assert sum(joined[role] for role in roles) > sum(after["rows"][role] for role in roles)


def test_a_selection_of_rows_fits_and_tests_nothing(launch_on: Callable[[str], InThread], digits: Digits) -> None:
    service = launch_on("sought")
    service.teach(digits.dimmed[:ROWS], digits.labels[:ROWS])
    service.predict(digits.images[-1:])  # its label is not sought, so its input is not kept
    assert service.runtime.log.flush()
    with service.runtime.database.connect() as connection:
        kept = connection.execute(select(func.count()).select_from(inputs)).scalar_one()
    put_new_bundle_into_service(service, digits)
    service.teach(digits.dimmed[:ROWS], digits.labels[:ROWS])
    answers = [service.recalibrate(calibrator="temperature", **more) for more in ({}, {"source": RESCORE})]
    assert [answer.status_code for answer in answers] == [200, 200], answers[-1].text
    alone, joined = (answer.json()["rows"] for answer in answers)
    assert ROWS / 2 < kept <= ROWS
    assert joined["rescored"] == kept
    assert (joined["certify"], joined["gate"]) == (alone["certify"], alone["gate"])
    assert alone["fit"] < joined["fit"] <= 2 * alone["fit"]


def test_logits_come_from_the_new_model(launch_on: Callable[[str], InThread], digits: Digits) -> None:
    from service.inference.inputs import specification
    from service.state.inputs import unpacked
    from service.state.rescoring import Rescoring
    from service.state.unlabelled import load_scored_again, load_unlabelled_rows
    from service.state.window import Window

    service = launch_on("all")
    service.predict(digits.images[:20])
    assert service.runtime.log.flush()
    old = service.runtime.models.get("digits").served
    put_new_bundle_into_service(service, digits)
    new = service.runtime.models.get("digits").served
    assert old.revision.model_digest != new.revision.model_digest
    spec = new.input

    def again(specification: str) -> Rescoring:
        return Rescoring(
            specification, lambda kept: new.session.run(unpacked(kept, spec.dtype, spec.shape)), lambda logits: logits
        )

    classes, window = len(new.labels), Window("digits", new.revision.model_digest)
    with service.runtime.database.connect() as connection:
        stored = load_unlabelled_rows(connection, Window("digits", old.revision.model_digest), classes=classes)
        scored, others = (
            load_scored_again(connection, window, again(inputs), classes=classes, at_most=100)[0]
            for inputs in (specification(new.bundle), "of other inputs")
        )
    np.testing.assert_allclose(scored.logits, 2 * stored.logits, rtol=1e-5, atol=1e-5)
    for column in ("group", "propensity", "sought", "predicted_at"):
        np.testing.assert_array_equal(getattr(scored, column), getattr(stored, column))
    assert len(others) == 0
