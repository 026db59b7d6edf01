"""Calibrated against calibratable: regularised losses before and after post-hoc calibration."""

from __future__ import annotations

from typing import Any

from studies.cell import Cell
from studies.published import LOSSES, WANG_COEFFICIENTS
from studies.recipes import CIFAR_RECIPE, TWO_CORES, TWO_CORES_REDUCED
from studies.study import Scale, Study
from studies.wang2021_report import COEFFICIENT, INVERSE_FOCAL, report
from training.config import TrainConfig

NAME = "wang2021"
SEEDS: dict[str, dict[str, int]] = {"small": {"newsgroups20": 12, "cifar10": 6}, "full": {}}
"""Seeds of each data set, by the power of its comparisons (`--power`); where none are named, the source's five."""
SWEEP_SEEDS = {"small": 1, "full": 5}
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
_IMAGES_SMALL: dict[str, Any] = _IMAGES_FULL | TWO_CORES | {"dataset": "cifar10", "model": "resnet20"}
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

_SIZES: dict[str, tuple[str, dict[int, int]]] = {
    "small": ("newsgroups20", {2400: 12, 6000: 9}),
    "full": ("cifar10", {5000: 200, 10_000: 200, 20_000: 200}),
}
"""Data set of figure 1d, and its numbers of training rows with their epochs; all rows are the other cells'."""
_SWEPT: dict[str, tuple[str, ...]] = {"small": ("newsgroups20",), "full": tuple(_TASKS["full"])}


def cells(scale: Scale, seeds: int | None) -> list[Cell]:
    """Return tables 1 and 2 with inverse focal for all seeds, other coefficients, fewer training rows, ResNet-110."""
    grid: list[Cell] = []
    tasks = _TASKS[scale]
    numbers = {task: range(seeds or SEEDS[scale].get(task, 5)) for task in tasks}
    for seed in range(max(map(len, numbers.values()))):
        for task, recipe in tasks.items():
            if seed in numbers[task]:
                chosen = WANG_COEFFICIENTS[task]
                grid += [_cell(task, recipe, loss, chosen.get(loss), seed, full=True) for loss in LOSSES]
                grid.append(_cell(task, recipe, "inverse_focal", INVERSE_FOCAL, seed, full=True))
    for task in _SWEPT[scale]:
        for seed in range(min(len(numbers[task]), SWEEP_SEEDS[scale])):
            for loss, values_of in SWEEPS.items():
                compared_already = INVERSE_FOCAL if loss == "inverse_focal" else WANG_COEFFICIENTS[task][loss]
                grid += [
                    _cell(task, tasks[task], loss, value, seed, full=False)
                    for value in values_of
                    if value != compared_already
                ]
    task, sizes = _SIZES[scale]
    for rows, epochs in sizes.items():
        recipe = tasks[task] | {"train_rows": rows, "epochs": epochs}
        for loss in LOSSES:
            values = SWEEPS.get(loss, (None,))
            grid += [_cell(task, recipe, loss, value, 0, full=False) for value in values]
    if scale == "full":
        for task in ("cifar10", "cifar100"):
            recipe = tasks[task] | {"model": "resnet110", "warm_up": 1.0}
            for seed in numbers[task]:
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
    size = f"rows={config.train_rows}-" if config.train_rows else ""
    return Cell(NAME, f"{task}-{config.model}-{size}{called}@{seed}", config, extras)


STUDY = Study(
    name=NAME,
    title="Losses that regularise, before and after post-hoc calibration",
    source="Wang, Feng & Zhang 2021, Rethinking calibration of deep neural networks",
    question="Are networks of regularised losses better calibrated than cross-entropy's, yet worse calibratable?",
    cells=cells,
    reduced=(
        f"CIFAR-10: {'; '.join(TWO_CORES_REDUCED)}; 6 seeds; other coefficients are left out.",
        "20 Newsgroups: all 19,997 posts, the first 120 words of each, embeddings learned with the network, 6 epochs "
        "with a cosine schedule, bfloat16, 12 seeds, and 1 for other coefficients.",
        "Figure 1d: on 20 Newsgroups instead of CIFAR-10, three numbers of training rows, fewer coefficients, "
        "one seed.",
        "SVHN, CIFAR-100 and ResNet-110 are left out.",
        "Coefficients are the source's. It chose them by the ECE on its test rows, for longer training.",
        "Optimal ECE is measured on validation rows, not on the test rows.",
    ),
    report=report,
)
