"""Some of what tests/hardening does: hostile requests, and slow connections, while another client predicts."""

from __future__ import annotations

import random

import pytest

from tests.hardening.bodies import KINDS, SET_BOMBS, set_bomb, uploads
from tests.hardening.bystander import predicting
from tests.hardening.hostile import attack, exchange
from tests.hardening.running import Running
from tests.hardening.slow_loris import besiege
from tests.waiting import PATIENCE_S

SLOW = {
    "labelled set",
    "bomb of a labelled set",
}  # a process of its own checks each, when no other process wants the processors


def test_hostile_requests_are_refused_and_others_are_served(running: Running) -> None:
    with predicting(running.url) as bystander:
        outcome = attack(running, 500, seed=13, without=SLOW)
    assert outcome.wrong == []
    assert set(outcome.statuses) == set(KINDS) - SLOW
    assert sum(counts.total() for counts in outcome.statuses.values()) == 500
    assert bystander.faults == []
    assert len(bystander.latencies) > 1


def test_a_hostile_labelled_set_is_refused(running: Running) -> None:
    request = uploads(random.Random(13))
    status, wrong = exchange(running, request, patience_s=PATIENCE_S)
    assert wrong is None
    assert status in (400, 422)


@pytest.mark.parametrize("kind", SET_BOMBS)
def test_a_bomb_of_a_labelled_set_ends_at_a_limit(running: Running, kind: str) -> None:
    request = set_bomb(kind)
    assert len(request.body) < 100_000
    assert exchange(running, request, patience_s=PATIENCE_S) == (413, None)


def test_slow_connections_are_closed_and_others_are_served(running: Running) -> None:
    with predicting(running.url) as bystander:
        seen = besiege(running, 500, seconds=0.0, at_least_closed=500)
    assert seen.most == 500
    assert set(seen.said) == {"408"}
    assert bystander.faults == []
    assert len(bystander.latencies) > 1
