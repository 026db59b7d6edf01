"""requirements/provenance.py: the statement names what the image was built from, and nobody else's key verifies."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "requirements" / "provenance.py"
READ = (
    "docker/Dockerfile",
    "requirements/lock.txt",
    "requirements/install.py",
    "pyproject.toml",
    "library/pyproject.toml",
)
IMAGE, BASE = f"sha256:{'a' * 64}", f"python:3.11@sha256:{'b' * 64}"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    for name in READ:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    own = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run(["git", "-C", str(folder), *own, *command], check=True)
    return folder


def write(repository: Path, out: Path, *more: str | Path, image: str = IMAGE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, "candor:local", image, "--base", BASE, "--root", repository, "--out", out, *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_statement_names_image_commit_and_what_was_read(repository: Path, tmp_path: Path) -> None:
    sbom = tmp_path / "sbom"
    sbom.write_text("{}")
    assert write(repository, tmp_path / "out", "--sbom", sbom).returncode == 0
    document = json.loads((tmp_path / "out").read_text())
    assert document["subject"] == [{"name": "candor:local", "digest": {"sha256": "a" * 64}}]
    definition = document["predicate"]["buildDefinition"]
    found = {one["name"]: one["digest"] for one in definition["resolvedDependencies"]}
    head = subprocess.run(["git", "-C", repository, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    files = {name: {"sha256": hashlib.sha256((ROOT / name).read_bytes()).hexdigest()} for name in READ}
    files["sbom.cdx.json"] = {"sha256": hashlib.sha256(b"{}").hexdigest()}
    base = {"python:3.11": {"sha256": "b" * 64}}
    assert found == {"repository": {"gitCommit": head.stdout.strip()}} | base | files


def test_a_signed_statement_verifies_with_its_key_alone(repository: Path, tmp_path: Path) -> None:
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    file = tmp_path / "key.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    done = write(repository, tmp_path / "out", "--key", file)
    assert done.returncode == 0, done.stderr
    envelope = json.loads((tmp_path / "out").read_text())
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"]
    encoded = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    signature = base64.b64decode(envelope["signatures"][0]["sig"])
    key.public_key().verify(signature, encoded)
    for public, message in ((other, encoded), (key, encoded.replace(b"aaaa", b"aaab", 1))):
        with pytest.raises(InvalidSignature):
            public.public_key().verify(signature, message)


def test_what_no_commit_describes_is_refused(repository: Path, tmp_path: Path) -> None:
    assert "no digest" in write(repository, tmp_path / "out", image="candor:local").stderr
    (repository / "requirements/lock.txt").write_text("other")
    refused = write(repository, tmp_path / "out")
    assert refused.returncode == 1
    assert "requirements/lock.txt" in refused.stderr
    assert not (tmp_path / "out").exists()
