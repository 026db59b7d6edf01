"""Signatures of bundles: Ed25519 over the bundle's id, which covers every file by its digest.

The id is the sha256 of the manifest, and the manifest has the sha256 of every other file. `signatures.json` is beside
the manifest and not part of the bundle: signing changes no id, and several keys may sign. A signature in Sigstore's
format counts as well. Importing the package
`bundle` does not import `cryptography`.

Source: RFC 8032 (Ed25519), RFC 8410 (its keys in PKCS #8 and SubjectPublicKeyInfo).
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from bundle import sigstore
from bundle.errors import BundleDamagedError, SignatureError
from bundle.manifest import SIGNATURES_FILE, SIGSTORE_FILE
from bundle.schema import Frozen, first_problem
from bundle.whole_file import whole_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from bundle.contents import Bundle

MAX_BYTES = 2**16
"""Maximum size of `signatures.json`."""

_ARMOUR = re.compile(r"-----(BEGIN|END) PUBLIC KEY-----")
_NEW_KEY = "openssl genpkey -algorithm ed25519 -out signing.pem; openssl pkey -in signing.pem -pubout"
_KEY = "an Ed25519 key as PEM without a password, such as `openssl genpkey -algorithm ed25519` makes"


class Signature(Frozen):
    """A signature: the id of its key, and its 64 bytes in Base64."""

    key: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    signature: Annotated[str, Field(max_length=88)]


class Signatures(Frozen):
    """The document `signatures.json`: at most one signature for each key."""

    schema_version: Literal[1] = 1
    signatures: Annotated[tuple[Signature, ...], Field(max_length=64)] = ()


class TrustedKeys:
    """Public keys whose signatures are trusted.

    Args:
        text: Public keys (SubjectPublicKeyInfo) as PEM, or their Base64 alone, separated by commas or white space.

    Attributes:
        keys: The keys by id.

    Raises:
        SignatureError: A key cannot be read or is no Ed25519 key, or the text has no key.
    """

    def __init__(self, text: str) -> None:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_der_public_key

        self.keys: dict[str, Ed25519PublicKey] = {}
        for encoded in filter(None, re.split(r"[,\s]+", _ARMOUR.sub(" ", text))):
            try:
                key = load_der_public_key(base64.b64decode(encoded, validate=True))
            except (ValueError, UnsupportedAlgorithm) as error:
                raise SignatureError(
                    "a trusted key cannot be read", found=encoded[:40], expected=f"a public key as PEM: {_NEW_KEY}"
                ) from error
            if not isinstance(key, Ed25519PublicKey):
                raise SignatureError("a trusted key is not an Ed25519 key", found=encoded[:40], expected=_NEW_KEY)
            self.keys[key_id(key)] = key
        if not self.keys:
            raise SignatureError("no trusted key", found="nothing", expected=f"public keys as PEM: {_NEW_KEY}")

    def signer(self, found: Bundle) -> str:
        """Return the id of a trusted key that signed a bundle.

        Raises:
            SignatureError: It is not signed, or by no trusted key.
        """
        from cryptography.exceptions import InvalidSignature

        given = read(found.path)
        for id_ in given.keys() & self.keys.keys():
            try:
                self.keys[id_].verify(given[id_], message(found.id))
            except InvalidSignature:
                continue
            return id_
        if (other := sigstore.read(found.path, found.id)) is not None:
            signed, signature = other
            for id_, key in self.keys.items():
                with suppress(InvalidSignature):
                    key.verify(signature, signed)
                    return id_
        why = "is not signed" if other is None else f"is signed by another key in {SIGSTORE_FILE}"
        if given:
            why = "has a signature of other content" if given.keys() & self.keys.keys() else "is signed by other keys"
        raise SignatureError(
            f"the bundle {why}",
            file=SIGNATURES_FILE,
            found=", ".join(given) or "no signature",
            expected=f"a signature by a trusted key: {', '.join(self.keys)}",
        )


def message(bundle_id: str) -> bytes:
    """Return the bytes that a signature of a bundle is over."""
    return f"candor bundle sha256:{bundle_id}\n".encode()


def key_id(key: Ed25519PublicKey) -> str:
    """Return the id of a public key: the first 16 hex digits of the sha256 of its SubjectPublicKeyInfo."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()[:16]


def read(path: Path) -> Mapping[str, bytes]:
    """Return the signatures in a bundle's folder by the id of their keys, unverified.

    Raises:
        SignatureError: The file is not valid.
    """
    from bundle.reader import read_file

    if not os.path.lexists(path / SIGNATURES_FILE):
        return {}
    try:
        data = read_file(path, SIGNATURES_FILE)
        if len(data) > MAX_BYTES:
            raise SignatureError("too large", file=SIGNATURES_FILE, expected=f"at most {MAX_BYTES} bytes")
        document = Signatures.model_validate_json(data)
        return {one.key: base64.b64decode(one.signature, validate=True) for one in document.signatures}
    except (BundleDamagedError, ValueError) as error:  # of pydantic, or of Base64
        raise SignatureError(f"not valid: {first_problem(error)}", file=SIGNATURES_FILE) from error


def sign(found: Bundle, key: Ed25519PrivateKey, *, as_sigstore: bool = False) -> str:
    """Add a key's signature to a verified bundle, beside those of other keys.

    Args:
        found: The bundle.
        key: The key.
        as_sigstore: Write it in Sigstore's format, in place of the one that is there.

    Returns:
        The id of the key.

    Raises:
        SignatureError: The signatures that are there are not valid.
        OSError: The file cannot be written.
    """
    id_ = key_id(key.public_key())
    if as_sigstore:
        _write(found.path / SIGSTORE_FILE, sigstore.document(found.id, key))
        return id_
    signed = {**read(found.path), id_: key.sign(message(found.id))}
    parts = tuple(Signature(key=name, signature=base64.b64encode(data).decode()) for name, data in signed.items())
    _write(found.path / SIGNATURES_FILE, Signatures(signatures=parts).model_dump_json(indent=2).encode() + b"\n")
    return id_


def _write(path: Path, content: bytes) -> None:
    # Beside the folder, not in it: the file would not belong to the bundle while it is written.
    with whole_file(path, path.parent.parent) as file:
        file.write(content)


def private_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key, PKCS #8 as PEM without a password.

    Raises:
        SignatureError: It cannot be read, or is no Ed25519 key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise SignatureError(f"{path} cannot be read as a private key: {error}", expected=_KEY) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SignatureError(f"{path} is not an Ed25519 key", found=type(key).__name__, expected=_KEY)
    return key
