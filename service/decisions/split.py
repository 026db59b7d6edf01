"""Which rows fit, which certify, which gate: a keyed hash of each row's group decides.

A caller can choose its prediction ids and references, but not a hash keyed with the server's secret; and rows of one
group (a card, a patient, the same input sent twice) always share a role, so that no test row has a twin among fit rows.
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


def cluster_hash(secret: bytes, group: str | bytes) -> int:
    """Return the group's cluster number: a keyed blake2b as a signed 64-bit integer.

    Args:
        secret: The server's secret, 1 to 64 bytes.
        group: The client's entity key (text), or the digest of the input (bytes) where none was given. Equal content
            of the two kinds gives different numbers.

    Returns:
        An integer in [−2⁶³, 2⁶³), uniform to whoever does not know the secret.

    Example:
        >>> cluster_hash(b"secret", "card-5") == cluster_hash(b"secret", "card-5")
        True
        >>> cluster_hash(b"secret", "card-5") == cluster_hash(b"another", "card-5")
        False
    """
    tagged = b"group:" + group.encode() if isinstance(group, str) else b"input:" + group
    digest = hashlib.blake2b(tagged, key=secret, digest_size=8, person=b"candor-cluster").digest()
    return int.from_bytes(digest, "little", signed=True)


def one_per_group(groups: NDArray[np.int64], seed: int) -> NDArray[np.intp]:
    """Return one row of each group, drawn from the seed alone.

    Args:
        groups: Cluster numbers, shape (N,).
        seed: Fixed before any label is seen.

    Returns:
        Indices in ascending order, one per distinct number.

    Example:
        >>> one_per_group(np.array([7, 7, 5, 9]), seed=0)
        array([0, 2, 3])
    """
    draw = np.random.default_rng((seed, 0)).permutation(len(groups))
    return np.sort(draw[np.unique(groups[draw], return_index=True)[1]])


def roles(clusters: NDArray[np.int64], shares: Sequence[float] = (1 / 3, 1 / 3, 1 / 3)) -> NDArray[np.int64]:
    """Return each row's role from its cluster number.

    Args:
        clusters: What `cluster_hash` gave, shape (N,).
        shares: Expected shares of fit, certify and gate rows; positive or zero, with sum 1.

    Returns:
        `FIT`, `CERTIFY` or `GATE` per row, shape (N,).

    Raises:
        ValueError: When the shares are not three shares of one.

    Example:
        >>> roles(np.array([-(2**63), -1, 0, 2**63 - 1]))
        array([1, 2, 0, 1])
    """
    edges = np.cumsum(shares)
    if len(shares) != 3 or min(shares) < 0 or abs(edges[-1] - 1.0) > 1e-9:
        raise ValueError(f"expected three shares with sum 1, found {tuple(shares)}")
    position = (clusters.astype(np.int64, copy=False).view(np.uint64) >> np.uint64(11)) * 2.0**-53
    return np.searchsorted(edges[:2], position, side="right")
