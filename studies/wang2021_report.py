"""The report of `wang2021`: tables 1 and 2, figures 1 to 6."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from studies.common import TITLES, by_loss, comparison_table, grouped, loss_title, network_of, null_level, shown, values
from studies.figures import curves, curves_by_epoch, largest_logit_histograms, reliability, sweeps
from studies.page import Page
from studies.pairs import at, claimed
from studies.published import WANG, WANG_COEFFICIENTS
from studies.study import Result
from studies.verdicts import Claim, Question, findings

COEFFICIENT = {"label_smoothing": "epsilon", "lp_norm": "alpha", "focal": "gamma", "inverse_focal": "gamma"}
"""Name of each loss's coefficient."""
INVERSE_FOCAL = 1.0
"""Coefficient of the inverse focal loss that is compared with the source's choices."""
_BEFORE, _SCALED, _BINNED = "before post-hoc calibration", "after temperature scaling", "after histogram binning"


def _has_ece(subject: str, claimed: str, opposite: str, when: str) -> tuple[str, str, str]:
    text = f"have a {{}} ECE than cross-entropy {when}"
    return subject, text.format(claimed), text.format(opposite)


_SOURCE_SAYS = {
    "calibrated": _has_ece("regularised losses", "lower", "higher", _BEFORE),
    "scaled": _has_ece("regularised losses", "higher", "lower", _SCALED),
    "binned": _has_ece("regularised losses", "higher", "lower", _BINNED),
    "refinement": (
        "regularised losses",
        "separate right from wrong answers less well than cross-entropy",
        "separate right from wrong answers better than cross-entropy",
    ),
    "inverse": _has_ece("inverse focal losses", "higher", "lower", _BEFORE),
    "inverse scaled": _has_ece("inverse focal losses", "lower", "higher", _SCALED),
}
"""Its claims: subject, claim, opposite."""
_PUBLISHED = {
    "accuracy": "none",
    "ece": "none",
    "ece_temperature": "temperature",
    "ece_histogram_width": "histogram_width",
}


def report(results: Sequence[Result], page: Page) -> list[Question]:
    """Write tables 1 and 2 and figures 1 to 6, for each data set and network."""
    claims: list[dict[str, list[Claim]]] = []
    for (task, model), cells in grouped(results, network_of).items():
        found = [result for result in cells if not _rows(result)]
        chosen = by_loss([result for result in found if _is_chosen(result)])
        page.heading(f"{task}, {model}")
        if TITLES["cross_entropy"] not in chosen:
            page.text_block("Cross-entropy has not been run yet, so no loss can be compared with it.")
            continue
        _tables(page, f"{task}-{model}", task, chosen)
        claims.append(_claims(chosen, task, f"{task} {model}"))
        findings(page, [claim for group in claims[-1].values() for claim in group])
        _figures(page, f"{task}-{model}", found, chosen)
        _sizes(page, f"{task}-{model}", cells)
    return [
        Question(*_SOURCE_SAYS[name], [claim for group in claims for claim in group[name]]) for name in _SOURCE_SAYS
    ]


def _tables(page: Page, name: str, task: str, chosen: dict[str, list[Result]]) -> None:
    page.text_block(
        "Percent (except T and NLL), mean ± standard deviation over seeds. *p* comes from the t-test of the "
        "differences from cross-entropy, paired by seed. *null* is the mean ECE of a calibrated model with the same "
        "confidences. HB has 15 bins."
    )
    comparison_table(page, f"{name}-losses", chosen)
    published = WANG[task]
    rows = []
    for title, found in chosen.items():
        loss = found[0]["cell"]["config"]["loss"]
        row = [title]
        for metric, method in _PUBLISHED.items():
            key = "accuracy" if metric == "accuracy" else "ece"
            row += [shown(values(found, "test", method, key)), shown(published[metric].get(loss))]
        row += [shown(values(found, "temperature", scale=1.0)), shown(published["temperature"].get(loss))]
        rows.append(row)
    header = ["loss"]
    for title in ("accuracy", "ECE", "ECE, TS", "ECE, HB", "T"):
        header += [title, "published"]
    page.text_block("Compared with the published figures (ResNet-32 or their 1-D CNN, their splits, 5 seeds):")
    page.table(f"{name}-published", header, rows)


