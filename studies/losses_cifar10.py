"""Four losses and three networks on CIFAR-10: the calibration error while they train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from studies.cell import Cell
from studies.common import TITLES, by_loss, comparison_table, grouped, null_level
from studies.figures import curves_by_epoch
from studies.page import Page
from studies.pairs import at, claimed
from studies.recipes import CIFAR_RECIPE, TWO_CORES, TWO_CORES_REDUCED
from studies.study import Result, Scale, Study
from studies.verdicts import Claim, Question, findings
from training.config import TrainConfig

NAME = "losses-cifar10"
SEEDS = 3
LOSSES: dict[str, dict[str, float]] = {
    "cross_entropy": {},
    "lp_norm": {"alpha": 0.01, "p": 1.0},
    "entropy_regularisation": {"beta": 0.1},
    "focal": {"gamma": 3.0},
}
MORE_LOSSES: dict[str, dict[str, float]] = {
    "label_smoothing": {"epsilon": 0.05},
    "inverse_focal": {"gamma": 1.0},
    "sample_dependent_focal": {},
    "mmce": {"lam": 2.0},
    "weighted_mmce": {"lam": 2.0},
    "correctness_ranking": {"lam": 1.0},
}
"""Losses beyond the source's, compared at the small scale, where a network takes minutes."""
_OTHERS = "others"
_LOWER, _HIGHER = "have a lower ECE than those of cross-entropy", "have a higher ECE than those of cross-entropy"
_SOURCE_SAYS = {
    "lp_norm": ("networks of the L1 norm", _LOWER, _HIGHER),
    "focal": ("networks of focal loss", _LOWER, _HIGHER),
    "entropy_regularisation": ("networks of entropy regularisation (no effect in the source)", _LOWER, _HIGHER),
    _OTHERS: ("networks of the six further losses", _LOWER, _HIGHER),
}
"""Its claims: subject, claim, opposite."""
_FULL: dict[str, Any] = CIFAR_RECIPE | {
    "dataset": "cifar10",
    "validation_rows": 2500,
    "reference_rows": 2500,
    "epochs": 200,
    "weight_decay": 5e-4,
    "schedule": "cosine",
}
_SMALL: dict[str, Any] = _FULL | TWO_CORES


def cells(scale: Scale, seeds: int | None) -> list[Cell]:
    """Return each loss with each network."""
    recipe = {"small": _SMALL, "full": _FULL}[scale]
    networks = {"small": ("resnet20",), "full": ("resnet18", "resnet50", "vgg16_bn")}[scale]
    losses = {"small": LOSSES | MORE_LOSSES, "full": LOSSES}[scale]
    return [
        Cell(
            NAME,
            f"{network}-{loss}@{seed}",
            TrainConfig(**recipe, model=network, loss=loss, coefficients=coefficients, seed=seed),
        )
        for seed in range(seeds or SEEDS)
        for network in networks
        for loss, coefficients in losses.items()
    ]


def report(results: Sequence[Result], page: Page) -> list[Question]:
    """Write the report's figures for each network and its claims about each loss."""
    overconfident: list[Claim] = []
    lower: dict[str, list[Claim]] = {name: [] for name in _SOURCE_SAYS}
    for model, found in grouped(results, lambda result: result["cell"]["config"]["model"]).items():
        groups = by_loss(found)
        page.heading(model)
        for metric, title in (("ece", "ECE"), ("ece_at_temperature", "ECE at the T of the least NLL")):
            page.figure(
                f"{model}-{metric.replace('_', '-')}",
                curves_by_epoch(
                    groups, metric, title=f"{model}: {title}", ylabel=f"{title}, %", levels=null_level(found)
                ),
                "Validation rows after each epoch; mean and range over seeds.",
            )
        baseline = groups.get(TITLES["cross_entropy"])
        if baseline is None:
            page.text_block("Cross-entropy has not been run yet, so no loss can be compared with it.")
            continue
        comparison_table(page, f"{model}-losses", groups)
        sure = claimed(
            model,
            "cross-entropy is overconfident: confidence above accuracy",
            baseline,
            baseline,
            at("test", "none", "confidence"),
            other=at("test", "none", "accuracy"),
            baseline=f"accuracy of cross-entropy on {model}",
            higher=True,
        )
        overconfident.append(sure)
        here: list[Claim] = []
        for title, group in groups.items():
            if group is baseline:
                continue
            here.append(
                claimed(
                    f"{title} on {model}",
                    f"{title} lowers the ECE",
                    group,
                    baseline,
                    at("test", "none", "ece"),
                    baseline=f"cross-entropy on {model}",
                    higher=False,
                )
            )
            loss = group[0]["cell"]["config"]["loss"]
            lower[loss if loss in lower else _OTHERS].append(here[-1])
        findings(page, [sure, *here])
    return [
        Question("networks of cross-entropy", "are overconfident", "are underconfident", overconfident),
        *(Question(*_SOURCE_SAYS[name], group) for name, group in lower.items()),
    ]


STUDY = Study(
    name=NAME,
    title="Calibration error over training, four losses and three networks",
    source="A report on loss functions and calibration on CIFAR-10",
    question="Which losses make networks better calibrated than cross-entropy does?",
    cells=cells,
    reduced=(
        f"One network instead of ResNet-18, ResNet-50 and VGG-16: {'; '.join(TWO_CORES_REDUCED)}. The source gives "
        "neither its epochs nor its coefficients.",
        "Six more losses beside the source's four.",
        "Networks with the same recipe are shared with the other CIFAR-10 studies.",
        "The ECE of each epoch is measured on validation rows, not on the test rows.",
    ),
    report=report,
)
