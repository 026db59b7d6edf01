"""One cell of a study's grid: a network to train and to measure, with a name of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from training.config import TrainConfig
from training.errors import ConfigurationError

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=,@-]{0,149}")
_OF_THE_MACHINE = ("data",)  # where the data lie does not change what a cell is


@dataclass(frozen=True)
class Cell:
    """A network to train and to measure.

    Attributes:
        study: Name of the study.
        key: Name of the cell in it, and of its folder.
        config: What to train.
        extras: What to measure beside the metrics that every cell gets, by name; plain values.

    Raises:
        ConfigurationError: The key is no name of a folder.

    Example:
        >>> Cell("wang2021", "focal@1", TrainConfig(loss="focal", seed=1)).folder(Path("out")).as_posix()
        'out/wang2021/focal@1'
    """

    study: str
    key: str
    config: TrainConfig
    extras: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise ConfigurationError(f"the cell's key is {self.key!r}, expected letters, digits and . _ = , @ -")

    def __reduce__(self) -> tuple[Any, ...]:
        # Workers get cells by pickle, which has no word for the read-only mappings in them.
        given = {entry.name: getattr(self.config, entry.name) for entry in fields(self.config)}
        return _restored, (
            self.study,
            self.key,
            {name: _writable(value) for name, value in given.items()},
            dict(self.extras),
        )

    def document(self) -> dict[str, Any]:
        """What makes the cell what it is, as plain values; where its data lie is left out."""
        config = {
            entry.name: _plain(getattr(self.config, entry.name))
            for entry in fields(self.config)
            if entry.name not in _OF_THE_MACHINE
        }
        return {"study": self.study, "key": self.key, "config": config, "extras": _plain(self.extras)}

    def folder(self, out: Path) -> Path:
        """The cell's folder, `<out>/<study>/<key>`."""
        return out / self.study / self.key


def serves(cell: Cell, found: Mapping[str, Any]) -> bool:
    """Whether what was measured of another cell, whose document this is, holds all that this cell asks for."""
    wanted = cell.document()
    extras = found.get("extras", {})
    return bool(
        found.get("config") == wanted["config"]
        and all(extras.get(name) == value for name, value in wanted["extras"].items())
    )


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """In words, where two documents of cells differ; empty where they do not."""
    told = []
    for part in ("study", "key", "config", "extras"):
        before, now = found.get(part), expected.get(part)
        if isinstance(before, dict) and isinstance(now, dict):
            told += [
                f"{name} was {before.get(name)!r} and is {now.get(name)!r}"
                for name in sorted(before.keys() | now.keys())
                if before.get(name) != now.get(name)
            ]
        elif before != now:
            told.append(f"{part} was {before!r} and is {now!r}")
    return "; ".join(told)


def _restored(study: str, key: str, config: dict[str, Any], extras: dict[str, Any]) -> Cell:
    return Cell(study, key, TrainConfig(**config), extras)


def _writable(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value
