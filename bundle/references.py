"""References to models and bundles: a path or a URL, and the digest that it is pinned to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from bundle.errors import BundleError

_PINNED = re.compile(r"(.+)@sha256:([0-9a-f]{64})", re.DOTALL)
OCI = "oci://"
MLFLOW = "models:/"
_ARTIFACT = re.compile(
    r"oci://(?P<host>(?:[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?)"
    r"/(?P<repository>[a-z0-9]+(?:(?:[._/]|__|-+)[a-z0-9]+)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@sha256:(?P<sha256>[0-9a-f]{64}))?"
)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://")
_USER = re.compile(r"(?<=://)[^/]*@")


@dataclass(frozen=True)
class Reference:
    """A path or URL, and the digest that it is pinned to.

    Attributes:
        address: The path or URL.
        sha256: Digest of what it must name, hex; None if it is not pinned. The digest of an artifact in a registry
            (`oci://`), which is that of its manifest, is part of the address instead.

    Example:
        >>> Reference.parse("s3://models/digits/3@sha256:" + 64 * "0").address
        's3://models/digits/3'
    """

    address: str
    sha256: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `ADDRESS` or `ADDRESS@sha256:DIGEST`.

        Raises:
            BundleError: The digest is not valid, the URL contains a password or several file systems, or an artifact
                has neither a tag nor a digest.
        """
        if text.startswith(OCI):
            oci_parts(text)
            return cls(text)
        pinned = _PINNED.fullmatch(text)
        if pinned is None and "@sha256:" in text:
            raise BundleError("not a valid digest", found=text.rpartition("@")[2], expected="sha256: and 64 hex digits")
        found = cls(text) if pinned is None else cls(pinned[1], pinned[2])
        if found.is_url:
            _check(found.address)
        return found

    @property
    def is_url(self) -> bool:
        """Whether the address is a URL, or names a version in MLflow's registry."""
        return self.address.startswith(MLFLOW) or _SCHEME.match(self.address) is not None

    @property
    def shown(self) -> str:
        """The address without what may be secret; see the function `shown`."""
        return shown(self.address)


def shown(address: str) -> str:
    """Return an address without its query, which may hold a signature, and without user and password.

    Example:
        >>> shown("https://me:secret@models.example/m.onnx?token=1")
        'https://***@models.example/m.onnx'
    """
    return without_user(address).partition("?")[0]


def without_user(address: str) -> str:
    """Return a URL with `***` in place of user and password, any other text unchanged."""
    return _USER.sub("***@", address)


def _check(url: str) -> None:
    if "::" in url:
        raise BundleError(f"{shown(url)} names several file systems", expected="one URL")
    if urlsplit(url).password is not None:
        raise BundleError(
            "the URL contains a password",
            expected="credentials in the environment or files of the file system's package",
        )


def oci_parts(address: str) -> tuple[str, str, str | None, str | None]:
    """Return host, repository, tag and digest of an artifact in a registry, at least one of the last two.

    Raises:
        BundleError: It is not the address of an artifact.

    Example:
        >>> oci_parts("oci://registry.example:5000/models/fraud:3")
        ('registry.example:5000', 'models/fraud', '3', None)
    """
    found = _ARTIFACT.fullmatch(address)
    if found is None or (found["tag"] is None and found["sha256"] is None):
        raise BundleError(
            "not the address of an artifact",
            found=shown(address.rpartition("@")[2] if "@" in address else address)[:200],
            expected="oci://HOST/REPOSITORY:TAG or oci://HOST/REPOSITORY@sha256:DIGEST",
        )
    return found["host"], found["repository"], found["tag"], found["sha256"]
