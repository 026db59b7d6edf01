"""Signatures of bundles: what they cover, whose count, and what is refused."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

import bundle as bundles
from bundle import signatures, sigstore
from bundle.errors import SignatureError
from bundle.manifest import SIGSTORE_FILE
from bundle.signatures import TrustedKeys
from tests.conftest import Digits

NPM = [Path(folder, "npm/node_modules") for folder in ("/usr/lib/node_modules", "/usr/local/lib/node_modules")]


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


READER = """
const fs = require("fs"), crypto = require("crypto"), [npm, file, artifact, ...keys] = process.argv.slice(1);
const { toSignedEntity, Verifier, toTrustMaterial } = require(npm + "/@sigstore/verify");
const { bundleFromJSON } = require(npm + "/@sigstore/bundle");
const known = new Map(keys.map((pem) => {
  const key = crypto.createPublicKey(pem), der = key.export({ type: "spki", format: "der" });
  return [crypto.createHash("sha256").update(der).digest("base64"), { publicKey: key, validFor: () => true }];
}));
const nobody = { certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [] };
const root = { ...nobody, publicKey: (hint) => known.get(hint) };
const bundle = bundleFromJSON(JSON.parse(fs.readFileSync(file))), content = fs.readFileSync(artifact);
const digest = crypto.createHash("sha256").update(content).digest("hex"), entity = toSignedEntity(bundle, content);
if (JSON.parse(bundle.content.dsseEnvelope.payload).subject[0].digest.sha256 !== digest) throw "another manifest";
new Verifier(root, { tlogThreshold: 0, ctlogThreshold: 0, timestampThreshold: 0 }).verify(entity);
"""


def test_a_sigstore_bundle_is_a_signature(
    copied: Path, old: Ed25519PrivateKey, new: Ed25519PrivateKey, tmp_path: Path
) -> None:
    before = bundles.verify(copied)
    signed_by = signatures.sign(before, old, as_sigstore=True)
    found = bundles.verify(copied)
    assert (found.id, TrustedKeys(pem(new) + pem(old)).signer(found)) == (before.id, signed_by)
    with pytest.raises(SignatureError, match="signed by another key"):
        TrustedKeys(pem(new)).signer(found)
    other = bundles.write(tmp_path / "other", _contents(copied))
    shutil.copy(copied / SIGSTORE_FILE, other)
    with pytest.raises(SignatureError, match="other content"):
        TrustedKeys(pem(old)).signer(bundles.verify(other))
    payload = base64.b64decode(json.loads((other / SIGSTORE_FILE).read_text())["dsseEnvelope"]["payload"])
    for changed in (payload.replace(before.id.encode(), bundles.verify(other).id.encode()), payload[:-1] + b" }"):
        write_payload(copied if changed.endswith(b" }") else other, changed, copied)
        with pytest.raises(SignatureError, match="another key"):
            TrustedKeys(pem(old)).signer(bundles.verify(copied if changed.endswith(b" }") else other))


def write_payload(folder: Path, payload: bytes, signed: Path) -> None:
    """Put a payload under the signature of another."""
    document = json.loads((signed / SIGSTORE_FILE).read_text())
    document["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    (folder / SIGSTORE_FILE).write_text(json.dumps(document))


def test_another_statement_of_a_trusted_key_does_not_count(copied: Path, old: Ed25519PrivateKey) -> None:
    """A key that says of a bundle that it was refused has not approved it."""
    signatures.sign(bundles.verify(copied), old, as_sigstore=True)
    document = json.loads((copied / SIGSTORE_FILE).read_text())
    payload = base64.b64decode(document["dsseEnvelope"]["payload"]).replace(b"urn:candor:bundle:1", b"urn:refused:1")
    document["dsseEnvelope"] |= {
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"sig": base64.b64encode(old.sign(sigstore.encoded(payload))).decode()}],
    }
    (copied / SIGSTORE_FILE).write_text(json.dumps(document))
    with pytest.raises(SignatureError, match="predicateType"):
        TrustedKeys(pem(old)).signer(bundles.verify(copied))


def test_another_reader_of_sigstore_bundles_verifies_ours(
    copied: Path, old: Ed25519PrivateKey, new: Ed25519PrivateKey
) -> None:
    npm = next((path for path in NPM if (path / "@sigstore/verify").is_dir()), None)
    if npm is None:
        pytest.skip("npm, which has a reader of Sigstore bundles, is not installed")
    signatures.sign(bundles.verify(copied), old, as_sigstore=True)

    def read(key: Ed25519PrivateKey) -> subprocess.CompletedProcess[str]:
        files = [copied / SIGSTORE_FILE, copied / "manifest.json"]
        return subprocess.run(
            ["node", "-e", READER, npm, *files, pem(key)], capture_output=True, text=True, check=False
        )

    assert (done := read(old)).returncode == 0, done.stderr
    assert read(new).returncode != 0
    with (copied / "manifest.json").open("a") as manifest:
        manifest.write(" ")
    assert read(old).returncode != 0


@pytest.mark.parametrize(
    "document",
    [
        "{",
        "[" * 70_000,
        {"verificationMaterial": {"certificate": {"rawBytes": ""}}},
        {"messageSignature": {"signature": ""}, "dsseEnvelope": None},
        {"mediaType": "application/vnd.dev.sigstore.bundle+json;version=0.1"},
        {"dsseEnvelope": {"payload": "é", "signatures": [{"sig": ""}]}},
    ],
)
def test_other_sigstore_bundles_are_refused(copied: Path, old: Ed25519PrivateKey, document: object) -> None:
    signatures.sign(bundles.verify(copied), old, as_sigstore=True)
    file = copied / SIGSTORE_FILE
    file.write_text(document if isinstance(document, str) else json.dumps(json.loads(file.read_text()) | document))
    with pytest.raises(SignatureError, match=r"sigstore\.json"):
        TrustedKeys(pem(old)).signer(bundles.verify(copied))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"signatures": [{"key": "x", "signature": ""}]}',
        '{"signatures": [{"key": "0123456789abcdef", "signature": "é"}]}',
        "[" * 70_000,
    ],
)
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
