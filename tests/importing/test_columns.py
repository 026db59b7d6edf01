"""The report names what the rows hold and what is suspicious."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from importing.columns import describe, print_report
from importing.errors import RowsError
from importing.rows import read_rows
from tests.importing.validation_rows import table

N = 1_000


def labels(positives: int, n: int = N) -> list[str]:
    return ["fraud" if place < positives else "genuine" for place in np.random.default_rng(5).permutation(n)]


def warnings(folder: Path, columns: dict[str, Any], **options: Any) -> str:
    return "\n".join(describe(table(folder, columns, **options)).warnings)


def test_columns_have_types_missing_values_and_bounds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    amount = ["" if row % 4 == 0 else round(float(value), 3) for row, value in enumerate(rng.normal(size=N))]
    country = [("DE", "FR", "DE", "NA")[row % 4] for row in range(N)]
    report = describe(table(tmp_path, {"amount": amount, "country": country, "y": labels(300)}))
    first, second = report.columns
    present = np.array([value for value in amount if value != ""])
    assert (first.kind, first.missing, first.distinct) == ("number", 0.25, len(np.unique(present)))
    assert (first.low, first.median, first.high) == (present.min(), np.median(present), present.max())
    assert (second.kind, second.missing, second.distinct) == ("text", 0.25, 2)
    assert second.top == (("DE", 500), ("FR", 250))
    assert [(size.name, size.rows, size.share) for size in report.classes] == [
        ("fraud", 300, 0.3),
        ("genuine", 700, 0.7),
    ]


def test_a_small_class_certifies_nothing_and_says_what_would(tmp_path: Path) -> None:
    found = warnings(tmp_path, {"a": range(400), "b": [row % 7 for row in range(400)], "y": labels(6, 400)})
    assert "6 rows of `fraud` in 400 certify nothing: about 3 of its 6 rows will be certify rows." in found
    assert "the highest precision or recall that they certify at 95% confidence is 0.37." in found  # 0.05 ** (1 / 3)
    assert "0.90 requires 29 of them, so about 65 rows of `fraud` in the file." in found
    assert "Fewer than 10 rows: `fraud` (6)." in found
    assert "genuine" not in found
    found = warnings(tmp_path, {"a": range(400), "b": [row % 7 for row in range(400)], "y": labels(1, 400)})
    assert "1 row of `fraud` in 400 certifies nothing: it is a certify row with a chance of 45%." in found


def test_groups_count_once_for_a_certificate(tmp_path: Path) -> None:
    columns = {"a": [row % 9 for row in range(N)], "g": [row // 20 for row in range(N)], "y": labels(500)}
    report = describe(table(tmp_path, columns, group="g"))
    assert report.groups == 50
    assert [size.units for size in report.classes] == [50, 50]
    assert "about 22 of its 50 groups will be certify rows" in report.warnings[0]
    told = "\n".join(report.warnings)
    assert "About 22 certify groups cannot certify a flag rate or error rate below 12.7%" in told


def test_fewer_than_three_groups_are_refused(tmp_path: Path) -> None:
    rows = table(tmp_path, {"a": range(N), "g": [row % 2 for row in range(N)], "y": labels(500)}, group="g")
    with pytest.raises(RowsError, match=r"Too few groups .* Found: 2 groups"):
        describe(rows)


def test_a_label_with_thousands_of_values_is_another_column(tmp_path: Path) -> None:
    columns = {"country": [row % 5 for row in range(9_000)], "y": range(9_000)}
    with pytest.raises(RowsError, match=r"`label=y` has 9,000 distinct values\. Did you mean another .*: country\."):
        describe(table(tmp_path, columns))
    columns = {"country": [row % 5 for row in range(N)], "y": [row % 300 for row in range(N)]}
    with pytest.raises(RowsError, match="`label=y` has 300 distinct values"):
        describe(table(tmp_path, columns))
    columns = {"country": [row % 5 for row in range(N)], "y": [row % 150 for row in range(N)]}
    assert len(describe(table(tmp_path, columns)).classes) == 150


@pytest.mark.parametrize(
    ("cells", "warning"),
    [
        (lambda y: y, "`a` equals the label."),
        (lambda y: [{"fraud": 3, "genuine": 1}[name] for name in y], "`a` predicts the label perfectly."),
        (lambda y: [f"{name}{row % 9}" for row, name in enumerate(y)], "`a` predicts the label perfectly."),
        (
            lambda y: [row / N + (name == "fraud") for row, name in enumerate(y)],
            "`a` separates the classes perfectly.",
        ),
        (
            lambda y: ["" if name == "fraud" else row / 7 for row, name in enumerate(y)],
            "`a` is missing for exactly the rows of one class.",
        ),
        (
            lambda y: ["" if name == "fraud" else f"shop {row}" for row, name in enumerate(y)],
            "`a` is missing for exactly the rows of one class.",
        ),
        (lambda y: ["x"] * len(y), "`a` is constant."),
        (lambda y: [""] * len(y), "`a` is empty."),
        (lambda y: [f"tx-{row}" for row in range(len(y))], "`a` has another value in each row, like an identifier."),
        (lambda y: range(len(y)), "`a` has another value in each row, like an identifier."),
    ],
)
def test_suspicious_columns_are_named(tmp_path: Path, cells: Any, warning: str) -> None:
    y = labels(300)
    other = np.random.default_rng(1).normal(size=N)
    assert warnings(tmp_path, {"a": cells(y), "other": other, "y": y}).startswith(warning)


def test_ordinary_columns_are_not_suspicious(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    columns = {"amount": rng.normal(size=N), "hour": rng.integers(0, 24, N), "country": rng.choice(["DE", "FR"], N)}
    assert warnings(tmp_path, {**columns, "y": labels(300)}) == ""


def test_repeated_rows_are_counted(tmp_path: Path) -> None:
    a = [*range(N - 10), *range(10)]
    y = labels(300)
    found = warnings(tmp_path, {"a": a, "b": [f"b{value % 40}" for value in a], "y": y})
    other = sum(y[row] != y[N - 10 + row] for row in range(10))
    assert f"10 rows repeat the inputs of an earlier row, {other} of them with another label." in found


def test_texts_that_the_model_does_not_know_are_counted(tmp_path: Path) -> None:
    country = [("DE", "FR", "DE", "", "XX")[row % 5] for row in range(N)]
    report = describe(table(tmp_path, {"country": country, "y": labels(300)}), categories={"country": ["DE", "FR"]})
    assert report.columns[0].unknown == (("XX", N // 5),)
    assert f"{N // 5:,} rows have a value of `country` that the model does not know, such as 'XX'." in report.warnings


def test_the_rows_own_parts_say_how_many_certify(tmp_path: Path) -> None:
    parts = ["certify" if row < 100 else "fit" for row in range(N)]
    rows = table(tmp_path, {"a": range(N), "y": labels(500), "part": parts}, part="part")
    assert [size.certify for size in describe(rows).classes] == [50, 50]
    rows = table(tmp_path, {"a": range(N), "y": labels(500), "part": ["fit"] * N}, part="part")
    with pytest.raises(RowsError, match="No rows certify"):
        describe(rows)
    rows = table(tmp_path, {"a": range(N), "y": labels(500), "part": ["Honda"] * N}, part="part")
    with pytest.raises(RowsError, match=r"line 2: Unknown part\. Found: `Honda`\. Expected: fit, certify"):
        describe(rows)


def test_arrays_and_images_are_described(tmp_path: Path) -> None:
    ids = np.arange(40, dtype=np.int32).reshape(20, 2)
    empty = np.full((20, 1), np.nan, np.float32)
    names = np.array([f"n{row % 3}" for row in range(20)])
    np.savez(tmp_path / "rows.npz", ids=ids, empty=empty, name=names, count=np.arange(20), y=np.arange(20) % 2)
    first, second, third, fourth = describe(read_rows(tmp_path / "rows.npz", label="y")).columns
    assert (first.kind, first.form, first.low, first.high) == ("tensor", "int32 (2,)", 0, 39)
    assert (second.missing, second.low) == (1.0, None)
    assert (third.kind, third.distinct) == ("text", 3)
    assert (fourth.kind, fourth.form, fourth.high) == ("number", "int64", 19)


def test_the_report_prints_names_as_they_are(tmp_path: Path) -> None:
    stream = io.StringIO()
    columns = {"[red]a": [row % 9 for row in range(N)], "b[/]": ["x\x1b[31my"] * N, "y": labels(6)}
    print_report(describe(table(tmp_path, columns)), Console(file=stream, width=100))
    told = stream.getvalue()
    assert "[red]a" in told
    assert "b[/]" in told
    assert "\x1b" not in told
    assert "Warning: 6 rows of `fraud` in 1,000 certify nothing" in told
