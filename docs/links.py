"""mkdocs hook: add the README as the site's first page, the generated API reference, and the files that pages link to.

Pages link to each other, to source files and to folders, as readers of the repository need it. The site copies linked
files outside docs/ to source/: Markdown as pages, other files unchanged. A link to a folder becomes plain text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|!?\[[^\]]*\]\([^)]*\))*)\]\((?!https?://|#|mailto:)([^)#\s]+)(#[^)]*)?\)")
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the first page, the API reference, and linked files outside docs/."""
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text(encoding="utf-8")))
    reference = ROOT / config.extra["api_reference"]
    if not reference.is_file():
        raise PluginError(f"The API reference is missing: {reference}. Run: make reference")
    files.append(File.generated(config, "reference/api-reference.md", abs_src_path=str(reference)))
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
    """Return a page with its links rewritten for the site."""
    origin = _origin(page.file.src_uri)
    return _outside_fences(markdown, lambda text: _rewritten(text, page.file.src_uri, origin))


def _origin(uri: str) -> str:
    """Return the path in the repository of a page of the site."""
    if uri == "index.md":
        return "README.md"
    return uri.removeprefix("source/") if uri.startswith("source/") else f"docs/{uri}"


def _uri(path: str) -> str:
    """Return the path in the site of a file of the repository."""
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
