"""Processors that a container may use, read from the kernel's files as they look in one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bundle.processors import available_cpus, whole_cpus


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def v2(quota: str, group: str = "") -> dict[str, str]:
    return {"proc/self/cgroup": f"0::/{group}", f"sys/fs/cgroup/{group}/cpu.max".replace("//", "/"): quota}


def v1(quota: str, folder: str) -> dict[str, str]:
    return {
        "proc/self/cgroup": "12:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc",
        f"sys/fs/cgroup/{folder}/cpu.cfs_quota_us": quota,
        f"sys/fs/cgroup/{folder}/cpu.cfs_period_us": "100000",
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, 8, id="no control groups"),
        pytest.param(v2("max 100000"), 8, id="v2 without a quota"),
        pytest.param(v2("200000 100000"), 2, id="v2"),
        pytest.param(v2("50000 100000"), 0.5, id="v2, half a processor"),
        pytest.param(v2("6400000 100000"), 8, id="v2, more than the affinity"),
        pytest.param(v2("300000 100000", "system.slice/candor.service"), 3, id="v2, a group below"),
        pytest.param(
            v2("max 100000", "a/b") | {"sys/fs/cgroup/a/cpu.max": "400000 100000"}, 4, id="v2, a group around"
        ),
        pytest.param(v1("250000", "cpu,cpuacct"), 2.5, id="v1 in a container"),
        pytest.param(v1("250000", "cpu"), 2.5, id="v1 under its short name"),
        pytest.param(v1("150000", "cpu,cpuacct/docker/abc"), 1.5, id="v1 on the host"),
        pytest.param(v1("-1", "cpu,cpuacct"), 8, id="v1 without a quota"),
        pytest.param(v2("nonsense"), 8, id="nonsense"),
    ],
)
def test_the_quota_counts_where_it_is_less_than_the_affinity(
    files: dict[str, str], expected: float, tmp_path: Path
) -> None:
    assert available_cpus(root=write(tmp_path, files), affinity=8) == expected


@pytest.mark.parametrize(
    ("quota", "whole"), [("50000", 1), ("100000", 1), ("200000", 2), ("300000", 3), ("450000", 4), ("max", 8)]
)
def test_a_part_of_a_processor_counts_only_if_it_is_the_only_one(quota: str, whole: int, tmp_path: Path) -> None:
    assert whole_cpus(root=write(tmp_path, v2(f"{quota} 100000")), affinity=8) == whole


def test_a_cpuset_is_the_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert available_cpus() <= 1
    finally:
        os.sched_setaffinity(0, allowed)
