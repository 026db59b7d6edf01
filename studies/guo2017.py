"""What makes networks overconfident: capacity, batch normalisation, too little weight decay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from studies.cell import Cell
from studies.common import grouped, shown, values
from studies.figures import curves
from studies.page import Page
from studies.pairs import at, claimed
from studies.published import GUO
from studies.recipes import CIFAR_RECIPE, TWO_CORES, TWO_CORES_REDUCED
from studies.study import Result, Scale, Study
from studies.verdicts import Claim, Question, findings
from training.config import TrainConfig

NAME = "guo2017"
SEEDS = {"small": 4, "full": 3}
_RESNET, _CONVNET = "studies.networks:resnet", "studies.networks:convnet"
_FULL: dict[str, Any] = CIFAR_RECIPE | {
    "dataset": "cifar100",
    "validation_rows": 0,
    "reference_rows": 5000,
    "epochs": 200,
    "weight_decay": 1e-4,
    "schedule": "step",
    "milestones": (100, 150),
}
_RECIPES: dict[Scale, dict[str, Any]] = {"small": _FULL | TWO_CORES | {"dataset": "cifar10"}, "full": _FULL}


def _resnet(depth: int, width: int, **more: Any) -> dict[str, Any]:
    return {"model": _RESNET, "model_settings": {"depth": depth, "width": width}, **more}


def _convnet(batch_norm: bool) -> dict[str, Any]:
    # A rate at which the network learns without normalisation too.
    return {"model": _CONVNET, "model_settings": {"batch_norm": batch_norm}, "learning_rate": 0.02}


_CELLS: dict[Scale, dict[str, dict[str, Any]]] = {
    "small": {
        "depth=8": _resnet(8, 16),
        "depth=20": _resnet(20, 16),
        "width=8": _resnet(8, 8),
        "width=32": _resnet(8, 32),
        "batch_norm=no": _convnet(False),
        "batch_norm=yes": _convnet(True),
        "decay=0": _resnet(8, 16, weight_decay=0.0),
        "decay=0.001": _resnet(8, 16, weight_decay=1e-3),
        "decay=0.005": _resnet(8, 16, weight_decay=5e-3),
        "lenet5": {"model": "lenet5", "learning_rate": 0.01},
    },
    "full": {
        "depth=8": _resnet(8, 64),
        "depth=110": _resnet(110, 64),
        "depth=14": _resnet(14, 64),
        "depth=32": _resnet(32, 64),
        "width=8": _resnet(14, 8),
        "width=16": _resnet(14, 16),
        "width=128": _resnet(14, 128),
        "batch_norm=no": _convnet(False),
        "batch_norm=yes": _convnet(True),
        "decay=0": _resnet(32, 64, weight_decay=0.0),
        "decay=0.001": _resnet(32, 64, weight_decay=1e-3),
        "decay=0.005": _resnet(32, 64, weight_decay=5e-3),
        "lenet5": {"model": "lenet5", "learning_rate": 0.01},
    },
}
_AXES: dict[Scale, dict[str, tuple[str, ...]]] = {
    "small": {
        "depth": ("depth=8", "depth=20"),
        "width": ("width=8", "depth=8", "width=32"),
        "batch normalisation": ("batch_norm=no", "batch_norm=yes"),
        "weight decay": ("decay=0", "depth=8", "decay=0.001", "decay=0.005"),
        "network": ("lenet5", "depth=20"),
    },
    "full": {
        "depth": ("depth=8", "depth=14", "depth=32", "depth=110"),
        "width": ("width=8", "width=16", "depth=14", "width=128"),
        "batch normalisation": ("batch_norm=no", "batch_norm=yes"),
        "weight decay": ("decay=0", "depth=32", "decay=0.001", "decay=0.005"),
        "network": ("lenet5", "depth=110"),
    },
}
"""Cells along each axis, ascending; the last is compared with the first."""
_CLAIMS: dict[tuple[str, str, str], tuple[tuple[str, str, str, bool], ...]] = {
    ("networks of more capacity", "have a higher ECE", "have a lower ECE"): (
        ("depth", "a deeper network has a higher ECE", "ece", True),
        ("width", "a wider network has a higher ECE", "ece", True),
        ("network", "ResNet has a higher ECE than LeNet-5", "ece", True),
    ),
    ("networks with batch normalisation", "have a higher ECE", "have a lower ECE"): (
        ("batch normalisation", "batch normalisation raises the ECE", "ece", True),
    ),
    ("networks with strong weight decay", "have a lower ECE", "have a higher ECE"): (
        ("weight decay", "weight decay lowers the ECE", "ece", False),
    ),
    ("networks with strong weight decay", "are less accurate", "are more accurate"): (
        ("weight decay", "weight decay lowers the accuracy", "accuracy", False),
    ),
}
"""The source's claims (subject, claim, opposite) and the comparisons of each: axis, claim, metric, whether higher."""


