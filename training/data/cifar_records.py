"""The binary layout of CIFAR-10 and CIFAR-100: records of label bytes and 3,072 pixel bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.data.distribution import Files

SIDE = 32
_PIXELS = 3 * SIDE * SIDE
_BLOCK = 500  # images interleaved at a time, so that they stay in the cache


def read_records(
    files: Files, records: dict[str, int], *, classes: tuple[int, ...]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read files of records, one after the other.

    Args:
        files: Their folder.
        records: Number of records of each file by name, in reading order.
        classes: Number of classes for each label byte of a record.

    Returns:
        Images uint8 (N, 32, 32, 3), and label bytes uint8 (N, number of label bytes).

    Raises:
        DataError: A file is missing or of another size, or a label is out of range.
    """
    width = len(classes) + _PIXELS
    total = sum(records.values())
    images = np.empty((total, SIDE * SIDE, 3), np.uint8)
    labels = np.empty((total, len(classes)), np.uint8)
    start = 0
    for name, count in records.items():
        data = files.read(name)
        if len(data) != count * width:
            raise files.problem(f"{files.folder / name} has {len(data)} bytes, not {count} records of {width}")
        record = np.frombuffer(data, np.uint8).reshape(count, width)
        labels[start : start + count] = record[:, : len(classes)]
        for first in range(0, count, _BLOCK):
            block = record[first : first + _BLOCK, len(classes) :]
            target = images[start + first : start + first + len(block)]
            for channel in range(3):
                target[:, :, channel] = block[:, channel * SIDE * SIDE : (channel + 1) * SIDE * SIDE]
        for place, limit in enumerate(classes):
            highest = int(record[:, place].max())
            if highest >= limit:
                raise files.problem(f"{files.folder / name} has a label of {highest}, not 0 … {limit - 1}")
        start += count
    return images.reshape(total, SIDE, SIDE, 3), labels
