"""Prediction ids: ULIDs, 26 characters that sort by time (48 bits of milliseconds, 80 random bits)."""

from __future__ import annotations

import os
import re
import time

import numpy as np

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
OF_BYTE = (8 * _ALPHABET).encode()  # a character for the low 5 bits of each byte
_TIME_SHIFTS = tuple(range(45, -1, -5))
_WELL_FORMED = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def new_ids(count: int) -> list[str]:
    """Return `count` new ids.

    >>> len(new_ids(2)), len(new_ids(1)[0])
    (2, 26)
    """
    milliseconds = time.time_ns() // 1_000_000
    first = "".join([_ALPHABET[(milliseconds >> shift) & 31] for shift in _TIME_SHIFTS])
    rest = os.urandom(16 * count).translate(OF_BYTE).decode("ascii")
    return [first + rest[start : start + 16] for start in range(0, 16 * count, 16)]


def ids_of(milliseconds: int, randomness: bytes) -> list[str]:
    r"""Return the ids of a time and their random parts, 10 bytes each: many at once, and again the same.

    >>> ids_of(1_700_000_000_000, bytes(9) + b"\x21")
    ['01HF7YAT000000000000000011']
    """
    count = len(randomness) // 10
    values = np.empty((count, 16), np.uint8)
    values[:, :6] = np.frombuffer(milliseconds.to_bytes(6), np.uint8)
    values[:, 6:] = np.frombuffer(randomness, np.uint8).reshape(count, 10)
    bits = np.zeros((count, 130), np.uint8)  # 26 characters of 5 bits
    bits[:, 2:] = np.unpackbits(values, axis=1)
    places = bits.reshape(count, 26, 5) @ np.array([16, 8, 4, 2, 1], np.uint8)
    texts = np.frombuffer(_ALPHABET.encode(), np.uint8)[places].view("S26")
    return texts.astype("U26").ravel().tolist()


def is_prediction_id(text: str) -> bool:
    """Return whether `text` has the form of a prediction id.

    >>> is_prediction_id(new_ids(1)[0]), is_prediction_id("7")
    (True, False)
    """
    return _WELL_FORMED.fullmatch(text) is not None
