"""Revisions, the pointer and the looks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest

from calibrators import Temperature
from candor.contract.certificates import SolvedBand, Threshold
from service.decisions.policy import parse_policy
from service.decisions.revision import Revision
from service.decisions.solved import SolvedPolicy
from service.errors import EpochRequiredError, EpochStaleError, RevisionStateError, UnknownRevisionError
from service.state import audit
from service.state.database import Database
from service.state.pointers import Pointer
from service.state.revisions import RevisionStore

CALIBRATOR = Temperature.from_dict(
    {"method": "temperature", "version": 1, "classes": 2, "temperature": 1.8300000000000003, "at_bound": False}
)
BANDS = [{"action": "accept", "when": {"min_probability": 0.5}}, {"action": "review"}]
SOLVED = SolvedPolicy(
    parse_policy({"id": "auto", "bands": BANDS}),
    2,
    (
        SolvedBand(action="accept", threshold=Threshold.at(0.5, float("-inf")), certificate=None),
        SolvedBand(action="review", threshold=None, certificate=None),
    ),
    review_all=False,
)


def propose(store: RevisionStore, model: str = "pets", **changes: Any) -> Revision:
    fields: dict[str, Any] = {
        "model": model,
        "bundle_id": "b" * 64,
        "bundle_version": 3,
        "model_digest": "d" * 64,
        "calibrator": CALIBRATOR,
        "policies": {"auto": SOLVED},
        "parent": None,
        "cause": "bundle",
        "by": "ops",
        "gate": "not_run",
        "report": {"nll": {"before": 0.3, "after": 0.1}, "label": "naïve ✓"},
    }
    return store.propose(**(fields | changes))


def together(work: list[Callable[[], Any]]) -> list[Any]:
    """Start all at once; returns results and errors."""
    barrier = Barrier(len(work))

    def run(task: Callable[[], Any]) -> Any:
        barrier.wait()
        try:
            return task()
        except (EpochStaleError, EpochRequiredError, RevisionStateError) as error:
            return error

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(run, work))


def test_a_revision_comes_back_as_it_was(database: Database) -> None:
    store = RevisionStore(database)
    revision = propose(store)
    assert revision.id == "r1"
    found = store.get("pets", "r1")
    assert found.calibrator.to_dict() == CALIBRATOR.to_dict()
    assert replace(found, calibrator=CALIBRATOR) == revision
    assert propose(store, created_at=5).created_at == 5


def test_ids_count_within_a_model(database: Database, other: Database) -> None:
    stores = [RevisionStore(database), RevisionStore(other)]
    made = together([lambda store=store: propose(store).id for store in stores * 4])
    assert sorted(made) == [f"r{number}" for number in range(1, 9)]
    assert propose(stores[0], "cars").id == "r1"


def test_listing_goes_backwards_in_pages(database: Database) -> None:
    store = RevisionStore(database)
    for _ in range(12):
        propose(store)
    propose(store, "cars")
    assert [revision.id for revision in store.list("pets", limit=3)] == ["r12", "r11", "r10"]
    assert [revision.id for revision in store.list("pets", limit=2, before="r10")] == ["r9", "r8"]
    assert store.list("pets", before="r1") == ()
    assert store.list("boats") == ()


def test_unknown_revisions(database: Database) -> None:
    store = RevisionStore(database)
    propose(store)
    for id_ in ("r9", "j1", "r", "", "r1 OR 1=1", "r-1", "r" + "9" * 30):
        with pytest.raises(UnknownRevisionError):
            store.get("pets", id_)
        with pytest.raises(UnknownRevisionError):
            store.activate("pets", id_, expected_epoch=None, by="ops")
    assert store.pointer("pets") is None


def test_activations_move_the_pointer(database: Database) -> None:
    store = RevisionStore(database)
    for _ in range(3):
        propose(store)
    assert store.pointer("pets") is None
    assert store.epoch() == 0
    assert store.activate("pets", "r1", expected_epoch=None, by="ops") == Pointer("r1", None, 1)
    assert store.activate("pets", "r3", expected_epoch=1, by="ops", reason="better") == Pointer("r3", "r1", 2)
    assert store.pointer("pets") == Pointer("r3", "r1", 2)
    assert store.epoch() == 2
    entry = audit.read(database, "pets", limit=1)[0]
    assert (entry.action, entry.subject, entry.detail) == (
        "activate",
        "r3",
        {"epoch": 2, "from": "r1", "reason": "better"},
    )


def test_every_activation_of_any_model_raises_the_polled_epoch(database: Database) -> None:
    store = RevisionStore(database)
    for model in ("pets", "cars"):
        propose(store, model)
        propose(store, model)
        store.activate(model, "r1", expected_epoch=None, by="ops")
    assert store.epoch() == 2
    store.activate("pets", "r2", expected_epoch=1, by="ops")
    assert store.epoch() == 3
    assert store.pointers() == {"pets": Pointer("r2", "r1", 3), "cars": Pointer("r1", None, 2)}


def test_a_stale_epoch_changes_nothing(database: Database) -> None:
    store = RevisionStore(database)
    for _ in range(2):
        propose(store)
    store.activate("pets", "r1", expected_epoch=0, by="ops")
    entries = audit.read(database)
    for attempt in (
        lambda: store.activate("pets", "r2", expected_epoch=0, by="ops"),
        lambda: store.rollback("pets", expected_epoch=7, by="ops"),
    ):
        with pytest.raises(EpochStaleError) as caught:
            attempt()
        assert caught.value.found == 1
    assert (store.pointer("pets"), audit.read(database)) == (Pointer("r1", None, 1), entries)


def test_only_a_first_activation_may_come_without_an_epoch(database: Database) -> None:
    store = RevisionStore(database)
    for _ in range(2):
        propose(store)
    store.activate("pets", "r1", expected_epoch=None, by="system")
    with pytest.raises(EpochRequiredError):
        store.activate("pets", "r2", expected_epoch=None, by="system")
    with pytest.raises(EpochRequiredError):
        store.rollback("pets", expected_epoch=None, by="system")


def test_the_active_revision_is_not_activated_again(database: Database) -> None:
    store = RevisionStore(database)
    propose(store)
    store.activate("pets", "r1", expected_epoch=None, by="ops")
    with pytest.raises(RevisionStateError, match="already active"):
        store.activate("pets", "r1", expected_epoch=1, by="ops")


def test_rollbacks_go_back_and_never_forward(database: Database) -> None:
    store = RevisionStore(database)
    for _ in range(3):
        propose(store)
    for epoch, id_ in enumerate(("r1", "r2", "r3")):
        store.activate("pets", id_, expected_epoch=epoch, by="ops")
    assert store.rollback("pets", expected_epoch=3, by="ops", reason="alarm") == Pointer("r2", "r1", 4)
    assert store.rollback("pets", expected_epoch=4, by="ops") == Pointer("r1", None, 5)
    with pytest.raises(RevisionStateError, match="no previous revision"):
        store.rollback("pets", expected_epoch=5, by="ops")
    assert store.activate("pets", "r3", expected_epoch=5, by="ops") == Pointer("r3", "r1", 6)
    assert store.rollback("pets", expected_epoch=6, by="ops") == Pointer("r1", None, 7)
    assert [entry.action for entry in audit.read(database, "pets", limit=4)] == [
        "rollback",
        "activate",
        "rollback",
        "rollback",
    ]


def test_a_model_that_was_never_activated_has_nothing_to_go_back_to(database: Database) -> None:
    with pytest.raises(RevisionStateError):
        RevisionStore(database).rollback("pets", expected_epoch=0, by="ops")


def test_states_follow_from_the_pointer_its_history_and_the_gate(database: Database) -> None:
    store = RevisionStore(database)
    for version, gate in enumerate(("not_run", "passed", "passed", "refused", "refused"), 1):
        propose(store, gate=gate, bundle_version=version)
    for epoch, id_ in enumerate(("r1", "r2", "r5")):
        store.activate("pets", id_, expected_epoch=epoch, by="ops")
    assert store.states("pets") == {
        "r1": "superseded",
        "r2": "previous",
        "r3": "proposed",
        "r4": "refused",
        "r5": "active",
    }
    assert store.bundles_needed() == {("pets", 2), ("pets", 3), ("pets", 5)}


def test_of_many_activations_on_one_epoch_exactly_one_succeeds(database: Database, other: Database) -> None:
    stores = [RevisionStore(database), RevisionStore(other)]
    for _ in range(9):
        propose(stores[0])
    stores[0].activate("pets", "r1", expected_epoch=None, by="ops")
    for epoch in (1, 2):
        tasks = [
            lambda store=stores[n % 2], id_=f"r{n + 2}", epoch=epoch: store.activate(
                "pets", id_, expected_epoch=epoch, by="ops"
            )
            for n in range(8)
        ]
        results = together(tasks)
        winners = [result for result in results if isinstance(result, Pointer)]
        assert len(winners) == 1
        assert sum(isinstance(result, (EpochStaleError, RevisionStateError)) for result in results) == 7
        assert stores[1].pointer("pets") == winners[0]


def test_of_many_first_activations_exactly_one_succeeds(database: Database, other: Database) -> None:
    stores = [RevisionStore(database), RevisionStore(other)]
    for _ in range(4):
        propose(stores[0])
    tasks = [
        lambda store=stores[n % 2], id_=f"r{n + 1}": store.activate("pets", id_, expected_epoch=None, by="system")
        for n in range(4)
    ]
    assert sum(isinstance(result, Pointer) for result in together(tasks)) == 1


class TestNarrowReads:
    def test_solved_policies_are_found_newest_first_by_their_bundle(self, database: Database) -> None:
        store = RevisionStore(database)
        for bundle_id, parent in (("b1", None), ("b2", "r1"), ("b1", "r1")):
            propose(store, bundle_id=bundle_id, parent=parent, policies={"auto": SOLVED})
        found = list(store.solutions("pets", "b1"))
        assert [(solution.id, solution.parent) for solution in found] == [("r3", "r1"), ("r1", None)]
        assert found[0].policies == {"auto": SOLVED.to_dict()}
        assert list(store.solutions("cars", "b1")) == []

    def test_a_job_finds_its_own_proposal(self, database: Database) -> None:
        store = RevisionStore(database)
        for job in ("j1", "j12", "j12"):
            propose(store, report={"job": job})
        propose(store, report={})
        assert store.of_job("pets", "j12").id == "r3"
        assert store.of_job("pets", "j2") is None
        assert store.of_job("cars", "j12") is None

    def test_bundles_are_known_by_version(self, database: Database) -> None:
        store = RevisionStore(database)
        for version in (3, 3, 5):
            propose(store, bundle_version=version)
        assert store.bundle_versions("pets") == {3, 5}

    def test_no_two_policies_get_the_same_version(self, database: Database, other: Database) -> None:
        stores = [RevisionStore(database), RevisionStore(other)] * 4
        versions = together([lambda store=store: store.new_policy_version("pets", "auto") for store in stores])
        assert sorted(versions) == list(range(1, 9))
