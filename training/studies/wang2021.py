"""Calibrated against calibratable: regularised losses before and after post-hoc calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from training.config import TrainConfig
from training.studies.cell import Cell
from training.studies.common import (
    TITLES,
    by_loss,
    compared,
    comparison_table,
    finding,
    grouped,
    loss_title,
    printed,
    shown,
    values,
)
from training.studies.figures import curves, curves_by_epoch, largest_logit_histograms
from training.studies.page import Page
from training.studies.published import LOSSES, WANG, WANG_COEFFICIENTS
from training.studies.recipes import CIFAR_RECIPE, TWO_CORES
from training.studies.study import Result, Scale, Study

NAME = "wang2021"
SEEDS = {"small": 3, "full": 5}
COEFFICIENT = {"label_smoothing": "epsilon", "lp_norm": "alpha", "focal": "gamma", "inverse_focal": "gamma"}
SWEEPS: dict[str, tuple[float, ...]] = {
    "label_smoothing": (0.01, 0.03, 0.05, 0.07, 0.09),
    "lp_norm": (0.001, 0.005, 0.01, 0.05, 0.1),
    "focal": (1.0, 3.0, 5.0, 7.0, 9.0),
    "inverse_focal": (1.0, 2.0, 3.0),
}
_IMAGES_FULL: dict[str, Any] = CIFAR_RECIPE | {
    "model": "resnet32",
    "validation_rows": 2500,
    "reference_rows": 2500,
    "epochs": 200,
    "weight_decay": 1e-4,
    "schedule": "step",
    "milestones": (100, 150),
}
_TEXT_FULL: dict[str, Any] = {
    "dataset": "newsgroups20",
    "model": "text_cnn",
    "test_rows": 4000,
    "train_rows": 0,
    "stratified": True,
    "validation_rows": 500,
    "reference_rows": 1000,
    "epochs": 100,
    "batch_size": 128,
    "learning_rate": 1e-3,
    "schedule": "step",
    "milestones": (50, 75),
    "device": "auto",
    "threads": 2,
}
_IMAGES_SMALL: dict[str, Any] = (
    _IMAGES_FULL
    | TWO_CORES
    | {
        "dataset": "cifar10",
        "model": "resnet20",
        "validation_rows": 500,
    }
)
_TEXT_SMALL: dict[str, Any] = _TEXT_FULL | {
    "data_settings": {"length": 120},
    "epochs": 6,
    "schedule": "cosine",
    "milestones": (),
    "batch_size": 64,
    "precision": "bfloat16",
    "device": "cpu",
    "threads": 1,
}
_TASKS: dict[str, dict[str, dict[str, Any]]] = {
    "small": {"newsgroups20": _TEXT_SMALL, "cifar10": _IMAGES_SMALL},
    "full": {
        **{name: _IMAGES_FULL | {"dataset": name} for name in ("svhn", "cifar10", "cifar100")},
        "newsgroups20": _TEXT_FULL,
    },
}
_PUBLISHED = {
    "accuracy": "none",
    "ece": "none",
    "ece_temperature": "temperature",
    "ece_histogram_width": "histogram_width",
}


def cells(scale: Scale, seeds: int | None) -> list[Cell]:
    """Tables 1 and 2 first, all seeds; then inverse focal; then the other coefficients; ResNet-110 at full scale."""
    grid: list[Cell] = []
    numbers = range(seeds or SEEDS[scale])
    tasks = _TASKS[scale]
    for seed in numbers:
        for task, recipe in tasks.items():
            chosen = WANG_COEFFICIENTS[task]
            grid += [_cell(task, recipe, loss, chosen.get(loss), seed, full=True) for loss in LOSSES]
    for loss in ("inverse_focal", "label_smoothing", "lp_norm", "focal"):
        for seed in numbers:
            for task, recipe in tasks.items():
                grid += [
                    _cell(task, recipe, loss, value, seed, full=False)
                    for value in SWEEPS[loss]
                    if WANG_COEFFICIENTS[task].get(loss) != value
                ]
    if scale == "full":
        for seed in numbers:
            for task in ("cifar10", "cifar100"):
                recipe = tasks[task] | {"model": "resnet110", "warm_up": 1.0}
                grid += [
                    _cell(task, recipe, loss, WANG_COEFFICIENTS[task].get(loss), seed, full=True) for loss in LOSSES
                ]
    return grid


def _cell(task: str, recipe: dict[str, Any], loss: str, value: float | None, seed: int, *, full: bool) -> Cell:
    coefficients = {} if value is None else {COEFFICIENT[loss]: value}
    if loss == "lp_norm":
        coefficients["p"] = 1.0
    config = TrainConfig(**recipe, loss=loss, coefficients=coefficients, seed=seed)
    extras: dict[str, Any] = {}
    if full:
        extras = {"validation_sizes": [50, 100, 250, 500, 1000, 2500], "largest_logits": True}
        if task == "cifar10":
            extras["people"] = True
    called = loss if value is None else f"{loss}={value:g}"
    return Cell(NAME, f"{task}-{config.model}-{called}@{seed}", config, extras)


def report(results: Sequence[Result], page: Page) -> None:
    """Tables 1 and 2, figures 1 and 3 to 6, for each data set and network."""
    for (task, model), found in grouped(results, _task).items():
        chosen = by_loss([result for result in found if _is_chosen(result)])
        page.heading(f"{task}, {model}")
        if TITLES["cross_entropy"] not in chosen:
            page.text_block("Cross-entropy has not been run, so nothing can be compared with it yet.")
            continue
        _tables(page, f"{task}-{model}", task, chosen)
        page.heading("Findings", 3)
        page.points(_findings(chosen))
        _figures(page, f"{task}-{model}", found, chosen)


def _tables(page: Page, name: str, task: str, chosen: dict[str, list[Result]]) -> None:
    page.text_block(
        "Percent (T and NLL as they are), mean ± standard deviation over seeds; *p* is of Welch's two-sided t-test "
        "against cross-entropy; *null* is the mean ECE of a calibrated model with the same confidences; HB has 15 bins."
    )
    comparison_table(page, f"{name}-losses", chosen)
    published = WANG[task]
    rows = []
    for title, found in chosen.items():
        loss = found[0]["cell"]["config"]["loss"]
        row = [title]
        for metric, method in _PUBLISHED.items():
            key = "accuracy" if metric == "accuracy" else "ece"
            row += [shown(values(found, "test", method, key)), printed(published[metric].get(loss))]
        row += [shown(values(found, "temperature", scale=1.0)), printed(published["temperature"].get(loss))]
        rows.append(row)
    header = ["loss"]
    for title in ("accuracy", "ECE", "ECE, TS", "ECE, HB", "T"):
        header += [title, "published"]
    page.text_block("Beside the published figures (ResNet-32 or their 1-D CNN, their splits, 5 seeds):")
    page.table(f"{name}-published", header, rows)


def _findings(chosen: dict[str, list[Result]]) -> list[str]:
    baseline = chosen[TITLES["cross_entropy"]]
    found = []
    for title, results in chosen.items():
        if results is baseline:
            continue
        inverse = results[0]["cell"]["config"]["loss"] == "inverse_focal"

        def pair(*path: str, results: list[Result] = results) -> Any:
            return compared(values(results, *path), values(baseline, *path))

        before, scaled = (pair("test", method, "ece") for method in ("none", "temperature"))
        if inverse:
            found.append(finding(f"{title} is worse calibrated before TS than cross-entropy", before, higher=True))
            found.append(finding(f"{title} is better calibrated after TS", scaled, higher=False))
            continue
        found.append(finding(f"{title} is better *calibrated*: lower ECE before TS", before, higher=False))
        found.append(finding(f"{title} is worse *calibratable*: higher ECE after TS", scaled, higher=True))
        binned = pair("test", "histogram_width", "ece")
        found.append(finding(f"{title}: higher ECE after HB", binned, higher=True))
        found.append(finding(f"{title} loses refinement: lower AUROC", pair("test", "none", "auroc"), higher=False))
    return found


def _figures(page: Page, name: str, found: list[Result], chosen: dict[str, list[Result]]) -> None:
    if any(result["epochs"][0]["validation"] for result in found):
        page.figure(
            f"{name}-optimal-ece",
            curves_by_epoch(chosen, "optimal_ece", title=f"{name}: optimal ECE", ylabel="optimal ECE, %"),
            "The least ECE that any T reaches on the validation rows after each epoch: mean and range over seeds.",
        )
    smoothing = {
        loss_title(group[0]["cell"]["config"]): group
        for group in by_loss(r for r in found if _loss(r) in ("cross_entropy", "label_smoothing")).values()
    }
    if len(smoothing) > 2:
        page.figure(
            f"{name}-optimal-ece-label-smoothing",
            curves_by_epoch(smoothing, "optimal_ece", title=f"{name}: label smoothing", ylabel="optimal ECE, %"),
            "The same for several strengths of label smoothing.",
        )
    with_logits = {title: group for title, group in chosen.items() if group[0].get("largest_logits")}
    if with_logits:
        page.figure(
            f"{name}-largest-logit",
            largest_logit_histograms(with_logits, title=f"{name}: largest logit by learned epoch"),
            "Training rows of the first seed; learned epoch: since when the row was right, as the loop met it.",
        )
    for method, title in (("temperature", "TS"), ("histogram_width", "HB")):
        lines = {loss: line for loss, group in chosen.items() if (line := _by_size(group, method))}
        if lines:
            page.figure(
                f"{name}-validation-size-{method.replace('_', '-')}",
                curves(
                    lines,
                    title=f"{name}: rows that {title} is fitted on",
                    xlabel="calibration rows",
                    ylabel="test ECE, %",
                    log=True,
                ),
                "Mean over seeds and ten subsets of each size.",
            )
    _sweeps(page, name, found)


def _by_size(group: list[Result], method: str) -> tuple[list[float], list[float]] | None:
    known = [result["validation_size"] for result in group if result.get("validation_size")]
    if not known:
        return None
    sizes = [float(entry["rows"]) for entry in known[0]]
    eces = [[entry["ece"][method] for entry in sizes_of] for sizes_of in known]
    return sizes, (100 * np.mean(eces, axis=0)).tolist()


def _sweeps(page: Page, name: str, found: list[Result]) -> None:
    """Figures 1 and 6: every coefficient that was run, before and after TS."""
    rows = []
    for loss, name_of in COEFFICIENT.items():
        groups: dict[float, list[Result]] = {}
        for result in found:
            if _loss(result) == loss:
                groups.setdefault(result["cell"]["config"]["coefficients"][name_of], []).append(result)
        if len(groups) < 2:
            continue
        for value in sorted(groups):
            group = groups[value]
            row = [TITLES[loss], f"{value:g}", str(len(group)), shown(values(group, "test", "none", "accuracy"))]
            row += [shown(values(group, "test", m, "ece")) for m in ("none", "temperature", "histogram_width")]
            row += [shown(values(group, "temperature", scale=1.0)), shown(values(group, "test", "none", "auroc"))]
            rows.append(row)
    if rows:
        page.text_block("Coefficients:")
        header = ["loss", "coefficient", "seeds", "accuracy", "ECE", "ECE, TS", "ECE, HB", "T", "AUROC"]
        page.table(f"{name}-coefficients", header, rows)


def _task(result: Result) -> tuple[str, str]:
    config = result["cell"]["config"]
    return str(config["dataset"]), str(config["model"])


def _loss(result: Result) -> str:
    return str(result["cell"]["config"]["loss"])


def _is_chosen(result: Result) -> bool:
    """Whether a cell is one of the tables' (their coefficient), or the first inverse focal loss."""
    config = result["cell"]["config"]
    loss = config["loss"]
    if loss == "cross_entropy":
        return True
    value = config["coefficients"][COEFFICIENT[loss]]
    return bool(value == (1.0 if loss == "inverse_focal" else WANG_COEFFICIENTS[config["dataset"]][loss]))


STUDY = Study(
    name=NAME,
    title="Losses that regularise, before and after post-hoc calibration",
    source="Wang, Feng & Zhang 2021, Rethinking calibration of deep neural networks",
    cells=cells,
    reduced=(
        "CIFAR-10: ResNet-20 in place of ResNet-32, on 10,000 of the 50,000 training images (8,000 to learn from, "
        "500 for validation, 1,500 for calibration), 15 epochs with a cosine schedule, bfloat16, 3 seeds in place of "
        "5. The test part is complete.",
        "20 Newsgroups: all 19,997 posts, the first 120 words of each, embeddings learned with the network, 6 epochs "
        "with a cosine schedule, bfloat16, 3 seeds in place of 5.",
        "SVHN, CIFAR-100 and ResNet-110 are left out.",
        "Coefficients are the source's, which chose them by the ECE on its test rows, for longer training.",
        "Optimal ECE is measured on validation rows, not on the test rows.",
    ),
    report=report,
)
