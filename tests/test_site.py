"""The site of docs/ builds, says all that the pages say, and asks no other host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MKDOCS = Path(sys.executable).parent / "mkdocs"
LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


class Loaded(HTMLParser):
    """Notes what a browser fetches to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADING.get(tag, ""))
        if address and dict(attrs).get("rel") != "canonical":
            self.addresses.append(address)


@pytest.fixture(scope="module")
def site(api_reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [MKDOCS, "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "API_REFERENCE": str(api_reference)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    pages.append(Path("reference/api-reference.md"))
    assert [page for page in pages if not _built(site, page).is_file()] == []
    assert "Candor trains image, text and table classifiers" in (site / "index.html").read_text()


def _built(site: Path, page: Path) -> Path:
    return site / (page.with_name("index.html") if page.name == "README.md" else page.with_suffix(".html"))


def test_what_pages_load_is_in_the_site(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text())
        assert loaded.addresses
        for address in loaded.addresses:
            assert not re.match(r"https?:|//", address), f"{page.name} loads {address}"
            if page.name != "404.html" and not address.startswith("data:"):
                assert (page.parent / address.partition("?")[0]).exists(), f"{page} loads {address}"


def test_links_to_source_files_lead_to_copies_of_them(site: Path) -> None:
    assert 'href="source/service/serving/plane.py"' in (site / "index.html").read_text()
    assert (site / "source/service/serving/plane.py").read_bytes() == (ROOT / "service/serving/plane.py").read_bytes()
    assert 'href="source/benchmarks/RESULTS.html"' in (site / "index.html").read_text()


@pytest.mark.parametrize(("text", "status"), [("[here](#a-page)", 0), ("[nowhere](#nothing)", 1), ("[gone](x.md)", 1)])
def test_a_broken_link_ends_the_build(text: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"# A page\n\n{text}\n")
    rest = "docs_dir: docs\nsite_dir: site\nhooks: []\nnav: [index.md]\ntheme: mkdocs\n"
    (tmp_path / "mkdocs.yml").write_text(f"INHERIT: {ROOT}/mkdocs.yml\n{rest}")
    done = subprocess.run([MKDOCS, "build", "--strict"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == status, done.stderr
