"""`candor import`: one command from a model's file and labelled rows to a bundle."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from PIL import Image
from typer.testing import CliRunner

import bundle as bundles
from importing import model as onnx_models
from importing.cli import app
from importing.errors import SlowModelError
from service.errors import NonFiniteLogitsError
from service.inference.chain import Chain
from service.inference.session import Session

from . import graphs

RANDOM = np.random.default_rng(4)
ROWS = 240


def sentence(text: str) -> str:
    """The words of an output, whatever lines the terminal breaks them into."""
    return re.sub(r"\s+", " ", text)


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    return RANDOM.normal(size=(ROWS, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def drawn(table: np.ndarray) -> np.ndarray:
    """Labels as the model says they are distributed."""
    scores = table @ graphs.WEIGHTS
    return np.argmax(scores + RANDOM.gumbel(size=scores.shape), axis=1)


@pytest.fixture
def rows(tmp_path: Path, table: np.ndarray, drawn: np.ndarray) -> Path:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "y", "card", "country"])
        for place, (row, label) in enumerate(zip(table, drawn, strict=True)):
            writer.writerow([*map(float, row), label, f"card-{place // 2}", "DE" if place % 3 else "FR"])
    return path


@pytest.fixture
def run(tmp_path: Path, rows: Path) -> Callable[..., tuple[Any, Path]]:
    def call(made: bytes, *options: str, validation: Path | None = None) -> tuple[Any, Path]:
        file = tmp_path / "model.onnx"
        file.write_bytes(made)
        fixed = ["--name", "mine", "--validation", str(validation or rows), "--calibrator", "temperature"]
        unused = [name for name in ("card", "country") if name not in options]
        drops = [] if validation else ["--label", "y", *(word for name in unused for word in ("--drop", name))]
        result = CliRunner().invoke(
            app, ["onnx", str(file), *fixed, *drops, "--out", str(tmp_path / "bundles"), *options]
        )
        return result, tmp_path / "bundles" / "mine" / "1"

    return call


def answers(found: bundles.Bundle, inputs: np.ndarray) -> np.ndarray:
    """Probabilities before calibration, by the bundle's own description of its graph."""
    graph = found.manifest.graph
    assert graph is not None
    logits = graph.run(ort.InferenceSession(found.model_bytes).run, inputs, len(found.manifest.labels))
    powers = np.exp(logits)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("made", "form"),
    [
        (graphs.logits(), "logits"),
        (graphs.probabilities(), "probabilities"),
        (graphs.probabilities(batch=1), "probabilities"),
        (graphs.probabilities(batch=7), "probabilities"),
        (graphs.both(), "logits"),
        (graphs.sigmoid(), "positive"),
        (graphs.sigmoid(squashed=False), "margin"),
        (graphs.label_and_maps(), "maps"),
    ],
)
def test_every_form_of_scores_is_found_and_gives_the_same_probabilities(
    run: Any, table: np.ndarray, made: bytes, form: str
) -> None:
    result, path = run(made)
    assert result.exit_code == 0, result.output + result.stderr
    found = bundles.verify(path)
    assert found.manifest.graph is not None
    assert found.manifest.graph.output.form == form
    assert (found.manifest.source, found.manifest.labels) == ("imported", ("0", "1"))
    assert found.manifest.graph.output.smallest == pytest.approx(1e-7)
    scores = table @ graphs.WEIGHTS
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(answers(found, table), expected, atol=1e-5)
    assert found.columns is not None
    assert [column.name for column in found.columns.columns] == ["a", "b", "c"]
    sizes = [len(getattr(found.reference, part).labels) for part in ("fit", "certify", "gate")]
    assert sum(sizes) == ROWS
    assert min(sizes) > 0


def margin_rows(path: Path, margins: np.ndarray) -> None:
    """Write rows whose log-odds are these by `graphs.sigmoid`: its weight of the first column is −2."""
    labels = RANDOM.random(len(margins)) < 1 / (1 + np.exp(-margins))
    lines = [f"{margin / -2},0,0,{int(label)}" for margin, label in zip(margins, labels, strict=True)]
    path.write_text("\n".join(["a,b,c,y", *lines]))


@pytest.mark.parametrize("batch", [1, 7, "N"])
def test_the_form_is_found_by_many_rows_however_few_run_at_once(run: Any, tmp_path: Path, batch: int | str) -> None:
    margin_rows(tmp_path / "margins.csv", np.concatenate([[0.514] * 9, 2 * RANDOM.normal(size=ROWS - 9)]))
    made = graphs.sigmoid(squashed=False, batch=batch)
    result, path = run(made, "--label", "y", validation=tmp_path / "margins.csv")
    assert result.exit_code == 0, result.output + result.stderr
    graph = bundles.verify(path).manifest.graph
    assert graph is not None
    assert graph.output.form == "margin"


@pytest.mark.parametrize("batch", [5, "N"])
def test_a_number_that_is_no_probability_is_refused_with_its_row(run: Any, tmp_path: Path, batch: int | str) -> None:
    rows, inside = tmp_path / "margins.csv", RANDOM.uniform(0, 1, 600)
    options = graphs.sigmoid(squashed=False, batch=batch), "--label", "y"
    margin_rows(rows, np.concatenate([inside, [1.5, -2.0]]))
    result, path = run(*options, validation=rows)
    assert result.exit_code == 2, result.output
    for told in ("line 602", "found: 1.5", "expected: 0 to 1", "--output margin:margin"):
        assert told in sentence(result.stderr)
    assert not path.exists()
    result, _ = run(*options, "--output", "margin:margin", "--dry-run", validation=rows)
    assert result.exit_code == 0, result.output + result.stderr
    margin_rows(rows, inside)
    result, path = run(*options, validation=rows)
    assert result.exit_code == 0, result.output + result.stderr
    found = bundles.verify(path)
    chain = Chain(Session(found, provider="cpu", threads=1), found.calibrator)
    served = np.zeros((8, 3), np.float32)
    assert np.isfinite(chain.run(served)[1]).all()
    served[6, 0] = 1  # a margin of −2
    with pytest.raises(NonFiniteLogitsError) as caught:
        chain.run(served, first_row=10)
    assert (caught.value.where, caught.value.found) == ("/inputs/16", "-2 in output margin")


