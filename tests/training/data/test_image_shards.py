"""Images in tar files of WebDataset and in Parquet files, and folders read lazily: as if they were in memory."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from training import ConfigurationError, DataError
from training.data import DATASETS, DataOptions, Dataset, load
from training.stored import Stored

COUNT = 40


def picture(row: int) -> NDArray[np.uint8]:
    pixels = np.random.default_rng(row).integers(0, 256, (6, 6, 3)).astype(np.uint8)
    pixels[0, 0] = row
    return pixels


def png(row: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(picture(row)).save(stream, "PNG")
    return stream.getvalue()


def as_tar(folder: Path, rows: range = range(COUNT), shards: int = 4, **changed: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(np.array_split(np.array(rows), shards)):
        with tarfile.open(folder / f"train-{number:03}.tar", "w") as archive:
            for row in part.tolist():
                told = {"label": ["cat", "dog"][row % 2], "patient": f"p{row // 5}", "worth": 1.0 + row}
                members = {"png": png(row), "json": json.dumps(told).encode(), "note.txt": b"no label"}
                for ending, data in (members | ({f"{k}": v for k, v in changed.items()} if row == 7 else {})).items():
                    member = tarfile.TarInfo(f"some/{row:05}.{ending}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))


def as_parquet(folder: Path, shards: int = 2, *, struct: bool = True, names: tuple[str, ...] = ("cat", "dog")) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(np.array_split(np.arange(COUNT), shards)):
        rows = part.tolist()
        images = [{"bytes": png(row), "path": None} if struct else png(row) for row in rows]
        columns = {"image": images, "label": [row % 2 for row in rows], "patient": [f"p{row // 5}" for row in rows]}
        table = arrow.table(columns | {"worth": [1.0 + row for row in rows]})
        told = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(told)})
        parquet.write_table(table, folder / f"train-{number:03}.parquet", row_group_size=8)


def read(folder: Path, pattern: str, **settings: Any) -> Dataset:
    return DATASETS["image_shards"](folder, files=pattern, **settings)


@pytest.mark.parametrize(("write", "pattern"), [(as_tar, "*.tar"), (as_parquet, "*.parquet")])
def test_shards_are_read_as_they_were_written(write: Callable[..., None], pattern: str, tmp_path: Path) -> None:
    write(tmp_path)
    data = read(tmp_path, pattern, group="patient", weight="worth", buffer=16)
    assert isinstance(data.inputs, Stored)
    assert (data.label_names, data.inputs.shape, len(data.inputs[3:5])) == (("cat", "dog"), (COUNT, 6, 6, 3), 2)
    np.testing.assert_array_equal(data.inputs, np.stack([picture(row) for row in range(COUNT)]))
    assert data.labels.tolist() == [row % 2 for row in range(COUNT)]
    assert data.groups is not None
    assert data.groups.tolist() == [row // 5 for row in range(COUNT)]
    assert data.weights is not None
    assert data.weights[7] == 8.0
    assert set(data.sources) == {path.name for path in tmp_path.iterdir()}
    assert not isinstance(read(tmp_path, pattern, lazy=False).inputs, Stored)


def test_a_class_is_a_cls_a_name_or_a_number(tmp_path: Path) -> None:
    as_tar(tmp_path, cls=b"1\n")
    with pytest.raises(DataError, match="the label '1' is not one of cat"):
        read(tmp_path, "*.tar", label_names=["cat"])
    named = read(tmp_path, "*.tar", label_names=["dog", "cat"])  # the .cls says a number, each .json a name
    assert (named.labels[7], named.labels[8], named.labels[9]) == (1, 1, 0)
    as_parquet(tmp_path / "raw", struct=False)
    assert read(tmp_path, "raw/*.parquet", label_names=["a", "b"]).label_names == ("a", "b")


def test_names_of_classes_that_look_like_numbers_are_no_numbers(tmp_path: Path) -> None:
    for row, (said, stars) in enumerate([("012", "123"), ("123", "123"), ("12", "123"), ("01", "10")]):
        folder = tmp_path / f"{row}[x]"
        folder.mkdir()
        with tarfile.open(folder / "a.tar", "w") as archive:
            for place, digit in enumerate(said):
                for ending, data in (("png", png(place)), ("cls", digit.encode())):
                    member = tarfile.TarInfo(f"{place}.{ending}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
        found = read(folder, "*.tar", label_names=list(stars)).labels.tolist()
        named = set(said) <= set(stars)
        assert found == [stars.index(digit) if named else int(digit) for digit in said]


def test_files_that_name_their_classes_hold_numbers(tmp_path: Path) -> None:
    as_parquet(tmp_path, names=("1", "0"))
    data = read(tmp_path, "*.parquet")
    assert (data.label_names, data.labels[:4].tolist()) == (("1", "0"), [0, 1, 0, 1])
    as_parquet(tmp_path / "more", shards=1)
    (tmp_path / "more" / "train-000.parquet").rename(tmp_path / "train-009.parquet")
    with pytest.raises(DataError, match=r"train-000\.parquet and .*train-009\.parquet name the classes differently"):
        read(tmp_path, "*.parquet")
    assert read(tmp_path, "*.parquet", label_names=["no", "yes"]).label_names == ("no", "yes")


def test_test_shards_are_set_apart(tmp_path: Path) -> None:
    as_tar(tmp_path / "train", range(30))
    as_tar(tmp_path / "test", range(30, 40))
    with pytest.raises(DataError, match=r"train-000\.tar is a shard of both"):
        read(tmp_path, "train/*.tar", test_files="*/train-000.tar")
    data = read(tmp_path, "train/*.tar", test_files="test/*.tar", group="patient")
    assert data.test == range(30, 40)
    as_tar(tmp_path / "test", range(28, 40))  # p5 has rows on both sides
    options = DataOptions(tmp_path, settings={"files": "train/*.tar", "test_files": "test/*.tar", "group": "patient"})
    from training import TrainConfig

    config = TrainConfig(dataset="image_shards", data=tmp_path, data_settings=dict(options.settings), reference_rows=12)
    with pytest.raises(ConfigurationError, match="1 groups have rows in the test part and outside"):
        config.cut(load("image_shards", options))


@pytest.mark.parametrize(
    ("changed", "settings", "told"),
    [
        ({"png": b"no image"}, {}, r"train-000\.tar, byte \d+: the image cannot be read"),
        ({"json": b"{"}, {}, "not a complete, uncompressed tar file of samples: sample some/00007: Expecting"),
        ({"json": b"{}"}, {}, "sample some/00007 has no 'label' in png, json, note.txt"),
        ({"json": b'{"label": NaN}'}, {}, "row 7 of 'label' is missing"),
        ({"jpg": b"another"}, {}, "sample some/00007 has 2 images, expected 1"),
        ({}, {"group": "card"}, "has no 'card'"),
        ({}, {"weight": "label"}, "a weight is 'cat', expected a number from 1e-100"),
        ({}, {"files": "*.zip"}, "no file matches"),
        ({}, {"files": "*"}, r"the files end in \.json, \.tar"),
    ],
)
def test_what_is_wrong_with_a_shard_is_told(
    changed: dict[str, bytes], settings: dict[str, Any], told: str, tmp_path: Path
) -> None:
    as_tar(tmp_path, **changed)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(DataError, match=told):
        DATASETS["image_shards"](tmp_path, **{"files": "*.tar", "size": 6} | settings)


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    as_tar(tmp_path)
    shard = tmp_path / "train-001.tar"
    shard.write_bytes(shard.read_bytes()[:3000])
    with pytest.raises(DataError, match=r"train-001\.tar"):
        read(tmp_path, "*.tar")
    whole = (tmp_path / "train-000.tar").read_bytes()
    for rest in (b"", whole[6144:6400], b"x" * 512 + whole[6656:]):  # nothing, half a header, a damaged one
        shard.write_bytes(whole[:6144] + rest)  # after two samples of 3,072 bytes
        with pytest.raises(DataError, match=r"train-001\.tar .*: byte 6144 begins no member, and is not the end"):
            read(tmp_path, "*.tar")
    pytest.importorskip("pyarrow")
    as_parquet(tmp_path)
    with pytest.raises(DataError, match=r"has the columns image, label, patient, worth, and no 'picture'"):
        read(tmp_path, "*.parquet", image="picture")
    with pytest.raises(DataError, match=r"the column 'image' is struct<.*>, expected text or numbers"):
        read(tmp_path, "*.parquet", label="image")
    with pytest.raises(DataError, match="the column 'worth' is double"):
        read(tmp_path, "*.parquet", image="worth")
    shard = tmp_path / "train-001.parquet"
    whole = shard.read_bytes()
    shard.write_bytes(b"PAR1" + bytes(1500) + whole[1504:])  # pages of images; the footer and the labels are whole
    with pytest.raises(DataError, match=r"train-001\.parquet: row group 0 cannot be read"):
        read(tmp_path, "*.parquet")
    shard.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"train-001\.parquet is not a valid Parquet file"):
        read(tmp_path, "*.parquet")


@pytest.mark.parametrize("buffer", [0, 8, 1000])
def test_the_order_is_random_and_near_the_files(buffer: int, tmp_path: Path) -> None:
    as_parquet(tmp_path)
    inputs = read(tmp_path, "*.parquet", buffer=buffer).inputs
    assert isinstance(inputs, Stored)
    rows = np.arange(3, COUNT)
    order = inputs.shuffled(rows, np.random.default_rng(0))
    assert np.array_equal(np.sort(order), rows)
    assert np.array_equal(order, inputs.shuffled(rows, np.random.default_rng(0)))
    assert not np.array_equal(order, inputs.shuffled(rows, np.random.default_rng(1)))
    pieces = inputs.records.pieces
    assert pieces is not None
    switches = int((np.diff(pieces[order]) != 0).sum())
    assert switches == 5 if buffer == 0 else switches > 5  # 6 row groups, one after another
    if buffer == 0:
        assert order[0] not in (3, 4)  # they do not begin with the first file


def test_a_folder_is_read_lazily(tmp_path: Path) -> None:
    for row in range(12):
        path = tmp_path / ["cat", "dog"][row % 2] / f"{row:02}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(png(row))
    eager, lazy = (DATASETS["image_folder"](tmp_path, lazy=lazy) for lazy in (False, True))
    assert isinstance(lazy.inputs, Stored)
    np.testing.assert_array_equal(lazy.inputs, eager.inputs)
    assert lazy.sources == eager.sources
    images = [np.asarray(each) for each in lazy.inputs.batches([np.array([3, 1]), slice(4, 6), np.array([0])])]
    np.testing.assert_array_equal(np.concatenate(images), eager.array[[3, 1, 4, 5, 0]])
    (tmp_path / "dog" / "05.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"05\.png"):
        DATASETS["image_folder"](tmp_path, lazy=True)
    late = DATASETS["image_folder"](tmp_path, lazy=True, check=False)
    with pytest.raises(DataError, match=r"05\.png"):
        np.asarray(late.inputs)
    with pytest.raises(ConfigurationError, match="only networks of images"):
        _ = late.array


def test_images_that_do_not_fit_into_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from training.data import image_folder

    as_tar(tmp_path)
    monkeypatch.setattr(image_folder, "free_memory", lambda: 1000)
    with pytest.raises(DataError, match=r"40 images of 6 × 6 × 3 need .* lazy=true"):
        read(tmp_path, "*.tar", lazy=False)
    assert isinstance(read(tmp_path, "*.tar").inputs, Stored)
