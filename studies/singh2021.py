"""The effect of calibration methods on refinement, on test rows and under shift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from studies.cell import Cell
from studies.common import grouped, network_of, shown, values
from studies.figures import densities
from studies.page import Page
from studies.pairs import Number, at, claimed, compared
from studies.published import CONFIDNET, SINGH, SINGH_SHIFTED
from studies.recipes import CIFAR_RECIPE, TWO_CORES, TWO_CORES_REDUCED
from studies.statistics import Comparison
from studies.study import Result, Scale, Study
from studies.verdicts import Claim, Question, findings, p_value
from training.config import TrainConfig

NAME = "singh2021"
SEEDS = {"small": 6, "full": 3}
SMALL_ONCE = {"vgg16_bn": 0.02, "densenet121": 0.1}
"""The source's networks that the small scale trains once each, without and with temperature scaling: learning rates.

At the rate of 0.1, VGG-16 learns nothing in 12 epochs.
"""
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
    "validation_rows": 0,
    "reference_rows": 5000,
    "epochs": 300,
    "weight_decay": 5e-4,
    "schedule": "step",
    "milestones": (150, 225),
    "step_factor": 5.0,
}
_SOURCE_SAYS = {
    "ece": ("methods that calibrate", "lower the ECE", "raise the ECE"),
    "auroc": (
        "methods that calibrate",
        "lose refinement: right and wrong answers are harder to tell apart",
        "improve refinement: right and wrong answers are easier to tell apart",
    ),
    "ece shifted": ("methods that calibrate", "lower the ECE under shift", "raise the ECE under shift"),
    "auroc shifted": ("methods that calibrate", "lose refinement under shift", "improve refinement under shift"),
    "ece confidnet": ("confidences of ConfidNet", "have a lower ECE", "have a higher ECE"),
    "auroc confidnet": ("confidences of ConfidNet", "improve refinement", "lose refinement"),
}
"""Its claims, all against the baseline: subject, claim, opposite."""
_TEN = ("label_smoothing", "focal")  # the source divides their learning rate by 10, the others' by 5
_SMALL: dict[str, Any] = _FULL | TWO_CORES | {"step_factor": 10.0}


def cells(scale: Scale, seeds: int | None) -> list[Cell]:
    """Return table 2's networks and methods.

    The first network (VGG-16 in the source) meets shift and ConfidNet; the small scale trains two of the source's once.
    """
    recipe = {"small": _SMALL, "full": _FULL}[scale]
    networks = {"small": ("resnet20",), "full": ("vgg16_bn", "resnet50", "densenet121")}[scale]
    grid = []
    for seed in range(seeds or SEEDS[scale]):
        for task in {"small": ("cifar10",), "full": ("cifar10", "cifar100")}[scale]:
            for network in networks:
                settings = recipe | {"dataset": task, "model": network, "seed": seed}
                stem = _stem(task, network)
                for method, changed in METHODS.items():
                    config = TrainConfig(**settings | changed | ({"step_factor": 10.0} if method in _TEN else {}))
                    extras: dict[str, Any] = {}
                    if task == "cifar10" and network == networks[0]:
                        extras = {"shifts": [*SHIFTS, *CORRUPTIONS], "people": True}
                        extras |= {"confidnet": True} if method == "baseline" else {}
                    grid.append(Cell(NAME, f"{stem}-{method}@{seed}", config, extras))
                if network == networks[0]:
                    grid.append(
                        Cell(NAME, f"{stem}-confidnet@{seed}", TrainConfig(**settings), {"confidnet_tuned": True})
                    )
    if scale == "small":
        once = [
            TrainConfig(**recipe | {"model": network, "learning_rate": rate, "seed": 0})
            for network, rate in SMALL_ONCE.items()
        ]
        grid += [Cell(NAME, f"{_stem(config.dataset, config.model)}-baseline@0", config) for config in once]
    return grid


def report(results: Sequence[Result], page: Page) -> list[Question]:
    """Write tables 2, 3 and 4, figure 2, and the terms of equation 9."""
    claims: dict[str, list[Claim]] = {name: [] for name in _SOURCE_SAYS}
    for (task, model), found in grouped(results, network_of).items():
        page.heading(_called(task, model))
        groups = grouped((result for result in found if not _of_confidnet(result)), _method)
        if "baseline" not in groups:
            page.text_block("The baseline has not been run yet, so no method can be compared with it.")
            continue
        _table_two(page, task, model, groups)
        here = {"ece": _claims(groups, "ece", model), "auroc": _claims(groups, "auroc", model)}
        findings(page, [claim for pair in zip(here["ece"], here["auroc"], strict=True) for claim in pair])
        stem = _stem(task, model)
        _terms(page, stem, groups)
        titled = {TITLES[name]: group for name, group in groups.items()}
        page.figure(
            f"{stem}-densities",
            densities(titled, "none", title=f"{_called(task, model)}: confidence of right and wrong answers"),
            "Test rows, all seeds together; density on a logarithmic scale.",
        )
        shifted = _shift(page, model, groups)
        pair_of_confidnet = _confidnet(page, task, model, found)
        for name, more in (here | shifted | pair_of_confidnet).items():
            claims[name] += more
    return [Question(*_SOURCE_SAYS[name], group) for name, group in claims.items()]


def _stem(task: str, model: str) -> str:
    """Return how the names of a network's tables and figures begin."""
    return _called(task, model).replace(" ", "-")


