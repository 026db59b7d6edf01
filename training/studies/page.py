"""A report under way: Markdown, with a CSV beside each table and an SVG for each figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Page:
    """What a report holds, in order; `write` puts it into a folder.

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
        """Begin a section."""
        self._blocks.append(f"{'#' * level} {text}")

    def text_block(self, text: str) -> None:
        """A paragraph."""
        self._blocks.append(text)

    def points(self, items: Sequence[str]) -> None:
        """A list."""
        self._blocks.append("\n".join(f"- {item}" for item in items))

    def table(self, name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table, and `<name>.csv` with the same cells."""
        lines = [header, ["---"] * len(header), *rows]
        shown = "\n".join(
            f"|{'|'.join(line)}|" if index == 1 else f"| {' | '.join(line)} |" for index, line in enumerate(lines)
        )
        self._blocks.append(f"{shown}\n\n[{name}.csv]({name}.csv)")
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows([header, *rows])
        self._files[f"{name}.csv"] = stream.getvalue().encode()

    def figure(self, name: str, figure: Figure, caption: str) -> None:
        """A diagram, as `<name>.svg`; equal results give equal bytes."""
        import matplotlib as mpl  # takes a second to import

        with mpl.rc_context({"svg.hashsalt": "candor"}):
            buffer = io.BytesIO()
            figure.savefig(buffer, format="svg", metadata={"Date": None})
        # Matplotlib leaves blanks at the ends of lines.
        lines = buffer.getvalue().decode().splitlines()
        self._files[f"{name}.svg"] = ("\n".join(line.rstrip() for line in lines) + "\n").encode()
        self._blocks.append(f"![{caption}]({name}.svg)\n\n*{caption}*")

    def text(self) -> str:
        """The page as Markdown."""
        return "\n\n".join(self._blocks) + "\n"

    def write(self, folder: Path) -> None:
        """Write `README.md` and the files beside it; other files of the folder are left as they are."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "README.md").write_text(self.text(), encoding="utf-8")
        for name, content in self._files.items():
            (folder / name).write_bytes(content)
