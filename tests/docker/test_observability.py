"""Prometheus' configuration, the alerts, the dashboard, the documented queries: they parse, and name what there is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "docker" / "prometheus"
GRAFANA = ROOT / "docker" / "grafana"
DASHBOARD = json.loads((GRAFANA / "dashboards" / "candor.json").read_text())
ALERTS: list[dict[str, Any]] = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"][0]["rules"]
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
_OF_A_HISTOGRAM = re.compile(r"_(bucket|sum|count)$")


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("promtool") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI needs promtool (Debian's package prometheus)")
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def queries_of_the_dashboard() -> list[str]:
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    found += [annotation["expr"] for annotation in DASHBOARD["annotations"]["list"]]
    assert len(found) > 20
    return found


def queries_of_the_documentation() -> list[str]:
    """Return the queries of the PromQL blocks; a line that is not indented, and closes nothing, begins another."""
    found: list[str] = []
    for block in re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            if line[0] in " )":
                found[-1] += f" {line}"
            else:
                found.append(line)
    assert len(found) > 8
    return found


def documented() -> set[str]:
    rows = re.findall(r"^\| (`(?:candor|process)_.*?) \| ", PAGE, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_configuration_is_one_that_prometheus_takes() -> None:
    done = promtool("check", "config", "--syntax-only", PROMETHEUS / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    done = promtool("check", "rules", PROMETHEUS / "alerts.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_are_raised_when_they_should_be_and_only_then() -> None:
    tests = sorted((PROMETHEUS / "tests").glob("*.yml"))
    tested = "".join(path.read_text() for path in tests)
    for alert in ALERTS:
        assert f"{alert['alert']}, what raises it" in tested
        assert f"{alert['alert']}, what does not raise it" in tested
    done = promtool("test", "rules", *tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_queries_of_errors_are_those_that_are_tested() -> None:
    tests = yaml.safe_load((PROMETHEUS / "tests" / "budget.yml").read_text())["tests"]
    tested = {" ".join(expected["expr"].split()) for expected in tests[0]["promql_expr_test"]}
    written = {" ".join(query.split()) for query in (*queries_of_the_documentation(), *queries_of_the_dashboard())}
    assert len(tested) == 2
    assert tested <= written


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_every_alert_says_what_to_do(alert: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text()
    assert {"summary", "description", "runbook_url"} <= set(alert["annotations"])
    assert alert["annotations"]["runbook_url"] == f"docs/how-to/operations.md#{alert['alert'].lower()}"
    section = page.split(f"### {alert['alert']}\n")[1].split("\n### ")[0]
    assert re.findall(r"\*\*(Means|Look at|Do)", section) == ["Means", "Look at", "Do"]


def test_every_query_parses(tmp_path: Path) -> None:
    expressions = [*queries_of_the_dashboard(), *queries_of_the_documentation()]
    variables = {"$__range": "6h", "$model": ".*", "$revision": ".*", "$positive": "top"}
    for name, value in variables.items():
        expressions = [expression.replace(name, value) for expression in expressions]
    assert not any("$" in expression for expression in expressions)
    rules = [{"record": f"query:{number}", "expr": expression} for number, expression in enumerate(expressions)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = promtool("check", "rules", "--lint=none", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_query_names_metrics_that_there_are() -> None:
    expressions = [*queries_of_the_dashboard(), *queries_of_the_documentation(), *(alert["expr"] for alert in ALERTS)]
    expressions += [variable["definition"] for variable in DASHBOARD["templating"]["list"]]
    known = documented()
    for expression in expressions:
        for name in re.findall(r"\b(?:candor|process)_\w+", expression):
            assert name in known or _OF_A_HISTOGRAM.sub("", name) in known, f"{name} in {expression}"


def test_the_dashboard_reads_what_is_provisioned() -> None:
    sources = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert [source["uid"] for source in sources] == ["prometheus"]
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert {panel["datasource"]["uid"] for panel in panels} == {"prometheus"}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken)), "panels lie upon each other"
    assert max(x for x, _ in taken) < 24
