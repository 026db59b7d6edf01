"""Shared by several studies: titles of losses, groups of results, tables of means over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from studies.page import Page
from studies.pairs import at, compared
from studies.published import Printed
from studies.statistics import Spread, spread
from studies.study import Result
from studies.verdicts import p_value

TITLES = {
    "cross_entropy": "cross-entropy",
    "label_smoothing": "label smoothing",
    "lp_norm": "L1 norm",
    "focal": "focal",
    "inverse_focal": "inverse focal",
    "entropy_regularisation": "entropy regularisation",
    "sample_dependent_focal": "sample-dependent focal",
    "mmce": "MMCE",
    "weighted_mmce": "weighted MMCE",
    "correctness_ranking": "correctness ranking",
    "mixup": "mixup",
}


def loss_title(config: Mapping[str, Any]) -> str:
    """Return the name of a loss with its coefficients.

    Example:
        >>> loss_title({"loss": "focal", "coefficients": {"gamma": 3.0}, "mixup": 0.0})
        'focal 3'
    """
    if config["mixup"]:
        return f"mixup {config['mixup']:g}"
    coefficients = dict(config["coefficients"])
    order = coefficients.pop("p", 1.0)
    title = TITLES[config["loss"]] if order == 1.0 else f"L{order:g} norm"
    return " ".join([title, *(f"{value:g}" for value in coefficients.values())])


def grouped(results: Iterable[Result], key: Callable[[Result], Any]) -> dict[Any, list[Result]]:
    """Group results by a key, in order of first appearance."""
    groups: dict[Any, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def network_of(result: Result) -> tuple[str, str]:
    """Return the data set and the model of a result."""
    config = result["cell"]["config"]
    return str(config["dataset"]), str(config["model"])


def by_loss(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Group results by loss and coefficients, all seeds together, cross-entropy first."""
    groups = grouped(results, lambda result: loss_title(result["cell"]["config"]))
    first = TITLES["cross_entropy"]
    return {name: groups[name] for name in sorted(groups, key=lambda name: name != first)}


def values(results: Iterable[Result], *path: str, scale: float = 100.0) -> Spread | None:
    """Return one number of each result, by its path; in percent by default."""
    number = at(*path)
    return spread([number(result) for result in results], scale)


def shown(found: Spread | Printed | None) -> str:
    """Return mean ± standard deviation, or a dash."""
    return "–" if found is None else str(found)


def null_level(results: Sequence[Result]) -> dict[str, float]:
    """Return the approximate ECE, in percent, of a calibrated model on the validation rows, as a named level.

    It is the null of the test rows after temperature scaling; a null falls with the square root of the number of rows.
    """
    nulls = [
        100 * result["test"]["temperature"]["ece_null_mean"] * math.sqrt(rows["test"] / rows["validation"])
        for result in results
        if (rows := result["rows"])["validation"]
    ]
    return {"a calibrated model's mean, about": sum(nulls) / len(nulls)} if nulls else {}


def comparison_table(page: Page, name: str, groups: Mapping[str, Sequence[Result]]) -> None:
    """Add a table of losses: accuracy, ECE before and after each method, refinement, T; tests against the first row.

    Args:
        page: The page.
        name: Name of the CSV.
        groups: Results of each loss, cross-entropy first.
    """
    header = ["loss", "seeds", "accuracy", "ECE", "p", "null", "T", "ECE, TS", "p", "ECE, HB width", "p"]
    header += ["ECE, HB mass", "Brier", "NLL", "AUROC", "p"]
    baseline = next(iter(groups.values()))
    rows = []
    for title, results in groups.items():

        def cell(*path: str, results: Sequence[Result] = results) -> tuple[str, str]:
            test = "" if results is baseline else p_value(compared(results, baseline, at("test", *path)))
            return shown(values(results, "test", *path)), test

        rows.append(
            [
                *(title, str(len(results)), cell("none", "accuracy")[0], *cell("none", "ece")),
                cell("none", "ece_null_mean")[0],
                shown(values(results, "temperature", scale=1.0)),
                *cell("temperature", "ece"),
                *cell("histogram_width", "ece"),
                cell("histogram_mass", "ece")[0],
                cell("none", "brier")[0],
                shown(values(results, "test", "none", "nll", scale=1.0)),
                *cell("none", "auroc"),
            ]
        )
    page.table(name, header, rows)
