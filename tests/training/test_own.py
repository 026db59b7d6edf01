"""Networks, losses and rows of one's own: what is given is what is trained, and what cannot work is refused first."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import bundle
from tests.training import own_things
from training import ConfigurationError, TrainConfig, candor_train, train_bundle
from training.cli import app
from training.console import USAGE
from training.own import look_up
from training.trained import learn, load

OWN = own_things.__name__
TINY = TrainConfig(epochs=1, train_rows=60, reference_rows=60)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution on the path, with entry points."""
    info = tmp_path / "defects-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: defects\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        f"[candor.models]\ndefects_net = {OWN}:linear\n[candor.losses]\nasymmetric = {OWN}:asymmetric\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def test_own_network_and_loss_become_a_bundle(tmp_path: Path) -> None:
    config = replace(
        TINY,
        model=f"{OWN}:linear",
        model_settings={"width": 6},
        loss=f"{OWN}:asymmetric",
        coefficients={"cost": 3.0},
    )
    made = bundle.verify(train_bundle(config, tmp_path, weights=tmp_path / "weights.npz"))
    manifest = made.manifest
    assert manifest.architecture is not None
    assert manifest.architecture.name == f"{OWN}:linear"
    assert manifest.architecture.config["width"] == 6
    assert manifest.architecture.parameters == 64 * 6 + 6 + 6 * 10 + 10
    assert manifest.training is not None
    assert manifest.training.loss == bundle.Loss(name=f"{OWN}:asymmetric", coefficients={"cost": 3.0})
    kept = load(tmp_path / "weights.npz")
    np.testing.assert_allclose(
        kept.scored(kept.parts.certify).logits, made.reference.certify.logits, rtol=1e-5, atol=1e-5
    )


def test_the_loss_is_the_one_that_is_trained() -> None:
    """With a cost of 1 it is cross-entropy, to the last bit; with another one it is not."""

    def weights(**settings: Any) -> torch.Tensor:
        module = learn(replace(TINY, **settings)).module
        return torch.cat([each.flatten() for each in module.parameters()])

    plain = weights()
    torch.testing.assert_close(weights(loss=f"{OWN}:asymmetric", coefficients={"cost": 1.0}), plain, rtol=0, atol=0)
    assert not torch.equal(weights(loss=f"{OWN}:asymmetric"), plain)
    learn(replace(TINY, loss=f"{OWN}:weighted"))  # a loss that knows the number of classes


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("one_short", r"returns torch.float32 \(4, 9\) for 4 rows, expected logits, float32 \(4, 10\)"),
        ("double", r"returns torch.float64 \(4, 10\) for 4 rows, expected logits, float32 \(4, 10\)"),
        ("wrong_width", r"raised RuntimeError: mat1 and mat2 .*own_things\.py, line \d+\)"),
        ("relative", "a row's logits must depend on that row alone"),
        ("branching", r"cannot be exported to ONNX: .*own_things\.py:\d+ return logits if"),
        ("frozen", "nothing to train"),
        ("dead", "gradient of 0"),
        ("exploding", "not finite"),
        ("no_module", "returns NoneType, expected a torch.nn.Module"),
        ("raising", r"raised KeyError: 'width' \(.*own_things\.py, line \d+\)"),
        ("absent", "no function or class 'absent'"),
    ],
)
def test_a_network_that_cannot_work_is_refused(model: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        learn(replace(TINY, model=f"{OWN}:{model}"), on_epoch=lambda _: pytest.fail("an epoch was trained"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"loss": f"{OWN}:mean"}, r"returns torch.float32 \(\) for 8 examples, expected one floating value each"),
        ({"loss": f"{OWN}:constant"}, "does not depend on the logits"),
        ({"loss": f"{OWN}:of_three"}, r"the loss of_three raised TypeError: .*missing 1 required positional argument"),
        ({"loss": f"{OWN}:failing"}, r"the loss failing raised ValueError: no such row \(.*own_things\.py, line \d+\)"),
        ({"loss": f"{OWN}:flat"}, "gradient of 0 in every logit"),
        ({"loss": f"{OWN}:infinite"}, "not finite"),
        ({"loss": f"{OWN}:without_default"}, "needs a value for the coefficient cost"),
        ({"loss": f"{OWN}:asymmetric", "coefficients": {"price": 1.0}}, "unknown coefficients of the loss: price"),
        ({"loss": "no_such_module:loss"}, "no module 'no_such_module'"),
        ({"loss": "no such module:loss"}, "no module"),
        ({"model": f"{OWN}:linear", "model_settings": {"depth": 3}}, r"linear\(classes, shape, depth=…\): .*'depth'"),
        ({"model": f"{OWN}:linear", "dropout": 0.1}, "--model-setting"),
        ({"model": "lenet5", "model_settings": {"depth": 3}}, "LeNet5 has no setting 'depth'"),
    ],
)
def test_a_loss_or_setting_that_cannot_work_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        learn(replace(TINY, **change), on_epoch=lambda _: pytest.fail("an epoch was trained"))


