"""What read_rows returns, and that each format gives the same rows."""

import bz2
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from importing.errors import RowsError
from importing.rows import Rows, csv_file, ndjson, read_rows

CSV = """tx,amount,country,flag,booked_at,card,w,part,is_fraud
1,9.5,DE,true,2026-03-14T09:26:53Z,c1,1,fit,no
2,,FR,False,2026-03-14T10:26:53+01:00,c2,2.5,gate,no
3,1e3,NA,NA,2026-03-14,,0.5,certify,yes
"""


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_table_has_inputs_and_roles(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", CSV)
    rows = read_rows(
        path, label="is_fraud", group="card", segment="country", part="part", time="booked_at", weight="w", drop=["tx"]
    )
    assert len(rows) == 3
    assert list(rows.features) == ["amount", "flag"]
    np.testing.assert_array_equal(rows.features["amount"], [9.5, np.nan, 1000])
    np.testing.assert_array_equal(rows.features["flag"], [1, 0, np.nan])
    assert rows.label.tolist() == ["no", "no", "yes"]
    assert rows.classes == ("no", "yes")
    assert rows.codes.tolist() == [0, 0, 1]
    assert rows.group is not None
    assert rows.group.tolist() == ["c1", "c2", None]
    assert rows.segment is not None
    assert rows.segment.tolist() == ["DE", "FR", None]
    assert rows.part is not None
    assert rows.part.tolist() == ["fit", "gate", "certify"]
    assert rows.time is not None
    assert rows.time[0] == rows.time[1] == 1773480413000000
    assert rows.time[2] == 1773446400000000
    assert rows.weight is not None
    assert rows.weight.tolist() == [1, 2.5, 0.5]
    assert rows.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_columns_choose_inputs_and_their_order(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", CSV)
    rows = read_rows(path, label="is_fraud", segment="country", columns=["country", "tx"], text=["tx"])
    assert {name: values.tolist() for name, values in rows.features.items()} == {
        "country": ["DE", "FR", None],
        "tx": ["1", "2", "3"],
    }


def test_a_column_with_a_role_is_an_input_if_the_model_names_it(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", CSV)
    options: dict[str, Any] = {"label": "is_fraud", "segment": "country", "weight": "w", "drop": ["tx"]}
    rows = read_rows(path, named=["w", "country", "tx", "is_fraud", "x"], **options)
    assert list(rows.features) == ["amount", "country", "flag", "booked_at", "card", "w", "part"]
    assert rows.features["w"].tolist() == [1, 2.5, 0.5]
    assert rows.segment is not None
    assert rows.features["country"].tolist() == rows.segment.tolist()


def test_numbers_may_be_texts(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "zip,shop,amount,y\n01234,7,1.50,a\n10115,8,2,b\n")
    rows = read_rows(path, label="y", text=["zip", "another"])
    assert rows.features["zip"].tolist() == ["01234", "10115"]
    assert rows.features["shop"].tolist() == [7, 8]
    rows = read_rows(path, label="y", text=None)
    assert rows.features["amount"].tolist() == ["1.50", "2"]


def test_scores_are_numbers_in_the_given_order(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "p0,p1,y\n0.9,0.1,a\n0.2,0.8,b\n")
    rows = read_rows(path, label="y", scores=["p1", "p0"])
    assert rows.scores is not None
    assert rows.scores.tolist() == [[0.1, 0.9], [0.8, 0.2]]
    assert rows.features == {}


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
@pytest.mark.parametrize("ending", [".csv", ".ndjson"])
def test_compressed_files_are_hashed_as_they_are_stored(tmp_path: Path, pack: Any, ending: str) -> None:
    text = "a,y\n1,p\n2,q\n" if ending == ".csv" else '{"a": 1, "y": "p"}\n{"a": 2, "y": "q"}\n'
    data = pack(text.encode())
    suffix = ".gz" if pack is gzip.compress else ".bz2"
    rows = read_rows(written(tmp_path / f"rows{ending}{suffix}", data), label="y")
    assert rows.features["a"].tolist() == [1, 2]
    assert rows.sha256 == hashlib.sha256(data).hexdigest()


def test_lines_count_quoted_newlines_and_blank_lines(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", b'\xef\xbb\xbfa,y\r\n"1\r\n2",p\r\n\r\n3,q\r\n')
    rows = read_rows(path, label="y")
    assert rows.lines.tolist() == [2, 5]
    assert rows.where(1, "a") == f"{path}, line 5, column a"
    assert rows.take(np.array([1])).where(0) == f"{path}, line 5"


def test_tabs_separate_the_cells_of_a_tsv(tmp_path: Path) -> None:
    rows = read_rows(written(tmp_path / "rows.tsv", "a\ty\n1,5\tp\n2\tq\n"), label="y")
    assert rows.features["a"].tolist() == ["1,5", "2"]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "2.5", " 3 "], [1, 2.5, 3]),
        (["1", "x", "3"], ["1", "x", "3"]),
        (["1", "inf", "3"], ["1", "inf", "3"]),
        (["1", "1_000", "3"], ["1", "1_000", "3"]),
        (["1", "٣", "3"], ["1", "٣", "3"]),
        (["", "x", ""], [None, "x", None]),
        (["true", "TRUE", "false"], [1, 1, 0]),
        (["true", "1", "false"], ["true", "1", "false"]),
        (["1", "true", "false"], ["1", "true", "false"]),
    ],
)
@pytest.mark.parametrize("block", [1, 2, 1000])
def test_a_column_is_a_number_if_all_its_values_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: list[str], expected: list[Any], block: int
) -> None:
    monkeypatch.setattr(csv_file, "_BLOCK", block)
    text = "a,y\n" + "".join(f"{cell},{'pq'[row % 2]}\n" for row, cell in enumerate(cells))
    rows = read_rows(written(tmp_path / "rows.csv", text), label="y")
    assert rows.features["a"].tolist() == expected


