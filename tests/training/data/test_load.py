"""Data sets by name, with options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from training import ConfigurationError, DataError, TrainConfig
from training.data import CORRUPTIONS, DATASETS, SHIFTED, DataOptions, describe, load, parse_settings, settings_of


def test_classes_test_rows_and_rows_together() -> None:
    data = load("digits:8,3", DataOptions(rows=100, test_rows=60))
    assert data.name == "digits:8,3"
    assert data.label_names == ("8", "3")
    assert (len(data), data.test) == (160, range(100, 160))
    whole = DATASETS["digits"]()
    eights = {image.tobytes() for image in whole.inputs[whole.labels == 8]}
    assert all(
        (image.tobytes() in eights) == (label == 0) for image, label in zip(data.inputs, data.labels, strict=True)
    )


def test_without_options_it_is_the_data_set() -> None:
    np.testing.assert_array_equal(load("digits").inputs, DATASETS["digits"]().inputs)


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("letters", {}, "digits"),
        ("digits:ten,1", {}, "expected some of: 0, 1"),
        ("digits", {"size": 3}, "it has no settings"),
        ("newsgroups20", {"words": 3}, "length, vocabulary_size, headers"),
        ("newsgroups20", {"length": "long"}, "like 1000"),
        ("newsgroups20", {"length": True}, "like 1000"),
        ("digits:", {}, "expected some of: 0, 1"),
        ("table", {"drop": 1}, "a list of names"),
        ("table", {"drop": [1]}, "a list of names"),
        ("table", {"file": "t.csv", "label": ["y"]}, "label is ['y'], expected text"),
        ("image_folder", {"size": 16.5}, "size is 16.5, expected a side"),
        ("image_folder", {"size": True}, "size is True, expected a side"),
    ],
)
def test_names_and_settings_that_are_none(name: str, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(name, DataOptions(settings=settings))
    assert told in str(caught.value)


def test_a_number_may_name_a_column(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("0,1\n" + "3,yes\n4,no\n" * 5)  # as pandas writes an array
    settings = parse_settings(["file=t.csv", "label=1"])
    assert load("table", DataOptions(tmp_path, settings=settings)).label_names == ("no", "yes")


@pytest.mark.parametrize("name", sorted((DATASETS | SHIFTED).keys() - {"digits"}))
def test_a_missing_folder_says_what_to_do(name: str, tmp_path: Path) -> None:
    files = {"table": {"file": "t.csv", "label": "y"}, "arrays": {"file": "a.npz"}, "image_shards": {"files": "*.tar"}}
    needed = {**files, "texts": {"file": "t.csv", "text": "x", "label": "y"}}.get(name, {})
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError, match=r"(Download|Set) .*Expected: ") as caught:
            load(name, DataOptions(folder, settings=needed))
        assert str(folder) in str(caught.value)


OWN = {"image_folder": "folder", "text_folder": "folder", "arrays": "file", "table": "file", "texts": "file"}


@pytest.mark.parametrize("name", OWN)
def test_data_of_ones_own_lie_anywhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no folder of data sets is named, a path begins at the current folder; an absolute one always works."""
    monkeypatch.delenv("CANDOR_DATA", raising=False)
    here = tmp_path / "here"
    images = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3)).astype(np.uint8)
    for part, image in zip("ab", images, strict=True):
        (here / "mine" / part).mkdir(parents=True)
        Image.fromarray(image).save(here / "mine" / part / "1.png")
        (here / "texts" / part).mkdir(parents=True)
        (here / "texts" / part / "1.txt").write_text(f"one {part}")
    np.savez(here / "mine.npz", images=images, labels=np.array([0, 1]))
    (here / "mine.csv").write_text("x,id,y\n1,7,a\n2,8,b\n")
    folders = {"image_folder": "mine", "text_folder": "texts", "arrays": "mine.npz"}
    path = folders.get(name, "mine.csv")
    columns = {"table": {"label": "y", "drop": "id"}, "texts": {"text": "x", "label": "y"}}
    settings: dict[str, Any] = columns.get(name, {})
    monkeypatch.chdir(here)
    near = load(name, DataOptions(settings={OWN[name]: path, **settings}))
    below = load(name, DataOptions(tmp_path, settings={OWN[name]: f"here/{path}", **settings}))
    (tmp_path / "elsewhere").mkdir()
    far = load(name, DataOptions(tmp_path / "elsewhere", settings={OWN[name]: str(here / path), **settings}))
    for data in (below, far):
        np.testing.assert_array_equal(data.inputs, near.inputs)
    assert [list(data.sources) for data in (near, below, far)] == [[path], [f"here/{path}"], [path]]


def test_every_data_set_is_told_of_in_one_line() -> None:
    lines = describe()
    assert lines.keys() == DATASETS.keys() | SHIFTED.keys()
    assert all(20 < len(line) <= 120 and line.endswith(".") for line in lines.values())


def test_settings_as_they_are_typed() -> None:
    assert settings_of("newsgroups20") == {"length": 1000, "vocabulary_size": 20_000, "headers": "none"}
    assert settings_of("digits") == {}
    assert parse_settings(['drop=["a", "b"]', "label = y", "file=a=b.csv", "length=7"]) == {
        "drop": ["a", "b"],
        "label": " y",
        "file": "a=b.csv",
        "length": 7,
    }
    with pytest.raises(ConfigurationError, match="not of the form name=value"):
        parse_settings(["length"])


def test_the_configuration_loads_splits_and_encodes(tmp_path: Path) -> None:
    lines = [f"{row},{'abc'[row % 3]},{row % 2}" for row in range(60)] + ["1,rare,1"]
    (tmp_path / "own.csv").write_text("number,letter,label\n" + "\n".join(lines))
    config = TrainConfig(
        dataset="table",
        data=tmp_path,
        data_settings={"file": "own.csv", "label": "label"},
        train_rows=20,
        validation_rows=5,
        reference_rows=20,
        test_rows=6,
        stratified=True,
    )
    data, parts = config.load()
    assert data.columns is not None
    letters = data.columns.columns[1].categories
    assert letters is not None
    known = data.inputs[parts.train, 1]
    assert sorted(set(known.tolist())) == [float(code) for code in range(1, len(letters) + 1)]
    assert (len(parts.validation), len(parts.test), len(parts.feedback)) == (5, 6, 10)
    assert config.data_options() == {"test_rows": 6, "file": "own.csv", "label": "label"}


def test_every_data_set_setting_and_corruption_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "data.md").read_text(encoding="utf-8")
    settings = {setting for name in DATASETS for setting in settings_of(name)}
    names = [*DATASETS, *SHIFTED, *CORRUPTIONS, *settings]
    assert [name for name in names if f"`{name}`" not in page and f"`{name}=" not in page] == []