def cells(scale: Scale, seeds: int | None) -> list[Cell]:
    """Return the ends and the middle of each axis."""
    return [
        Cell(NAME, f"{key}@{seed}", TrainConfig(**_RECIPES[scale] | changed, seed=seed))
        for seed in range(seeds or SEEDS[scale])
        for key, changed in _CELLS[scale].items()
    ]


def report(results: Sequence[Result], page: Page) -> list[Question]:
    """Write figure 2 of the source, axis by axis, and the claims about its ends."""
    groups = grouped(results, lambda result: result["cell"]["key"].rpartition("@")[0])
    scale: Scale = "full" if results[0]["cell"]["config"]["dataset"] == "cifar100" else "small"
    page.heading("Axes")
    page.text_block(
        "Percent, mean ± standard deviation over seeds. *gap* is mean confidence − accuracy. *published* is the "
        "accuracy on CIFAR-100 in the notes on the source, which give no other figures."
    )
    rows, lines = [], {}
    for axis, keys in _AXES[scale].items():
        known = [key for key in keys if key in groups]
        for key in known:
            found = groups[key]
            gaps = values(found, "test", "none", "terms", "gap")
            row = [axis, key, str(len(found)), shown(values(found, "test", "none", "accuracy")), shown(GUO.get(key))]
            row += [shown(values(found, "test", "none", "ece")), shown(gaps)]
            row += [
                shown(values(found, "test", "none", "nll", scale=1.0)),
                shown(values(found, "temperature", scale=1.0)),
            ]
            rows.append([*row, shown(values(found, "test", "temperature", "ece"))])
        means = [ece.mean for key in known if (ece := values(groups[key], "test", "none", "ece"))]
        lines[axis] = (list(range(1, len(means) + 1)), means)
    header = ["axis", "cell", "seeds", "accuracy", "published", "ECE", "gap", "NLL", "T", "ECE, TS"]
    page.table("axes", header, rows)
    page.figure(
        "axes",
        curves(lines, title="ECE along each axis", xlabel="position on the axis", ylabel="test ECE, %"),
        "Mean over seeds, before scaling; positions are those of the table.",
    )
    questions = [
        Question(*saying, [claim for spec in specs if (claim := _claim(groups, scale, *spec)) is not None])
        for saying, specs in _CLAIMS.items()
    ]
    findings(page, [claim for question in questions for claim in question.claims])
    return questions


def _claim(
    groups: dict[str, list[Result]],
    scale: Scale,
    axis: str,
    text: str,
    metric: str,
    higher: bool,
) -> Claim | None:
    """Compare the end of an axis with its beginning; None if either has no finished cell."""
    first, last = _AXES[scale][axis][0], _AXES[scale][axis][-1]
    if first not in groups or last not in groups:
        return None
    name = f"{axis}: {last} against {first}"
    number = at("test", "none", metric)
    return claimed(
        name, f"{text}: {last} against {first}", groups[last], groups[first], number, baseline=first, higher=higher
    )


STUDY = Study(
    name=NAME,
    title="Capacity, batch normalisation and weight decay",
    source="Notes on Guo et al. 2017, On calibration of modern neural networks",
    question="Do capacity, batch normalisation and little weight decay make networks overconfident?",
    cells=cells,
    reduced=(
        f"CIFAR-10 instead of CIFAR-100: {'; '.join(TWO_CORES_REDUCED[1:])}; 8,000 training images.",
        "ResNets of 8 and 20 layers and of 8 to 32 channels instead of 110 layers and 256 channels.",
        "The notes give no calibration errors: power is stated for what these seeds can find.",
    ),
    report=report,
)
