"""Files that cannot be used are refused with the file, line and column, what was found, and what was expected."""

import gzip
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from importing.errors import RowsError
from importing.rows import csv_file, npz, read_rows, stream
from tests.array_files import npy
from tests.damage import damaged
from tests.memory import most_traced

GOOD = "amount,country,y\n1,DE,a\n2,FR,b\n"


def refused(path: Path, content: str | bytes, message: str, **options: Any) -> None:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RowsError) as caught:
        read_rows(path, **{"label": "y", **options})
    assert str(caught.value) == message.format(path=path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "{path}: The file is empty."),
        ("\n\n", "{path}: The file has no rows."),
        ("amount,y\n", "{path}: The file has no rows."),
        (
            "amount,y\n1,a\n2,3,b\n",
            "{path}, line 3: The line does not have one cell for each column. Found: 3 cells; the last is 'b'. "
            "Expected: 2 cells, as in the header. A cell with a comma needs quotes.",
        ),
        (
            "amount,y\n1,a\n2\n",
            "{path}, line 3: The line does not have one cell for each column. Found: 1 cells; the last is '2'. "
            "Expected: 2 cells, as in the header.",
        ),
        ("a,a,y\n1,2,a\n", "{path}, line 1: Duplicate column `a` (2 times). Expected: distinct names."),
        (
            ",a,y\n0,1,a\n",
            "{path}, line 1: Column 1 has no name. Expected: a name for each column. "
            "pandas writes row numbers so: use to_csv(…, index=False).",
        ),
        ("a,y\n1,p\n2,\n", "{path}, line 3, column y: The label is missing. Found: ''. Name it, or leave the row out."),
        (
            "a,y\n1,p\n2, n/a\n",
            "{path}, line 3, column y: The label is missing. Found: ' n/a'. Name it, or leave the row out.",
        ),
        ("a,y\n1,p\n2,p\n", "{path}: All rows have the same label. Found: `p`. Expected: at least two classes."),
        (
            b"a,y\n1,p\n\xff,q\n",
            "{path}, line 3: The file is not UTF-8. Found: byte 0xff. Save it as UTF-8.",
        ),
        (
            GOOD.encode("utf-16"),
            "{path}, line 1: The file is not UTF-8. Found: byte 0xff. Save it as UTF-8.",
        ),
        ('a,y\n1,p\n"2,q\n', "{path}, line 3: A quote is opened and not closed."),
        (
            "amount;country;y\n1;DE;a\n",
            "{path}, line 1: The header has one column. Found: 'amount;country;y'. "
            "Expected: cells separated by commas (.csv) or tabs (.tsv).",
        ),
        (
            f"a,y\n1,{'p' * 257}\n2,q\n",
            "{path}, line 2, column y: The label is too long. Expected: at most 256 characters.",
        ),
    ],
)
def test_csv(tmp_path: Path, content: str | bytes, message: str) -> None:
    refused(tmp_path / "rows.csv", content, message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"label": "Y"},
            "{path}, line 1: The file has no column `Y` (the label). Expected: one of amount, country, y. "
            "Did you mean `y`?",
        ),
        (
            {"group": "amuont"},
            "{path}, line 1: The file has no column `amuont` (the group). Expected: one of amount, country, y. "
            "Did you mean `amount`?",
        ),
        (
            {"drop": ["zzz"]},
            "{path}, line 1: The file has no column `zzz` (dropped). Expected: one of amount, country, y.",
        ),
        (
            {"columns": ["amount", "hour"]},
            "{path}, line 1: The file has no column `hour` (an input). Expected: one of amount, country, y.",
        ),
        ({"group": "y"}, "Column `y` has two roles: the label and the group. Expected: one role a column."),
        (
            {"scores": ["amount", "amount"]},
            "Column `amount` has two roles: a score and a score. Expected: one role a column.",
        ),
        (
            {"weight": "amount", "drop": ["amount"]},
            "Column `amount` is the weight, and is dropped too. Expected: one role a column.",
        ),
        ({"columns": ["y"]}, "Column `y` is an input of the model, and is the label too. Expected: one role a column."),
        (
            {"columns": ["amount", "amount"]},
            "Column `amount` is an input of the model twice. Expected: distinct columns.",
        ),
        ({"label": None}, "{path}: The label column is not given. Expected: the name of a column: --label."),
        (
            {"weight": "country"},
            "{path}, line 2, column country: The weight is not valid. Found: 'DE'. Expected: a number from 1e-100 to "
            "1e+100.",
        ),
        (
            {"scores": ["country"]},
            "{path}, line 2, column country: The score is not valid. Found: 'DE'. Expected: a finite number.",
        ),
        (
            {"time": "country"},
            "{path}, line 2, column country: The time is not valid. Found: 'DE'. Expected: ISO 8601, such as "
            "2026-03-14T09:26:53Z, or seconds or milliseconds since 1970.",
        ),
    ],
)
def test_roles(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    refused(tmp_path / "rows.csv", GOOD, message, **options)


@pytest.mark.parametrize("weight", ["", "NaN", "0", "-1", "inf", "1e101", "x", "1_0"])
def test_weights_are_above_0(tmp_path: Path, weight: str) -> None:
    message = f"{{path}}, line 3, column w: The weight is not valid. Found: {weight!r}. Expected: a number from "
    message += "1e-100 to 1e+100."
    refused(tmp_path / "rows.csv", f"w,y\n1,a\n{weight},b\n", message, weight="w")


def test_an_unknown_ending_and_a_missing_file(tmp_path: Path) -> None:
    kinds = ".csv, .tsv, .ndjson, .jsonl, .parquet, .npz, or a folder with one sub-folder of images per class."
    for name in ("rows.pkl", "rows", "rows.parquet.gz", "rows.xlsx"):
        message = f"{{path}}: The file has an unknown ending. Found: {name}. Expected: {kinds}"
        refused(tmp_path / name, "", message)
    with pytest.raises(RowsError, match=r"none\.csv: The file cannot be read: No such file or directory\."):
        read_rows(tmp_path / "none.csv", label="y")


@pytest.mark.parametrize("ending", [".gz", ".bz2"])
@pytest.mark.parametrize("data", [b"x", gzip.compress(GOOD.encode() * 99, mtime=0)[:-20], b""])
def test_a_damaged_compressed_file(tmp_path: Path, ending: str, data: bytes) -> None:
    path = tmp_path / f"rows.csv{ending}"
    path.write_bytes(data)
    with pytest.raises(RowsError, match=r"The compressed file is damaged|The file is empty"):
        read_rows(path, label="y")


def test_a_line_without_end_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_LINE", 1000)
    message = "{path}, line 2: The line is too long. Expected: at most 1000 bytes."
    refused(tmp_path / "rows.csv.gz", gzip.compress(b"a,y\n" + b"\0" * 10_000_000), message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: The line is not valid JSON: Expecting property name enclosed in double quotes: "),
        ("[1, 2]", "line 2: The line is not a JSON object. Found: [1, 2]."),
        ("7", "line 2: The line is not a JSON object. Found: 7."),
        ('{"y": 1, "y": 2}', "line 2: The line is not valid JSON: a field is there twice."),
        ('{"y": NaN}', "line 2: The line is not valid JSON: NaN is not a JSON number."),
        ('{"y": 1, "a": [1]}', "line 2, column a: The value is not a text, number, true, false or null. Found: [1]."),
        ('{"y": {}}', "line 2, column y: The value is not a text, number, true, false or null. Found: {}."),
        ('{"y": "\\ud800"}', "line 2: The text has half of a surrogate pair. Found: \\ud800."),
        ('{"a": 1}', "line 2, column y: The label is missing. Found: None. Name it, or leave the row out."),
        ('{"y": 1, "a": 1e999}', "line 2, column a: The number is not finite. Found: inf."),
        ("[" * 100_000, "line 2: The line is not valid JSON:"),
        ('{"' + "9" * 5000 + '": ' + "9" * 5000 + "}", "line 2: The line is not valid JSON: Exceeds the limit"),
    ],
)
def test_ndjson(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "rows.ndjson"
    path.write_text(f'{{"y": 0, "a": 2}}\n{line}\n')
    with pytest.raises(RowsError) as caught:
        read_rows(path, label="y")
    assert str(caught.value).startswith(f"{path}, {message}")


def test_parquet(tmp_path: Path) -> None:
    core, files = pytest.importorskip("arro3.core"), pytest.importorskip("arro3.io")
    kinds = core.DataType
    path = tmp_path / "rows.parquet"
    for data in (b"PAR", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1"):
        path.write_bytes(data)
        with pytest.raises(RowsError, match="The file is not a valid Parquet file"):
            read_rows(path, label="y")
    lists = core.fixed_size_list_array(core.Array([1, 2], kinds.int64()), 1)
    numbers = core.Array([1.0, float("inf")], kinds.float64())
    label = core.Array(["a", "b"], kinds.string())
    files.write_parquet(core.Table.from_pydict({"a": lists, "n": numbers, "y": label}), path)
    with pytest.raises(RowsError, match=r"column a: The column cannot be read\. .* Drop it"):
        read_rows(path, label="y")
    with pytest.raises(RowsError, match=r"row 2, column n: The number is not finite\. Found: inf"):
        read_rows(path, label="y", drop=["a"])


def archive(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)


def test_pickled_arrays_are_not_read(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "exploded",))

    np.savez(tmp_path / "rows.npz", x=np.array([Bomb(), Bomb()], object), y=[0, 1])
    with pytest.raises(RowsError, match="array x: The array is pickled, and unpickling can run code"):
        read_rows(tmp_path / "rows.npz", label="y")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 2)), "y": [0, 1]}, r"array x: .* Found: \(3, 2\)\. Expected: \(2, …\), one entry for each"),
        ({"x": np.zeros(2), "y": [[0, 1], [1, 0]]}, r"array y: .* Found: \(2, 2\)\. Expected: \(2,\)"),
        ({"x": np.zeros(2), "y": 1}, r"array .: The array has the wrong shape"),
        ({"x": np.zeros(2, "c16"), "y": [0, 1]}, "array x: The array has an unknown type. Found: complex128"),
        ({"x": np.zeros(2), "y": [0, np.nan]}, "row 2, column y: The label is missing"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0)}, "The file has no rows"),
        ({"x": np.zeros(2)}, "The file has no column `y`"),
    ],
)
def test_arrays(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "rows.npz", **arrays)
    with pytest.raises(RowsError, match=message):
        read_rows(tmp_path / "rows.npz", label="y")


