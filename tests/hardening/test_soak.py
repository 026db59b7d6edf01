"""What the trial of everything at once calls a failure; the trial itself (tests.hardening.soak) takes minutes."""

from __future__ import annotations

from tests.hardening.soak import Found


def test_a_kill_explains_broken_connections_of_its_replica_alone() -> None:
    found = Found(kills=[(100.0, 1)], events=[(100.0, "kill")])
    found.failures += [
        (99.9, 100.1, 1, "broken"),
        (100.5, 100.6, 1, "broken"),
    ]  # in flight; a little later
    assert found.not_cut() == []
    found.failures += [
        (100.1, 100.2, 2, "broken"),  # of another replica
        (99.0, 99.9, 1, "broken"),  # before it
        (102.0, 115.0, 1, "broken"),  # long after it
        (100.1, 100.2, 1, "503 busy"),  # an answer
    ]
    assert len(found.not_cut()) == 4


def test_refusals_belong_to_an_outage_that_they_overlap() -> None:
    found = Found(away=[(100.0, 103.0)])
    assert found.while_away(98.0, 100.5)
    assert found.while_away(104.0)
    assert not found.while_away(98.0, 99.0)
    assert not found.while_away(109.0, 110.0)
