"""A recalibration whose inputs are scored on a Ray cluster reports what one without Ray does."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import orjson
import pytest

from service.recalibration.task import RefitRequest, RefitTask
from tests.array_files import npz
from tests.conftest import ROOT
from tests.ray_cluster import Cluster, ended, two_nodes
from tests.service.conftest import Digits, InThread

from .outcomes import outcome_of, task_of
from .test_rescoring import put_new_bundle_into_service


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from two_nodes()


@pytest.fixture
def tasks(start: Callable[..., InThread], digits: Digits, tmp_path: Path) -> list[RefitTask]:
    """A recalibration on an uploaded set of inputs, and one on rows of an earlier bundle."""
    service = start(bundles=Path(shutil.copytree(digits.root, tmp_path / "bundles")), keep_inputs="all")
    service.teach(digits.dimmed[:300], digits.labels[:300])
    service.predict(digits.dimmed[300:500], policy="auto-read")
    assert service.runtime.log.flush()
    put_new_bundle_into_service(service, digits)
    made = service.http.post(
        "/v1/models/digits/labelled-sets",
        content=npz(inputs=digits.dimmed, label=digits.labels),
        headers={"content-type": "application/x-npz"},
    )
    assert made.status_code == 201, made.text
    task = task_of(service, RefitRequest(labelled_set=made.json()["id"]))
    return [task, replace(task, request=RefitRequest(rescore=True))]


@pytest.mark.usefixtures("checks_here")
def test_the_outcome_is_the_same(cluster: Cluster, tasks: list[RefitTask]) -> None:
    running = cluster.start(ROOT, "python", "-m", "tests.service.recalibration.outcomes")
    given = "".join(orjson.dumps(asdict(replace(task, ray=cluster.address))).decode() + "\n" for task in tasks)
    on_ray = [orjson.loads(line) for line in ended(running, given).splitlines()]
    without = [orjson.loads(orjson.dumps(outcome_of(task), option=orjson.OPT_SERIALIZE_NUMPY)) for task in tasks]
    assert [found["report"]["rows"]["rescored"] > 0 for found in without] == [False, True]
    assert on_ray == without