@pytest.mark.usefixtures("installed")
def test_entry_points_have_names(tmp_path: Path) -> None:
    assert look_up("model", {}, "defects_net") is own_things.linear
    assert look_up("model", {"defects_net": print}, "defects_net") is print  # a built-in name stays what it is
    with pytest.raises(ConfigurationError, match="'nope', expected one of: asymmetric, cross_entropy; or"):
        look_up("loss", {"cross_entropy": print}, "nope")
    listed = CliRunner().invoke(app, ["list"], env={"COLUMNS": "200"}).stdout
    assert f"{OWN}:asymmetric, an entry point of candor.losses." in listed


def test_a_module_of_the_current_folder_is_found_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nets_of_this_folder.py").write_text(f"from {OWN} import linear as make\n")
    (tmp_path / "torch.py").write_text("raise AssertionError('a file hid an installed module')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert look_up("model", {}, "nets_of_this_folder:make") is own_things.linear
    assert sys.path[-1] == str(tmp_path)
    typed = ["--epochs", "1", "--no-log", "--model", "nets_of_this_folder:makes"]
    done = CliRunner().invoke(app, ["train", "--out", str(tmp_path), *typed])
    assert done.exit_code == USAGE
    assert "no function or class 'makes'" in done.stderr
    (tmp_path / "nets_with_a_typo.py").write_text("def make(:\n")
    done = CliRunner().invoke(app, ["train", "--out", str(tmp_path), *typed[:-1], "nets_with_a_typo:cat:zzz"])
    assert done.exit_code == USAGE
    assert "nets_with_a_typo:cat:zzz raised SyntaxError" in done.stderr  # in its own words, without pictures


def _separable(rng: np.random.Generator, count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    labels = rng.integers(0, 2, count)
    rows = rng.normal(size=(count, 3)).astype(np.float32)
    rows[:, 1] += 3 * labels
    rows[::7, 0] = np.nan
    return rows, labels


def test_arrays_and_modules_are_trained_from_python(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    parts = {name: _separable(rng, count) for name, count in (("train", 200), ("validation", 60), ("reference", 90))}
    epochs: list[int] = []
    path = candor_train(
        own_things.of_table,
        parts["train"],
        parts["validation"],
        reference=parts["reference"],
        loss=own_things.asymmetric,
        label_names=["fine", "broken"],
        columns=["a", "b", "c"],
        out=tmp_path,
        name="own",
        epochs=8,
        learning_rate=0.05,
        on_epoch=lambda epoch: epochs.append(epoch.number) if epoch.validation else None,
    )
    made = bundle.verify(path)
    assert epochs == list(range(1, 9))
    assert made.manifest.labels == ("fine", "broken")
    assert made.manifest.architecture is not None
    assert made.manifest.architecture.name == f"{OWN}:of_table"
    assert made.manifest.training is not None
    assert {name: part.rows for name, part in made.manifest.training.splits.items()} == {
        "train": 200,
        "validation": 60,
        "fit": 45,
        "certify": 40,
        "gate": 5,
        "feedback": 0,
    }
    assert set(made.manifest.training.data.sources) == set(parts)
    labels = np.concatenate([made.reference.fit.labels, made.reference.certify.labels, made.reference.gate.labels])
    assert sorted(labels.tolist()) == sorted(parts["reference"][1].tolist())
    assert np.mean(made.reference.certify.logits.argmax(axis=1) == made.reference.certify.labels) > 0.85
    session = onnxruntime.InferenceSession(made.model_bytes)
    probabilities = session.run(["logits"], {"input": parts["validation"][0]})[0].argmax(axis=1)
    assert np.mean(probabilities == parts["validation"][1]) > 0.85


def test_a_module_and_texts_are_trained_from_python(tmp_path: Path) -> None:
    words = [["good", "fine"], ["bad", "poor"]]
    labels = np.arange(80) % 2
    texts = [f"a {words[label][row % 3 % 2]} part {row}" for row, label in enumerate(labels)]
    path = candor_train(
        own_things.of_tokens,
        (texts, labels),
        out=tmp_path,
        name="texts",
        length=3,
        reference_rows=20,
        epochs=20,
        learning_rate=0.05,
        allow_poor=True,  # the words tell the labels: the temperature is at its lower bound
        test=(texts[:10], labels[:10]),
    )
    made = bundle.verify(path)
    assert made.vocabulary is not None
    assert set(made.vocabulary.words[2:]) == {"a", "part", "good", "fine", "bad", "poor"}
    assert made.report["test"]["after"]["accuracy"]["value"] == 1.0


def test_a_data_frame_names_its_columns(tmp_path: Path) -> None:
    rows, labels = _separable(np.random.default_rng(0), 290)
    frame = pd.DataFrame(rows, columns=["amount", "age", "hour"]).astype({"hour": "Float32"})
    frame.loc[3, "hour"] = pd.NA
    path = candor_train(own_things.of_table, (frame, pd.Series(labels)), out=tmp_path, name="own", reference_rows=90)
    columns = bundle.verify(path).columns
    assert columns is not None
    assert [column.name for column in columns.columns] == ["amount", "age", "hour"]


_SAME = np.arange(80, dtype=np.float32).reshape(40, 2), np.arange(40) % 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"train": (np.zeros((3, 2), np.float32), [0, 1])}, "train: 3 inputs for 2 labels"),
        ({"train": (np.zeros((2, 2), np.float32), ["a", "b"])}, "labels of train are <U1"),
        ({"validation": (np.zeros((2, 3), np.float32), [0, 1])}, "inputs have the shapes"),
        (dict.fromkeys(("train", "reference"), _SAME), "reference: 40 of 40 rows are training rows"),
        ({"train_rows": 5}, "train_rows does not apply to arrays"),
        ({"reference_rows": 60}, "expected at most 40 together"),
        ({"epochs": 0}, "epochs is 0"),
        ({"epohcs": 1}, "unknown setting 'epohcs', expected one of: .*epochs"),
        ({"train": ([None, *["a"] * 39], np.arange(40) % 2)}, "train, row 0 is None, expected a text"),
        ({"train": (np.full((40, 2), 1e39), np.arange(40) % 2)}, "train, row 0, column c1: infinite as float32"),
        ({"train": (np.zeros((40, 3, 8, 8), np.uint8), np.arange(40) % 2)}, "1 or 3 channels"),
        ({"train": (pd.DataFrame({"a": ["x"] * 40}), np.arange(40) % 2)}, "train has a column that is not of numbers"),
        (
            {"train": (pd.DataFrame({"a": [0.0] * 40}), _SAME[1]), "test": (pd.DataFrame({"b": [0.0]}), [1])},
            r"test has the columns \['b'\], expected those of train",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, Any], why: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"train": (np.zeros((40, 2), np.float32), np.arange(40) % 2), "reference_rows": 20}
    with pytest.raises(ConfigurationError, match=why):
        candor_train(nn.Linear(2, 2), out=tmp_path, name="own", **{**given, **change})
    assert not any(tmp_path.iterdir())
