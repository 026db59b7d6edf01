"""Roles of rows (fit, certify, gate), from a keyed hash of each row's group.

A caller can choose prediction ids and references, but cannot predict a hash keyed with the server's secret. All rows of
a group (a card, a patient, an input sent twice) have the same role, so no test row has a twin among the fit rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

FIT: Final = 0
CERTIFY: Final = 1
GATE: Final = 2

LAST_FIT_GROUP: Final = 2**64 // 3
"""Groups from 0 to this number have the role `FIT` by default."""


def group_hash(secret: bytes, group: str | bytes) -> int:
    """Return a group's number: a keyed BLAKE2b hash as a signed 64-bit integer.

    Args:
        secret: The server's secret, 1 to 64 bytes.
        group: The client's group key (text), or the digest of the input (bytes) if no key was given. Equal content of
            the two types gives different numbers.

    Returns:
        An integer in [−2⁶³, 2⁶³), unpredictable without the secret.

    Example:
        >>> group_hash(b"secret", "card-5") == group_hash(b"secret", "card-5")
        True
        >>> group_hash(b"secret", "card-5") == group_hash(b"another", "card-5")
        False
    """
    tagged = b"group:" + group.encode() if isinstance(group, str) else b"input:" + group
    digest = hashlib.blake2b(tagged, key=secret, digest_size=8, person=b"candor-cluster").digest()
    return int.from_bytes(digest, "little", signed=True)


def one_per_group(groups: NDArray[np.int64], seed: int) -> NDArray[np.intp]:
    """Return one row of each group, drawn at random.

    Args:
        groups: Group numbers, shape (N,).
        seed: Seed of the draw; fixed before any label is seen.

    Returns:
        Indices in ascending order, one for each group.

    Example:
        >>> one_per_group(np.array([7, 7, 5, 9]), seed=0)
        array([0, 2, 3])
    """
    draw = np.random.default_rng((seed, 0)).permutation(len(groups))
    return np.sort(draw[np.unique(groups[draw], return_index=True)[1]])


def roles(groups: NDArray[np.int64], shares: Sequence[float] = (1 / 3, 1 / 3, 1 / 3)) -> NDArray[np.int64]:
    """Return each row's role from its group number.

    Args:
        groups: Group numbers from `group_hash`, shape (N,).
        shares: Expected shares of fit, certify and gate rows; positive or zero, with sum 1.

    Returns:
        `FIT`, `CERTIFY` or `GATE` for each row, shape (N,).

    Raises:
        ValueError: The shares are not three non-negative numbers with sum 1.

    Example:
        >>> roles(np.array([-(2**63), -1, 0, 2**63 - 1]))
        array([1, 2, 0, 1])
    """
    edges = np.cumsum(shares)
    if len(shares) != 3 or min(shares) < 0 or abs(edges[-1] - 1.0) > 1e-9:
        raise ValueError(f"expected three shares with sum 1, found {tuple(shares)}")
    position = (groups.astype(np.int64, copy=False).view(np.uint64) >> np.uint64(11)) * 2.0**-53
    return np.searchsorted(edges[:2], position, side="right")