def test_archives_that_lie_about_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, y = tmp_path / "rows.npz", npy(np.arange(2))
    huge = npy(np.zeros(2)).replace(b"'shape': (2,)", b"'shape': (9" + b"9" * 10 + b",)")
    archive(path, {"x.npy": huge, "y.npy": y})
    with pytest.raises(RowsError, match="array x: The array is damaged"):
        read_rows(path, label="y")
    nothing = y.replace(b"'<i8'", b"'|S0'").replace(b"'shape': (2,)", b"'shape': (9" + b"9" * 10 + b",)")[:128]
    archive(path, {"x.npy": nothing, "y.npy": nothing})
    with pytest.raises(RowsError, match=r"array .: The array has an unknown type\. Found: \|S0"):
        read_rows(path, label="y")
    archive(path, {"x.npy": npy(np.zeros(2)), "x": npy(np.ones(2)), "y.npy": y})
    with pytest.raises(RowsError, match="Duplicate column `x`"):
        read_rows(path, label="y")
    archive(path, {"x.npy": path.read_bytes(), "y.npy": y})
    with pytest.raises(RowsError, match=r"not a valid \.npz file: the magic string"):
        read_rows(path, label="y")
    archive(path, {"x.npy": npy(np.zeros(100_000)), "y.npy": y})
    path.write_bytes(path.read_bytes().replace((800_128).to_bytes(4, "little"), (144).to_bytes(4, "little")))
    with pytest.raises(RowsError, match=r"array x: The array is damaged|not a valid \.npz file"):  # more than it says
        read_rows(path, label="y")
    archive(path, {"x.npy": b"garbage", "y.npy": y})
    with pytest.raises(RowsError, match=r"not a valid \.npz file"):
        read_rows(path, label="y")
    monkeypatch.setattr(npz, "_MAX_BYTES", 10_000)
    archive(path, {"x.npy": b"\0" * 20_000, "y.npy": y})
    with pytest.raises(RowsError, match=r"The arrays are too large\. Found: 20\d\d\d bytes"):
        read_rows(path, label="y")
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(RowsError, match=r"not a valid \.npz file"):
        read_rows(path, label="y")


