"""Signed heads of the audit log's chain: what is exported, and compared with the log later."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from bundle.errors import SignatureError
from bundle.signatures import TrustedKeys, key_id, private_key
from candor.contract.audit import AuditHead
from service.errors import ConfigurationError
from service.state.audit_chain import Head
from service.state.database import now_us
from service.times import iso

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

WHERE = "CANDOR_AUDIT_KEY_FILE"
_PURPOSE = b"candor-audit-head-1\n"


def key_of(file: Path | None) -> Ed25519PrivateKey:
    """Return the key that signs heads.

    Raises:
        ConfigurationError: No file is given, or it holds no such key.
    """
    if file is None:
        raise ConfigurationError(
            "Heads of the audit log require a key that signs them.",
            where=WHERE,
            found="nothing",
            expected="a file with an ed25519 key",
            remedy="openssl genpkey -algorithm ed25519 -out audit.pem, outside the database and its backups",
        )
    try:
        return private_key(file)
    except SignatureError as error:
        raise ConfigurationError(str(error), where=WHERE) from error


def signed(head: Head, key: Ed25519PrivateKey) -> AuditHead:
    """Return a head with its signature and the time."""
    document = AuditHead(
        type="audit.head",
        at=iso(now_us()),
        position=head.position,
        entry=head.entry,
        head=head.head.hex(),
        key=key_id(key.public_key()),
        signature="",
    )
    return document.model_copy(update={"signature": base64.b64encode(key.sign(_message(document))).decode()})


def read_heads(file: Path, key_file: Path) -> Iterator[tuple[int, bytes, str]]:
    """Yield position, head and name of each head in a file: JSON lines, or lines of syslog that end in JSON.

    Args:
        file: The file.
        key_file: File with the public keys (PEM) of the signatures.

    Raises:
        ConfigurationError: A file cannot be read, a line with a head is not signed with one of the keys, or
            there is none.
    """
    from cryptography.exceptions import InvalidSignature

    try:
        keys = TrustedKeys(key_file.read_text(encoding="utf-8")).keys
        lines = file.read_text(encoding="utf-8").splitlines()
    except (SignatureError, OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The heads in {file} cannot be checked: {error}", where=str(file)) from error
    found = 0
    for number, line in enumerate(lines, 1):
        if '"audit.head"' not in line:
            continue
        name = f"{file}:{number}"
        try:
            head = AuditHead.model_validate_json(line[line.index("{") :])
            signature, digest = base64.b64decode(head.signature, validate=True), bytes.fromhex(head.head)
        except (ValidationError, ValueError) as error:
            raise ConfigurationError(f"{name} is not a head of an audit log.", where=name) from error
        try:
            if (key := keys.get(head.key)) is None:
                raise InvalidSignature  # noqa: TRY301 — said as that of another key
            key.verify(signature, _message(head))
        except InvalidSignature:
            raise ConfigurationError(
                f"{name} is not signed with the key in {key_file}.",
                where=name,
                found=f"a head signed with the key {head.key}",
                expected=f"the key {', '.join(keys)}",
                remedy="Add the public key of that time to the file; if it is there, the line was changed.",
            ) from None
        found += 1
        yield head.position, digest, name
    if not found:
        raise ConfigurationError(f"{file} holds no head of an audit log.", where=str(file), found=f"{len(lines)} lines")


def _message(head: AuditHead) -> bytes:
    document = head.model_dump(mode="json", exclude={"signature"})
    return _PURPOSE + json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
