"""Tables for tests, written and read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from importing.rows import Rows, read_rows


def table(folder: Path, columns: Mapping[str, Sequence[Any]], **options: Any) -> Rows:
    """Write a CSV file and read it; its label is `y`."""
    path = folder / "rows.csv"
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return read_rows(path, label="y", **options)
