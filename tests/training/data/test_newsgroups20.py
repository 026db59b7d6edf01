"""20 Newsgroups: posts in folders or in an archive."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from training import ConfigurationError, DataError
from training.data import DATASETS, Dataset
from training.data.newsgroups20 import GROUPS

POSTS = {
    f"{group}/{number}": f"Newsgroups: {group}\nSubject: Re: number {number}\n\nBody of {number}, place {place}.\n\nÉnd"
    for place, group in enumerate(GROUPS)
    for number in (9, 100 + place)
}


def write_folders(folder: Path) -> None:
    for name, text in POSTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode("latin-1"))


def write_archive(path: Path, posts: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:xz" if path.suffix == ".xz" else "w:gz") as archive:
        for name, text in reversed(posts.items()):
            member = tarfile.TarInfo(f"20_newsgroups/{name}")
            member.size = len(text.encode("latin-1"))
            archive.addfile(member, io.BytesIO(text.encode("latin-1")))


def words(data: Dataset, row: int) -> str:
    assert data.vocabulary is not None
    return data.vocabulary.decode(data.inputs[row])


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    write_folders(tmp_path / "newsgroups20")
    return tmp_path


def test_posts_are_in_the_order_of_groups_and_numbers(folders: Path) -> None:
    data = DATASETS["newsgroups20"](folders, length=8)
    assert data.kind == "tokens"
    assert data.inputs.shape == (40, 8)
    assert data.labels.tolist() == [label for label in range(20) for _ in range(2)]
    assert data.label_names == GROUPS
    assert words(data, 0) == "body of 9 place 0 énd"
    assert words(data, 1) == "body of 100 place 0 énd"
    assert data.inputs[0, 6:].tolist() == [0, 0]


@pytest.mark.parametrize("where", ["newsgroups20/20_newsgroups", "20_newsgroups", ".", "newsgroups20.xz", "x.gz"])
def test_every_way_to_lie_gives_the_same(tmp_path: Path, folders: Path, where: str) -> None:
    other = tmp_path / "other"
    if where == "newsgroups20.xz":
        write_archive(other / "newsgroups20" / "20_newsgroup_19997.tar.xz", POSTS)
    elif where == "x.gz":
        write_archive(other / "20news-19997.tar.gz", POSTS)
    else:
        write_folders(other / where)
    here, there = (DATASETS["newsgroups20"](root, length=8) for root in (folders, other))
    np.testing.assert_array_equal(here.inputs, there.inputs)
    np.testing.assert_array_equal(here.labels, there.labels)
    assert here.vocabulary == there.vocabulary
    assert len(there.sources) == 1


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ("none", "body of 9 place 0 énd"),
        ("subject", "re number 9 body of 9 place 0 énd"),
        ("all", "newsgroups alt atheism subject re number 9 body of 9 place 0 énd"),
    ],
)
def test_headers(folders: Path, headers: str, text: str) -> None:
    assert words(DATASETS["newsgroups20"](folders, headers=headers), 0) == text


def test_the_training_rows_alone_teach_the_words(folders: Path) -> None:
    whole = DATASETS["newsgroups20"](folders, length=8, vocabulary_size=6)
    data = whole.learned_from(np.arange(4))
    assert data.vocabulary is not None
    # all four posts have body, of, place and énd, two of them 9: the first four by count, then by code
    assert data.vocabulary.words == ("<pad>", "<unknown>", "body", "of", "place", "énd")
    assert data.inputs[39].tolist() == [2, 3, 1, 4, 1, 5, 0, 0]
    assert whole.learned_from(np.arange(0, 40, 2)).vocabulary != data.vocabulary


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("group missing", "'sci.med' is missing"),
        ("strange group", "'sci.fi' is not one of the twenty"),
        ("strange file", "file name must be a number"),
    ],
)
def test_other_folders_are_refused(folders: Path, change: str, told: str) -> None:
    top = folders / "newsgroups20"
    if change == "group missing":
        for file in (top / "sci.med").iterdir():
            file.unlink()
    elif change == "strange group":
        (top / "sci.fi").mkdir()
        (top / "sci.fi" / "1").write_text("x")
    else:
        (top / "sci.med" / "index.html").write_text("x")
    with pytest.raises(DataError, match=told):
        DATASETS["newsgroups20"](folders)


def test_damaged_archives_and_missing_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"20news-19997.tar.gz"):
        DATASETS["newsgroups20"](tmp_path)
    path = tmp_path / "newsgroups20" / "20_newsgroup_19997.tar.xz"
    write_archive(path, POSTS)
    for data in (path.read_bytes()[:-200], b"no archive"):
        path.write_bytes(data)
        with pytest.raises(DataError, match="cannot be unpacked"):
            DATASETS["newsgroups20"](tmp_path)


@pytest.mark.parametrize("setting", [{"headers": "some"}, {"length": 0}, {"vocabulary_size": 1}])
def test_settings_out_of_range(folders: Path, setting: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="expected"):
        DATASETS["newsgroups20"](folders, **setting)
