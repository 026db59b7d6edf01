"""What a container may use, as the kernel's files say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bundle.control_groups import free_memory

GI = 2**30


def kernel(root: Path, group: str, files: dict[str, object]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(f"{group}\n")
    for name, value in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return root


@pytest.mark.parametrize(
    ("group", "files", "free"),
    [
        ("0::/", {"memory.max": 4 * GI, "memory.current": 3 * GI, "memory.stat": f"x 9\ninactive_file {GI}"}, 2 * GI),
        ("0::/", {"memory.max": "max", "memory.current": GI}, None),
        ("0::/", {"memory.max": GI, "memory.current": 2 * GI}, 0),
        (
            "0::/pod/one",
            {
                "pod/memory.max": 3 * GI,
                "pod/memory.current": 2 * GI,
                "pod/one/memory.max": 4 * GI,
                "pod/one/memory.current": GI,
            },
            GI,
        ),
        (
            "4:memory:/docker/x",
            {"memory/memory.limit_in_bytes": 2 * GI, "memory/memory.usage_in_bytes": GI},
            GI,
        ),
        (
            "4:memory:/",
            {"memory/memory.limit_in_bytes": 9_223_372_036_854_771_712, "memory/memory.usage_in_bytes": GI},
            None,
        ),
        ("", {}, None),
    ],
    ids=["version 2", "no limit", "over it", "the parent's", "version 1", "no limit in version 1", "no groups"],
)
def test_what_is_free(tmp_path: Path, group: str, files: dict[str, object], free: int | None) -> None:
    if not group:
        assert free_memory(tmp_path) is None
        return
    assert free_memory(kernel(tmp_path, group, files)) == free
