"""Four losses and three networks on CIFAR-10: the calibration error while they train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from training.config import TrainConfig
from training.studies.cell import Cell
from training.studies.common import by_loss, compared, comparison_table, finding, grouped, values
from training.studies.figures import curves_by_epoch
from training.studies.page import Page
from training.studies.recipes import CIFAR_RECIPE, TWO_CORES
from training.studies.study import Result, Scale, Study

NAME = "losses-cifar10"
SEEDS = {"small": 3, "full": 1}
LOSSES: dict[str, dict[str, float]] = {
    "cross_entropy": {},
    "lp_norm": {"alpha": 0.01, "p": 1.0},
    "entropy_regularisation": {"beta": 0.1},
    "focal": {"gamma": 3.0},
}
_FULL: dict[str, Any] = CIFAR_RECIPE | {
    "dataset": "cifar10",
    "validation_rows": 2500,
    "reference_rows": 2500,
    "epochs": 200,
    "weight_decay": 5e-4,
    "schedule": "cosine",
}
_SMALL: dict[str, Any] = (
    _FULL
    | TWO_CORES
    | {
        "validation_rows": 1000,
    }
)


def cells(scale: Scale, seeds: int | None) -> list[Cell]:
    """Each loss with each network."""
    recipe = {"small": _SMALL, "full": _FULL}[scale]
    networks = {"small": ("resnet20",), "full": ("resnet18", "resnet50", "vgg16_bn")}[scale]
    return [
        Cell(
            NAME,
            f"{network}-{loss}@{seed}",
            TrainConfig(**recipe, model=network, loss=loss, coefficients=coefficients, seed=seed),
        )
        for seed in range(seeds or SEEDS[scale])
        for network in networks
        for loss, coefficients in LOSSES.items()
    ]


def report(results: Sequence[Result], page: Page) -> None:
    """The report's figure for each network, and what it says of each loss."""
    for model, found in grouped(results, lambda result: result["cell"]["config"]["model"]).items():
        groups = by_loss(found)
        page.heading(model)
        for metric, title in (("ece", "ECE"), ("ece_at_temperature", "ECE at the T of the least NLL")):
            page.figure(
                f"{model}-{metric.replace('_', '-')}",
                curves_by_epoch(groups, metric, title=f"{model}: {title}", ylabel=f"{title}, %"),
                "Validation rows after each epoch: mean and range over seeds.",
            )
        comparison_table(page, f"{model}-losses", groups)
        baseline = next(iter(groups.values()))
        if baseline[0]["cell"]["config"]["loss"] != "cross_entropy":
            continue
        page.heading("Findings", 3)
        pairs = {
            title: compared(values(group, "test", "none", "ece"), values(baseline, "test", "none", "ece"))
            for title, group in groups.items()
            if group is not baseline
        }
        page.points([finding(f"{title} lowers the ECE", pair, higher=False) for title, pair in pairs.items()])


STUDY = Study(
    name=NAME,
    title="Calibration error over training, four losses and three networks",
    source="A report on loss functions and calibration on CIFAR-10",
    cells=cells,
    reduced=(
        "ResNet-20 in place of ResNet-18, ResNet-50 and VGG-16; 10,000 of the 50,000 training images (7,500 to learn "
        "from), 15 epochs, bfloat16. The source gives neither its epochs nor its coefficients.",
        "The ECE of each epoch is measured on validation rows, not on the test rows.",
    ),
    report=report,
)