@pytest.mark.parametrize("block", [1, 1000])
def test_fields_of_ndjson_may_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(ndjson, "_BLOCK", block)
    text = '{"y": 0, "a": 1}\n\n{"y": 1, "b": "x", "a": null}\n{"y": 0, "a": true, "b": 7}\n'
    rows = read_rows(written(tmp_path / "rows.ndjson", text), label="y")
    np.testing.assert_array_equal(rows.features["a"], [1, np.nan, 1])
    assert rows.features["b"].tolist() == [None, "x", "7"]
    assert rows.lines.tolist() == [1, 3, 4]


def test_texts_of_ndjson_stay_texts(tmp_path: Path) -> None:
    text = '{"y": 0, "zip": "01234", "n": "NA"}\n{"y": 1, "zip": "10115", "n": 4}\n'
    rows = read_rows(written(tmp_path / "rows.jsonl", text), label="y")
    assert rows.features["zip"].tolist() == ["01234", "10115"]
    np.testing.assert_array_equal(rows.features["n"], [np.nan, 4])


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["10", "9", "9"], ("9", "10")),
        (["b", "a", "10"], ("10", "a", "b")),
        (["1.0", "0.0", "1.0"], ("0", "1")),
        (["1.5", "0.0", "1.0"], ("0.0", "1.0", "1.5")),
        ([" yes", "no ", "yes"], ("no", "yes")),
    ],
)
def test_classes_are_in_numeric_else_alphabetic_order(
    tmp_path: Path, labels: list[str], classes: tuple[str, ...]
) -> None:
    path = written(tmp_path / "rows.csv", "a,y\n" + "".join(f"1,{label}\n" for label in labels))
    assert read_rows(path, label="y").classes == classes


CELLS = st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=8))
TABLES = st.integers(2, 12).flatmap(
    lambda n: st.fixed_dictionaries(
        {
            "number": st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), min_size=n, max_size=n),
            "word": st.lists(CELLS.map(lambda cell: cell and f"w{cell}"), min_size=n, max_size=n),
            "g": st.lists(CELLS, min_size=n, max_size=n),
            "y": st.lists(st.sampled_from(["a", "b", "c d", 'q"', "e,f"]), min_size=n, max_size=n),
        }
    )
)


def write_csv(path: Path, table: dict[str, list[Any]]) -> Path:
    def cell(value: Any) -> str:
        return "" if value is None else '"' + str(value).replace('"', '""') + '"'

    lines = [",".join(table), *(",".join(map(cell, row)) for row in zip(*table.values(), strict=True))]
    return written(path, "\n".join(lines) + "\n")


def write_ndjson(path: Path, table: dict[str, list[Any]]) -> Path:
    rows = zip(*table.values(), strict=True)
    return written(path, "".join(json.dumps(dict(zip(table, row, strict=True))) + "\n" for row in rows))


def write_parquet(path: Path, table: dict[str, list[Any]]) -> Path:
    core, files = pytest.importorskip("arro3.core"), pytest.importorskip("arro3.io")
    kinds = {"number": core.DataType.float64()}
    arrays = {name: core.Array(v, kinds.get(name, core.DataType.string())) for name, v in table.items()}
    files.write_parquet(core.Table.from_pydict(arrays), path)
    return path


def same(one: Rows, other: Rows) -> bool:
    def equal(a: Any, b: Any) -> bool:
        return a.dtype == b.dtype and (
            np.array_equal(a, b, equal_nan=True) if a.dtype == float else bool((a == b).all())
        )

    return (
        list(one.features) == list(other.features)
        and all(equal(values, other.features[name]) for name, values in one.features.items())
        and equal(one.label, other.label)
        and equal(one.group, other.group)
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=TABLES.filter(lambda table: len(set(table["y"])) > 1), block=st.sampled_from([1, 3, 1000]))
def test_each_format_gives_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: dict[str, list[Any]], block: int
) -> None:
    monkeypatch.setattr(csv_file, "_BLOCK", block)
    monkeypatch.setattr(ndjson, "_BLOCK", block)
    files = [
        write_csv(tmp_path / "r.csv", table),
        write_ndjson(tmp_path / "r.ndjson", table),
        write_parquet(tmp_path / "r.parquet", table),
    ]
    first, *others = [read_rows(file, label="y", group="g") for file in files]
    assert all(same(first, other) for other in others)
    expected = [np.nan if value is None else value for value in table["number"]]
    np.testing.assert_array_equal(first.features["number"], expected)


