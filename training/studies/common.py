"""What several studies share: cells of networks and losses, groups of results, tables of means over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from training.studies.page import Page
from training.studies.published import Printed
from training.studies.statistics import Comparison, Spread, paired, spread, welch
from training.studies.study import Result
from training.studies.verdicts import p_value

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


def recipe_name(config: Mapping[str, Any]) -> str:
    """What a network was trained by: its loss, or mixup."""
    return "mixup" if config["mixup"] else str(config["loss"])


def loss_title(config: Mapping[str, Any]) -> str:
    """A loss and its coefficients, to be read.

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
    """Results by a key, in the order in which the keys are met."""
    groups: dict[Any, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def by_loss(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Results by loss and coefficients, all seeds together, cross-entropy first."""
    groups = grouped(results, lambda result: loss_title(result["cell"]["config"]))
    first = TITLES["cross_entropy"]
    return {name: groups[name] for name in sorted(groups, key=lambda name: name != first)}


def values(results: Iterable[Result], *path: str, scale: float = 100.0) -> Spread | None:
    """One number of each result, by its path; in percent if not told otherwise."""

    def number(result: Result) -> float | None:
        found: Any = result
        for name in path:
            found = None if found is None else found.get(name)
        return None if found is None else float(found)

    return spread([number(result) for result in results], scale)


def shown(found: Spread | None) -> str:
    """Mean ± standard deviation, or a dash."""
    return "–" if found is None else str(found)


def printed(found: Printed | None) -> str:
    """A published figure, or a dash."""
    return "–" if found is None else str(found)


def compared(found: Spread | None, baseline: Spread | None) -> Comparison | None:
    """Welch's comparison of different networks; None where it cannot be made."""
    return None if found is None or baseline is None else welch(found, baseline)


def compared_pairwise(found: Spread | None, before: Spread | None) -> Comparison | None:
    """Comparison of two numbers of the same networks, by their differences; None where it cannot be made."""
    return None if found is None or before is None else paired(found, before)


def null_level(results: Sequence[Result]) -> dict[str, float]:
    """About what ECE, in percent, a calibrated model would show on the validation rows; named, for a figure.

    The null of the test rows after temperature scaling, by the rule that it falls with the square root of the rows.
    """
    nulls = [
        100 * result["test"]["temperature"]["ece_null_mean"] * math.sqrt(rows["test"] / rows["validation"])
        for result in results
        if (rows := result["rows"])["validation"]
    ]
    return {"a calibrated model's mean, about": sum(nulls) / len(nulls)} if nulls else {}


def comparison_table(page: Page, name: str, groups: Mapping[str, Sequence[Result]]) -> None:
    """A row a loss: accuracy, ECE before and after each post-hoc method, refinement, T; with tests against the first.

    Args:
        page: Where to put it.
        name: Of the CSV.
        groups: Results of each loss, cross-entropy first.
    """
    header = ["loss", "seeds", "accuracy", "ECE", "p", "null", "T", "ECE, TS", "p", "ECE, HB width", "p"]
    header += ["ECE, HB mass", "Brier", "NLL", "AUROC", "p"]
    baseline = next(iter(groups.values()))
    rows = []
    for title, results in groups.items():

        def cell(*path: str, results: Sequence[Result] = results) -> tuple[str, str]:
            ours, theirs = values(results, "test", *path), values(baseline, "test", *path)
            return shown(ours), "" if results is baseline else p_value(compared(ours, theirs))

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
