"""A study of your own: a grid in a YAML file.

    name: defects
    question: Which loss is best calibrated on our photographs?
    base: {dataset: image_folder, data_settings: {folder: photographs, size: 64}, epochs: 20, test_rows: 500}
    grid:
      loss:
        cross-entropy: {}
        focal 3: {loss: focal, coefficients: {gamma: 3}}
        ours: {loss: "defects.losses:asymmetric"}
      dropout: [0, 0.2]
    seeds: 5

`base` and each entry of the grid are settings of `TrainConfig`. An axis that lists values sets the field of its name.
The grid has a cell for each combination and seed; all combinations are compared with the first one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from studies.cell import Cell
from studies.common import comparison_table, grouped
from studies.page import Page
from studies.pairs import at, claimed
from studies.study import Result, Scale, Study
from studies.verdicts import Question, findings
from training.config import TrainConfig
from training.errors import ConfigurationError
from training.trees import TREES

ENDINGS = (".yaml", ".yml")
_FIELDS = {"name": str, "title": str, "question": str, "base": dict, "grid": dict, "seeds": int}
_NEEDED = ("name", "grid")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_METHODS = {"none": "before scaling", "temperature": "after temperature scaling"}


class _Loader(yaml.SafeLoader):
    """Reads 1e-3 as a number, as YAML 1.2 does."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def declared(path: Path) -> Study:
    """Read a study from a YAML file.

    Raises:
        ConfigurationError: The file cannot be read, or does not declare a grid of valid settings.
    """
    document = _read(path)
    name = document["name"]
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{path}: name is {name!r}, expected lower-case letters, digits, _ and -")
    base, seeds = document.get("base", {}), document.get("seeds", 3)
    if isinstance(seeds, bool) or seeds < 1:
        raise ConfigurationError(f"{path}: seeds is {seeds}, expected at least 1")
    axes = [_axis(path, axis, entries) for axis, entries in document["grid"].items()]
    if "seed" in base or any("seed" in entry for axis in axes for entry in axis.values()):
        raise ConfigurationError(f"{path}: seed is a setting, expected `seeds`, their number")
    combinations = [tuple(labels) for labels in itertools.product(*axes)]
    known: dict[str, tuple[str, ...]] = {}
    for labels in combinations:
        if (key := _slug(labels)) in known:
            raise ConfigurationError(
                f"{path}: {' · '.join(known[key])} and {' · '.join(labels)} have the same key {key!r}, "
                "expected labels that differ in letters or digits"
            )
        known[key] = labels
    settings = {
        labels: _merged(base, [axis[label] for axis, label in zip(axes, labels, strict=True)])
        for labels in combinations
    }

    def cells(_: Scale, given: int | None) -> list[Cell]:
        return [
            Cell(name, f"{_slug(labels)}@{seed}", _config(path, labels, {**settings[labels], "seed": seed}))
            for seed in range(given or seeds)
            for labels in combinations
        ]

    def report(results: Sequence[Result], page: Page) -> Sequence[Question]:
        return _report(results, page, combinations)

    cells("small", 1)  # raises for settings out of range, before anything runs
    return Study(
        name=name,
        title=document.get("title", name),
        source=f"the grid in {path.name}",
        question=document.get("question", "Which settings differ from the first in calibration error?"),
        cells=cells,
        reduced=(),
        report=report,
        file=path.name,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506  # a SafeLoader
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        said = " ".join(str(error).replace('in "<unicode string>", ', "").split())
        raise ConfigurationError(f"{path} cannot be read: {said}") from error
    if not isinstance(document, dict):
        found = "nothing" if document is None else type(document).__name__
        raise ConfigurationError(f"{path} holds {found}, expected a mapping with name and grid")
    if strange := sorted(map(str, document.keys() - _FIELDS.keys())):
        raise ConfigurationError(f"{path}: unknown field {strange[0]!r}, expected {', '.join(_FIELDS)}")
    if missing := [name for name in _NEEDED if not document.get(name)]:
        raise ConfigurationError(f"{path}: {missing[0]} is missing")
    for name, value in document.items():
        if not isinstance(value, _FIELDS[name]):
            raise ConfigurationError(f"{path}: {name} is {type(value).__name__}, expected {_FIELDS[name].__name__}")
    return document


def _axis(path: Path, axis: str, entries: object) -> dict[str, dict[str, Any]]:
    """Return the settings of each entry of an axis, by label."""
    if isinstance(entries, list) and entries:
        return {f"{axis} {value}": {axis: value} for value in entries}
    if isinstance(entries, dict) and entries and all(isinstance(each, dict) for each in entries.values()):
        return {str(label): each for label, each in entries.items()}
    raise ConfigurationError(
        f"{path}: the axis {axis} is {entries!r}, expected a list of values of the field {axis}, or settings by label"
    )


def _merged(base: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return dict(itertools.chain(base.items(), *(entry.items() for entry in entries)))


def _config(path: Path, labels: Sequence[str], settings: Mapping[str, Any]) -> TrainConfig:
    here = f"{path}: {' · '.join(labels)}"
    known = [field.name for field in fields(TrainConfig)]
    for name in settings:
        if name not in known:
            near = "".join(f"; did you mean {each}?" for each in get_close_matches(str(name), known, n=1))
            raise ConfigurationError(f"{here}: unknown setting {name!r}{near}")
    try:
        config = TrainConfig(**settings)
    except ConfigurationError as error:
        raise ConfigurationError(f"{here}: {error}") from error
    except TypeError as error:  # texts where numbers belong, and the like
        raise ConfigurationError(f"{here}: a setting has a wrong type: {error}") from error
    table = config.dataset.partition(":")[0] in ("table", "vehicle_fraud")
    if config.model in TREES or (config.model == "auto" and table):
        raise ConfigurationError(
            f"{path}: {' · '.join(labels)}: studies train networks, and the model is {config.model}; "
            "for a table, name a network such as table_cnn"
        )
    return config


def _slug(labels: Sequence[str]) -> str:
    return "-".join(re.sub(r"[^A-Za-z0-9._=]+", "_", label).strip("_") for label in labels)


def _report(results: Sequence[Result], page: Page, combinations: Sequence[tuple[str, ...]]) -> Sequence[Question]:
    called = {_slug(labels): " · ".join(labels) for labels in combinations}
    groups = grouped(results, lambda result: called[result["cell"]["key"].rpartition("@")[0]])
    groups = {title: groups[title] for title in called.values() if title in groups}  # in the grid's order
    page.heading("Comparison")
    comparison_table(page, "comparison", groups)
    baseline = " · ".join(combinations[0])
    if baseline not in groups:
        page.text_block(f"{baseline}, with which the others are compared, has no finished cell yet.")
        return []
    others = [title for title in groups if title != baseline]
    questions = []
    for method, when in _METHODS.items():
        claims = [
            claimed(
                title,
                f"{title} has a lower ECE than {baseline} {when}",
                groups[title],
                groups[baseline],
                at("test", method, "ece"),
                baseline=baseline,
                higher=False,
            )
            for title in others
        ]
        questions.append(
            Question(
                "settings",
                f"have a lower ECE than {baseline} {when}",
                f"have a higher ECE than {baseline} {when}",
                claims,
            )
        )
    if others:
        findings(page, [claim for question in questions for claim in question.claims])
    return questions
