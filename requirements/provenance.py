"""Write how an image was built: an in-toto statement with SLSA provenance, in a DSSE envelope if there is a key.

    python requirements/provenance.py IMAGE sha256:DIGEST --base REFERENCE@sha256:… [--sbom FILE] [--key PEM] --out FILE

It names the commit, and the digests of what the build reads: Dockerfile, lock file, SBOM, base image. It says what its
author says: this is SLSA's build level 1. Sign it where you build, and check the signature where you deploy.

Source: in-toto Statement v1, SLSA provenance v1, DSSE 1.0.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
READ = (
    "docker/Dockerfile",
    "requirements/lock.txt",
    "requirements/install.py",
    "pyproject.toml",
    "library/pyproject.toml",
)
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


def git(root: Path, *arguments: str) -> str:
    """Return what git says of the repository; end with its message where it fails."""
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 — of our own making
    if done.returncode:
        sys.exit(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def statement(root: Path, image: str, digest: str, base: str, sbom: Path | None) -> dict[str, Any]:
    """Return the statement about an image that was built from the commit in `root`."""
    if dirty := git(root, "status", "--porcelain", "--untracked-files=no"):
        sys.exit(f"The working tree has changes that no commit describes:\n{dirty}")
    commit = git(root, "rev-parse", "HEAD")
    reference, _, of_base = base.partition("@")
    files = {name: root / name for name in READ} | ({} if sbom is None else {"sbom.cdx.json": sbom})
    read = [{"name": name, "digest": {"sha256": sha256_of(file)}} for name, file in files.items()]
    dependencies = [
        {"name": "repository", "digest": {"gitCommit": commit}},
        {"name": reference, "digest": {"sha256": digest_in(of_base, "--base")}},
        *read,
    ]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": image, "digest": {"sha256": digest_in(digest, "the image")}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:candor:docker-build:1",
                "externalParameters": {"dockerfile": "docker/Dockerfile", "BASE_IMAGE": reference},
                "resolvedDependencies": dependencies,
            },
            "runDetails": {
                "builder": {"id": "urn:candor:make-provenance"},
                "metadata": {
                    "invocationId": f"{commit}/{digest}",
                    "finishedOn": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
                },
            },
        },
    }


def digest_in(text: str, what: str) -> str:
    """Return the hexadecimal part of `sha256:…`; end where it is something else."""
    match = _DIGEST.fullmatch(text)
    if match is None:
        sys.exit(f"{what} has no digest: found {text!r}, expected sha256: and 64 hexadecimal digits")
    return match[1]


def sha256_of(file: Path) -> str:
    """Return the digest of a file; end where it cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        sys.exit(f"{file}: {error.strerror}")


def signed(content: bytes, key_file: Path) -> dict[str, Any]:
    """Return the content in a DSSE envelope, signed with an ed25519 key."""
    sys.path.insert(0, str(ROOT))  # the project's own reader of keys
    from bundle import sigstore
    from bundle.errors import SignatureError
    from bundle.signatures import key_id, private_key

    try:
        key = private_key(key_file)
    except SignatureError as error:
        sys.exit(str(error))
    made = key.sign(sigstore.encoded(content))
    signature = {"keyid": key_id(key.public_key()), "sig": base64.b64encode(made).decode()}
    return {"payloadType": sigstore.IN_TOTO, "payload": base64.b64encode(content).decode(), "signatures": [signature]}


def main() -> None:
    """Write the statement."""
    parser = argparse.ArgumentParser(description="Write the provenance of an image.")
    parser.add_argument("image", help="Name of the image.")
    parser.add_argument("digest", help="sha256:… of the image.")
    parser.add_argument("--base", required=True, help="Base image, with @sha256:….")
    parser.add_argument("--sbom", type=Path, help="SBOM of the image.")
    parser.add_argument("--key", type=Path, help="ed25519 key (PEM) that signs the statement.")
    parser.add_argument("--root", type=Path, default=ROOT, help="The repository.")
    parser.add_argument("--out", type=Path, required=True, help="File to write.")
    given = parser.parse_args()
    document = statement(given.root, given.image, given.digest, given.base, given.sbom)
    if given.key is not None:
        document = signed(json.dumps(document, separators=(",", ":")).encode(), given.key)
    given.out.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
