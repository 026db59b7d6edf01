"""Multi-label models: each label is calibrated as a model of its own would be, over the same model file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import bundle as bundles
from importing.cli import app

from . import graphs

LABELS = ("toxic", "threat", "Identity hate")
NAMES = ("comments--toxic", "comments--threat", "comments--identity_hate")
RANDOM = np.random.default_rng(5)
WEIGHTS = np.array([[1.0, -1.0, 0.5], [0.5, 1.0, -1.0], [-1.0, 0.5, 1.0]], np.float32)
ROWS = RANDOM.normal(size=(600, 3)).astype(np.float32)
CHANCES = 1 / (1 + np.exp(-(ROWS @ WEIGHTS - 0.5)))
MARKS = (RANDOM.random(CHANCES.shape) < CHANCES).astype(int)


def sigmoids(columns: Sequence[int] = (0, 1, 2), last: str | None = "Sigmoid") -> bytes:
    """Overconfident by a factor of 2."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"])]
    nodes += [] if last is None else [helper.make_node(last, ["s"], ["p"])]
    outputs = [graphs.value("s" if last is None else "p", TensorProto.FLOAT, len(columns))]
    return graphs.model(nodes, [graphs.value("x", TensorProto.FLOAT, 3)], outputs, w=2 * WEIGHTS[:, list(columns)])


def written(path: Path, marks: np.ndarray, names: Sequence[str] = LABELS, **scores: np.ndarray) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "card", *names, *scores])
        for place, (row, own) in enumerate(zip(ROWS.tolist(), marks.tolist(), strict=True)):
            more = [values[place] for values in scores.values()]
            writer.writerow([*row, f"card-{place // 2}", *("" if one is None else one for one in own), *more])
    return path


def imported(folder: Path, made: bytes, rows: Path, *options: str, name: str = "comments") -> Any:
    (folder / "model.onnx").write_bytes(made)
    fixed = ["onnx", str(folder / "model.onnx"), "--name", name, "--validation", str(rows), "--group", "card"]
    return CliRunner().invoke(app, [*fixed, "--out", str(folder / "bundles"), *options])


def several(labels: Sequence[str] = LABELS) -> tuple[str, str]:
    return "--label-columns", ",".join(labels)


@pytest.mark.parametrize("last", ["Sigmoid", None])
def test_each_label_is_calibrated_as_a_model_of_its_own(tmp_path: Path, last: str | None) -> None:
    rows = written(tmp_path / "rows.csv", MARKS)
    result = imported(tmp_path, sigmoids(last=last), rows, *several())
    assert result.exit_code == 0, result.output
    for place, (label, name) in enumerate(zip(LABELS, NAMES, strict=True)):
        own = tmp_path / f"own{place}"
        own.mkdir()
        single = written(own / "rows.csv", MARKS[:, [place]], [label])
        alone = imported(own, sigmoids([place], last=last), single, "--label", label, name="alone")
        assert alone.exit_code == 0, alone.output
        found, expected = (
            bundles.verify(path) for path in (tmp_path / "bundles" / name / "1", own / "bundles/alone/1")
        )
        assert found.manifest.labels == ("absent", "present")
        assert found.manifest.label_of == bundles.LabelOf(model="comments", label=label, labels=LABELS)
        for part in ("fit", "certify", "gate"):
            one, other = (getattr(each.reference, part) for each in (found, expected))
            np.testing.assert_array_equal(one.labels, other.labels)
            np.testing.assert_allclose(one.logits, other.logits, rtol=1e-6, atol=1e-6)
        if last is None:  # exactly the same numbers: no matrix product of another width
            given = np.array([[0.0, -2.0], [0.0, 0.3], [0.0, 5.0]], np.float32)
            probabilities = [each.calibrator.predict_proba(given) for each in (found, expected)]
            np.testing.assert_allclose(*probabilities, rtol=1e-5)
        report = found.report
        assert report["positive"]["label"] == "present"
        assert 0.5 < report["positive"]["after"]["auroc"]["value"] < 1
        assert report["after"]["nll"]["value"] < report["before"]["nll"]["value"]
    assert "ECE" in result.output
    assert "95 % of calibrated models" in result.output


def test_all_labels_share_the_bytes_of_the_model(tmp_path: Path) -> None:
    imported(tmp_path, sigmoids(), written(tmp_path / "rows.csv", MARKS), *several())
    found = [bundles.verify(tmp_path / "bundles" / name / "1") for name in NAMES]
    assert len({each.model_digest for each in found}) == 1
    columns = [each.manifest.graph and each.manifest.graph.output.columns for each in found]
    assert columns == [(0,), (1,), (2,)]


