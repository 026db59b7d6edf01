"""What calibration does to refinement: methods that calibrate, on the same test rows and under shift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from training.config import TrainConfig
from training.studies.cell import Cell
from training.studies.common import compared, finding, grouped, p_value, recipe_name, shown, values
from training.studies.figures import densities
from training.studies.page import Page
from training.studies.published import CONFIDNET, SINGH, SINGH_SHIFTED
from training.studies.recipes import CIFAR_RECIPE, TWO_CORES
from training.studies.study import Result, Scale, Study

NAME = "singh2021"
SEEDS = 3
METHODS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "entropy_regularisation": {"loss": "entropy_regularisation", "coefficients": {"beta": 0.1}},
    "label_smoothing": {"loss": "label_smoothing", "coefficients": {"epsilon": 0.05}},
    "mixup": {"mixup": 0.2},
    "focal": {"loss": "focal", "coefficients": {"gamma": 3.0}},
}
TITLES = {
    "baseline": "baseline",
    "temperature": "TS",
    "entropy_regularisation": "ERL",
    "label_smoothing": "label smoothing",
    "mixup": "mixup",
    "focal": "focal",
}
SHIFTS = ("cifar10.1", "cifar10.2")
CORRUPTIONS = ("gaussian_noise@3", "gaussian_blur@5", "brightness@5", "contrast@3", "jpeg@3", "pixelate@5")
_FULL: dict[str, Any] = CIFAR_RECIPE | {
    "dataset": "cifar10",
    "reference_rows": 5000,
    "epochs": 300,
    "weight_decay": 5e-4,
    "schedule": "step",
    "milestones": (150, 225),
    "step_factor": 5.0,
}
_TEN = ("label_smoothing", "focal")  # whose learning rate the source divides by 10, the others' by 5
_SMALL: dict[str, Any] = (
    _FULL
    | TWO_CORES
    | {
        "model": "resnet20",
        "validation_rows": 500,
        "step_factor": 10.0,
    }
)


def cells(scale: Scale, seeds: int | None) -> list[Cell]:
    """Table 2's networks and methods; the first network, VGG-16 in the source, meets shift and ConfidNet."""
    networks = {"small": ("resnet20",), "full": ("vgg16_bn", "resnet50", "densenet121")}[scale]
    grid = []
    for seed in range(seeds or SEEDS):
        for network in networks:
            for method, settings in METHODS.items():
                recipe = {"small": _SMALL, "full": _FULL}[scale] | {"model": network, **settings, "seed": seed}
                if scale == "full" and method in _TEN:
                    recipe["step_factor"] = 10.0
                extras: dict[str, Any] = {}
                if network == networks[0]:
                    extras = {"shifts": [*SHIFTS, *CORRUPTIONS], "people": True}
                    if method == "baseline":
                        extras["confidnet"] = True
                grid.append(Cell(NAME, f"{network}-{method}@{seed}", TrainConfig(**recipe), extras))
    return grid


def report(results: Sequence[Result], page: Page) -> None:
    """Tables 2, 3 and 4, figure 2, and the terms of equation 9."""
    for model, found in grouped(results, lambda result: result["cell"]["config"]["model"]).items():
        page.heading(model)
        groups = grouped(found, _method)
        if "baseline" not in groups:
            page.text_block("The baseline has not been run, so nothing can be compared with it yet.")
            continue
        _table_two(page, model, groups)
        page.heading("Findings", 3)
        page.points(_findings(groups))
        _terms(page, model, groups)
        titled = {TITLES[name]: group for name, group in groups.items()}
        page.figure(
            f"{model}-densities",
            densities(titled, "none", title=f"{model}: confidence of right and wrong answers"),
            "Test rows, all seeds together; density, logarithmic.",
        )
        _shift(page, model, groups)
        _confidnet(page, model, groups["baseline"])


def _method(result: Result) -> str:
    name = recipe_name(result["cell"]["config"])
    return "baseline" if name == "cross_entropy" else name


def _table_two(page: Page, model: str, groups: dict[str, list[Result]]) -> None:
    page.text_block(
        "Percent, mean ± standard deviation over seeds. Brier is the sum over classes; *published* is the source's "
        f"figure for {model if model in SINGH else 'VGG-16, trained in full'}. *p* is of Welch's two-sided t-test of "
        "the AUROC against the baseline. TS is fitted on calibration rows, where the source sets T = 1.5."
    )
    published = SINGH.get(model, SINGH["vgg16_bn"])
    rows = []
    for name, method, group in _with_scaling(groups):
        area = values(group, "test", method, "auroc")
        theirs = values(groups["baseline"], "test", "none", "auroc")
        numbers = published[name]
        row = [TITLES[name], str(len(group)), shown(values(group, "test", method, "accuracy"))]
        for place, metric in enumerate(("brier", "ece", "auroc")):
            row += [shown(values(group, "test", method, metric)), f"{numbers[place]:.2f}"]
        row += ["" if name == "baseline" else p_value(compared(area, theirs))]
        row += [shown(values(group, "test", method, "ece_null_mean")), shown(values(group, "temperature", scale=1.0))]
        rows.append(row)
    header = ["method", "seeds", "accuracy", "Brier", "published", "ECE", "published", "AUROC", "published", "p"]
    page.table(f"{model}-methods", [*header, "ECE null", "T"], rows)


