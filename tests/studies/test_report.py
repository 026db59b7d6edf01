"""Reports of studies: their numbers are those of the results, and the published ones are there."""

from __future__ import annotations

import copy
import csv
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from studies import published
from studies.cell import Cell
from studies.common import TITLES, loss_title, null_level, values
from studies.page import Page
from studies.registry import STUDIES
from studies.results import RESULT, RESULTS, read_results, write_results
from studies.run_cell import run_cell
from studies.study import Result, Scale, Study
from studies.write_report import write_report
from tests.studies.test_grid import TAKE_AND_DIE
from training import TrainConfig
from training.cli import app
from training.console import INTERRUPTED, USAGE

TINY = TrainConfig(epochs=2, train_rows=200, reference_rows=200, validation_rows=50)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A result with everything that a cell can measure, but CIFAR-10's."""
    extras = {
        "validation_sizes": [50, 100],
        "largest_logits": True,
        "confidnet": True,
        "confidnet_tuned": True,
        "shifts": ["gaussian_noise@3", "cifar10.1"],
    }
    cell = Cell("tiny", "cell@0", TINY, extras)
    return run_cell(cell, tmp_path_factory.mktemp("measured"), None, lambda _: None)


def results_of(study: Study, measured: Result, seed: int = 0) -> list[Result]:
    """A result for each cell of a study: its configuration, with numbers drawn at random."""
    random = np.random.default_rng(seed)
    results = []
    for cell in study.cells("small", None):
        result = copy.deepcopy(measured)
        result["cell"] = cell.document()
        result["temperature"] = float(random.uniform(0.5, 3))
        for found in result["test"].values():
            for metric in ("accuracy", "ece", "brier", "auroc"):
                found[metric] = float(random.uniform(0.1, 0.9))
        results.append(result)
    return results


