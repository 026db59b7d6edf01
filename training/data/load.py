"""Data sets by name, with the options common to all."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from training.data import (
    arrays,
    cifar10,
    cifar10_shifted,
    cifar100,
    digits,
    fashion_mnist,
    image_folder,
    image_shards,
    mnist,
    newsgroups20,
    subset,
    svhn,
    table,
    text_folder,
    texts,
    vehicle_fraud,
)
from training.data.dataset import Dataset
from training.errors import ConfigurationError

Reader = Callable[..., Dataset]

DATASETS: dict[str, Reader] = {
    "digits": digits.load,
    "cifar10": cifar10.load,
    "cifar100": cifar100.load,
    "svhn": svhn.load,
    "mnist": mnist.load,
    "fashion_mnist": fashion_mnist.load,
    "newsgroups20": newsgroups20.load,
    "vehicle_fraud": vehicle_fraud.load,
    "table": table.load,
    "text_folder": text_folder.load,
    "texts": texts.load,
    "image_folder": image_folder.load,
    "image_shards": image_shards.load,
    "arrays": arrays.load,
}
SHIFTED: dict[str, Reader] = {"cifar10.1": cifar10_shifted.load_10_1, "cifar10.2": cifar10_shifted.load_10_2}


@dataclass(frozen=True)
class DataOptions:
    """Options of any data set.

    Attributes:
        folder: Folder of data sets, or of this one; None for CANDOR_DATA.
        rows: Rows to keep outside the test part, classes in proportion; None for all.
        test_rows: Rows to set apart for testing if the data set has no test part, classes in proportion.
        seed: Seed of both choices, independent of a run's seed, so that runs share their test part.
        settings: The reader's own keywords by name, such as `length` or `label`.
    """

    folder: Path | None = None
    rows: int | None = None
    test_rows: int = 0
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def load(name: str, options: DataOptions | None = None) -> Dataset:
    """Read a data set.

    Args:
        name: Key of `DATASETS` or, for evaluation, of `SHIFTED`; after a colon optionally classes, separated by commas,
            in the order of their numbers.
        options: Further options.

    Returns:
        The data set; vocabulary and categories are those of all rows (see `Dataset.learned_from`).

    Raises:
        ConfigurationError: An unknown name, class or setting, or not enough rows.
        DataError: The files are missing or damaged; the message says what to download and where to put it.

    Example:
        >>> load("digits:3,8").label_names
        ('3', '8')
    """
    options = options or DataOptions()
    key, chosen, classes = name.partition(":")
    readers = DATASETS | SHIFTED
    if key not in readers:
        raise ConfigurationError(f"unknown data set {key!r}, expected one of: {', '.join(sorted(readers))}")
    data = _read(key, readers[key], options)
    if chosen:
        data = subset.of_classes(data, [part.strip() for part in classes.split(",")])
    if options.test_rows:
        data = subset.with_test_rows(data, options.test_rows, seed=options.seed)
    if options.rows is not None:
        data = subset.of_rows(data, options.rows, seed=options.seed)
    return replace(data, name=name)


def describe() -> dict[str, str]:
    """Describe each data set of `DATASETS` and `SHIFTED` in one line, by name."""
    return {name: (inspect.getdoc(reader) or "").partition("\n")[0] for name, reader in (DATASETS | SHIFTED).items()}


def settings_of(name: str) -> dict[str, Any]:
    """Return the settings of a data set's reader with their defaults, by name; none for an unknown data set."""
    reader = (DATASETS | SHIFTED).get(name.partition(":")[0])
    keywords = () if reader is None else inspect.signature(reader).parameters.values()
    return {keyword.name: keyword.default for keyword in keywords if keyword.kind is keyword.KEYWORD_ONLY}


def parse_settings(items: Iterable[str]) -> dict[str, Any]:
    """Parse settings of the form `name=value`, where the value is JSON or else a string.

    Raises:
        ConfigurationError: An item has no `=`.

    Example:
        >>> parse_settings(["length=500", 'drop=["id"]', "file=claims.csv"])
        {'length': 500, 'drop': ['id'], 'file': 'claims.csv'}
    """
    settings = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise ConfigurationError(f"the setting {item!r} is not of the form name=value")
        try:
            settings[name.strip()] = json.loads(value)
        except ValueError:
            settings[name.strip()] = value
    return settings


def _read(name: str, reader: Reader, options: DataOptions) -> Dataset:
    known, settings, keywords = settings_of(name), dict(options.settings), inspect.signature(reader).parameters
    for setting in options.settings:
        if setting not in known:
            told = f"expected one of: {', '.join(known)}" if known else "it has no settings"
            raise ConfigurationError(f"{name} has no setting {setting!r}, {told}")
        value = settings[setting] = _as_meant(options.settings[setting], keywords[setting])
        if not _is_like(value, keywords[setting]):
            kinds = {(): '["…", …], a list of names', None: "text"}
            expected = kinds.get(known[setting], f"one like {known[setting]!r}")
            raise ConfigurationError(f"{name}: {setting} is {value!r}, expected {expected}")
    if "root" in keywords:
        return reader(options.folder, **settings)
    return reader(**settings)


def _is_text(keyword: inspect.Parameter) -> bool:
    return str(keyword.annotation) in ("str", "str | None")


def _as_meant(value: object, keyword: inspect.Parameter) -> object:
    """Turn a name into a list of one where names are expected, and a number into text, such as a column's name."""
    if isinstance(keyword.default, tuple) and isinstance(value, str):
        return [value]
    return json.dumps(value) if _is_text(keyword) and isinstance(value, int | float) else value


def _is_like(value: object, keyword: inspect.Parameter) -> bool:
    """Return whether a setting has the type of its default; without a default, whether it is text if it must be."""
    default = keyword.default
    if isinstance(default, tuple):
        return isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)
    if default is not None:
        return type(value) is type(default)
    if value is None or not _is_text(keyword):
        return True
    return isinstance(value, str | Path)
