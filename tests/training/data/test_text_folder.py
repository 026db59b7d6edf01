"""A folder of texts for each class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from training import ConfigurationError, DataError
from training.data import DATASETS


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    write(tmp_path / "train" / "praise" / "1.txt", "Good, very good")
    write(tmp_path / "train" / "blame" / "b.TXT", "\ufeffUnglaublich schlecht …")
    write(tmp_path / "train" / "blame" / "a.txt", "not good at all, not at all")
    write(tmp_path / "test" / "praise" / "1.txt", "")
    write(tmp_path / "train" / "praise" / ".hidden", "x")
    return tmp_path


def test_texts_classes_and_a_test_part(letters: Path) -> None:
    data = DATASETS["text_folder"](letters, length=5)
    assert data.label_names == ("blame", "praise")
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert data.test == range(3, 4)
    assert data.vocabulary is not None
    assert [data.vocabulary.decode(row) for row in data.inputs] == [
        "not good at all not",
        "unglaublich schlecht",
        "good very good",
        "",
    ]
    assert list(data.sources) == ["."]


def test_the_vocabulary_becomes_that_of_the_training_rows(letters: Path) -> None:
    data = DATASETS["text_folder"](letters, length=5, vocabulary_size=3).learned_from(np.array([2]))
    assert data.vocabulary is not None
    assert data.vocabulary.words[2:] == ("good",)


def test_what_is_no_text_is_named(letters: Path) -> None:
    strange = letters / "train" / "blame" / "strange.txt"
    strange.write_bytes("grün".encode("latin-1"))
    with pytest.raises(DataError, match=r"strange\.txt is not UTF-8 text.*CLASS/\*\.txt in UTF-8"):
        DATASETS["text_folder"](letters)
    strange.rename(strange.with_suffix(".doc"))
    with pytest.raises(DataError, match=r"strange\.doc is not a file ending in \.txt"):
        DATASETS["text_folder"](letters)


@pytest.mark.parametrize("settings", [{"length": 0}, {"vocabulary_size": 1}])
def test_settings_out_of_range(letters: Path, settings: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="expected at least"):
        DATASETS["text_folder"](letters, **settings)
