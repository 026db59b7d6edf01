"""Parts of a Markdown file that benchmarks write, each between two marks."""

from __future__ import annotations

from pathlib import Path


def marked(name: str, lines: list[str]) -> str:
    """Return lines as the part of a name, between its marks."""
    return "\n".join([_begin(name), *lines, _end(name)])


def replace(path: Path, name: str, part: str) -> None:
    """Replace a part of a file, or append it under a heading of its name."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    head, begin, rest = before.partition(_begin(name))
    if begin:
        text = head + part + rest.partition(_end(name))[2]
    else:
        text = f"{before.rstrip()}\n\n## {name.capitalize()}\n\n{part}\n"
    path.write_text(text, encoding="utf-8")


def _begin(name: str) -> str:
    return f"<!-- {name}: begin -->"


def _end(name: str) -> str:
    return f"<!-- {name}: end -->"
