"""A real Prometheus scrapes a real service, and the documented query draws the curve that was."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml

from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

from .test_label_counts import bin_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "metrics.md"


def test_the_reliability_query_gives_the_curve(service: Any, digits: Any, tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI needs prometheus (Debian's package prometheus)")
        pytest.skip("prometheus is not installed")
    document = {
        "positive": "top",
        "bands": [{"action": "accept", "when": {"min_probability": 0.9}}, {"action": "review"}],
        "explore": {"share": 0.5, "actions": ["accept"]},
    }
    revision = service.http.put("/v1/models/digits/policies/explored", json=document).json()["id"]
    service.activate(revision)
    service.predict(digits.images[:1], policy="explored")  # the revision's series begin at 0 labels
    port = free_port()
    job = {"job_name": "candor", "static_configs": [{"targets": [service.url.removeprefix("http://")]}]}
    configuration = {"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"}, "scrape_configs": [job]}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as prometheus:
        try:
            check(f"http://127.0.0.1:{port}", service, digits, revision)
        finally:
            prometheus.terminate()


def check(url: str, service: Any, digits: Any, revision: str) -> None:
    def query(text: str) -> dict[str, float]:
        try:
            answer = httpx.get(f"{url}/api/v1/query", params={"query": text}, timeout=PATIENCE_S)
        except httpx.TransportError:  # it is starting
            return {}
        found = answer.json()["data"]["result"] if answer.status_code == 200 else []  # 503 until its storage is ready
        return {one["metric"].get("bin", ""): float(one["value"][1]) for one in found}

    def shows(text: str, value: float) -> None:
        until(lambda: query(text).get("") == value, lambda: (text, query(text)))

    rows = f'sum(candor_labelled_bin_rows_total{{positive="top",sought="yes",revision="{revision}"}})'
    shows(rows, 0)
    predicted = service.predict(digits.dimmed[:400], policy="explored")
    assert service.runtime.log.flush()
    sought = [
        (row, label) for row, label in zip(predicted, digits.labels, strict=False) if row["decision"]["label_sought"]
    ]
    items = [{"prediction_id": row["prediction_id"], "label": label} for row, label in sought]
    assert service.http.post("/feedback", json={"items": items}).status_code == 200
    shows(rows, len(sought))

    truth: dict[str, list[tuple[float, float, bool]]] = defaultdict(list)
    for row, label in sought:
        weight = 2.0 if row["decision"]["action"] == "accept" else 1.0
        truth[bin_of(row["confidence"])].append((weight, row["confidence"], row["label"] == label))
    assert len(truth) > 4
    [block] = re.findall(r"```promql\n(.*?)```", PAGE.read_text(), re.DOTALL)[:1]
    confidence, right = re.split(r"\n(?=sum)", block.replace("[1d]", "[1h]"))
    at, seen = query(confidence), query(right)
    assert set(at) == set(seen) == set(truth)
    for name, of_bin in truth.items():
        weights, scores, hits = (np.array(column, float) for column in zip(*of_bin, strict=True))
        assert at[name] == pytest.approx((weights * scores).sum() / weights.sum(), rel=1e-4)
        assert seen[name] == pytest.approx((weights * hits).sum() / weights.sum(), rel=1e-4)
