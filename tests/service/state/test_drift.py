"""Tests of input drift in the state: begun once, changed by one replica at a time."""

from __future__ import annotations

import pytest

from service.state import audit
from service.state.database import Database
from service.state.drift import DriftStore
from service.state.revisions import RevisionStore

from .test_revisions import propose


@pytest.fixture
def store(database: Database) -> DriftStore:
    """With r1 in service at epoch 1."""
    revisions = RevisionStore(database)
    propose(revisions)
    revisions.activate("pets", "r1", expected_epoch=None, by="start")
    return DriftStore(database)


def test_a_test_begins_once_for_each_reference(store: DriftStore) -> None:
    assert store.of("pets") is None
    first = store.start("pets", 1, "r1", "profile-1", {"rows": 0}, 0.05)
    assert first is not None
    assert (first.place, first.level) == (1, 0.025)
    assert store.start("pets", 1, "r1", "profile-1", {"rows": 0}, 0.05) == store.of("pets") == first
    assert store.start("pets", 7, "r1", "profile-2", {"rows": 0}, 0.05) is None, "the pointer is elsewhere"
    second = store.start("pets", 1, "r1", "profile-2", {"rows": 0}, 0.05)
    assert second is not None
    assert (second.place, second.level) == (2, pytest.approx(0.05 / 6))
    assert store.change("pets", first, {"rows": 9}, None) is False
    assert store.of("pets") == second


def test_of_two_replicas_one_writes(store: DriftStore, other: Database) -> None:
    before = store.start("pets", 1, "r1", "profile-1", {"rows": 0}, 0.05)
    assert before is not None
    assert store.change("pets", before, {"rows": 5}, {"columns": ["age"]}) is True
    assert DriftStore(other).change("pets", before, {"rows": 7}, {"columns": ["age"]}) is False
    after = store.of("pets")
    assert after is not None
    assert (after.change, after.document) == (1, {"rows": 5})
    assert [entry.subject for entry in audit.read(other, "pets") if entry.action == "alarm"] == ["inputs"]