@pytest.mark.parametrize("form", ["probabilities", "logits"])
def test_sigmoids_of_the_classes_are_read_as_asked(run: Any, table: np.ndarray, form: str) -> None:
    result, path = run(graphs.sigmoids(), "--output", f"p:{form}")
    assert result.exit_code == 0, result.output + result.stderr
    powers = 1 / (1 + np.exp(-table @ graphs.WEIGHTS))
    powers = np.exp(powers) if form == "logits" else powers
    np.testing.assert_allclose(answers(bundles.verify(path), table), powers / powers.sum(1, keepdims=True), atol=1e-6)


def test_labels_are_renamed_in_the_order_of_the_scores(run: Any, drawn: np.ndarray) -> None:
    result, path = run(graphs.logits(), "--labels", "0=genuine,1=fraud")
    assert result.exit_code == 0, result.output + result.stderr
    found = bundles.verify(path)
    assert found.manifest.labels == ("genuine", "fraud")
    reference = found.reference
    assert sum(int(getattr(reference, part).labels.sum()) for part in ("fit", "certify", "gate")) == drawn.sum()
    assert "classes in the order of the scores: 0 (genuine), 1 (fraud)" in sentence(result.output)
    swapped = "--labels", "1=fraud,0=genuine"
    result, _ = run(graphs.logits(), *swapped)
    assert (result.exit_code, "The scores rank `genuine` below `fraud`" in sentence(result.stderr)) == (2, True)
    result, _ = run(graphs.logits(), *swapped, "--allow-reversed")
    assert (result.exit_code, "the scores rank `genuine` below `fraud`" in sentence(result.output)) == (0, True)


def test_maps_are_read_by_their_keys(run: Any, rows: Path) -> None:
    text = rows.read_text().splitlines()
    named = [line.replace(",0,card", ",no,card").replace(",1,card", ",yes,card") for line in text]
    rows.write_text("\n".join(named))
    result, path = run(graphs.label_and_maps(("no", "yes")))
    assert result.exit_code == 0, result.output + result.stderr
    graph = bundles.verify(path).manifest.graph
    assert graph is not None
    assert graph.output.keys == ("no", "yes")
    result, path = run(graphs.label_and_maps((0, 1)), "--labels", "no=genuine,yes=fraud")
    assert result.exit_code == 0, result.output + result.stderr
    graph = bundles.verify(path.parent / "2").manifest.graph
    assert graph is not None
    assert graph.output.keys == (0, 1)
    result, _ = run(graphs.label_and_maps(("nein", "ja")))
    assert (result.exit_code, "other keys than the labels" in sentence(result.stderr)) == (2, True)


def test_groups_segments_and_weights_stay_with_the_reference_rows(run: Any) -> None:
    result, path = run(graphs.logits(), "--group", "card", "--segment", "country", "--calibrator", "auto")
    assert result.exit_code == 0, result.output + result.stderr
    found = bundles.verify(path)
    reference = found.reference
    assert found.profile is not None
    counted = len(reference.certify.labels) + len(reference.gate.labels)
    assert all(0 < sum(column.counts) < counted for column in found.profile.columns), "rows of a group depend"
    parts = [getattr(reference, part) for part in ("fit", "certify", "gate")]
    groups = [set(part.group.tolist()) for part in parts]
    assert sum(map(len, groups)) == len(set.union(*groups)), "no group is in two parts"
    assert {*np.concatenate([part.segment for part in parts])} == {"DE", "FR"}
    assert all(part.group.shape == part.labels.shape for part in parts)


@pytest.mark.parametrize(
    ("made", "options", "told"),
    [
        (graphs.two_heads(), (), "expected: one of them: --output scores"),
        (
            graphs.sigmoids(),
            (),
            "--output p:probabilities (independent sigmoids, divided by their sum) or --output p",
        ),
        (graphs.two_heads(), ("--output", "third"), "the model has no output 'third'"),
        (graphs.logits(), ("--output", "scores:odds"), "unknown form 'odds'"),
        (graphs.decisions(), (), "No output scores 2 classes"),
        (graphs.batch_statistics(), (), "answers a row alone differently"),
        (graphs.logits(), ("--drop", "a"), "another number of columns than the model"),
        (graphs.logits(), ("--labels", "0=a,2=b"), "other classes than --labels"),
        (graphs.logits(), ("--split", "half"), "three shares"),
        (graphs.logits(), ("--split", "0.5,0.6,0.1"), "The split is invalid. found: 0.5,0.6,0.1"),
        (graphs.logits(), ("--labels", "0=a,1=a"), "names a class twice"),
        (graphs.logits(), ("--labels", "0=a,,1=b"), "names a class twice, or not at all"),
        (graphs.logits(), ("--input", "x:scale=0.1"), "--input describes images"),
        (graphs.cut(1.1), (), "gives no finite scores for 240 of 240 rows"),
        (graphs.logits(), ("--name", "My Model"), "1 to 64 lower-case letters"),
        (graphs.logits(), ("--calibrator", "magic"), "unknown calibrator 'magic'"),
        (graphs.logits(), ("--input", "y:layout=NCHW"), "the model has no input 'y'"),
        (graphs.logits(), ("--input", "x:layout=WHAT"), "cannot read the option --input"),
        (b"not a model", (), "the model is not a valid ONNX protobuf"),
        (b"", (), "the file is empty"),
        (graphs.logits().replace(b"\x08\x0a", b"\x08\x63", 1), (), "found: IR version 99 expected: at most"),
        (graphs.shapeless(), (), "does not declare the shape of its input"),
        (graphs.custom(), (), "Custom operators are not supported"),
        (graphs.outside(), (), "with its weights inside"),
        (graphs.enormous(10**10), (), "the model cannot run these rows"),
        (graphs.enormous(10**15), (), "the model cannot run these rows"),
        (graphs.texts(10**10), (), "the model cannot run these rows"),
    ],
)
def test_what_is_wrong_or_not_clear_is_refused_and_nothing_is_written(
    run: Any, made: bytes, options: tuple[str, ...], told: str
) -> None:
    result, path = run(made, *options)
    assert result.exit_code == 2, result.output
    assert told.lower() in sentence(result.stderr).lower()
    assert not path.parent.parent.exists()