def test_small_archives_of_large_arrays_are_refused_before_they_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.npz"
    archive(path, {"x.npy": npy(np.zeros(4_000_000)), "y.npy": npy(np.arange(2))})
    assert path.stat().st_size < 100_000

    def refused(match: str) -> None:
        with pytest.raises(RowsError, match=match):
            read_rows(path, label="y")

    monkeypatch.setattr(npz.shutil, "disk_usage", lambda _: SimpleNamespace(free=40_000_000))
    too_large = r"too large to unpack\. Found: 32\d{6} bytes\. Expected: at most 20000000"
    assert most_traced(lambda: refused(too_large)) < 2_000_000
    monkeypatch.setattr(npz, "_MAX_BYTES", 30_000_000)
    assert most_traced(lambda: refused(r"The arrays are too large\. Found: 32\d{6} bytes")) < 2_000_000


def test_image_folders(tmp_path: Path) -> None:
    folder = tmp_path / "pets"
    folder.mkdir()
    with pytest.raises(RowsError, match=r"The folder has no images\. Expected: one sub-folder per class"):
        read_rows(folder)
    (folder / "cat").mkdir()
    with pytest.raises(RowsError, match="cat: The class has no images"):
        read_rows(folder)
    with pytest.raises(RowsError, match="An image folder has no columns, so `label` cannot be given"):
        read_rows(folder, label="y")
    (folder / "cat" / "a.png").write_bytes(b"GIF89a")
    with pytest.raises(RowsError, match=r"a\.png: The file is not an image\. Found: bytes that begin with 47 49 46"):
        read_rows(folder)
    (folder / "cat" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(RowsError, match=r"All rows have the same label\. Found: `cat`"):
        read_rows(folder)
    (folder / "cat" / "notes.txt").write_text("x")
    with pytest.raises(RowsError, match=r"notes\.txt: The file is not an image\. Expected: a file ending in \.png"):
        read_rows(folder)
    (folder / "readme").write_text("x")
    (folder / "cat" / "notes.txt").unlink()
    with pytest.raises(RowsError, match=r"readme: Unexpected file\. Expected: one sub-folder per class"):
        read_rows(folder)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=200), ending=st.sampled_from([".csv", ".tsv", ".ndjson", ".npz", ".csv.gz", ".ndjson.bz2"])
)
def test_any_bytes_are_rows_or_refused(tmp_path: Path, data: bytes, ending: str) -> None:
    path = tmp_path / ("rows.ndjson.bz2" if ending == ".bz2" else f"rows{ending}")
    path.write_bytes(data)
    with pytest.raises(RowsError):
        read_rows(path, label="no such column")


