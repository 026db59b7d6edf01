"""The server that runs a model elsewhere, reached over the Open Inference Protocol (V2)."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlsplit

from pydantic import AfterValidator, Field

from bundle.errors import BundleFormatError
from bundle.manifest import UPSTREAM_FILE
from bundle.schema import Frozen, Sha256, first_problem

_OWN_HEADERS = ("content-", "inference-", "accept-encoding", "connection", "host", "transfer-encoding", "upgrade")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def _address(url: str) -> str:
    parts = urlsplit(url)
    try:
        port = _DEFAULT_PORTS.get(parts.scheme) if parts.port is None else parts.port
    except ValueError:
        port = None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or not port:
        raise ValueError("the address of a server is http:// or https://, then host and port")
    if parts.username is not None or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("the address of a server has no user, password, query or fragment")
    if url.endswith("/") or any(not "!" <= letter <= "~" for letter in url):
        raise ValueError("the address of a server has no slash at its end, no spaces, and ASCII only")
    return url


def _foreign(name: str) -> str:
    if name.lower().startswith(_OWN_HEADERS):
        raise ValueError(f"the header {name!r} belongs to the protocol")
    return name


HEADER_NAME = r"[A-Za-z0-9-]{1,64}"
HeaderName = Annotated[str, Field(pattern=f"^{HEADER_NAME}$"), AfterValidator(_foreign)]
HEADER_VARIABLE = r"CANDOR_HEADER_[A-Z0-9_]{1,64}"


class Upstream(Frozen):
    """Where a model runs, and what it was when the bundle was made.

    Attributes:
        url: Address of the server, before `/v2`.
        model: Name of the model there.
        version: Version that every answer must name; None where the server names none.
        by_version: Whether requests name the version in their path. Without it they go to the version that the server
            chooses, and another version in an answer is a change.
        metadata: sha256 of the model's metadata, see `metadata_digest`.
        binary: Whether the server takes tensors as bytes (`binary_tensor_data`), not as JSON only.
        timeout_s: Seconds that a request may take in all, with its retries.
        retries: Further attempts after a failed connection or an answer with status 503.
        headers: Environment variable that holds the value of each header. Values never enter a bundle.
        on_change: What predictions get when the model there has changed: `refuse` them, or answer and raise an `alarm`.

    Example:
        >>> Upstream(url="http://models:8000", model="churn", version="3", by_version=True, metadata="0" * 64).path
        'http://models:8000/v2/models/churn/versions/3'
    """

    url: Annotated[str, Field(max_length=1000), AfterValidator(_address)]
    model: Annotated[str, Field(min_length=1, max_length=256)]
    version: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    by_version: bool = False
    metadata: Sha256
    binary: bool = True
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 5.0
    retries: Annotated[int, Field(ge=0, le=3)] = 1
    headers: dict[HeaderName, Annotated[str, Field(pattern=f"^{HEADER_VARIABLE}$")]] = Field(default_factory=dict)
    on_change: Literal["refuse", "alarm"] = "refuse"

    @property
    def path(self) -> str:
        """Address of the model's metadata."""
        path = f"{self.url}/v2/models/{quote(self.model, safe='')}"
        return f"{path}/versions/{quote(self.version or '', safe='')}" if self.by_version else path

    def dump(self) -> bytes:
        """Return the bytes of `upstream.json`."""
        return self.model_dump_json(indent=1).encode() + b"\n"

    @classmethod
    def load(cls, data: bytes) -> Upstream:
        """Read `upstream.json`; raises BundleFormatError."""
        try:
            return cls.model_validate(json.loads(data))
        except (ValueError, RecursionError) as error:
            raise BundleFormatError(f"invalid upstream: {first_problem(error)}", file=UPSTREAM_FILE) from error


def metadata_digest(document: dict[str, Any]) -> str:
    """Return the sha256 of a model's metadata without `versions`, since other versions come and go beside the model's.

    >>> metadata_digest({"name": "m", "versions": ["1"]}) == metadata_digest({"versions": ["1", "2"], "name": "m"})
    True
    """
    kept = {key: value for key, value in document.items() if key != "versions"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
