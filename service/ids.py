"""Prediction ids: ULIDs, 26 characters that sort by time (48 bits of milliseconds, 80 random bits)."""

from __future__ import annotations

import hashlib
import os
import re
import time

import numpy as np

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
CODE = 6  # last characters of an id in the log of a label's model, which name the model
_OF_BYTE = (8 * _ALPHABET).encode()  # a character for the low 5 bits of each byte
_TIME_SHIFTS = tuple(range(45, -1, -5))
_PAIRS = np.array([[one + other for other in _ALPHABET] for one in _ALPHABET], "S2").ravel()  # of 10 bits
_PAIR_SHIFTS = np.array([30, 20, 10, 0])
_WELL_FORMED = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def new_ids(count: int) -> list[str]:
    """Return `count` new ids.

    >>> len(new_ids(2)), len(new_ids(1)[0])
    (2, 26)
    """
    rest = os.urandom(16 * count).translate(_OF_BYTE).decode("ascii")
    first = _time(time.time_ns() // 1_000_000)
    return [first + rest[start : start + 16] for start in range(0, len(rest), 16)]


def ids_of(milliseconds: int, randomness: bytes) -> list[str]:
    r"""Return the ids of a time and their random parts, 10 bytes each: many at once, and again the same.

    >>> ids_of(1_700_000_000_000, bytes(9) + b"\x21")
    ['01HF7YAT000000000000000011']
    """
    numbers = np.zeros((len(randomness) // 5, 8), np.uint8)
    numbers[:, 3:] = np.frombuffer(randomness, np.uint8).reshape(-1, 5)
    pairs = _PAIRS[numbers.view(">i8").astype(np.int64) >> _PAIR_SHIFTS & 1023]
    lines = np.empty((len(randomness) // 10, 27), np.uint8)
    lines[:, :10] = np.frombuffer(_time(milliseconds).encode(), np.uint8)
    lines[:, 10:26] = pairs.view(np.uint8).reshape(-1, 16)
    lines[:, 26] = ord("\n")
    return lines.tobytes().decode("ascii").split("\n")[:-1]


def _time(milliseconds: int) -> str:
    return "".join([_ALPHABET[(milliseconds >> shift) & 31] for shift in _TIME_SHIFTS])


def id_of(prediction_id: str, model: str) -> str:
    """Return the id that a row has in the log of a label's model, given the id of any other or of the row.

    All rows of a request share nothing but the start of their ids; the last characters name the model.

    >>> id_of("01K0ZJ6Z3V8Q2W4X6Y8A0C2E4G", "comments--toxic")
    '01K0ZJ6Z3V8Q2W4X6Y8AFFATZ9'
    """
    digest = hashlib.blake2b(model.encode(), digest_size=CODE).digest()
    return prediction_id[:-CODE] + digest.translate(_OF_BYTE).decode("ascii")


def is_prediction_id(text: str) -> bool:
    """Return whether `text` has the form of a prediction id.

    >>> is_prediction_id(new_ids(1)[0]), is_prediction_id("7")
    (True, False)
    """
    return _WELL_FORMED.fullmatch(text) is not None