@pytest.mark.parametrize("name", ["uint8", "int32", "bool", "float16"])
def test_a_table_enters_an_input_of_its_type(run: Any, tmp_path: Path, name: str) -> None:
    values = RANDOM.integers(0, 2 if name == "bool" else 4, (ROWS, 3)) - (name == "int32")
    scores = values @ graphs.WEIGHTS
    labels = np.argmax(scores + RANDOM.gumbel(size=scores.shape), axis=1)
    rows = tmp_path / "typed.csv"
    parts = np.resize(["fit", "certify", "gate"], ROWS)  # a type of few values has few different rows
    lines = [",".join(map(str, row)) for row in zip(*values.T, labels, parts, strict=True)]
    rows.write_text("\n".join(["a,b,c,y,part", *lines]))
    kind = getattr(TensorProto, "FLOAT16" if name == "float16" else name.upper())
    result, path = run(graphs.typed(kind), "--label", "y", "--split-column", "part", validation=rows)
    assert result.exit_code == 0, result.output + result.stderr
    found = bundles.verify(path)
    assert found.manifest.graph is not None
    assert found.manifest.graph.inputs[0].dtype == name
    assert found.columns is not None
    encoded = found.columns.encode([dict(zip("abc", row, strict=True)) for row in values.tolist()])
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(answers(found, encoded), expected, atol=1e-6)


def test_roles_of_columns_reach_the_reference_rows(run: Any, tmp_path: Path, table: np.ndarray) -> None:
    rows, known = tmp_path / "roles.csv", tmp_path / "known.json"
    known.write_text(json.dumps({"c": ["low", "high"]}))
    parts = RANDOM.choice(["fit", "certify", "gate"], ROWS, p=[0.5, 0.3, 0.2])
    codes = (table[:, 2] > 0).astype(int)
    hours = np.datetime64("2026-03-01T00", "us") + np.arange(ROWS) * np.timedelta64(1, "h")
    labels = np.arange(ROWS) % 2
    columns = [*table[:, :2].T, np.array(["low", "high"])[codes], labels, 1 + np.arange(ROWS) / 2, hours, parts]
    rows.write_text("\n".join(["a,b,c,y,w,at,part", *(",".join(map(str, row)) for row in zip(*columns, strict=True))]))
    roles = ["--label", "y", "--weight", "w", "--time", "at", "--split-column", "part"]
    options = [*roles, "--categories", str(known), "--refuse-unknown", "--allow-reversed"]
    result, path = run(graphs.logits(), *options, validation=rows)
    assert result.exit_code == 0, result.output + result.stderr
    found = bundles.verify(path)
    for name in ("fit", "certify", "gate"):
        part, own = getattr(found.reference, name), np.flatnonzero(parts == name)
        order = np.argsort(part.weight)
        np.testing.assert_array_equal(part.weight[order], 1 + own / 2)
        np.testing.assert_array_equal(part.time[order], hours[own].astype(np.int64))
        np.testing.assert_array_equal(part.labels[order], labels[own])
        np.testing.assert_allclose(
            part.logits[order], np.column_stack([table[own, :2], codes[own]]) @ graphs.WEIGHTS, atol=1e-5
        )
    assert found.manifest.imported is not None
    assert found.manifest.imported.rows_sha256 == hashlib.sha256(rows.read_bytes()).hexdigest()
    assert found.columns is not None
    assert [column.on_unknown for column in found.columns.columns][2] == "refuse"
    with pytest.raises(bundles.RowError, match="'c'"):
        found.columns.encode([{"a": 0.0, "b": 0.0, "c": "middle"}])


def test_a_number_beyond_float16_is_refused_with_its_line(run: Any, rows: Path) -> None:
    lines = rows.read_text().splitlines()
    first, _, *rest = lines[7].split(",")
    lines[7] = ",".join([first, "70000", *rest])
    rows.write_text("\n".join(lines))
    result, _ = run(graphs.halves())
    assert result.exit_code == 2
    for told in (
        "A value of column 'b' does not fit float16.",
        "line 8 ",
        "found: 70000.0",
        "expected: a finite number",
    ):
        assert told in sentence(result.stderr)


def test_a_logit_of_minus_infinity_is_raised_to_a_stated_floor(run: Any, table: np.ndarray) -> None:
    result, path = run(graphs.cut(0.02))
    assert result.exit_code == 0, result.output + result.stderr
    found = bundles.verify(path)
    expected = np.exp(table @ graphs.WEIGHTS)
    expected /= expected.sum(axis=1, keepdims=True)
    rare = expected < 0.02
    assert rare.any()
    np.testing.assert_allclose(answers(found, table)[rare], 1e-7, rtol=1e-3)
    np.testing.assert_allclose(answers(found, table)[~rare.any(axis=1)], expected[~rare.any(axis=1)], atol=1e-5)


def test_a_named_output_ends_the_doubt(run: Any) -> None:
    result, path = run(graphs.two_heads(), "--output", "other", "--allow-reversed")
    assert result.exit_code == 0, result.output + result.stderr
    graph = bundles.verify(path).manifest.graph
    assert graph is not None
    assert graph.output.name == "other"


def test_a_dry_run_says_what_was_found_and_writes_nothing(run: Any) -> None:
    result, path = run(graphs.probabilities(batch=1), "--dry-run")
    told = sentence(result.output)
    assert result.exit_code == 0
    assert "they are read in the order of the file: a, b, c" in told
    assert "output p: probabilities (rows add up to 1); a probability counts as at least 1e-07" in told
    assert "it runs 1 row at a time" in told
    assert "Dry run: nothing was written." in told
    assert not path.exists()


