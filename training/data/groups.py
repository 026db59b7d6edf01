"""Groups: rows that belong together, such as those of a patient or a card."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray


class Groups:
    """Numbers of groups, while rows are read."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._count = 0
        self._parts: list[NDArray[np.int64]] = []

    def add(self, names: Iterable[Hashable | None]) -> None:
        """Append rows: the name of each one's group, None for a row that is a group of its own."""
        found = []
        for name in names:
            number = None if name is None else self._numbers.get(name)
            if number is None:
                number = self._count
                self._count += 1
                if name is not None:
                    self._numbers[name] = number
            found.append(number)
        self._parts.append(np.array(found, np.int64))

    def finish(self) -> NDArray[np.int64]:
        """Return the number of each row's group, int64 (N,), from 0 in the order of first rows."""
        return np.concatenate(self._parts)


def numbered(names: Iterable[Hashable | None]) -> NDArray[np.int64]:
    """Return the number of each row's group, see `Groups`.

    Example:
        >>> numbered(["b", "a", None, "b", None])
        array([0, 1, 2, 0, 3])
    """
    groups = Groups()
    groups.add(names)
    return groups.finish()
