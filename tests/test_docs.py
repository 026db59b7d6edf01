"""Documentation that drifts from the code fails here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from calibrators import CALIBRATORS
from candor.contract.recalibration import RecalibrationLimits
from service import errors
from service.app import create_app
from service.rest.problems import problem
from service.settings import Settings
from service.telemetry.metrics import Metrics
from service.telemetry.run_metrics import RunMetrics
from service.telemetry.triton_metrics import NAMES

ROOT = Path(__file__).resolve().parent.parent
API_REFERENCE = ROOT / "docs/reference/api-reference.md"  # generated with the site: a link for its readers only
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def tree(root: type[errors.CandorError]) -> list[type[errors.CandorError]]:
    own = (branch for branch in root.__subclasses__() if not branch.__name__.startswith("_"))
    return [root, *(kind for branch in own for kind in tree(branch))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
        path = (page.parent / target).resolve()
        generated = path == API_REFERENCE and page.is_relative_to(ROOT / "docs")
        assert path.exists() or generated, f"{page.name} links to {target}"


def test_the_readme_leads_to_the_tutorial_for_your_own_table() -> None:
    assert "(docs/tutorials/own-table.md)" in (ROOT / "README.md").read_text()


def test_every_setting_is_documented_as_it_is() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text()
    rows = dict(re.findall(r"^\| `(CANDOR_\w+)` \| (.+) \|$", page, re.MULTILINE))
    expected = {
        f"CANDOR_{name.upper()}": f"{'—' if field.default is None else f'`{field.default}`'} | {field.description}"
        for name, field in Settings.model_fields.items()
    }
    assert rows == expected


def test_every_calibrator_is_documented() -> None:
    page = (ROOT / "docs/reference/calibrators.md").read_text()
    assert [name for name in CALIBRATORS if f"`{name}`" not in page] == []


def test_every_problem_is_documented_with_its_status() -> None:
    page = (ROOT / "docs/reference/api.md").read_text()
    for kind in tree(errors.CandorError):
        row = next(line for line in page.splitlines() if f"`/errors/{kind.kind}`" in line)
        assert str(problem(kind("…")).status_code) in row, kind.__name__


def test_every_limit_of_a_recalibration_is_documented() -> None:
    page = (ROOT / "docs/reference/api.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| `limits` |"))
    assert [name for name in RecalibrationLimits.model_fields if f"`{name}`" not in row] == []


def test_the_error_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    assert sorted(drawn) == sorted(kind.__name__ for kind in tree(errors.CandorError)[1:])


def test_every_endpoint_is_documented(tmp_path: Path) -> None:
    page = (ROOT / "docs/reference/api.md").read_text()
    app = create_app(Settings(bundles=tmp_path, database_url=f"sqlite:///{tmp_path}/state.db"))
    try:
        for path, item in app.api.openapi()["paths"].items():
            for method in item:
                assert f"`{method.upper()} {path}`" in page, f"{method.upper()} {path}"
    finally:
        app.runtime.close()


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    rows = re.findall(r"^\| (`(?:candor|process|nv)_.*?) \| ", page, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    counted = set()
    for family in (*Metrics().registry.collect(), *RunMetrics(list).collect()):
        counted.add(f"{family.name}_total" if family.type == "counter" else family.name)
    sources = "".join(path.read_text() for path in (ROOT / "service").glob("*.py"))
    live = set(re.findall(r'yield \(?\s*"(candor_\w+)"', sources))
    assert live
    assert sorted((counted | live | {*NAMES}) - documented) == []


def test_the_workflow_installs_for_tests_what_the_local_run_installs() -> None:
    """Else their tests are skipped there, and nobody sees it."""
    local = set(re.findall(r"^ +attempt ([a-z]+) ", (ROOT / ".ci/run").read_text(), re.MULTILINE))
    assert {"clients", "ray"} <= local
    assert local <= set(re.findall(r"run: make ([a-z]+)", (ROOT / ".github/workflows/ci.yml").read_text()))


def test_every_make_verb_of_the_readme_exists() -> None:
    verbs = set(re.findall(r"make ([a-z]+)", (ROOT / "README.md").read_text()))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test", "serve"} <= verbs
    assert verbs - {"it"} <= targets


@pytest.mark.parametrize("module", ["service.cli", "training.cli"])
def test_every_command_of_the_readme_exists(module: str) -> None:
    program = {"service.cli": "candor", "training.cli": "candor-train"}[module]
    commands = set(re.findall(rf"^\$ \.venv/bin/{program} (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert commands
    for command in commands:
        done = subprocess.run([sys.executable, "-m", module, command, "--help"], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


def test_comments_of_ini_blocks_have_lines_of_their_own() -> None:
    """PgBouncer takes one after a value as part of the value."""
    blocks = [block for page in PAGES for block in re.findall(r"```ini\n(.*?)```", page.read_text(), re.DOTALL)]
    assert blocks
    assert [line for block in blocks for line in block.splitlines() if re.search(r"\S\s+[;#]", line)] == []


def test_the_readme_runs_in_python() -> None:
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL):
        compile(block, "README.md", "exec")


def test_nothing_is_marked_unfinished() -> None:
    done = subprocess.run(["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    here = Path(__file__).name
    for name in done.stdout.split():
        if not name.endswith(here):
            assert not re.search(r"\b(TODO|FIXME|XXX)\b", (ROOT / name).read_text()), name
