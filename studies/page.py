"""A report in progress: Markdown, with a CSV for each table and an SVG for each figure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Page:
    """The parts of a report, in order; `write` puts them into a folder.

    Example:
        >>> page = Page()
        >>> page.heading("Accuracy")
        >>> page.table("accuracy", ["loss", "%"], [["focal", "91.2"]])
        >>> print(page.text())
        ## Accuracy
        <BLANKLINE>
        | loss | % |
        |---|---|
        | focal | 91.2 |
        <BLANKLINE>
        [accuracy.csv](accuracy.csv)
        <BLANKLINE>
    """

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._files: dict[str, bytes] = {}

    def heading(self, text: str, level: int = 2) -> None:
        """Add a heading."""
        self._blocks.append(f"{'#' * level} {text}")

    def text_block(self, text: str) -> None:
        """Add a paragraph."""
        self._blocks.append(text)

    def points(self, items: Sequence[str]) -> None:
        """Add a list."""
        self._blocks.append("\n".join(f"- {item}" for item in items))

    def table(self, name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table, and `<name>.csv` with the same cells."""
        lines = [header, ["---"] * len(header), *rows]
        shown = "\n".join(
            f"|{'|'.join(line)}|" if index == 1 else f"| {' | '.join(line)} |" for index, line in enumerate(lines)
        )
        self._blocks.append(f"{shown}\n\n[{name}.csv]({name}.csv)")
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows([header, *rows])
        self._files[f"{name}.csv"] = stream.getvalue().encode()

    def figure(self, name: str, figure: Figure, caption: str) -> None:
        """Add a diagram, as `<name>.svg`; equal results give equal bytes."""
        import matplotlib as mpl  # takes a second to import

        # Letters as text and coordinates to a hundredth of a point: pages and their figures stay small.
        with mpl.rc_context({"svg.hashsalt": "candor", "svg.fonttype": "none", "font.sans-serif": "DejaVu Sans"}):
            buffer = io.BytesIO()
            figure.savefig(buffer, format="svg", metadata={"Date": None})
        lines = re.sub(r"(\.\d\d)\d{3,4}\b", r"\1", buffer.getvalue().decode()).splitlines()
        self._files[f"{name}.svg"] = "".join(f"{line.strip()}\n" for line in lines).encode()
        self._blocks.append(f"![{caption}]({name}.svg)\n\n*{caption}*")

    def text(self) -> str:
        """Return the page as Markdown."""
        return "\n\n".join(self._blocks) + "\n"

    def write(self, folder: Path) -> None:
        """Write `README.md` and the files beside it; other files in the folder stay."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "README.md").write_text(self.text(), encoding="utf-8")
        for name, content in self._files.items():
            (folder / name).write_bytes(content)
