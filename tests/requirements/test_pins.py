"""requirements/pins.py: tags become digests, a moved tag is taken again, and nothing changes where one is not found."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.bundle.test_registry import Registry, registry  # noqa: F401 — a fixture

ROOT = Path(__file__).parents[2]


def pin(env: Path, *names: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "requirements" / "pins.py", "--env", env, *names]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_tags_are_pinned_and_pinned_again(registry: Registry, tmp_path: Path) -> None:  # noqa: F811
    env = tmp_path / ".env"
    image = f"{registry.host}/repo:base"
    env.write_text(f"COMPOSE_PROFILES=cpu\nBASE_IMAGE={image}\nCANDOR_TAG=local\n")
    registry.login = None
    for content in (b"first", b"moved"):
        digest = registry.push("base", registry.layer(content), image=True)
        done = pin(env, "BASE_IMAGE")
        assert done.returncode == 0, done.stderr
        assert env.read_text() == f"COMPOSE_PROFILES=cpu\nBASE_IMAGE={image}@{digest}\nCANDOR_TAG=local\n"
    index = registry.push("base", manifests=[{"digest": digest, "platform": {"architecture": "amd64", "os": "linux"}}])
    assert pin(env, "BASE_IMAGE").returncode == 0
    assert index in env.read_text(), "the digest of all platforms"


def test_nothing_changes_where_an_image_is_not_found(registry: Registry, tmp_path: Path) -> None:  # noqa: F811
    env = tmp_path / ".env"
    registry.push("base", image=True)
    before = f"BASE_IMAGE={registry.host}/repo:base\nNGINX_IMAGE={registry.host}/repo:missing\n"
    env.write_text(before)
    refused = pin(env, "BASE_IMAGE", "NGINX_IMAGE")
    assert (refused.returncode, env.read_text()) == (1, before)
    assert "NGINX_IMAGE" in refused.stderr
    assert pin(env, "CANDOR_IMAGE").returncode == 1


def test_every_image_of_others_can_be_pinned() -> None:
    """In compose.yaml, an image is our own or a variable of this form; in the Dockerfile, it is BASE_IMAGE."""
    images = re.findall(r"^\s+(?:image|BASE_IMAGE): (.+)$", (ROOT / "compose.yaml").read_text(), re.MULTILINE)
    others = [image for image in images if not image.startswith("candor:")]
    assert len(others) >= 6
    assert all(re.fullmatch(r"\$\{\w+_IMAGE:-[^}]+\}", image) for image in others)
    bases = re.findall(r"^FROM (\S+)", (ROOT / "docker/Dockerfile").read_text(), re.MULTILINE)
    assert {base for base in bases if ":" in base or "$" in base} == {"${BASE_IMAGE}"}