LINES = st.lists(st.text(st.sampled_from('ay,"1\n\r .-eEnN\té\0'), max_size=30), max_size=6)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES, block=st.sampled_from([1, 2, 100]))
def test_any_text_is_a_table_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], block: int
) -> None:
    monkeypatch.setattr(csv_file, "_BLOCK", block)
    path = tmp_path / "rows.csv"
    path.write_bytes(("a,y\n1,1\n2,0\n" + "\n".join(lines)).encode())
    try:
        rows = read_rows(path, label="y")
    except RowsError:
        return
    assert len(rows.features["a"]) == len(rows.label) == len(rows.lines) >= 2
    assert all(rows.label)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fields=st.lists(
        st.dictionaries(st.sampled_from("ab"), st.none() | st.booleans() | st.integers() | st.floats(), max_size=2),
        max_size=5,
    )
)
def test_any_plain_fields_are_rows_or_refused(tmp_path: Path, fields: list[dict[str, Any]]) -> None:
    path = tmp_path / "rows.ndjson"
    rows = [{"a": 1, "y": 0}, {"a": 1, "y": 1}, *({**field, "y": 0} for field in fields)]
    path.write_text("\n".join(map(json.dumps, rows)))
    try:
        read = read_rows(path, label="y")
    except RowsError as error:
        assert "is not a JSON number" in str(error) or "not finite" in str(error)  # noqa: PT017
        return
    assert all(len(values) == len(rows) for values in read.features.values())


def test_a_damaged_parquet_file_is_told_by_the_error_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its reader panics over some of these files, and Rust prints a panic before it is raised."""
    core, files = pytest.importorskip("arro3.core"), pytest.importorskip("arro3.io")
    path = tmp_path / "rows.parquet"
    names = core.Array.from_numpy(np.arange(500.0)), core.Array.from_numpy(np.arange(500) % 2)
    files.write_parquet(core.Table.from_pydict(dict(zip("ay", names, strict=True))), path)
    told = 0
    for _ in damaged(path):
        try:
            read_rows(path, label="y")
        except RowsError:
            told += 1
    assert told > 20
    assert capfd.readouterr() == ("", "")
