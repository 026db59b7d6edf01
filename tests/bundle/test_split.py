import numpy as np
import pytest

from bundle.split import CERTIFY, FIT, GATE, group_hash, one_per_group, roles

SECRET = bytes(range(32))


def test_the_hash_is_stable_and_keyed() -> None:
    assert group_hash(SECRET, "card-5") == group_hash(SECRET, "card-5")
    assert group_hash(SECRET, "card-5") != group_hash(SECRET[::-1], "card-5")
    assert group_hash(SECRET, "card-5") != group_hash(SECRET, "card-6")


def test_a_group_is_never_taken_for_an_input_digest() -> None:
    assert group_hash(SECRET, "abc") != group_hash(SECRET, b"abc")


def test_hashes_fill_the_signed_64_bit_range() -> None:
    groups = np.array([group_hash(SECRET, str(i)) for i in range(20_000)], dtype=np.int64)
    assert len(np.unique(groups)) == len(groups)
    assert abs((groups < 0).mean() - 0.5) < 0.02
    counts = np.bincount(roles(groups), minlength=3)
    assert np.all(np.abs(counts / len(groups) - 1 / 3) < 0.02)


def test_shares_are_met_and_zero_shares_are_empty() -> None:
    groups = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 100_000, dtype=np.int64)
    counts = np.bincount(roles(groups, (0.6, 0.3, 0.1)), minlength=3) / len(groups)
    assert np.abs(counts - [0.6, 0.3, 0.1]).max() < 0.01
    assert set(roles(groups, (0.5, 0.5, 0.0))) == {FIT, CERTIFY}
    assert set(roles(groups, (0.0, 0.0, 1.0))) == {GATE}


def test_a_role_depends_on_the_group_alone() -> None:
    groups = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 1000, dtype=np.int64)
    order = np.random.default_rng(2).permutation(1000)
    assert np.array_equal(roles(groups)[order], roles(groups[order]))


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.5, 0.6, -0.1), (0.3, 0.3, 0.3)])
def test_shares_must_be_three_parts_of_one(shares: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="three shares"):
        roles(np.zeros(1, dtype=np.int64), shares)


def test_no_rows() -> None:
    assert roles(np.empty(0, dtype=np.int64)).shape == (0,)


def test_one_row_of_each_group_is_drawn_evenly() -> None:
    groups = np.repeat(np.arange(50), 4)[::-1]
    chosen = [one_per_group(groups, seed) for seed in range(400)]
    assert all(np.array_equal(np.sort(groups[rows]), np.arange(50)) for rows in chosen)
    hits = np.bincount(np.concatenate(chosen) % 4, minlength=4)
    assert np.abs(hits / hits.sum() - 0.25).max() < 0.02
    assert np.array_equal(chosen[7], one_per_group(groups, 7))