def test_parquet_has_typed_columns(tmp_path: Path) -> None:
    core, files = pytest.importorskip("arro3.core"), pytest.importorskip("arro3.io")
    kinds = core.DataType
    time = np.array(["2026-03-14T09:26:53", "2026-03-14T09:26:54"], "<M8[us]")
    table = {
        "small": core.Array([1, None], kinds.int8()),
        "large": core.Array([2**53, 1], kinds.uint64()),
        "flag": core.Array([True, None], kinds.bool()),
        "word": core.Array(["x", None], kinds.string()),
        "empty": core.Array([None, None], kinds.float32()),
        "id": core.Array([2**60 + 1, 5], kinds.int64()),
        "when": core.Array.from_numpy(time.view(np.int64)).cast(kinds.timestamp("us")),
        "y": core.Array([True, False], kinds.bool()),
    }
    files.write_parquet(core.Table.from_pydict(table), tmp_path / "rows.parquet")
    rows = read_rows(tmp_path / "rows.parquet", label="y", group="id", time="when")
    np.testing.assert_array_equal(rows.features["small"], [1, np.nan])
    assert rows.features["large"].tolist() == [2**53, 1]
    np.testing.assert_array_equal(rows.features["flag"], [1, np.nan])
    assert rows.features["word"].tolist() == ["x", None]
    assert np.isnan(rows.features["empty"]).all()
    assert rows.group is not None
    assert rows.group.tolist() == [str(2**60 + 1), "5"]
    assert rows.time is not None
    assert rows.time.tolist() == time.view(np.int64).tolist()
    assert rows.label.tolist() == ["True", "False"]
    assert rows.where(1) == f"{tmp_path / 'rows.parquet'}, row 2"


def test_arrays_stay_as_stored(tmp_path: Path) -> None:
    ids = np.arange(6, dtype=np.int32).reshape(3, 2)
    image = np.asfortranarray(np.arange(24, dtype=np.float16).reshape(3, 2, 2, 2))
    names = np.array([b"x", b"yy", "ä".encode()])
    np.savez_compressed(tmp_path / "rows.npz", ids=ids, image=image, name=names, y=np.array([0, 1, 1]), w=[1, 2, 3])
    rows = read_rows(tmp_path / "rows.npz", label="y", weight="w")
    assert {name: values.dtype for name, values in rows.features.items()} == {
        "ids": np.int32,
        "image": np.float16,
        "name": np.dtype("<U2"),
    }
    np.testing.assert_array_equal(rows.features["ids"], ids)
    np.testing.assert_array_equal(rows.features["image"], image)
    assert rows.features["name"].tolist() == ["x", "yy", "ä"]
    assert rows.classes == ("0", "1")
    assert rows.take(rows.codes == 1).features["image"].shape == (2, 2, 2, 2)


def test_images_keep_their_bytes(tmp_path: Path) -> None:
    images = pytest.importorskip("bundle.images")
    encoded = [images.encode_png(np.full((2, 2, 1), value, np.uint8)) for value in range(3)]
    for name, data in zip(["dog/b.png", "cat/a.PNG", "dog/a.png"], encoded, strict=True):
        (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pets" / name).write_bytes(data)
    (tmp_path / "pets" / ".DS_Store").write_bytes(b"x")
    rows = read_rows(tmp_path / "pets")
    assert rows.label.tolist() == ["cat", "dog", "dog"]
    assert [image.read() for image in rows.features["image"]] == [encoded[1], encoded[2], encoded[0]]
    assert rows.where(2) == str(tmp_path / "pets" / "dog" / "b.png")
    listing = "".join(
        f"{hashlib.sha256(encoded[place]).hexdigest()}  {name}\n"
        for place, name in ((1, "cat/a.PNG"), (2, "dog/a.png"), (0, "dog/b.png"))
    )
    assert rows.sha256 == hashlib.sha256(listing.encode()).hexdigest()


def test_a_file_that_changes_between_two_readings_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "_BLOCK", 1)
    path = written(tmp_path / "rows.csv", "a,y\n1,p\nx,q\n")
    blocks = csv_file.blocks

    def edited(*args: Any) -> Any:
        yield from blocks(*args)
        path.write_text("a,y\n1,p\nz,q\n")

    monkeypatch.setattr(csv_file, "blocks", edited)
    with pytest.raises(RowsError, match="changed while it was read"):
        read_rows(path, label="y")


def test_a_long_cell_of_a_column_that_is_not_read_does_not_matter(tmp_path: Path) -> None:
    note = "a long, long note\n" * 20_000
    path = written(tmp_path / "rows.csv", f'amount,note,y\n1,"{note}",a\n2,,b\n')
    rows = read_rows(path, label="y", columns=["amount"])
    assert rows.features["amount"].tolist() == [1, 2]
    assert rows.lines.tolist() == [2, 20_003]
