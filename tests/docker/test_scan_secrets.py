"""docker/scan-secrets finds what it is for in files and in layers of an image, and nothing in the build context."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import secrets
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from service.state.database import Database
from service.state.keys import KeyStore

SCRIPT = Path(__file__).parents[2] / "docker" / "scan-secrets"
# Put together here, so that this file does not look as if it held any.
PLANTED = {
    "private key": "-----BEGIN RSA PRIVATE " + f"KEY-----\n{base64.b64encode(bytes(range(96))).decode()}\n",
    "AWS key": "AKIA" + "ABCDEFGHIJKLMNOP",
    "GitHub token": "ghp_" + "a1B2" * 9,
    "GitLab token": "glpat-" + "a1B2c" * 4,
    "Slack token": "xoxb-" + "123456789012-" * 2,
    "Google key": "AIza" + "a1B2c" * 7,
    "package index token": "pypi-AgEIcHlwaS5vcmc" + "a1B2c" * 12,
    "JSON web token": ".".join(["eyJhbGciOiJIUzI1NiJ9", "eyJzdWIiOiJzb21lYm9keSJ9", "a1B2c" * 6]),
    "address with a password": "postgresql://candor:" + "correct-horse-9@db/candor",
    "assigned secret": 'API_KEY = "' + 'a1B2c3D4e5F6g7H8"',
}


def scan(*arguments: str | Path, image: bytes | None = None) -> tuple[int, str]:
    done = subprocess.run([sys.executable, SCRIPT, *arguments], input=image, capture_output=True, check=False)
    assert not done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode()


def tar(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def image(*layers: bytes, env: tuple[str, ...] = ("PATH=/bin",), steps: tuple[str, ...] = ()) -> bytes:
    """What `docker save` writes, in the form that both generations of it share as far as this script cares."""
    configuration = {"config": {"Env": list(env)}, "history": [{"created_by": step} for step in steps]}
    blobs = {f"blobs/sha256/{number:064x}": layer for number, layer in enumerate(layers)}
    return tar(blobs | {"blobs/sha256/config": json.dumps(configuration).encode(), "manifest.json": b"[]"})


def test_what_the_images_are_built_from_holds_no_secret() -> None:
    assert scan() == (0, "no secret found\n")


@pytest.mark.parametrize("kind", PLANTED)
def test_each_kind_is_found_and_not_repeated(kind: str, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "settings.py").write_text(f"# settings\nvalue = 1\n{PLANTED[kind]}\n")
    status, said = scan(tmp_path)
    assert status == 1
    assert f"settings.py:3: {kind} (" in said
    assert PLANTED[kind] not in said


def test_a_key_of_the_service_itself_is_found(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/state/state.db")
    _, text = KeyStore(database).create("ops", ["admin"])
    database.close()
    (tmp_path / "notes.txt").write_text(f"curl -H 'Authorization: Bearer {text}'")
    status, said = scan(tmp_path / "notes.txt")
    assert (status, "Candor key" in said, text in said) == (1, True, False)
    assert "state.db: a file of this name holds secrets or state" in scan(tmp_path / "state")[1]


@pytest.mark.parametrize("name", [".env", ".netrc", "id_ed25519", "server.key", ".bash_history", "credentials.json"])
def test_files_that_hold_secrets_are_known_by_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    assert scan(tmp_path)[0] == 1


def test_what_documentation_writes_is_no_secret(tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text(
        'postgresql://user:password@host/name, password = "…", -----BEGIN PRIVATE KEY-----, cnd_<prefix>_<random>, '
        f'"api_key": "the-key-goes-here", digest = "{secrets.token_hex(32)}"'
    )
    assert scan(tmp_path) == (0, "no secret found\n")


@pytest.mark.parametrize("packed", [False, True])
def test_a_layer_gives_away_what_a_later_one_deletes(packed: bool) -> None:
    first = tar(
        {"root/.profile": f"export X={PLANTED['GitHub token']}\n".encode(), "big": secrets.token_bytes(3 << 20)}
    )
    second = tar({"root/.wh..profile": b""})
    status, said = scan("--image", "-", image=image(gzip.compress(first) if packed else first, second))
    assert (status, said.count("\n")) == (1, 2)
    assert ":/root/.profile:1: GitHub token (ghp_" in said


@pytest.mark.parametrize("packed", [False, True])
def test_layers_of_the_base_are_left_out_by_their_digests(packed: bool) -> None:
    base, own = (tar({name: PLANTED["GitHub token"].encode()}) for name in ("base.txt", "own.txt"))
    digest = f"sha256:{hashlib.sha256(base).hexdigest()}"  # of what is unpacked, as in the image's configuration
    status, said = scan("--image", "-", digest, image=image(gzip.compress(base) if packed else base, own))
    assert (status, "base.txt" in said, "own.txt" in said) == (1, False, True)


def test_the_configuration_of_an_image_is_read() -> None:
    status, said = scan("--image", "-", image=image(tar({"etc/hosts": b""}), env=("CANDOR_API_KEY=anything",)))
    assert (status, "the image sets CANDOR_API_KEY" in said) == (1, True)
    assert (
        scan("--image", "-", image=image(steps=(f"RUN pip install --index-url {PLANTED['address with a password']}",)))[
            0
        ]
        == 1
    )
    clean = image(tar({"etc/hosts": b"127.0.0.1 localhost"}), steps=("RUN pip install candor",))
    assert scan("--image", "-", image=clean) == (0, "no secret found\n")


@pytest.mark.parametrize(
    "layers", [(), (b"\x28\xb5\x2f\xfd" + bytes(99),), (gzip.compress(tar({"a": secrets.token_bytes(9999)}))[:5000],)]
)
def test_what_cannot_be_read_is_no_clean_image(layers: tuple[bytes, ...]) -> None:
    status, said = scan("--image", "-", image=image(*layers))
    assert status == 1
    assert "cannot be read" in said or "holds no layer" in said
