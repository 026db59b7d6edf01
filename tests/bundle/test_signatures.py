"""Signatures of bundles: what they cover, whose count, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

import bundle as bundles
from bundle import signatures
from bundle.errors import SignatureError
from bundle.signatures import TrustedKeys
from tests.conftest import Digits


def pem(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@pytest.fixture
def copied(digits: Digits, tmp_path: Path) -> Path:
    return Path(shutil.copytree(digits.bundle.path, tmp_path / "digits" / "1"))


@pytest.fixture
def old() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes(32))


@pytest.fixture
def new() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([1] * 32))


def test_signing_changes_no_id_and_keys_are_rotated(
    copied: Path, old: Ed25519PrivateKey, new: Ed25519PrivateKey
) -> None:
    before = bundles.verify(copied)
    first, second = signatures.sign(before, old), signatures.sign(before, new)
    found = bundles.verify(copied)
    assert found.id == before.id
    assert TrustedKeys(pem(old)).signer(found) == first
    assert TrustedKeys(pem(new)).signer(found) == second
    assert TrustedKeys(pem(new) + pem(old)).signer(found) in (first, second)
    body = "".join(pem(new).splitlines()[1:-1])
    assert list(TrustedKeys(f"{body}, {body}").keys) == [second]
    assert [path.name for path in copied.parent.iterdir()] == ["1"]


def test_a_bundle_without_a_trusted_signature_is_named(
    copied: Path, old: Ed25519PrivateKey, new: Ed25519PrivateKey
) -> None:
    found, trusted = bundles.verify(copied), TrustedKeys(pem(old))
    with pytest.raises(SignatureError, match="is not signed"):
        trusted.signer(found)
    other = signatures.sign(found, new)
    with pytest.raises(SignatureError, match="signed by other keys") as caught:
        trusted.signer(found)
    assert caught.value.found == other
    assert str(*trusted.keys) in str(caught.value.expected)


def test_a_signature_belongs_to_one_bundle(copied: Path, old: Ed25519PrivateKey, tmp_path: Path) -> None:
    signatures.sign(bundles.verify(copied), old)
    other = bundles.write(tmp_path / "other", _contents(copied))
    shutil.copy(copied / "signatures.json", other)
    with pytest.raises(SignatureError, match="signature of other content"):
        TrustedKeys(pem(old)).signer(bundles.verify(other))


def _contents(folder: Path) -> bundles.BundleContents:
    """Return what would make another bundle with the same files, but for its report."""
    from tests.service.conftest import contents

    return contents(bundles.verify(folder), report={"another": True})


@pytest.mark.parametrize("text", ["{", '{"signatures": [{"key": "x", "signature": ""}]}', "[" * 70_000])
def test_signatures_that_cannot_be_read_are_refused(copied: Path, old: Ed25519PrivateKey, text: str) -> None:
    (copied / "signatures.json").write_text(text)
    with pytest.raises(SignatureError, match=r"signatures\.json"):
        TrustedKeys(pem(old)).signer(bundles.verify(copied))


def test_only_ed25519_keys_sign(tmp_path: Path) -> None:
    for other in (Ed448PrivateKey.generate(), generate_private_key(SECP256R1())):
        (tmp_path / "key").write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        with pytest.raises(SignatureError, match="not an Ed25519 key"):
            signatures.private_key(tmp_path / "key")
        public = other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        with pytest.raises(SignatureError):
            TrustedKeys(public)
    for text in ("", "-----BEGIN PUBLIC KEY-----\nnothing\n-----END PUBLIC KEY-----"):
        with pytest.raises(SignatureError):
            TrustedKeys(text)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_openssl_agrees(copied: Path, tmp_path: Path) -> None:
    """A key that openssl makes signs, and openssl verifies the signature."""
    run = lambda *words: subprocess.run(["openssl", *words], check=True, cwd=tmp_path, capture_output=True)  # noqa: E731
    run("genpkey", "-algorithm", "ed25519", "-out", "signing.pem")
    run("pkey", "-in", "signing.pem", "-pubout", "-out", "public.pem")
    found = bundles.verify(copied)
    signer = signatures.sign(found, signatures.private_key(tmp_path / "signing.pem"))
    assert TrustedKeys((tmp_path / "public.pem").read_text()).signer(found) == signer
    (tmp_path / "signed").write_bytes(f"candor bundle sha256:{found.id}\n".encode())
    (tmp_path / "signature").write_bytes(signatures.read(copied)[signer])
    answer = run(
        *("pkeyutl", "-verify", "-pubin", "-inkey", "public.pem", "-rawin", "-in", "signed", "-sigfile", "signature")
    )
    assert b"Verified Successfully" in answer.stdout