_REGULARISED = (
    ("calibrated", "is better *calibrated*: lower ECE before TS", "none", "ece", False, "ece"),
    ("scaled", "is worse *calibratable*: higher ECE after TS", "temperature", "ece", True, "ece_temperature"),
    ("binned", "is worse *calibratable*: higher ECE after HB", "histogram_width", "ece", True, "ece_histogram_width"),
    ("refinement", "loses refinement: lower AUROC", "none", "auroc", False, None),
)
_INVERSE = (
    ("inverse", "is worse calibrated: higher ECE before TS", "none", "ece", True, None),
    ("inverse scaled", "is better calibratable: lower ECE after TS", "temperature", "ece", False, None),
)
"""Key of `_SOURCE_SAYS`, claim, post-hoc method, metric, whether higher, metric of the source's tables."""


def _claims(chosen: dict[str, list[Result]], task: str, where: str) -> dict[str, list[Claim]]:
    """Return the source's claims about each loss, by key of `_SOURCE_SAYS`."""
    first = TITLES["cross_entropy"]
    claims: dict[str, list[Claim]] = {name: [] for name in _SOURCE_SAYS}
    for title, results in chosen.items():
        if title == first:
            continue
        loss = _loss(results[0])
        for name, text, method, metric, higher, table in _INVERSE if loss == "inverse_focal" else _REGULARISED:
            printed = WANG[task][table] if table else None
            claims[name].append(
                claimed(
                    f"{title} on {where}",
                    f"{title} {text}",
                    results,
                    chosen[first],
                    at("test", method, metric),
                    baseline=f"{first} on {where}",
                    higher=higher,
                    published=None if printed is None else printed[loss].mean - printed["cross_entropy"].mean,
                )
            )
    return claims


def _figures(page: Page, name: str, found: list[Result], chosen: dict[str, list[Result]]) -> None:
    if any(result["epochs"][0]["validation"] for result in found):
        page.figure(
            f"{name}-optimal-ece",
            curves_by_epoch(
                chosen, "optimal_ece", title=f"{name}: optimal ECE", ylabel="optimal ECE, %", levels=null_level(found)
            ),
            "Lowest ECE over all T on the validation rows after each epoch; mean and range over seeds.",
        )
    smoothing = {
        loss_title(group[0]["cell"]["config"]): group
        for group in by_loss(r for r in found if _loss(r) in ("cross_entropy", "label_smoothing")).values()
    }
    if len(smoothing) > 2:
        page.figure(
            f"{name}-optimal-ece-label-smoothing",
            curves_by_epoch(
                smoothing,
                "optimal_ece",
                title=f"{name}: label smoothing",
                ylabel="optimal ECE, %",
                levels=null_level(found),
            ),
            "The same for several strengths of label smoothing.",
        )
    with_logits = {title: group for title, group in chosen.items() if group[0].get("largest_logits")}
    if with_logits:
        page.figure(
            f"{name}-largest-logit",
            largest_logit_histograms(with_logits, title=f"{name}: largest logit by learned epoch"),
            "Training rows of the first seed. Learned epoch: the epoch since which the row has been right.",
        )
    page.figure(
        f"{name}-reliability",
        reliability(chosen, "temperature", title=f"{name}: reliability after TS"),
        "Test rows of the first seed, ten bins; a darker bar holds more of them. The line is perfect calibration.",
    )
    for method, title in (("temperature", "TS"), ("histogram_width", "HB")):
        lines = {loss: line for loss, group in chosen.items() if (line := _by_size(group, method))}
        if lines:
            null = values((run for group in chosen.values() for run in group), "test", method, "ece_null_mean")
            page.figure(
                f"{name}-validation-size-{method.replace('_', '-')}",
                curves(
                    lines,
                    title=f"{name}: rows that {title} is fitted on",
                    xlabel="calibration rows",
                    ylabel="test ECE, %",
                    log=True,
                    levels={} if null is None else {"a calibrated model's mean": null.mean},
                ),
                "Mean over seeds and over ten subsets of each size.",
            )
    _sweeps(page, name, found, chosen)


def _by_size(group: list[Result], method: str) -> tuple[list[float], list[float]] | None:
    known = [result["validation_size"] for result in group if result.get("validation_size")]
    if not known:
        return None
    sizes = [float(entry["rows"]) for entry in known[0]]
    eces = [[entry["ece"][method] for entry in sizes_of] for sizes_of in known]
    return sizes, (100 * np.mean(eces, axis=0)).tolist()