def _of_confidnet(result: Result) -> bool:
    return bool(result["cell"]["extras"].get("confidnet_tuned"))


def _method(result: Result) -> str:
    config = result["cell"]["config"]
    name = "mixup" if config["mixup"] else str(config["loss"])
    return "baseline" if name == "cross_entropy" else name


def _table_two(page: Page, task: str, model: str, groups: dict[str, list[Result]]) -> None:
    page.text_block(
        "Percent, mean ± standard deviation over seeds. Brier is the sum over classes; *published* is the source's "
        f"figure for {model if model in SINGH[task] else 'VGG-16, trained in full'}. *p* comes from the t-test of the "
        "AUROC's differences from the baseline, paired by seed. TS is fitted on calibration rows; the source sets "
        "T = 1.5."
    )
    published = _printed(task, model)
    rows = []
    for name, method, group in _with_scaling(groups):
        numbers = published[name]
        row = [TITLES[name], str(len(group)), shown(values(group, "test", method, "accuracy"))]
        for place, metric in enumerate(("brier", "ece", "auroc")):
            row += [shown(values(group, "test", method, metric)), f"{numbers[place]:.2f}"]
        row += ["" if name == "baseline" else p_value(_against_baseline(groups, name, method, "auroc"))]
        row += [shown(values(group, "test", method, "ece_null_mean")), shown(values(group, "temperature", scale=1.0))]
        rows.append(row)
    header = ["method", "seeds", "accuracy", "Brier", "published", "ECE", "published", "AUROC", "published", "p"]
    page.table(f"{_stem(task, model)}-methods", [*header, "ECE null", "T"], rows)


def _with_scaling(groups: dict[str, list[Result]]) -> list[tuple[str, str, list[Result]]]:
    """Return name, post-hoc method and results of each row: the baseline plain and with TS, the others plain."""
    rows = [("baseline", "none", groups["baseline"]), ("temperature", "temperature", groups["baseline"])]
    return rows + [(name, "none", group) for name, group in groups.items() if name != "baseline"]


def _claims(groups: dict[str, list[Result]], metric: str, model: str, shifts: Sequence[str] = ()) -> list[Claim]:
    """Claim that each method lowers a metric, on the test rows or under shift."""
    texts = {"ece": "lowers the ECE", "auroc": "loses refinement: lower AUROC"}
    under = " under shift" if shifts else ""
    task = groups["baseline"][0]["cell"]["config"]["dataset"]
    printed = {} if shifts else _printed(task, model)
    place = {"ece": 1, "auroc": 2}[metric]
    return [
        claimed(
            f"{TITLES[name]} on {_called(task, model)}",
            f"{TITLES[name]} {texts[metric]}{under}",
            results,
            groups["baseline"],
            _measured(method, metric, shifts),
            other=_measured("none", metric, shifts),
            baseline=f"baseline on {_called(task, model)}",
            higher=False,
            published=printed[name][place] - printed["baseline"][place] if printed else None,
        )
        for name, method, results in _with_scaling(groups)[1:]
    ]


def _against_baseline(
    groups: dict[str, list[Result]], name: str, method: str, metric: str, shifts: Sequence[str] = ()
) -> Comparison | None:
    """Compare a method with the baseline, seed by seed; TS scales the baseline's own networks."""
    ours = groups["baseline" if name == "temperature" else name]
    return compared(ours, groups["baseline"], _measured(method, metric, shifts), _measured("none", metric, shifts))


def _measured(method: str, metric: str, shifts: Sequence[str]) -> Number:
    """Return what reads a metric of a network, on its test rows or averaged over shifts."""
    if not shifts:
        return at("test", method, metric)

    def mean(result: Result) -> float | None:
        several = [result["shift"][shift][method][metric] for shift in shifts]
        return None if None in several else sum(several) / len(several)

    return mean


def _printed(task: str, model: str) -> Mapping[str, tuple[float, ...]]:
    """Return the source's figures of a network; those of VGG-16 for a network that it does not have."""
    return SINGH[task].get(model, SINGH[task]["vgg16_bn"])


def _called(task: str, model: str) -> str:
    return model if task == "cifar10" else f"{task} {model}"


def _terms(page: Page, name: str, groups: dict[str, list[Result]]) -> None:
    page.text_block(
        "Terms of equation 9, percent: *value* is confidence − refinement − constant, which the source equates with "
        "the ECE of an overconfident network. Its accuracy is that of thresholds on the confidence, not the network's, "
        "so it ranks methods but is not an error. *gap* is mean confidence − accuracy. A method that lowers confidence "
        "and refinement alike gains less than it appears to."
    )
    rows = [
        [TITLES[way], *(shown(values(group, "test", method, "terms", term)) for term in _TERMS)]
        for way, method, group in _with_scaling(groups)
    ]
    page.table(f"{name}-terms", ["method", *_TERMS], rows)


