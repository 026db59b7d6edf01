"""What keys may send."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from service.errors import RateLimitedError
from service.operations.rates import Rates
from service.settings import Settings
from service.state.keys import ApiKey


def key(rate: float | None = None, prefix: str = "a") -> ApiKey:
    return ApiKey(prefix, prefix, frozenset({"predict"}), 0, None, None, rate)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def refused_for_s(rates: Rates, who: ApiKey) -> float | None:
    """Seconds that a key must wait, None if it is admitted."""
    try:
        rates.spend(who)
    except RateLimitedError as error:
        return error.retry_after_s
    return None


def admitted(rates: Rates, who: ApiKey) -> bool:
    return refused_for_s(rates, who) is None


@given(
    rate=st.floats(0.01, 1000),
    pauses=st.lists(st.floats(0, 3), min_size=1, max_size=200),
)
def test_no_stretch_of_time_sees_more_than_its_share(rate: float, pauses: list[float]) -> None:
    clock = Clock()
    rates = Rates(rate, clock=clock)
    taken = []
    for pause in pauses:
        clock.now += pause
        if admitted(rates, key()):
            taken.append(clock.now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            assert last - first + 1 <= max(rate, 1) + rate * (taken[last] - taken[first]) + 1e-6


@given(rate=st.floats(0.01, 1000), sent=st.integers(1, 50))
def test_whoever_waits_as_told_is_served(rate: float, sent: int) -> None:
    clock = Clock()
    rates = Rates(rate, clock=clock)
    for _ in range(sent):
        if (wait_s := refused_for_s(rates, key())) is not None:
            assert 0 < wait_s <= 1 / rate + 1e-9
            clock.now += wait_s + 1e-9
            rates.spend(key())


def test_keys_have_buckets_of_their_own_and_may_have_rates_of_their_own() -> None:
    clock = Clock()
    rates = Rates(1.0, clock=clock)
    assert admitted(rates, key(prefix="a"))
    assert not admitted(rates, key(prefix="a"))
    assert admitted(rates, key(prefix="b"))
    assert [admitted(rates, key(3.0, "c")) for _ in range(4)] == [True, True, True, False]
    assert all(admitted(Rates(None, clock=clock), key()) for _ in range(100))


def test_processes_count_together_and_forget_nothing_when_one_is_started_again() -> None:
    clock = Clock()
    with tempfile.TemporaryFile() as file:
        one, other = (Rates(4.0, file.fileno(), clock) for _ in range(2))
        assert [admitted(rates, key()) for rates in (one, other, one, other, one, other)] == [True] * 4 + [False] * 2
        assert admitted(other, key(prefix="b"))
        clock.now += 0.25
        again = Rates(4.0, file.fileno(), clock)
        assert [admitted(rates, key()) for rates in (again, one)] == [True, False]


def test_a_thousand_busy_keys_are_told_apart() -> None:
    rates, keys = Rates(1.0, clock=Clock()), [key(prefix=f"{number:012x}") for number in range(1000)]
    assert all(admitted(rates, who) for who in keys)
    assert not any(admitted(rates, who) for who in keys)


def test_rows_delay_the_next_requests_of_their_key_by_as_much_as_they_take() -> None:
    clock = Clock()
    with tempfile.TemporaryFile() as file:
        one, other = (Rates(1000.0, file.fileno(), clock, rows_per_s=10.0) for _ in range(2))
        assert admitted(one, key())
        one.charge("a", 35)
        assert refused_for_s(other, key()) == pytest.approx(3.5 - 0.9)
        assert admitted(other, key(prefix="b"))
        clock.now += 2.6
        assert admitted(one, key())
        answered = 0
        for _ in range(100):  # a hundred seconds of a client that sends two rows as soon as it may
            while admitted(other, key()):
                other.charge("a", 2)
                answered += 2
            clock.now += 1.0
        assert 980 <= answered <= 1012


def test_a_key_may_have_a_rate_of_rows_of_its_own() -> None:
    for default in (None, 10.0):
        rates, own = Rates(None, clock=Clock(), rows_per_s=default), replace(key(prefix="own"), rows_per_s=2.0)
        rates.charge("own", 4, own.rows_per_s)
        rates.charge("a", 4)
        assert refused_for_s(rates, own) == pytest.approx(4 / 2 - 0.5)
        assert admitted(rates, key())


@pytest.mark.parametrize("rate", [5e-324, 1e-9, 1e300])
def test_extreme_rates_of_rows_fit_their_cell(rate: float) -> None:
    rates = Rates(None, clock=Clock(), rows_per_s=rate)
    for _ in range(30):
        rates.charge("a", 1024)
    assert admitted(rates, key()) == (rate > 1)


def test_an_infinite_rate_is_refused_at_the_start() -> None:
    for name in ("key_rows_per_s", "key_requests_per_s"):
        with pytest.raises(ValidationError, match="finite"):
            Settings(**{name: math.inf})


def test_without_a_rate_of_rows_a_key_has_one_place() -> None:
    rates = Rates(1.0, clock=Clock())
    assert admitted(rates, key())
    assert np.count_nonzero(rates._keys) == 1


def test_a_clock_that_stands_still_refills_nothing() -> None:
    rates = Rates(2.0, clock=Clock())
    assert [admitted(rates, key()) for _ in range(3)] == [True, True, False]


def test_the_error_says_how_many_and_for_how_long() -> None:
    rates = Rates(0.5, clock=Clock())
    rates.spend(key())
    with pytest.raises(RateLimitedError) as caught:
        rates.spend(key())
    assert caught.value.expected == "at most 0.5 a second"
    assert caught.value.retry_after_s == pytest.approx(2.0)