def _sweeps(page: Page, name: str, found: list[Result], chosen: dict[str, list[Result]]) -> None:
    """Write figures 1 and 6: every coefficient, before and after TS and HB."""
    groups = {loss: _by_coefficient(found, loss) for loss in COEFFICIENT}
    groups = {loss: group for loss, group in groups.items() if len(group) > 1}
    if not groups:
        return
    methods = {"before": "none", "TS": "temperature", "HB": "histogram_width"}
    rows = []
    for loss, by_value in groups.items():
        for value, group in by_value.items():
            row = [TITLES[loss], f"{value:g}", str(len(group)), shown(values(group, "test", "none", "accuracy"))]
            row += [shown(values(group, "test", method, "ece")) for method in methods.values()]
            row += [shown(values(group, "temperature", scale=1.0)), shown(values(group, "test", "none", "auroc"))]
            rows.append(row)
    page.text_block("Coefficients:")
    header = ["loss", "coefficient", "seeds", "accuracy", "ECE", "ECE, TS", "ECE, HB", "T", "AUROC"]
    page.table(f"{name}-coefficients", header, rows)
    baseline = chosen[TITLES["cross_entropy"]]
    page.figure(
        f"{name}-coefficients",
        sweeps(
            {
                TITLES[loss]: {
                    title: [_ece(group, method) for group in by_value.values()] for title, method in methods.items()
                }
                for loss, by_value in groups.items()
            },
            {TITLES[loss]: list(by_value) for loss, by_value in groups.items()},
            title=f"{name}: ECE by coefficient",
            ylabel="test ECE, %",
            levels={
                "cross-entropy, before": _ece(baseline, "none"),
                "cross-entropy, TS": _ece(baseline, "temperature"),
            },
        ),
        "Mean over the seeds in the table.",
    )


def _sizes(page: Page, name: str, cells: list[Result]) -> None:
    """Write figure 1d: the coefficient of the least ECE before scaling, by the number of training rows; seed 0."""
    first = [result for result in cells if result["cell"]["config"]["seed"] == 0]
    by_rows = dict(sorted(grouped(first, lambda result: result["rows"]["train"]).items()))
    if len(by_rows) < 2:
        return
    rows, lines = [], {}
    for loss in ("label_smoothing", "lp_norm", "focal"):
        best = {}
        for count, found in by_rows.items():
            groups = _by_coefficient(found, loss)
            if len(groups) < 2:
                continue
            best[count] = min(groups, key=lambda value: _ece(groups[value], "none"))
            row = [TITLES[loss], str(count), f"{best[count]:g}"]
            rows.append(
                [*row, *(shown(values(groups[best[count]], "test", "none", key)) for key in ("ece", "accuracy"))]
            )
        largest = max((value for found in by_rows.values() for value in _by_coefficient(found, loss)), default=1.0)
        if len(best) > 1:
            lines[TITLES[loss]] = (list(best), [value / largest for value in best.values()])
    if not lines:
        return
    page.text_block(
        "Best coefficient by the number of training rows (figure 1d), chosen like the source's by the ECE on the test "
        "rows, which makes these ECEs optimistic; one seed:"
    )
    page.table(f"{name}-training-rows", ["loss", "training rows", "best coefficient", "ECE", "accuracy"], rows)
    page.figure(
        f"{name}-training-rows",
        curves(
            lines,
            title=f"{name}: best coefficient",
            xlabel="training rows",
            ylabel="share of the largest coefficient",
            log=True,
        ),
        "Coefficient of the least ECE, as a share of the largest one tried.",
    )


def _rows(result: Result) -> int:
    """Return the chosen number of training rows; 0 for all."""
    return int(result["cell"]["config"]["train_rows"] or 0)


def _by_coefficient(found: list[Result], loss: str) -> dict[float, list[Result]]:
    """Return the results of a loss by coefficient, ascending."""
    of_loss = [result for result in found if _loss(result) == loss]
    groups = grouped(of_loss, lambda result: result["cell"]["config"]["coefficients"][COEFFICIENT[loss]])
    return dict(sorted(groups.items()))


def _ece(results: list[Result], method: str) -> float:
    return 100 * float(np.mean([result["test"][method]["ece"] for result in results]))


def _loss(result: Result) -> str:
    return str(result["cell"]["config"]["loss"])


def _is_chosen(result: Result) -> bool:
    """Return whether a result belongs in the tables: the source's coefficient, or the first inverse focal loss."""
    config = result["cell"]["config"]
    loss = config["loss"]
    if loss == "cross_entropy":
        return True
    value = config["coefficients"][COEFFICIENT[loss]]
    return bool(value == (INVERSE_FOCAL if loss == "inverse_focal" else WANG_COEFFICIENTS[config["dataset"]][loss]))