_TERMS = ("confidence", "refinement", "constant", "value", "gap")


def _shift(page: Page, model: str, groups: dict[str, list[Result]]) -> dict[str, list[Claim]]:
    met = [result.get("shift") or {} for group in groups.values() for result in group]
    names = [name for name in (*SHIFTS, *CORRUPTIONS) if all(shifts.get(name) is not None for shifts in met)]
    if not names:
        return {}
    page.heading("Under shift", 3)
    missing = [name for name in SHIFTS if name not in names]
    page.text_block(
        "The same networks and temperatures on changed images; the severity of a corruption follows the @."
        + (f" Left out because the data are missing: {', '.join(missing)}." if missing else "")
    )
    rows = []
    for shift in names:
        published = SINGH_SHIFTED.get(shift, {})
        for name, method, group in _with_scaling(groups):
            row = [shift, TITLES[name]]
            for place, metric in enumerate(("brier", "ece", "auroc")):
                row.append(shown(values(group, "shift", shift, method, metric)))
                row.append(f"{published[name][place]:.2f}" if name in published else "–")
            test = "" if name == "baseline" else p_value(_against_baseline(groups, name, method, "auroc", [shift]))
            rows.append([*row, test])
    header = ["shift", "method", "Brier", "published", "ECE", "published", "AUROC", "published", "p"]
    page.table(f"{model}-shift", header, rows)
    claims = {f"{metric} shifted": _claims(groups, metric, model, names) for metric in ("ece", "auroc")}
    page.text_block("Each network's metrics averaged over these shifts:")
    page.points([claim.sentence() for group in claims.values() for claim in group])
    return claims


def _confidnet(page: Page, task: str, model: str, found: list[Result]) -> dict[str, list[Claim]]:
    """Write table 4: ConfidNet on the features of the unchanged network, and after its second stage."""
    first = [result for result in found if not _of_confidnet(result) and result["cell"]["extras"].get("confidnet")]
    both = [result for result in found if _of_confidnet(result)]
    if not first and not both:
        return {}
    page.heading("ConfidNet", 3)
    page.text_block(
        f"Percent; the source's figures are for VGG-16 on {task}, with both stages. ConfidNet learns from the training "
        "rows: first on the features of the unchanged network, then together with a copy of that network, which only "
        "estimates confidence."
    )
    printed = CONFIDNET[task]
    rows = []
    for title, results, path, figures in (
        ("largest probability", first or both, ("test", "none"), printed["baseline"]),
        ("ConfidNet, first stage", first, ("confidnet",), {}),
        ("ConfidNet, both stages", both, ("confidnet_tuned",), printed["confidnet"]),
    ):
        row = [title, str(len(results))]
        for metric in ("ece", "auroc"):
            row += [shown(values(results, *path, metric)), shown(figures.get(metric))]
        rows += [row] if results else []
    page.table(
        f"{_stem(task, model)}-confidnet", ["confidence", "seeds", "ECE", "published", "AUROC", "published"], rows
    )
    claims: dict[str, list[Claim]] = {}
    for metric, text, higher in (("ece", "lowers the ECE", False), ("auroc", "improves refinement", True)):
        difference = printed["confidnet"][metric].mean - printed["baseline"][metric].mean
        claims[f"{metric} confidnet"] = [
            claimed(
                f"{stage} on {_called(task, model)}",
                f"ConfidNet {text}, {stage}",
                results,
                results,
                at(name, metric),
                other=at("test", "none", metric),
                baseline=f"largest probability on {_called(task, model)}",
                higher=higher,
                published=difference if results is both else None,
            )
            for stage, name, results in (("first stage", "confidnet", first), ("both stages", "confidnet_tuned", both))
            if results
        ]
    page.points([claim.sentence() for group in claims.values() for claim in group])
    return claims


STUDY = Study(
    name=NAME,
    title="What methods that calibrate do to refinement, here and under shift",
    source="Singh et al. 2021, On the dark side of calibration for modern neural networks",
    question="Do methods that calibrate a network cost refinement: are right and wrong answers harder to tell apart?",
    cells=cells,
    reduced=(
        f"One network instead of VGG-16, ResNet-50 and DenseNet-121: {'; '.join(TWO_CORES_REDUCED)}; 6 seeds instead "
        "of 3.",
        "VGG-16 and DenseNet-121 are trained once each in the same way, without the other methods, VGG-16 at a "
        "learning rate of 0.02 instead of 0.1, at which it learns nothing in 12 epochs.",
        "CIFAR-100 needs its files and `--scale full`; ImageNet is left out.",
        "Natural shift requires CIFAR-10.1 and 10.2; corrupted test images are added.",
    ),
    report=report,
)