def test_rows_whose_label_is_unknown_count_for_the_other_labels_only(tmp_path: Path) -> None:
    marks = MARKS.astype(object)
    marks[::3, 1] = None
    result = imported(tmp_path, sigmoids(), written(tmp_path / "rows.csv", marks), *several())
    assert result.exit_code == 0, result.output
    sizes = []
    for name in NAMES:
        reference = bundles.verify(tmp_path / "bundles" / name / "1").reference
        sizes.append(sum(len(getattr(reference, part).labels) for part in ("fit", "certify", "gate")))
    assert sizes == [600, 400, 600]


def test_scores_of_several_labels_are_those_of_one_each(tmp_path: Path) -> None:
    scores = {f"p{place}": CHANCES[:, place] ** 2 for place in range(3)}
    rows = written(tmp_path / "rows.csv", MARKS, **scores)
    fixed = ["--group", "card", "--out", str(tmp_path / "bundles"), "--calibrator", "beta"]
    one = ["scores", str(rows), "--name"]
    result = CliRunner().invoke(app, [*one, "comments", "--scores", "p0,p1,p2", *several(), *fixed])
    assert result.exit_code == 0, result.output
    for place, (label, name) in enumerate(zip(LABELS, NAMES, strict=True)):
        alone = CliRunner().invoke(app, [*one, f"own{place}", "--score", f"p{place}", "--label", label, *fixed])
        assert alone.exit_code == 0, alone.output
        found, expected = (bundles.verify(tmp_path / "bundles" / each / "1") for each in (name, f"own{place}"))
        assert found.calibrator.to_dict() == expected.calibrator.to_dict()
        np.testing.assert_array_equal(found.reference.certify.logits, expected.reference.certify.logits)


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        ({}, ["--label-columns", "toxic,threat", "--drop", "Identity hate"], "No output scores 2 labels"),
        ({}, ["--label-columns", "toxic"], "The label columns are not valid"),
        ({}, ["--label-columns", "toxic,toxic,threat"], "The label columns are not valid"),
        ({}, ["--label-columns", "toxic,threat,insult"], "The file has no column `insult`"),
        ({}, [*several(), "--label", "toxic"], "Both --label and --label-columns are given"),
        ({}, [*several(), "--labels", "0=a,1=b"], "--labels belongs to models of one label per row"),
        ({}, [*several(), "--positive", "toxic"], "--positive belongs to models of one label per row"),
        ({}, [*several(), "--output", "p:logits"], "does not score labels independently"),
        ({}, [*several(), "--output", "q"], "The model has no output 'q'"),
        ({"marks": 2}, several(), "The label is neither 0 nor 1"),
        ({"marks": "yes"}, several(), "column threat"),
        ({"marks": "nan"}, several(), "600 rows"),  # a missing cell
        ({"constant": 1}, several(), "All rows have the label, or none is known"),
        ({"constant": 0}, several(), "No row has the label"),
        ({"constant": None}, several(), "All rows have the label, or none is known"),
        ({"last": "Softmax"}, several(), "add up to 1, as those of a softmax do"),
        ({"last": "Log"}, several(), "The model gives no finite scores"),
        ({"order": [1, 2, 0]}, several(), "label columns in the order of the model's scores"),
    ],
)
def test_what_is_no_multi_label_model_is_refused(
    tmp_path: Path, change: dict[str, Any], options: Sequence[str], says: str
) -> None:
    marks = MARKS.astype(object)
    if "marks" in change:
        marks[7, 1] = change["marks"]
    if "constant" in change:
        marks[:, 1] = change["constant"]
    made = sigmoids(change.get("order", (0, 1, 2)), last=change.get("last", "Sigmoid"))
    result = imported(tmp_path, made, written(tmp_path / "rows.csv", marks), *options)
    assert says in " ".join(result.output.split())
    if change != {"marks": "nan"}:
        assert result.exit_code == 2
        assert not (tmp_path / "bundles").exists()


def test_a_column_name_clash_and_a_taken_name_are_refused(tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.csv", MARKS, ["hate!", "hate?", "insult"])
    result = imported(tmp_path, sigmoids(), rows, *several(["hate!", "hate?", "insult"]))
    assert (result.exit_code, "labels cannot name their models" in result.output.lower()) == (2, True)
    (tmp_path / "bundles/comments").mkdir(parents=True)
    rows = written(tmp_path / "rows.csv", MARKS)
    result = imported(tmp_path, sigmoids(), rows, *several())
    assert (result.exit_code, "has the name of the multi-label model" in result.output) == (2, True)


def test_a_converted_model_has_one_label_per_row(tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("tree\n")
    rows = written(tmp_path / "rows.csv", MARKS)
    given = ["lightgbm", str(tmp_path / "model.txt"), "--name", "comments", "--validation", str(rows), *several()]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 2
