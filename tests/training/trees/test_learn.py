"""Boosted trees on a table: what they learn, what the bundle holds, and what is refused."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import bundle
from calibrators import metrics
from importing import converters
from training import ConfigurationError, ExportError, TrainConfig, train_bundle
from training.cli import app
from training.console import FAILED, USAGE
from training.trees import TREES, default
from training.trees.learn import GrownTrees, learn

ROWS = 1600
SETTINGS: dict[str, dict[str, Any]] = {
    "lightgbm": {"learning_rate": 0.3},
    "xgboost": {"learning_rate": 0.3},
    "catboost": {"learning_rate": 0.3, "depth": 3},
    "hist_gradient_boosting": {"learning_rate": 0.3},
}


def write(folder: Path, seed: int = 0) -> None:
    """Write a table with numbers, categories, missing values and row weights; 12 % are fraud, in pairs of columns."""
    random = np.random.default_rng(seed)
    amount, age = random.lognormal(3, 1, ROWS).round(2), random.integers(18, 80, ROWS)
    shop, land = random.integers(0, 12, ROWS), random.integers(0, 4, ROWS)
    margin = -3.5 + 2.5 * np.isin(shop, (1, 4, 9)) + 1.5 * ((amount > 20) ^ (land == 2)) + 0.02 * (age - 50)
    fraud = random.random(ROWS) < 1 / (1 + np.exp(-margin))
    with (folder / "claims.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["amount", "age", "shop", "land", "weight", "fraud"])
        for row in range(ROWS):
            cells = [amount[row], age[row], f"shop {shop[row]}", "ABCD"[land[row]]]
            shown = ["" if random.random() < 0.05 else cell for cell in cells]
            writer.writerow([*shown, random.choice([1, 2]), ("no", "yes")[int(fraud[row])]])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    folder = tmp_path_factory.mktemp("table")
    write(folder)
    return TrainConfig(
        dataset="table",
        data=folder,
        data_settings={"file": "claims.csv", "label": "fraud", "drop": ["weight"]},
        name="claims",
        patience=10,
        calibrator="platt",
        threads=1,
    )


def grown(config: TrainConfig) -> GrownTrees:
    data = config.read()
    suited, notes = config.suited(data)
    return learn(suited, *suited.cut(data), notes, None)


@pytest.fixture(scope="module", params=list(TREES))
def trained(
    request: pytest.FixtureRequest, table: TrainConfig, tmp_path_factory: pytest.TempPathFactory
) -> bundle.Bundle:
    config = replace(table, model=request.param, model_settings=SETTINGS[request.param])
    return bundle.verify(train_bundle(config, tmp_path_factory.mktemp(request.param)))


def test_each_library_gives_a_bundle_that_finds_the_fraud(trained: bundle.Bundle) -> None:
    manifest, report = trained.manifest, trained.report
    assert (manifest.source, manifest.training is not None) == ("trained", True)
    assert manifest.architecture is not None
    assert 0 < report["training"]["export_difference"] < 1e-5
    assert manifest.architecture.parameters > manifest.architecture.config["rounds"] > 3
    assert report["positive"]["label"] == "yes"
    assert report["positive"]["after"]["auroc"]["value"] > 0.65
    assert report["positive"]["after"]["average_precision"]["value"] > 1.3 * report["positive"]["base_rate"]
    validation = report["training"]["epochs"][0]["validation"]
    assert 0.5 < validation["auroc"] < 1
    assert 0 < validation["average_precision"] < 1


def test_the_graph_takes_rows_as_clients_send_them(trained: bundle.Bundle) -> None:
    import onnxruntime

    assert trained.columns is not None
    graph = trained.manifest.graph
    assert graph is not None
    known = {"amount": 25.5, "age": 40, "shop": "shop 4", "land": "B"}
    rows = [known, known | {"land": "nowhere"}, known | {"land": None}, {}, known | {"shop": "shop 2"}]
    session = onnxruntime.InferenceSession(trained.model_bytes, providers=["CPUExecutionProvider"])
    logits = graph.run(session.run, trained.columns.encode(rows), 2)
    np.testing.assert_array_equal(logits[1], logits[2], "an unknown category is a missing one")
    margins = logits[:, 1] - logits[:, 0]
    assert margins[0] > margins[4] + 1, "shop 4 has more fraud"


@pytest.mark.parametrize("model", TREES)
def test_an_empty_and_a_constant_column_train_as_well(model: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f',7,"{x:.4f}",{"DE" if x > 0 else "AT"},{int(x + noise > 0)}' for x, noise in rng.normal(size=(240, 2))]
    (tmp_path / "own.csv").write_text("\n".join(['nothing,same,"a, größe",land,label', *rows]), encoding="utf-8")
    settings = {"file": str(tmp_path / "own.csv"), "label": "label"}
    config = TrainConfig(dataset="table", data_settings=settings, model=model, validation_rows=0, threads=1)
    assert grown(config).exported().difference < 1e-5


def test_the_same_seed_gives_the_same_bytes(table: TrainConfig) -> None:
    fast = replace(table, model="lightgbm", model_settings=SETTINGS["lightgbm"])
    one, again, other = (grown(replace(fast, seed=seed)).converted.model for seed in (3, 3, 4))
    assert one == again != other


def test_training_stops_and_learns_from_the_validation_rows_too(table: TrainConfig) -> None:
    found = grown(replace(table, model="lightgbm", model_settings=SETTINGS["lightgbm"]))
    losses = np.array(found.grown.losses)
    assert found.grown.rounds == losses.argmin() + 1 == len(losses) - 10
    assert found.grown.model.num_trees() == found.grown.rounds
    root = found.grown.model.dump_model()["tree_info"][0]["tree_structure"]
    assert root["internal_count"] > len(found.parts.train) * 0.8  # bagging takes 80 % of both parts


@pytest.mark.parametrize("model", ["lightgbm", "hist_gradient_boosting"])
def test_class_weights_are_undone(table: TrainConfig, model: str) -> None:
    config = replace(table, model=model, model_settings=SETTINGS[model], stratified=True)
    plain, weighted = (grown(replace(config, class_weights=weights)) for weights in ((), ("balanced",)))
    rows = plain.parts.reference()
    rate = float(plain.data.labels[rows].mean())
    for found in (plain, weighted):
        logits = found.scored(rows).logits.astype(np.float64)
        stated = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
        assert stated.mean() == pytest.approx(rate, rel=0.35)
    unshifted = weighted.grown.model
    raw = (unshifted.predict if model == "lightgbm" else lambda x: unshifted.predict_proba(x)[:, 1])(
        weighted.data.inputs[rows].astype(np.float64)
    )
    assert raw.mean() > 2 * rate, "the weights had an effect"


def test_the_calibrated_base_rate_is_the_populations(table: TrainConfig, tmp_path: Path) -> None:
    config = replace(
        table, model="lightgbm", model_settings=SETTINGS["lightgbm"], calibrator=None, class_weights=("yes=20",)
    )
    found = bundle.verify(train_bundle(config, tmp_path))
    fit = found.reference.fit
    assert found.calibrator.name == "platt"
    stated = found.calibrator.predict_proba(fit.logits)[:, 1]
    # Platt scaling has an intercept: the mean probability of its fit rows is that of its targets, which are their
    # labels but for one row more of each class (Platt 1999, section 2.2).
    ones, zeros = (int((fit.labels == label).sum()) for label in (1, 0))
    expected = (ones * (ones + 1) / (ones + 2) + zeros / (zeros + 2)) / (ones + zeros)
    assert float(stated.mean(dtype=np.float64)) == pytest.approx(expected, abs=1e-6)


def test_row_weights_reach_the_trees_and_the_calibrator(table: TrainConfig, tmp_path: Path) -> None:
    settings = {"file": "claims.csv", "label": "fraud", "weight": "weight"}
    config = replace(table, model="lightgbm", model_settings=SETTINGS["lightgbm"], data_settings=settings)
    found = bundle.verify(train_bundle(config, tmp_path))
    assert [column.name for column in found.columns.columns] == ["amount", "age", "shop", "land"]
    fit = found.reference.fit
    assert fit.weight is not None
    assert set(fit.weight) == {1.0, 2.0}
    stated = found.calibrator.predict_proba(fit.logits)[:, 1].astype(np.float64)
    assert np.average(stated, weights=fit.weight) == pytest.approx(np.average(fit.labels, weights=fit.weight), abs=1e-3)


def test_groups_of_a_table_stay_whole_and_are_counted(table: TrainConfig, tmp_path: Path) -> None:
    settings = {"file": "claims.csv", "label": "fraud", "drop": ["weight"], "group": "age"}
    config = replace(table, model="lightgbm", model_settings=SETTINGS["lightgbm"], data_settings=settings)
    found = bundle.verify(train_bundle(config, tmp_path))
    assert [column.name for column in found.columns.columns] == ["amount", "shop", "land"]
    data, parts = config.load()
    assert data.groups is not None
    seen: set[int] = set()
    for name in ("train", "validation", "fit", "certify", "gate"):
        groups = set(data.groups[getattr(parts, name)].tolist())
        assert groups
        assert not groups & seen
        seen |= groups
        if name in ("fit", "certify", "gate"):
            assert set(getattr(found.reference, name).group.tolist()) == groups
    alone = np.bincount(data.groups) == 1
    assert alone.sum() > ROWS / 40  # the rows of a missing age, each its own group


def test_a_graph_that_differs_is_refused(table: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = converters.CONVERTERS["lightgbm"]

    def wrong(model: Any) -> Any:
        found = real(model)
        return replace(found, native=lambda feeds: real(model).native({name: x + 1 for name, x in feeds.items()}))

    monkeypatch.setitem(converters.CONVERTERS, "lightgbm", wrong)
    config = replace(table, model="lightgbm", model_settings=SETTINGS["lightgbm"])
    with pytest.raises(ExportError, match="disagree on"):
        train_bundle(config, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_interruption_leaves_nothing(table: TrainConfig, tmp_path: Path) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_bundle(replace(table, model="lightgbm"), tmp_path / "out", on_epoch=interrupt)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model": "lightgbm", "epochs": 5, "dropout": 0.1}, "epochs, dropout: for networks only"),
        ({"model": "lightgbm", "sampling": "balanced"}, "sampling: for networks only"),
        ({"model": "lightgbm", "model_settings": {"num_leaves": -3}}, "lightgbm refuses to train"),
        ({"model": "xgboost", "model_settings": {"max_depth": "deep"}}, "xgboost refuses to train"),
        ({"model": "catboost", "model_settings": {"no_such": 1}}, "catboost refuses to train"),
        ({"model": "lightgbm", "model_settings": {"num_leavs": 3}}, "does not know the parameter num_leavs"),
        ({"model": "xgboost", "model_settings": {"max_dpth": 3}}, "does not use the parameter max_dpth"),
        ({"model": "hist_gradient_boosting", "model_settings": {"no_such": 1}}, "hist_gradient_boosting refuses"),
        ({"class_weights": ("maybe=2",)}, "expected balanced alone, or CLASS=WEIGHT with one of the classes no, yes"),
        ({"class_weights": ("yes=0",)}, "expected a positive number"),
        ({"dataset": "digits", "data_settings": {}, "model": "lightgbm"}, "lightgbm requires rows of a table"),
        ({"model": "lightgbm", "keep": "x"}, "trains in one piece"),
    ],
)
def test_unsuitable_settings_are_refused(table: TrainConfig, tmp_path: Path, change: dict[str, Any], told: str) -> None:
    keep = change.pop("keep", None)
    if change.get("model") == "xgboost":
        pytest.importorskip("xgboost").set_config(verbosity=0)  # as trainings before this one may have done
    with pytest.raises(ConfigurationError) as caught:
        train_bundle(replace(table, **change), tmp_path / "out", keep=keep and tmp_path / keep)
    assert told in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_trees_are_the_default_for_tables_and_the_command_says_so(table: TrainConfig, tmp_path: Path) -> None:
    arguments = ["train", "--dataset", "table", "--data", str(table.data), "--name", "claims", "--no-log"]
    arguments += ["--data-setting", "file=claims.csv", "--data-setting", "label=fraud", "--out", str(tmp_path)]
    arguments += ["--model-setting", "learning_rate=0.3", "--patience", "10", "--calibrator", "platt"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert f"The model is {default()}, the default for tables." in result.output
    assert "rows are held out for calibration and certificates: about" in result.output
    assert "average precision" in result.output
    manifest = json.loads((tmp_path / "claims" / "1" / "manifest.json").read_text())
    assert manifest["architecture"]["name"] == default()
    wrong = CliRunner().invoke(app, [*arguments, "--batch-size", "8"])
    assert (wrong.exit_code, "batch_size: for networks only" in wrong.stderr) == (USAGE, True)


def test_a_table_without_signal_is_refused_unless_allowed(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = "\n".join(f"{value:.3f},{label}" for value, label in zip(random.random(600), random.integers(0, 2, 600)))  # noqa: B905
    (tmp_path / "noise.csv").write_text(f"x,y\n{rows}\n")
    arguments = ["train", "--dataset", "table", "--data", str(tmp_path), "--name", "noise", "--no-log", "--out"]
    arguments += [str(tmp_path / "out"), "--data-setting", "file=noise.csv", "--data-setting", "label=y"]
    arguments += ["--calibrator", "identity", "--patience", "200", "--validation-rows", "0"]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == FAILED
    assert "no better than the class frequencies" in refused.stderr
    assert "--allow-poor" in refused.stderr
    assert "epoch 100 of 100, loss not measured (no validation rows)" in refused.stderr
    assert not (tmp_path / "out").exists()
    allowed = CliRunner().invoke(app, [*arguments, "--allow-poor"])
    assert allowed.exit_code == 0
    assert "no better than the class frequencies" in allowed.stderr


def test_average_precision_in_the_report_is_that_of_the_metrics(trained: bundle.Bundle) -> None:
    parts = (trained.reference.certify, trained.reference.gate)
    logits, labels = (np.concatenate([getattr(part, name) for part in parts]) for name in ("logits", "labels"))
    expected = metrics.refinement_aupr(trained.calibrator.predict_proba(logits), labels, positive=1)
    assert trained.report["positive"]["after"]["average_precision"]["value"] == expected