@pytest.mark.parametrize("made", [graphs.endless(), graphs.slow_to_run(2500)])
def test_a_graph_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch, made: bytes) -> None:
    model = onnx_models.OnnxModel(made, "slow.onnx")
    monkeypatch.setattr(onnx_models, "RUN_S", 0.1)
    with pytest.raises(SlowModelError, match=r"slow.onnx: a run takes longer than 0.1 s"):
        model.run(["p"], {"x": np.ones((1, 3), np.float32)})
    for thread in threading.enumerate():  # until the operator ends, a loop after its turn
        if thread.name == "time limit":
            thread.join()


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_folder_of_images_feeds_a_network_of_photographs(run: Any, tmp_path: Path, channels_last: bool) -> None:
    images = RANDOM.integers(0, 256, (90, 4, 5, 3)).astype(np.uint8)
    for place, image in enumerate(images):
        folder = tmp_path / "photos" / ("cat" if place % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{place:02}.png")
    result, path = run(
        graphs.photographs(channels_last=channels_last),
        "--input",
        "pixels:mean=0.5 0.4 0.3,std=0.2 0.2 0.5",
        validation=tmp_path / "photos",
    )
    assert result.exit_code == 0, result.output + result.stderr
    found = bundles.verify(path)
    assert found.manifest.input == bundles.InputSpec(kind="image", dtype="uint8", shape=(4, 5, 3), resize=True)
    means = ((images / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.2, 0.5]).mean(axis=(1, 2))
    scores = means @ graphs.WEIGHTS
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(answers(found, images), expected, atol=1e-5)
    for option, told in (
        ("mean=0.5 0.4", "mean has 2 values, expected one, or one per channel (3)"),
        ("std=1 0 1", "each std above 0"),
        ("scale=inf", "finite numbers"),
        (f"layout={'NCHW' if channels_last else 'NHWC'}", "images have another number of channels"),
    ):
        result, _ = run(
            graphs.photographs(channels_last=channels_last),
            *("--input", f"pixels:{option}", "--dry-run"),
            validation=tmp_path / "photos",
        )
        assert (result.exit_code, told in sentence(result.stderr)) == (2, True), result.stderr


def test_a_table_says_which_images_belong_together(run: Any, tmp_path: Path) -> None:
    photos, table = tmp_path / "photos", tmp_path / "table.csv"
    lines = ["file,patient,ward,note", "old/one.png,p9,A,not in the folder"]
    for place, image in enumerate(np.random.default_rng(8).integers(0, 256, (90, 4, 5, 3)).astype(np.uint8)):
        name = f"{'cat' if place % 2 else 'dog'}/{place}.png"
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(photos / name)
        lines.append(f"{name},p{place // 6},{'AB'[place % 2]},x")

    fixed = *("--group", "patient", "--segment", "ward"), *("--split", "0.4,0.4,0.2", "--allow-reversed")

    def imported(*options: str) -> tuple[Any, Path]:
        found: tuple[Any, Path] = run(graphs.photographs(), *fixed, *options, validation=photos)
        return found

    table.write_text("\n".join(lines))
    result, path = imported("--images-table", str(table))
    assert result.exit_code == 0, result.output + result.stderr
    assert "90 rows in 15 groups" in result.output
    found = bundles.verify(path)
    parts = [getattr(found.reference, part) for part in ("fit", "certify", "gate")]
    groups = [set(part.group.tolist()) for part in parts]
    assert sum(map(len, groups)) == len(set.union(*groups)) == 15
    labels = np.array(found.manifest.labels)
    assert all((np.where(labels[part.labels] == "cat", "B", "A") == part.segment).all() for part in parts)
    for rest, told in (
        (lines[:-2], "The table does not list 2 of 90 images."),
        ([*lines, lines[5]], "The image is listed twice. where: " + str(table) + ", line 93, column file"),
    ):
        table.write_text("\n".join(rest))
        result, _ = imported("--images-table", str(table))
        assert (result.exit_code, told.lower() in sentence(result.stderr).lower()) == (2, True), result.stderr
    result, _ = imported()
    assert "Give a table with the columns `file` and `patient`: --images-table rows.csv." in sentence(result.stderr)


def test_an_array_of_pixels_is_described_as_images_are(run: Any, tmp_path: Path) -> None:
    images, file = np.random.default_rng(8).integers(0, 256, (90, 4, 5, 3)).astype(np.uint8), tmp_path / "rows.npz"
    options = *("--input", "pixels:mean=0.5,std=0.2"), *("--label", "y", "--allow-reversed")
    np.savez(file, pixels=images, y=np.arange(90) % 2)
    refused, _ = run(graphs.photographs(), "--label", "y", validation=file)
    assert "If clients will send images, add --input pixels." in sentence(refused.stderr)
    np.savez(file, anything=images, y=np.arange(90) % 2)
    result, path = run(graphs.photographs(), *options, validation=file)
    assert result.exit_code == 0, result.output + result.stderr
    found = bundles.verify(path)
    assert found.manifest.input == bundles.InputSpec(kind="image", dtype="uint8", shape=(4, 5, 3), resize=True)
    scores = ((images / 255).mean(axis=(1, 2)) - 0.5) / 0.2 @ graphs.WEIGHTS
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(answers(found, images), expected, atol=1e-5)
    np.savez(file, pixels=np.moveaxis(images, -1, 1), y=np.arange(90) % 2)
    result, _ = run(graphs.photographs(), *options, validation=file)
    told = "found: pixels: uint8 (90, 3, 4, 5) expected: one array: uint8 (90, 4, 5, 3)"
    assert (result.exit_code, told in sentence(result.stderr)) == (2, True), result.stderr


def test_arrays_feed_several_inputs(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "rows.NPZ"
    ids, mask = RANDOM.integers(0, 9, (90, 6)), RANDOM.integers(0, 2, (90, 6))
    with file.open("wb") as stream:
        np.savez(stream, ids=ids, mask=mask, mood=RANDOM.integers(0, 2, 90))
    result, path = run(graphs.sentences(), "--label", "mood", validation=file)
    assert result.exit_code == 0, result.output + result.stderr
    found = bundles.verify(path)
    assert [tensor.shape for tensor in found.manifest.input.tensors] == [(6,), (6,)]
    with file.open("wb") as stream:
        np.savez(stream, ids=ids, mood=RANDOM.integers(0, 2, 90))
    result, _ = run(graphs.sentences(), "--label", "mood", validation=file)
    assert (result.exit_code, "not the inputs of the model" in sentence(result.stderr)) == (2, True)


def test_the_only_array_is_that_of_the_only_input_and_said(run: Any, tmp_path: Path, table: np.ndarray) -> None:
    file = tmp_path / "rows.npz"
    fixed = "--label", "y", "--allow-reversed", "--dry-run"
    for name, said in (("x", False), ("rows", True)):
        np.savez(file, **{name: table}, y=np.arange(ROWS) % 2)
        result, _ = run(graphs.logits(), *fixed, validation=file)
        assert result.exit_code == 0, result.output + result.stderr
        assert ("the only array, rows, is read as x" in sentence(result.output)) == said


def test_columns_that_no_input_takes_are_named_with_the_options_that_drop_them(run: Any, tmp_path: Path) -> None:
    rows = tmp_path / "claims.csv"
    rows.write_text("a,claim no,at,b,y\n" + "".join(f"{row},{row},x,{row % 3},{row % 2}\n" for row in range(40)))
    made = graphs.model(
        [helper.make_node("Sub", ["a", "b"], ["margin"])],
        [graphs.value("a", TensorProto.FLOAT, 1), graphs.value("b", TensorProto.FLOAT, 1)],
        [graphs.value("margin", TensorProto.FLOAT, 1)],
    )
    result, _ = run(made, "--label", "y", validation=rows)
    assert result.exit_code == 2
    assert "Leave them out: --drop 'claim no' --drop at" in sentence(result.stderr)


def test_columns_are_put_in_the_model_s_order(run: Any, rows: Path, tmp_path: Path, table: np.ndarray) -> None:
    lines = [line.split(",") for line in rows.read_text().splitlines()]
    rows.write_text("\n".join(",".join([line[2], line[0], line[1], *line[3:]]) for line in lines))
    order = tmp_path / "order.json"
    order.write_text(json.dumps(["a", "b", "c"]))
    result, path = run(graphs.logits(), "--columns", str(order))
    assert result.exit_code == 0, result.output + result.stderr
    found = bundles.verify(path)
    assert found.columns is not None
    assert [column.name for column in found.columns.columns] == ["a", "b", "c"]
    row = dict(zip("abc", map(float, table[0]), strict=True))
    np.testing.assert_array_equal(found.columns.encode([row])[0], table[0])
    with pytest.raises(bundles.RowError, match="requires a value"):
        found.columns.encode([{"a": 1.0, "b": 2.0}])


def test_categories_written_as_numbers_stay_texts(run: Any, rows: Path, tmp_path: Path, table: np.ndarray) -> None:
    lines = [line.split(",") for line in rows.read_text().splitlines()]
    codes = (table[:, 2] > 0).astype(np.float32)
    cells = ["c", *("02" if code else "01" for code in codes)]
    rows.write_text("\n".join(",".join([*line[:2], cell, *line[3:]]) for line, cell in zip(lines, cells, strict=True)))
    known = tmp_path / "categories.json"
    for values, warned in (["01", "02"], False), (["01"], True):
        known.write_text(json.dumps({"c": values}))
        result, path = run(graphs.logits(), "--categories", str(known), *(["--dry-run"] if warned else []))
        assert result.exit_code == (2 if warned else 0), result.output + result.stderr
        assert ("a value of `c` that the model does not know" in sentence(result.output)) == warned
        if not warned:
            reference = bundles.verify(path).reference
            logits = np.concatenate([getattr(reference, part).logits for part in ("fit", "certify", "gate")])
            expected = np.column_stack([table[:, :2], codes]) @ graphs.WEIGHTS
            np.testing.assert_allclose(np.sort(logits, axis=0), np.sort(expected, axis=0), atol=1e-5)


def test_a_category_that_is_called_na_is_not_missing(tmp_path: Path) -> None:
    lightgbm, pandas = pytest.importorskip("lightgbm"), pytest.importorskip("pandas")
    country = np.tile(["AT", "DE", "NA"], ROWS)
    fraud = (RANDOM.random(len(country)) < np.tile([0.2, 0.4, 0.9], ROWS)).astype(int)
    frame = pandas.DataFrame({"country": pandas.Categorical(country), "amount": RANDOM.normal(size=len(country))})
    booster = lightgbm.train(
        {"objective": "binary", "verbosity": -1, "num_threads": 1}, lightgbm.Dataset(frame, fraud), 20
    )
    booster.save_model(tmp_path / "m.txt")
    rows = tmp_path / "rows.csv"
    frame.assign(y=fraud).to_csv(rows, index=False)
    options = ["--validation", str(rows), "--label", "y", "--calibrator", "temperature", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, ["lightgbm", str(tmp_path / "m.txt"), "--name", "countries", *options])
    assert result.exit_code == 0, result.output + result.stderr
    found = bundles.verify(tmp_path / "countries" / "1")
    reference = found.reference
    logits = np.concatenate([part.logits for part in (reference.fit, reference.certify, reference.gate)])
    scores = booster.predict(frame, raw_score=True)
    np.testing.assert_allclose(np.sort(logits[:, 1] - logits[:, 0]), np.sort(scores), atol=1e-5)
    sent = [{"country": name, "amount": amount} for name, amount in zip(country, frame["amount"], strict=True)][:9]
    assert found.columns is not None
    encoded = found.columns.encode(sent, found.manifest.input)
    np.testing.assert_allclose(answers(found, encoded)[:, 1], booster.predict(frame[:9]), atol=1e-6)


def test_only_columns_of_the_model_decide_which_rows_are_equal(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    amount = np.repeat(RANDOM.normal(size=ROWS), 2).round(3)
    label = (amount + RANDOM.normal(size=len(amount)) > 0).astype(int)
    data = lightgbm.Dataset(amount[:, None], label, feature_name=["amount"])
    lightgbm.train({"objective": "binary", "verbosity": -1, "num_threads": 1}, data, 20).save_model(tmp_path / "m.txt")
    rows = tmp_path / "rows.csv"
    lines = [f"{tx},{value},{y}" for tx, (value, y) in enumerate(zip(amount, label, strict=True))]
    rows.write_text("\n".join(["tx,amount,y", *lines]))
    options = ["--validation", str(rows), "--label", "y", "--calibrator", "temperature", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, ["lightgbm", str(tmp_path / "m.txt"), "--name", "twins", *options])
    assert result.exit_code == 0, result.output + result.stderr
    reference = bundles.verify(tmp_path / "twins" / "1").reference
    assert all(len(part.labels) % 2 == 0 for part in (reference.fit, reference.certify, reference.gate))
    rows.write_text(rows.read_text().replace("amount", "Amount"))
    result = CliRunner().invoke(app, ["lightgbm", str(tmp_path / "m.txt"), "--name", "twins", *options])
    assert (result.exit_code, "Did you mean `Amount`?" in sentence(result.stderr)) == (2, True)


def test_rows_that_repeat_do_not_mislead_the_choice_of_a_calibrator(
    run: Any, tmp_path: Path, table: np.ndarray, drawn: np.ndarray
) -> None:
    probabilities = []
    for times in (1, 4):
        file = tmp_path / f"{times}.csv"
        lines = [",".join(map(str, [*map(float, row), label])) for row, label in zip(table, drawn, strict=True)]
        file.write_text("\n".join(["a,b,c,y", *lines * times]))
        result, path = run(graphs.logits(), "--label", "y", "--calibrator", "auto", validation=file)
        assert result.exit_code == 0, result.output + result.stderr
        path = path.with_name(str(1 + len(probabilities)))
        probabilities.append(bundles.verify(path).calibrator.predict_proba(table @ graphs.WEIGHTS))
    np.testing.assert_allclose(*probabilities, atol=1e-3)


def test_scores_alone_make_a_bundle(tmp_path: Path, drawn: np.ndarray) -> None:
    rows = tmp_path / "scores.csv"
    for scores, form in ((RANDOM.random(ROWS), "positive"), (600 + 50 * RANDOM.normal(size=ROWS), "margin")):
        lines = [f"tx-{row},{score},{label}" for row, (score, label) in enumerate(zip(scores, drawn, strict=True))]
        rows.write_text("\n".join(["id,risk,y", *lines]))
        options = ["--label", "y", "--score", "risk", "--calibrator", "temperature", "--out", str(tmp_path)]
        result = CliRunner().invoke(app, ["scores", str(rows), "--name", form, *options])
        assert result.exit_code == 0, result.output + result.stderr
        assert "identifier" not in result.output, "other columns are not inputs"
        found = bundles.verify(tmp_path / form / "1")
        assert found.scores is not None
        assert found.scores.form == form
        assert (np.diff(found.scores.logits(np.sort(scores))[:, 1]) >= 0).all()
    result = CliRunner().invoke(app, ["scores", str(rows), "--name", "x", "--label", "y", "--out", str(tmp_path)])
    assert (result.exit_code, "either --score or --scores" in sentence(result.stderr)) == (2, True)


@pytest.mark.parametrize("form", ["probabilities", "logits"])
def test_a_score_per_class_makes_a_bundle(tmp_path: Path, table: np.ndarray, drawn: np.ndarray, form: str) -> None:
    scores = table.astype(np.float64) @ graphs.WEIGHTS
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    given = expected if form == "probabilities" else scores
    rows = tmp_path / "scores.csv"
    rows.write_text(
        "\n".join(["a,b,y", *(f"{a!r},{b!r},{y}" for (a, b), y in zip(given.tolist(), drawn, strict=True))])
    )
    options = ["--label", "y", "--scores", "a,b", "--calibrator", "temperature", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, ["scores", str(rows), "--name", "each", *options])
    assert result.exit_code == 0, result.output + result.stderr
    found = bundles.verify(tmp_path / "each" / "1")
    assert found.scores is not None
    assert (found.scores.form, found.manifest.input.shape) == (form, (2,))
    powers = np.exp(found.scores.logits(given))
    np.testing.assert_allclose(powers / powers.sum(axis=1, keepdims=True), expected, atol=1e-6)


def test_of_many_classes_the_one_that_is_named_is_reported(tmp_path: Path) -> None:
    rows, scores = tmp_path / "scores.csv", 2 * RANDOM.normal(size=(ROWS, 3))
    drawn = np.argmax(scores + RANDOM.gumbel(size=scores.shape), axis=1)
    lines = [f"{','.join(map(str, row))},{'abc'[y]}" for row, y in zip(scores, drawn, strict=True)]
    rows.write_text("\n".join(["p,q,r,y", *lines]))
    options = ["--name", "three", "--label", "y", "--scores", "p,q,r", "--calibrator", "temperature"]
    out = tmp_path / "my [own] bundles"
    for positive in (None, "b", "d"):
        words = [*options, "--out", str(out), *(["--positive", positive] if positive else [])]
        result = CliRunner().invoke(app, ["scores", str(rows), *words])
        assert (result.exit_code, "Unknown class 'd'. where: positive" in sentence(result.stderr)) == (
            (2, True) if positive == "d" else (0, False)
        )
        if positive == "b":
            following = f"Next: candor policy suggest '{out}/three/2' --positive b"
            assert result.stdout.splitlines()[-1] == following
    plain, found = (bundles.verify(out / "three" / version).report for version in "12")
    assert "positive" not in plain
    assert found["positive"]["label"] == "b"
    assert not (out / "three" / "3").exists()


def test_sigmoids_of_the_classes_as_scores_ask_for_their_form(tmp_path: Path, drawn: np.ndarray) -> None:
    rows = tmp_path / "scores.csv"
    given = np.column_stack([0.9 - 0.4 * drawn, 0.3 + 0.4 * drawn]) + RANDOM.uniform(-0.1, 0.1, (ROWS, 2))
    rows.write_text("\n".join(["a,b,y", *(f"{a},{b},{y}" for (a, b), y in zip(given, drawn, strict=True))]))
    options = ["--name", "each", "--label", "y", "--calibrator", "temperature", "--out", str(tmp_path)]
    for words, status, told in (
        ("--scores a,b", 2, "expected: --form logits, or probabilities that add up to 1"),
        ("--scores a,b --form probabilities", 2, "do not add up to 1"),
        ("--scores a,b --form margin", 2, "--form found: margin expected: probabilities or logits"),
        ("--score b --form logits", 2, "expected: positive or margin"),
        ("--scores a,b --form logits", 0, "scores: logits"),
        ("--score b --form margin", 0, "scores: margin, centre 0."),
    ):
        result = CliRunner().invoke(app, ["scores", str(rows), *options, *words.split()])
        assert (result.exit_code, told in sentence(result.output + result.stderr)) == (status, True), result.stderr


def risks(folder: Path, score: Callable[[int], float]) -> tuple[Path, list[str]]:
    """Write a file of 100 scores and labels; return it, and the options that import it."""
    rows = folder / "scores.csv"
    rows.write_text("\n".join(["risk,y", *(f"{score(row)!r},{row % 2}" for row in range(100))]))
    return rows, ["--name", "vendor", "--label", "y", "--score", "risk", "--out", str(folder)]


@pytest.mark.parametrize(
    ("score", "told"),
    [
        (lambda row: 650.1, "All scores are equal. found: 650.1"),
        (lambda row: 1.2 if row == 7 else row / 100, "line 9, column risk found: 1.2 expected: --form positive"),
        (lambda row: row * 1e38, "line 6, column risk found: 4e+38 expected: at most 3.4e+38 in size"),
        (lambda row: row * 1e300, "line 3, column risk found: 1e+300"),
    ],
)
def test_scores_that_tell_nothing_or_are_too_large_are_refused(
    tmp_path: Path, score: Callable[[int], float], told: str
) -> None:
    rows, options = risks(tmp_path, score)
    result = CliRunner().invoke(app, ["scores", str(rows), *options])
    assert (result.exit_code, told in sentence(result.stderr)) == (2, True), result.stderr


def test_whole_numbers_that_the_graph_does_not_tell_apart_are_noted(run: Any, rows: Path) -> None:
    head, *lines = rows.read_text().splitlines()
    rows.write_text("\n".join([head, *(f"{2**24 + row},{line.partition(',')[2]}" for row, line in enumerate(lines))]))
    result, _ = run(graphs.logits(), "--dry-run", "--allow-reversed")
    assert "`a` has different whole numbers that are equal as float32, which the model reads" in sentence(result.output)
    assert "such as 16777216 and 16777217" in sentence(result.output)


def test_a_score_out_of_range_is_named_with_its_column(tmp_path: Path) -> None:
    rows = tmp_path / "scores.csv"
    for wrong, words in (("-0.2", "--form probabilities"), ("1e300", "")):
        lines = ["0.4,0.6,0", "0.7,0.3,1"] * 40
        lines[6] = f"0.4,{wrong},0"
        rows.write_text("\n".join(["a,b,y", *lines]))
        typed = ["scores", str(rows), "--name", "s", "--label", "y", "--scores", "a,b", "--out", str(tmp_path)]
        result = CliRunner().invoke(app, [*typed, *words.split()])
        told = f"line 8, column b found: {float(wrong):g} "
        assert (result.exit_code, told in sentence(result.stderr)) == (2, True), result.stderr


@pytest.mark.parametrize(
    ("score", "told"),
    [
        (lambda _: 0.5, "Warning: The scores are constant"),
        (lambda row: row % 2, "Warning: The scores separate the classes perfectly"),
    ],
)
def test_scores_that_tell_nothing_or_the_label_are_noted(
    tmp_path: Path, score: Callable[[int], float], told: str
) -> None:
    rows, options = risks(tmp_path, score)
    result = CliRunner().invoke(app, ["scores", str(rows), *options])
    assert told in sentence(result.output)
    rows.write_text(rows.read_text() + "\n1.5,1")
    result = CliRunner().invoke(app, ["scores", str(rows), *options, "--form", "positive"])
    assert (result.exit_code, "line 102" in sentence(result.stderr)) == (2, True), result.stderr


def test_a_native_model_of_other_features_is_refused(run: Any, tmp_path: Path, table: np.ndarray) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    data = lightgbm.Dataset(table[:, :2], np.arange(ROWS) % 2)
    native = tmp_path / "native.txt"
    lightgbm.train({"objective": "binary", "verbose": -1}, data, 2).save_model(native)
    result, path = run(graphs.probabilities(), "--native", str(native))
    assert (result.exit_code, "rows of different shapes" in sentence(result.stderr)) == (2, True)
    assert not path.exists()


def test_a_text_among_the_numbers_of_a_named_column_is_refused_with_its_line(run: Any, rows: Path) -> None:
    lightgbm, pandas = pytest.importorskip("lightgbm"), pytest.importorskip("pandas")
    table = pandas.read_csv(rows)
    model = lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(table[["a", "b", "c"]], table["y"])
    file = rows.with_name("model.txt")
    model.booster_.save_model(file)
    for place in (0, 7, ROWS - 1):
        lines = table.astype({"b": object})
        lines.loc[place, "b"] = "1,5"
        lines.to_csv(rows, index=False)
        options = ["--name", "mine", "--validation", str(rows), "--label", "y", "--dry-run"]
        result = CliRunner().invoke(app, ["lightgbm", str(file), *options])
        assert result.exit_code == 2, result.output
        assert f"line {place + 2} " in sentence(result.stderr)
        assert "found: '1,5'" in sentence(result.stderr)


@pytest.mark.parametrize(
    ("cell", "remedy"), [("oops", "Correct the cell"), ("inf", "Correct the cell"), ('"1,5"', "decimal point")]
)
def test_a_text_among_the_numbers_of_a_graph_is_told_with_its_line(
    run: Any, tmp_path: Path, table: np.ndarray, cell: str, remedy: str
) -> None:
    file = tmp_path / "cells.csv"
    lines = [",".join([*map(str, map(float, row)), str(place % 2)]) for place, row in enumerate(table)]
    lines[5] = f"0,{cell},0,1"
    file.write_text("\n".join(["a,b,c,y", *lines]))
    result, _ = run(graphs.logits(), "--label", "y", validation=file)
    told = sentence(result.stderr)
    found = cell.strip('"')
    assert result.exit_code == 2
    assert all(part in told for part in ("cells.csv, line 7, column b", f"found: '{found}'", remedy)), told


def test_a_graph_of_random_numbers_is_named(run: Any) -> None:
    result, _ = run(graphs.noisy())
    told = sentence(result.stderr)
    assert (result.exit_code, "random numbers (RandomNormalLike)" in told) == (2, True), told


@pytest.mark.parametrize("ending", ["keras", "tflite", "pt2", "safetensors"])
def test_a_model_of_another_format_is_named_with_its_exporter(rows: Path, ending: str) -> None:
    model = rows.with_name(f"model.{ending}")
    model.write_bytes(b"anything")
    words = ["onnx", str(model), "--name", "mine", "--validation", str(rows), "--label", "y", "--dry-run"]
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, "remedy: Export it: " in sentence(result.stderr)) == (2, True), result.stderr


def test_names_in_a_graph_cannot_command_the_terminal(run: Any, tmp_path: Path, table: np.ndarray) -> None:
    file = tmp_path / "hostile.csv"
    lines = [f"{a!r},{b!r},{c!r},{'a' if place % 2 else 'b'}\x1b[31m" for place, (a, b, c) in enumerate(table.tolist())]
    file.write_text("\n".join(["a,b,c,y", *lines]))
    made = graphs.logits().replace(b"scores", b"sco\x1b[7")
    result, _ = run(made, "--label", "y", "--allow-reversed", "--positive", "a\x1b[31m", validation=file)
    assert result.exit_code == 0, result.output + result.stderr
    assert "\x1b" not in result.output + result.stderr
    assert "sco\N{REPLACEMENT CHARACTER}[7: logits" in result.output


def test_a_stray_label_is_told_with_its_line(run: Any, rows: Path) -> None:
    lines = rows.read_text().splitlines()
    lines[7] = lines[7].replace(",card-", "9,card-", 1)
    rows.write_text("\n".join(lines))
    result, _ = run(graphs.logits(), "--labels", "0=a,1=b,2=c")
    stray = lines[7].split(",")[3]
    assert result.exit_code == 2
    told = sentence(result.stderr)
    for words in (f"{rows}, line 8, column y", f"found: {stray} ", "The label column has other classes than --labels"):
        assert words in told


def test_a_graph_of_whole_numbers_refuses_what_has_no_code(run: Any, rows: Path, tmp_path: Path) -> None:
    known = tmp_path / "categories.json"
    known.write_text(json.dumps({name: [str(code) for code in range(5)] for name in "abc"}))
    lines = [line.split(",") for line in rows.read_text().splitlines()]
    for place, line in enumerate(lines[1:]):
        line[:3] = [str(place % 5), str(place % 3), str(place % 4)]
    rows.write_text("\n".join(map(",".join, lines)))
    made = graphs.typed(TensorProto.INT64)
    result, path = run(made, "--categories", str(known), "--allow-reversed")
    assert result.exit_code == 0, result.output + result.stderr
    assert "whole numbers have no code for an unknown or missing value, so it is refused: a, b, c" in sentence(
        result.output
    )
    found = bundles.verify(path)
    assert found.columns is not None
    sent = {"a": "1", "b": "2", "c": "0"}
    for other, told in ({"b": "7"}, "column 'b' has an unknown value"), ({"c": None}, "column 'c' requires a value"):
        with pytest.raises(bundles.RowError, match=told):
            found.columns.encode([sent, sent | other], found.manifest.input)
    lines[5][1] = "seven"
    rows.write_text("\n".join(map(",".join, lines)))
    result, _ = run(made, "--categories", str(known))
    told = sentence(result.stderr)
    assert (result.exit_code, "unknown value" in told, "line 6" in told, "seven" in told) == (2, True, True, True), told


def test_a_text_that_is_called_na_stays_a_text_where_the_graph_takes_texts(run: Any, tmp_path: Path) -> None:
    """A graph of texts knows no missing ones: only an empty cell is missing."""
    country = np.tile(["AT", "NA", "N/A", ""], ROWS // 4)
    label = (RANDOM.random(ROWS) < np.tile([0.1, 0.9, 0.1, 0.5], ROWS // 4)).astype(int)
    path = tmp_path / "countries.csv"
    lines = (f"{tx},{one},{y}" for tx, (one, y) in enumerate(zip(country, label, strict=True)))
    path.write_text("\n".join(["tx,country,y", *lines]))
    result, out = run(graphs.equals("country", "NA"), "--label", "y", "--group", "tx", validation=path)
    assert result.exit_code == 0, result.output + result.stderr
    found = bundles.verify(out)
    assert found.columns is not None
    sent = ["NA", "AT", "null", None, " "]
    encoded = found.columns.encode([{"country": one} for one in sent], found.manifest.input)
    assert encoded["country"].ravel().tolist() == ["NA", "AT", "null", "", ""]
    assert answers(found, encoded)[:, 1].tolist() == pytest.approx([0.9, 0.1, 0.1, 0.1, 0.1], abs=1e-6)
    reference = found.reference
    positive = np.concatenate([part.logits for part in (reference.fit, reference.certify, reference.gate)]).argmax(1)
    assert positive.sum() == ROWS // 4
