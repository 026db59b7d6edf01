"""Signatures of bundles in Sigstore's format: an in-toto statement about the manifest, signed by a key.

The statement is in a DSSE envelope: of the two contents that the format has, this is the one whose Ed25519 signatures
readers verify. Entries of a transparency log and time stamps are not read: trust in the key makes them unnecessary.

Source: Sigstore bundle format v0.3 (sigstore/protobuf-specs, sigstore_bundle.proto), DSSE 1.0, in-toto Statement v1.
"""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from bundle.errors import BundleDamagedError, SignatureError
from bundle.manifest import MANIFEST_FILE, SIGSTORE_FILE

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MAX_BYTES = 2**16
"""Maximum size of the file."""

IN_TOTO = "application/vnd.in-toto+json"
"""Type of a statement in an envelope."""

_Text = Annotated[str, Field(max_length=MAX_BYTES)]


class _Part(BaseModel):
    """A part of the format, which others may extend."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, validate_by_name=True)


class _PublicKey(_Part):
    hint: _Text = ""


class _Material(_Part):
    public_key: _PublicKey


class _Signature(_Part):
    sig: _Text


class _Envelope(_Part):
    payload: _Text
    payload_type: Literal["application/vnd.in-toto+json"] = "application/vnd.in-toto+json"
    signatures: Annotated[tuple[_Signature, ...], Field(min_length=1, max_length=1)]


class _Document(_Part):
    media_type: Literal[
        "application/vnd.dev.sigstore.bundle.v0.3+json", "application/vnd.dev.sigstore.bundle+json;version=0.3"
    ] = "application/vnd.dev.sigstore.bundle.v0.3+json"
    verification_material: _Material
    dsse_envelope: _Envelope


class _Subject(_Part):
    name: str
    digest: dict[str, str]


class _Statement(_Part):
    # Of this type alone: the same key may say other things of a manifest, such as that a review refused it.
    type: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")] = (
        "https://in-toto.io/Statement/v1"
    )
    subject: Annotated[tuple[_Subject, ...], Field(min_length=1, max_length=1)]
    predicate_type: Literal["urn:candor:bundle:1"] = "urn:candor:bundle:1"
    predicate: dict[str, Any] = {}


def read(path: Path, bundle_id: str) -> tuple[bytes, bytes] | None:
    """Return what is signed in a bundle's folder, and the signature, unverified; None if there is no such file.

    Args:
        path: The bundle's folder.
        bundle_id: Its id, the sha256 of its manifest.

    Raises:
        SignatureError: The file is not valid, not by a key, or about something else.
    """
    from bundle.reader import read_file

    if not os.path.lexists(path / SIGSTORE_FILE):
        return None
    try:
        data = read_file(path, SIGSTORE_FILE)
        if len(data) > MAX_BYTES:
            raise SignatureError("too large", file=SIGSTORE_FILE, expected=f"at most {MAX_BYTES} bytes")
        envelope = _Document.model_validate_json(data).dsse_envelope
        payload = base64.b64decode(envelope.payload, validate=True)
        signature = base64.b64decode(envelope.signatures[0].sig, validate=True)
        digest = _Statement.model_validate_json(payload).subject[0].digest.get("sha256")
    except (BundleDamagedError, ValueError) as error:  # of pydantic, or of Base64
        raise SignatureError(
            f"not a signature of a bundle by a key: {error}",
            file=SIGSTORE_FILE,
            expected="a Sigstore bundle v0.3 with a public key and an in-toto statement urn:candor:bundle:1",
        ) from error
    if digest != bundle_id:
        raise SignatureError("a signature of other content", file=SIGSTORE_FILE, found=digest, expected=bundle_id)
    return encoded(payload), signature


def document(bundle_id: str, key: Ed25519PrivateKey) -> bytes:
    """Return the file that says that a key has signed a bundle."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    statement = _Statement(subject=(_Subject(name=MANIFEST_FILE, digest={"sha256": bundle_id}),))
    payload = statement.model_dump_json(by_alias=True).encode()
    signature = _Signature(sig=_base64(key.sign(encoded(payload))))
    made = _Document(
        verification_material=_Material(public_key=_PublicKey(hint=_base64(hashlib.sha256(public).digest()))),
        dsse_envelope=_Envelope(payload=_base64(payload), signatures=(signature,)),
    )
    return made.model_dump_json(by_alias=True, indent=2).encode() + b"\n"


def encoded(payload: bytes) -> bytes:
    """Return the bytes that are signed for a statement in an envelope (DSSE's pre-authentication encoding)."""
    return b"DSSEv1 %d %s %d %s" % (len(IN_TOTO), IN_TOTO.encode(), len(payload), payload)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
