"""mkdocs hook: the site has the README as its first page, and whatever else of the repository its pages link to.

Pages link to each other, to source files and to folders, as a reader of the repository needs it. In the site a file
outside of docs/ that is linked to lies below source/, Markdown as a page and all else as it is; of a link to a folder
its text stays.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|!?\[[^\]]*\]\([^)]*\))*)\]\((?!https?://|#|mailto:)([^)#\s]+)(#[^)]*)?\)")
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the first page, and what is linked to outside of docs/."""
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text(encoding="utf-8")))
    waiting = [file for file in files if file.is_documentation_page()]
    while waiting:
        page = waiting.pop()
        for path in _linked(page.content_string, _origin(page.src_uri)):
            uri = _uri(path)
            if (ROOT / path).is_file() and files.get_file_from_path(uri) is None:
                added = File.generated(config, uri, abs_src_path=str(ROOT / path), inclusion=InclusionLevel.NOT_IN_NAV)
                files.append(added)
                if added.is_documentation_page():
                    waiting.append(added)
    return files


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Return a page with its links as the site needs them."""
    origin = _origin(page.file.src_uri)
    return _outside_fences(markdown, lambda text: _rewritten(text, page.file.src_uri, origin))


def _origin(uri: str) -> str:
    """Return where in the repository a page of the site comes from."""
    if uri == "index.md":
        return "README.md"
    return uri.removeprefix("source/") if uri.startswith("source/") else f"docs/{uri}"


def _uri(path: str) -> str:
    """Return where in the site a file of the repository is."""
    if path == "README.md":
        return "index.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}"


def _linked(text: str, origin: str) -> Iterator[str]:
    for found in _LINK.finditer(_FENCE.sub("", text)):
        yield from _linked(found[2], origin)
        yield _resolved(found[3], origin)


def _resolved(target: str, origin: str) -> str:
    return os.path.normpath(PurePosixPath(origin).parent / target)


def _rewritten(text: str, uri: str, origin: str) -> str:
    def link(found: re.Match[str]) -> str:
        mark, inside, target, anchor = found.groups(default="")
        inside = _rewritten(inside, uri, origin)
        path = _resolved(target, origin)
        if (ROOT / path).is_dir():
            return inside
        return f"{mark}[{inside}]({os.path.relpath(_uri(path), PurePosixPath(uri).parent)}{anchor})"

    return _LINK.sub(link, text)


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])