def _with_scaling(groups: dict[str, list[Result]]) -> list[tuple[str, str, list[Result]]]:
    """Name of the row, post-hoc method and results: the baseline once plain and once with TS, the others plain."""
    rows = [("baseline", "none", groups["baseline"]), ("temperature", "temperature", groups["baseline"])]
    return rows + [(name, "none", group) for name, group in groups.items() if name != "baseline"]


def _findings(groups: dict[str, list[Result]]) -> list[str]:
    found = []
    baseline = groups["baseline"]
    ece, area = (values(baseline, "test", "none", metric) for metric in ("ece", "auroc"))
    for name, method, group in _with_scaling(groups)[1:]:
        ours = {metric: values(group, "test", method, metric) for metric in ("ece", "auroc")}
        title = TITLES[name]
        found.append(finding(f"{title} lowers the ECE", compared(ours["ece"], ece), higher=False))
        found.append(finding(f"{title} loses refinement: lower AUROC", compared(ours["auroc"], area), higher=False))
    return found


def _terms(page: Page, model: str, groups: dict[str, list[Result]]) -> None:
    page.text_block(
        "Terms of equation 9, percent: confidence − refinement − constant. A method that lowers confidence and "
        "refinement alike gains less than it seems to."
    )
    rows = [
        [TITLES[name], *(shown(values(group, "test", method, "terms", term)) for term in _TERMS)]
        for name, method, group in _with_scaling(groups)
    ]
    page.table(f"{model}-terms", ["method", *_TERMS], rows)


_TERMS = ("confidence", "refinement", "constant", "value", "gap")


def _shift(page: Page, model: str, groups: dict[str, list[Result]]) -> None:
    names = [name for name, shift in (groups["baseline"][0].get("shift") or {}).items() if shift is not None]
    if not names:
        return
    page.heading("Under shift", 3)
    missing = [name for name in SHIFTS if name not in names]
    page.text_block(
        "The same networks and temperatures on changed images; corruptions have their severity after the @."
        + (f" Not here, since the data are not: {', '.join(missing)}." if missing else "")
    )
    rows = []
    for shift in names:
        published = SINGH_SHIFTED.get(shift, {})
        for name, method, group in _with_scaling(groups):
            row = [shift, TITLES[name]]
            for place, metric in enumerate(("brier", "ece", "auroc")):
                row.append(shown(values(group, "shift", shift, method, metric)))
                row.append(f"{published[name][place]:.2f}" if name in published else "–")
            area, theirs = (
                values(each, "shift", shift, kind, "auroc")
                for each, kind in ((group, method), (groups["baseline"], "none"))
            )
            rows.append([*row, "" if name == "baseline" else p_value(compared(area, theirs))])
    header = ["shift", "method", "Brier", "published", "ECE", "published", "AUROC", "published", "p"]
    page.table(f"{model}-shift", header, rows)


def _confidnet(page: Page, model: str, baseline: list[Result]) -> None:
    known = [result for result in baseline if result.get("confidnet")]
    if not known:
        return
    page.heading("ConfidNet", 3)
    page.text_block("Percent; the source's figures are VGG-16's on CIFAR-10. ConfidNet learns from the training rows.")
    rows = []
    for title, path, printed in (
        ("largest probability", ("test", "none"), CONFIDNET["baseline"]),
        ("ConfidNet", ("confidnet",), CONFIDNET["confidnet"]),
    ):
        row = [title]
        for metric in ("ece", "auroc"):
            row += [shown(values(known, *path, metric)), str(printed[metric])]
        rows.append(row)
    page.table(f"{model}-confidnet", ["confidence", "ECE", "published", "AUROC", "published"], rows)
    stated = [("confidnet",), ("test", "none")]
    pairs = {metric: [values(known, *path, metric) for path in stated] for metric in ("ece", "auroc")}
    page.points(
        [
            finding("ConfidNet lowers the ECE", compared(*pairs["ece"]), higher=False),
            finding("ConfidNet improves refinement", compared(*pairs["auroc"]), higher=True),
        ]
    )


STUDY = Study(
    name=NAME,
    title="What methods that calibrate do to refinement, here and under shift",
    source="Singh et al. 2021, On the dark side of calibration for modern neural networks",
    cells=cells,
    reduced=(
        "ResNet-20 in place of VGG-16, ResNet-50 and DenseNet-121; 10,000 of the 50,000 training images (8,000 to "
        "learn from, 500 for validation, 1,500 for calibration); 15 epochs with a cosine schedule in place of 300; "
        "bfloat16. "
        "The test part is complete, and so are the 3 seeds.",
        "CIFAR-100 and ImageNet are left out.",
        "Natural shift needs CIFAR-10.1 and 10.2; corruptions of the test images stand beside it.",
    ),
    report=report,
)
