"""`candor bundle`: sign and verify."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from typer.testing import CliRunner

from service.cli import app
from tests.conftest import Digits


def test_a_bundle_is_signed_and_verified(digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = Ed25519PrivateKey.generate()
    (tmp_path / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "trusted.pem").write_bytes(public)
    folder = str(shutil.copytree(digits.bundle.path, tmp_path / "1"))
    run = lambda *words: CliRunner().invoke(app, ["bundle", *words])  # noqa: E731
    unchecked = run("verify", folder)
    assert (unchecked.exit_code, "signatures not checked" in unchecked.output) == (0, True)
    monkeypatch.setenv("CANDOR_TRUSTED_KEYS", str(tmp_path / "trusted.pem"))
    unsigned = run("verify", folder)
    assert (unsigned.exit_code, "candor bundle sign" in unsigned.output) == (2, True)
    signed = run("sign", folder, "--key", str(tmp_path / "key"), "--json")
    verified = run("verify", folder, "--json", "--trusted", public.decode())
    assert (signed.exit_code, verified.exit_code) == (0, 0)
    assert json.loads(verified.output) == json.loads(signed.output)
    for text in (str(tmp_path / "nothing.pem"), "MCowBQYDK2VwAyEA"):
        unreadable = run("verify", folder, "--trusted", text)
        assert (unreadable.exit_code, "CANDOR_TRUSTED_KEYS" in unreadable.output) == (2, True)
