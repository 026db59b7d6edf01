"""Texts, tables and one's own images, from files to a bundle."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

import bundle
from training import DataError, TrainConfig, train_bundle
from training.data.newsgroups20 import GROUPS
from training.trained import learn, load, save

RANDOM = np.random.default_rng(0)


def write_posts(folder: Path) -> None:
    for group in GROUPS:
        subject = "".join(character for character in group if character.isalpha())
        for number in range(8):
            noise = " ".join(f"w{word}" for word in RANDOM.integers(0, 30, 6))
            (folder / "newsgroups20" / group).mkdir(parents=True, exist_ok=True)
            post = f"Newsgroups: {group}\n\nA {subject}, größer: {noise} only{subject}{number}"
            (folder / "newsgroups20" / group / str(number)).write_bytes(post.encode("latin-1"))


def write_table(folder: Path) -> None:
    rows = []
    for row in range(160):
        label = "yes" if row % 3 else "no"
        number = "" if row % 7 == 0 else f"{RANDOM.normal(2 * (row % 3), 1):.3f}"
        rows.append(f"{row},{number},{'red' if row % 3 else 'blue'}{'' if row % 11 else row},{label}")
    (folder / "own.csv").write_text("id,number,colour,label\n" + "\n".join(rows))


@pytest.fixture
def text_config(tmp_path: Path) -> TrainConfig:
    write_posts(tmp_path)
    return TrainConfig(
        dataset="newsgroups20",
        model="text_cnn",
        data=tmp_path,
        data_settings={"length": 12, "vocabulary_size": 60},
        train_rows=80,
        validation_rows=10,
        reference_rows=40,
        test_rows=20,
        stratified=True,
        epochs=2,
        calibrator="identity",
    )


def test_a_model_of_texts_takes_its_vocabulary_along(text_config: TrainConfig, tmp_path: Path) -> None:
    found = bundle.verify(train_bundle(text_config, tmp_path / "bundles", allow_poor=True))
    data, parts = text_config.load()
    assert found.manifest.input == bundle.InputSpec(kind="tokens", dtype="int32", shape=(12,))
    assert found.vocabulary == data.vocabulary
    assert found.vocabulary is not None
    assert len(found.vocabulary) <= 60
    assert len(found.golden.texts) > 2
    assert {"validation", "test"} <= found.manifest.training.splits.keys()
    assert found.report["test"]["rows"] == 20
    assert found.manifest.training.data.options == {"test_rows": 20, "length": 12, "vocabulary_size": 60}
    assert list(found.manifest.training.data.sources) == ["newsgroups20"]
    train_words = {
        word
        for row in parts.train
        for word in (found.vocabulary.decode(data.inputs[row])).split()
    }  # fmt: skip
    assert train_words == set(found.vocabulary.words[2:])
    np.testing.assert_array_equal(found.reference.fit.labels, data.labels[parts.fit])


def test_a_model_of_a_table_takes_its_columns_along(tmp_path: Path) -> None:
    write_table(tmp_path)
    config = TrainConfig(
        dataset="table",
        model="table_cnn",
        name="claims",
        data=tmp_path,
        data_settings={"file": "own.csv", "label": "label", "drop": ("id",)},
        train_rows=0,
        validation_rows=0,
        reference_rows=60,
        epochs=2,
        calibrator="identity",
    )
    path = train_bundle(config, tmp_path / "bundles", allow_poor=True)
    found = bundle.verify(path)
    data, parts = config.load()
    assert path == tmp_path / "bundles" / "claims" / "1"
    assert found.manifest.input == bundle.InputSpec(kind="array", dtype="float32", shape=(2,))
    assert found.columns == data.columns
    assert found.columns is not None
    assert [column.name for column in found.columns.columns] == ["number", "colour"]
    assert found.profile is not None
    held_out = len(parts.certify) + len(parts.gate)
    assert [(column.name, sum(column.counts)) for column in found.profile.columns] == [
        ("number", held_out),
        ("colour", held_out),
    ]
    assert np.isnan(found.golden.inputs).any()
    assert len(parts.train) == pytest.approx(100, abs=2), "equal rows are in one part"
    assert "feedback" in found.manifest.training.splits
    digest = hashlib.sha256((tmp_path / "own.csv").read_bytes()).hexdigest()
    assert found.manifest.training.data.sources == {"own.csv": digest}
    assert found.manifest.training.data.options["drop"] == ["id"], "a tuple of names is recorded as JSON has it"
    assert "test" not in found.report


def test_images_of_ones_own_are_reported_on_their_test_part(tmp_path: Path) -> None:
    labels = np.arange(180) % 3
    images = (RANDOM.integers(0, 60, (180, 8, 8, 1)) + 90 * labels[:, None, None, None]).clip(0, 255).astype(np.uint8)
    np.savez(
        tmp_path / "own.npz",
        images=images[:150],
        labels=labels[:150],
        test_images=images[150:],
        test_labels=labels[150:],
        label_names=np.array(["dark", "grey", "light"]),
    )
    config = TrainConfig(
        dataset="arrays:light,dark",
        data=tmp_path,
        data_settings={"file": "own.npz"},
        train_rows=50,
        reference_rows=40,
        epochs=2,
        calibrator="identity",
    )
    path = train_bundle(config, tmp_path / "bundles", allow_poor=True)
    found = bundle.verify(path)
    assert path.parent.name == "arrays-light-dark"
    assert found.manifest.labels == ("light", "dark")
    assert found.manifest.training.dataset == "arrays:light,dark"
    assert found.report["test"]["rows"] == 20
    assert {name: part.rows for name, part in found.manifest.training.splits.items()} == {
        "train": 50, "fit": 20, "certify": 18, "gate": 2, "feedback": 10, "test": 20,
    }  # fmt: skip


def test_weights_tell_nothing_of_where_the_data_lay(
    text_config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = learn(text_config)
    file = tmp_path / "weights.npz"
    save(trained, file)
    with np.load(file) as archive:
        assert str(tmp_path) not in archive["document"].tobytes().decode()
    assert load(file, tmp_path).config == trained.config
    monkeypatch.delenv("CANDOR_DATA", raising=False)
    with pytest.raises(DataError, match="CANDOR_DATA"):
        load(file)
