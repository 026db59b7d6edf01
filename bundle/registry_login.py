"""What a registry asks of its clients: a password, or a token that its login service gives."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from pathlib import Path

import httpx

from bundle.errors import RemoteError
from bundle.remote import bounded as bounded_chunks
from bundle.remote import web_answer, web_chunks

USER = "CANDOR_REGISTRY_USER"
PASSWORD = "CANDOR_REGISTRY_PASSWORD"  # noqa: S105 — the name of a variable
_LARGEST = 2**20
_DOCKER_HUB = {"registry-1.docker.io", "docker.io", "index.docker.io"}


def authorization(client: httpx.Client, host: str, challenge: str) -> str:
    """Return the value of the header `Authorization` that a registry asks for.

    Args:
        client: A client for the login service.
        host: Host of the registry, with its port.
        challenge: Its header `WWW-Authenticate`.

    Raises:
        RemoteError: There is no password for it, or its login service gives no token.
    """
    login = _login(host)
    scheme, _, rest = challenge.partition(" ")
    asked = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    if scheme.lower() == "basic" and login is not None:
        return login
    if scheme.lower() != "bearer" or "realm" not in asked:
        raise refused(host, "no password" if login is None else challenge[:100])
    realm = httpx.URL(asked["realm"], params={key: asked[key] for key in ("service", "scope") if key in asked})
    if realm.scheme != "https" and not is_local(realm.host):
        raise RemoteError(f"the registry {host} names an unencrypted login service", found=asked["realm"][:200])
    url = str(realm)
    answer = web_answer(client, url, {} if login is None else {"Authorization": login})
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise refused(host, "a wrong password" if login else "no password")
    try:
        document = json.loads(b"".join(bounded_chunks(web_chunks(answer, url), url, _LARGEST)))
        token = document.get("token") or document["access_token"]
    except (ValueError, LookupError, AttributeError, RecursionError) as error:
        raise RemoteError(f"the login service of the registry {host} gives no token") from error
    return f"Bearer {token}"


def is_local(host: str) -> bool:
    """Return whether a host is this machine, with which passwords and files need no encryption."""
    return host in ("localhost", "127.0.0.1", "::1")


def refused(host: str, found: str) -> RemoteError:
    """Return the error of a registry that refuses its client."""
    return RemoteError(
        f"the registry {host} requires a login",
        found=found,
        expected=f"{USER} and {PASSWORD}, or a password in docker's config.json; credential helpers are not run",
    )


def _login(host: str) -> str | None:
    user, password = os.environ.get(USER), os.environ.get(PASSWORD)
    if user and password:
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    path = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    try:
        entries = json.loads(path.read_bytes()).get("auths") or {}
        names = _DOCKER_HUB if host in _DOCKER_HUB else {host}
        for key, entry in entries.items():
            if key.split("://")[-1].split("/")[0] in names and entry.get("auth"):
                base64.b64decode(entry["auth"], validate=True)
                return f"Basic {entry['auth']}"
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, TypeError, RecursionError, binascii.Error) as error:
        raise RemoteError(f"{path} cannot be read: {type(error).__name__}") from error
    return None