@pytest.mark.parametrize("name", STUDIES)
def test_a_report_holds_all_it_promises(name: str, measured: Result, tmp_path: Path) -> None:
    study = STUDIES[name]
    cells, results = study.cells("small", None), results_of(study, measured)
    write_report(study, "small", cells, results, tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert f"All {len(cells)} cells are done" in text
    assert all(sentence in text for sentence in study.reduced)
    assert "Findings" in text
    assert text.rindex("\n## ") == text.index("\n## Answer")  # the last section
    assert study.question in text
    linked = {part.partition(")")[0] for part in text.split("](")[1:]}
    assert linked <= {path.name for path in tmp_path.iterdir()}
    assert any(link.endswith(".svg") for link in linked)
    for path in tmp_path.glob("*.svg"):
        ET.parse(path)
    write_results(tmp_path / RESULTS, results)
    assert list(read_results(tmp_path).values()) == [json.loads(json.dumps(result)) for result in results]
    if name != min(STUDIES, key=lambda each: len(STUDIES[each].cells("small", None))):
        return
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_report(study, "small", cells, results, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.fixture
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave figures out of pages of which a test reads the words: each takes a quarter of a second to draw."""
    monkeypatch.setattr(Page, "figure", lambda *_: None)


@pytest.mark.usefixtures("_undrawn")
@pytest.mark.parametrize("name", STUDIES)
def test_an_unfinished_study_says_what_is_missing(name: str, measured: Result, tmp_path: Path) -> None:
    study = STUDIES[name]
    cells, results = study.cells("small", None), results_of(study, measured)
    for kept in (results[1:2], results[::2]):
        write_report(study, "small", cells, kept, tmp_path)
        text = (tmp_path / "README.md").read_text()
        assert f"Unfinished: {len(kept)} of {len(cells)} cells" in text
        done = {result["cell"]["key"] for result in kept}
        missing = [cell.key for cell in cells if cell.key not in done]
        told = text.partition("Not done: ")[2].partition(".\n")[0].split(", ")
        if len(missing) <= 6:
            assert told == missing
            continue
        assert len(told) <= 12
        counted = dict(entry.rstrip(")").split(" (") for entry in told)
        for name, count in counted.items():
            assert int(count) == sum(key.partition("@")[0].partition("=")[0] == name for key in missing)
        assert sum(map(int, counted.values())) == len(missing)
    write_report(study, "small", cells, [], tmp_path)
    assert f"Unfinished: 0 of {len(cells)}" in (tmp_path / "README.md").read_text()


@pytest.mark.usefixtures("_undrawn")
def test_the_table_of_losses_equals_an_independent_computation(measured: Result, tmp_path: Path) -> None:
    """Means, sample deviations and p-values of the pairs, from the results, by numpy and scipy."""
    study = STUDIES["wang2021"]
    results = results_of(study, measured, seed=3)
    write_report(study, "small", study.cells("small", None), results, tmp_path)
    with (tmp_path / "cifar10-resnet20-losses.csv").open(encoding="utf-8", newline="") as stream:
        header, *lines = list(csv.reader(stream))
    table = {line[0]: line for line in lines}
    chosen = {
        "cross-entropy": ("cross_entropy", None),
        "label smoothing 0.05": ("label_smoothing", 0.05),
        "L1 norm 0.05": ("lp_norm", 0.05),
        "focal 3": ("focal", 3.0),
    }

    def numbers(title: str, method: str, metric: str) -> list[float]:
        loss, value = chosen[title]
        return [
            100 * result["test"][method][metric]
            for result in results
            if (config := result["cell"]["config"])["dataset"] == "cifar10"
            and config["loss"] == loss
            and (value is None or value in config["coefficients"].values())
        ]

    assert set(chosen) < set(table)
    places = {"ECE": ("none", "ece"), "ECE, TS": ("temperature", "ece"), "AUROC": ("none", "auroc")}
    for title in chosen:
        for heading, path in places.items():
            ours, theirs = numbers(title, *path), numbers("cross-entropy", *path)
            assert len(ours) == 6
            column = header.index(heading)
            assert table[title][column] == f"{np.mean(ours):.2f} ± {np.std(ours, ddof=1):.2f}"
            if title != "cross-entropy":
                expected = stats.ttest_rel(ours, theirs).pvalue
                assert table[title][column + 1] == f"{expected:.4f}"


def test_values_are_found_by_their_path() -> None:
    results: list[dict[str, Any]] = [{"a": {"b": 0.5}}, {"a": {"b": None}}, {"a": None}, {}]
    found = values(results, "a", "b")
    assert found is not None
    assert found.values == (50.0,)
    assert values(results, "c") is None


def test_the_published_tables_are_there() -> None:
    assert published.WANG["cifar10"]["ece"]["cross_entropy"] == (6.43, 0.22)
    assert published.WANG["newsgroups20"]["accuracy"]["focal"] == (59.17, 1.81)
    assert published.WANG["cifar10"]["ece_temperature"]["lp_norm"] == (2.71, 0.36)
    assert published.WANG["newsgroups20"]["temperature"]["cross_entropy"].mean == 4.18
    assert published.WANG["newsgroups20"]["ece_histogram_width"]["cross_entropy"] == (2.52, 0.47)
    for metrics in published.WANG.values():
        assert set(metrics) == {"ece", "accuracy", "ece_temperature", "temperature", "ece_histogram_width"}
        assert all(set(printed) == set(published.LOSSES) for printed in metrics.values())
    assert published.SINGH["cifar10"]["resnet50"]["label_smoothing"] == (8.00, 3.82, 73.46)
    assert published.SINGH["cifar100"]["vgg16_bn"]["temperature"] == (39.18, 6.46, 84.31)
    assert published.SINGH_SHIFTED["cifar10.2"]["mixup"] == (29.35, 9.77, 80.25)
    assert published.CONFIDNET["cifar10"]["confidnet"]["auroc"].mean == 92.55
    assert published.CONFIDNET["cifar100"]["baseline"]["ece"].mean == 19.12
    assert published.LENET["ece_temperature lenet5"].mean == 2.35


def test_every_loss_of_a_study_has_a_title() -> None:
    used = {
        cell.config.loss for study in STUDIES.values() for scale in get_args(Scale) for cell in study.cells(scale, None)
    }
    assert used <= set(TITLES)
    assert loss_title({"loss": "lp_norm", "coefficients": {"alpha": 0.1, "p": 1.0}, "mixup": 0.0}) == "L1 norm 0.1"
    assert loss_title({"loss": "lp_norm", "coefficients": {"alpha": 0.1, "p": 2.0}, "mixup": 0.0}) == "L2 norm 0.1"


def better_by(results: list[Result], worse: Callable[[Result], bool], amount: float) -> list[Result]:
    """The results with an ECE and an AUROC that follow from the loss, and hardly vary otherwise."""
    random = np.random.default_rng(0)
    for result in results:
        noise = 1e-4 * random.standard_normal()
        sides = [result["test"]] + [shift for shift in (result.get("shift") or {}).values() if shift is not None]
        for found in (method for side in sides for method in side.values()):
            found["ece"] = 0.1 + noise + amount * worse(result)
            found["auroc"] = 0.8 + noise - amount * worse(result)
    return results


def answer_of(study: Study, results: list[Result], folder: Path) -> list[str]:
    write_report(study, "small", study.cells("small", None), results, folder)
    answer = (folder / "README.md").read_text().partition("\n## Answer\n")[2]
    return [line for line in answer.splitlines() if line.startswith("- **")]


@pytest.mark.usefixtures("_undrawn")
def test_the_answer_to_wangs_question_follows_from_the_numbers(measured: Result, tmp_path: Path) -> None:
    """Where regularised losses have twice the ECE throughout, they are worse calibrated and worse calibratable."""

    def regularised(result: Result) -> bool:
        return result["cell"]["config"]["loss"] not in ("cross_entropy", "inverse_focal")

    study = STUDIES["wang2021"]
    told = answer_of(study, better_by(results_of(study, measured), regularised, 0.05), tmp_path)
    assert [line.split("**")[1] for line in told] == ["Contradicted.", *["Confirmed."] * 3, *["Undecided."] * 2]
    assert "have a higher ECE than cross-entropy before post-hoc calibration" in told[0]
    assert "separate right from wrong answers less well" in told[3]
    only_one = [result for result in results_of(study, measured) if result["cell"]["config"]["seed"] == 0]
    assert all("**Not tested.**" in line for line in answer_of(study, only_one, tmp_path))


@pytest.mark.usefixtures("_undrawn")
def test_the_answer_to_singhs_question_follows_from_the_numbers(measured: Result, tmp_path: Path) -> None:
    study = STUDIES["singh2021"]
    results = better_by(
        results_of(study, measured), lambda result: bool(result["cell"]["config"]["loss"] != "cross_entropy"), -0.05
    )
    told = answer_of(study, results, tmp_path)
    # Three losses of five methods lower the ECE and raise the AUROC; TS and mixup are as the baseline.
    assert told[0].startswith("- **Confirmed.** Methods that calibrate lower the ECE (confirmed: ERL on resnet20 · ")
    assert "undecided: mixup on resnet20; not tested: TS on resnet20" in told[0]
    assert told[1].startswith("- **Contradicted.** Methods that calibrate improve refinement")
    assert told[2].startswith("- **Confirmed.** Methods that calibrate lower the ECE under shift")
    assert "TS loses refinement: lower AUROC: **not tested**" in (tmp_path / "README.md").read_text()


def test_the_null_of_validation_rows_falls_with_the_root_of_their_number(measured: Result) -> None:
    (level,) = null_level([measured]).values()
    rows = measured["rows"]
    expected = 100 * measured["test"]["temperature"]["ece_null_mean"] * (rows["test"] / rows["validation"]) ** 0.5
    assert level == pytest.approx(expected)
    assert null_level([{**measured, "rows": {**rows, "validation": 0}}]) == {}


def test_what_a_cell_measures_beside_its_metrics(measured: Result) -> None:
    assert measured["shift"]["cifar10.1"] is None  # the data are not here
    assert set(measured["shift"]["gaussian_noise@3"]) == {"none", "temperature", "histogram_width", "histogram_mass"}
    assert sum(group["rows"] for group in measured["largest_logits"]) == 200
    assert all(sum(group["counts"]) == group["rows"] for group in measured["largest_logits"])
    assert [entry["rows"] for entry in measured["validation_size"]] == [50, 100]
    assert sum(map(sum, measured["confusion"])) == measured["rows"]["test"]
    for sides in measured["density"].values():
        assert sum(sides["right"]) + sum(sides["wrong"]) == measured["rows"]["test"]
        assert sum(sides["right"]) / measured["rows"]["test"] == measured["test"]["none"]["accuracy"]
    assert 0 <= measured["confidnet"]["auroc"] <= 1
    assert 0 <= measured["confidnet_tuned"]["auroc"] <= 1
    at_one = measured["curve"]["temperature"].index(1.0)
    assert measured["curve"]["ece"][at_one] == pytest.approx(measured["test"]["none"]["ece"], abs=1e-6)
    terms = measured["test"]["none"]["terms"]
    assert terms["value"] == pytest.approx(terms["confidence"] - terms["refinement"] - terms["constant"])


def test_a_page_writes_its_tables_as_csv(tmp_path: Path) -> None:
    page = Page()
    page.table("numbers", ["a", "b"], [["1", "x, y"]])
    page.write(tmp_path)
    with (tmp_path / "numbers.csv").open(encoding="utf-8", newline="") as stream:
        assert list(csv.reader(stream)) == [["a", "b"], ["1", "x, y"]]


def interrupted(*_: object) -> bool:
    raise KeyboardInterrupt


def test_the_command_lists_runs_reports_and_takes_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [Cell("tiny", f"cell@{seed}", replace(TINY, seed=seed)) for seed in range(2)]
    lenet = STUDIES["lenet-birdcat"]
    tiny = replace(lenet, name="tiny", cells=lambda scale, seeds: cells[: seeds or 2], report=lambda *_: [])
    monkeypatch.setitem(STUDIES, "tiny", tiny)

    def study(*arguments: object) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["study", "tiny", "--out", str(tmp_path / "out"), *map(str, arguments)])
        return result.exit_code, result.output

    code, out = study("--list")
    assert code == 0
    assert out.count("to do") == 2
    code, out = study("--only", "@0", "--report", tmp_path / "docs")
    assert code == 0
    assert "1 of 1 cells done" in out
    assert (tmp_path / "out" / "tiny" / "cell@0" / RESULT).exists()
    assert "Unfinished: 1 of 2" in (tmp_path / "docs" / "README.md").read_text()
    assert (tmp_path / "out" / "tiny" / RESULTS).exists()
    code, out = study("--out", tmp_path / "elsewhere", "--from", tmp_path / "out" / "tiny", "--list")
    assert code == 0
    assert out.count("done") == 1
    assert study("--only", "nothing")[0] == USAGE
    assert study("--seeds", "0")[0] == USAGE
    with monkeypatch.context() as patched:
        patched.setattr("studies.command.run", interrupted)
        code, out = study()
    assert code == INTERRUPTED
    assert "interrupted; the same command continues with the cells that have not finished" in " ".join(out.split())
    assert "bundle" not in out
    left = tmp_path / "out" / "tiny" / "cell@1"
    left.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-c", TAKE_AND_DIE, left], check=True)  # as kill -9 leaves it
    code, out = study()
    assert code == 0
    assert "2 of 2 cells done" in out
    (tmp_path / "out" / "tiny" / "cell@0" / RESULT).write_text("{")
    code, out = study("--no-run")
    assert code == USAGE
    assert "damaged" in out


def test_an_unknown_study_is_refused() -> None:
    result = CliRunner().invoke(app, ["study", "nothing"])
    assert result.exit_code == USAGE
    assert all(name in result.output for name in STUDIES)
