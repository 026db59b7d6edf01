"""One cell of a study's grid: a named network to train and to measure."""

from __future__ import annotations

import copyreg
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from training.config import TrainConfig
from training.errors import ConfigurationError

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=,@-]{0,149}")
_NOT_OF_A_CELL = ("data", "by_data")  # the location of its data; nothing in a cell follows them
_BY_THE_DATA = {"calibrator": "temperature"}  # what a study's data sets get where a cell names none


def _read_only(entries: dict[str, Any]) -> MappingProxyType[str, Any]:
    return MappingProxyType(entries)


copyreg.pickle(MappingProxyType, lambda view: (_read_only, (dict(view),)))  # workers get cells by pickle


@dataclass(frozen=True)
class Cell:
    """A network to train and to measure.

    Attributes:
        study: Name of the study.
        key: Name of the cell in it, and of its folder.
        config: What to train.
        extras: What to measure beside the metrics of every cell, by name; plain values.

    Raises:
        ConfigurationError: The key is not a valid folder name.

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

    def document(self) -> dict[str, Any]:
        """Return what identifies the cell, as plain values, without the location of its data."""
        config = {
            entry.name: _plain(getattr(self.config, entry.name))
            for entry in fields(self.config)
            if entry.name not in _NOT_OF_A_CELL
        }
        config |= {name: value for name, value in _BY_THE_DATA.items() if config[name] is None}
        return {"study": self.study, "key": self.key, "config": config, "extras": _plain(self.extras)}

    def folder(self, out: Path) -> Path:
        """Return the cell's folder, `<out>/<study>/<key>`."""
        return out / self.study / self.key


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with defaults for those that are newer than the result."""
    return {**_DEFAULTS, **config}


def serves(cell: Cell, found: Mapping[str, Any]) -> bool:
    """Return whether the measurements of another cell, given its document, cover all that this cell asks for."""
    wanted = cell.document()
    extras = found.get("extras", {})
    return bool(
        _settings(found.get("config", {})) == _settings(wanted["config"])
        and all(extras.get(name) == value for name, value in wanted["extras"].items())
    )


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Describe the differences between two documents of cells; empty if there are none."""
    told = []
    for part in ("study", "key", "config", "extras"):
        before, now = found.get(part), expected.get(part)
        if isinstance(before, dict) and isinstance(now, dict):
            if part == "config":
                before, now = _settings(before), _settings(now)
            told += [
                f"{name} was {before.get(name)!r} and is {now.get(name)!r}"
                for name in sorted(before.keys() | now.keys())
                if before.get(name) != now.get(name)
            ]
        elif before != now:
            told.append(f"{part} was {before!r} and is {now!r}")
    return "; ".join(told)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value


_DEFAULTS = {
    entry.name: _plain(getattr(TrainConfig(), entry.name))
    for entry in fields(TrainConfig)
    if entry.name not in _NOT_OF_A_CELL
}
