"""An OpenID provider over real HTTP: it signs with real keys, rotates them, goes away, and lies."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import ssl
import threading
import time
from collections import Counter
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.waiting import PATIENCE_S

CLIENT, AUDIENCE = "candor-dashboard", "candor-api"
CALLBACK = "http://localhost:9/dashboard/login/callback"


class Key:
    """A private key with its name and algorithm."""

    def __init__(self, name: str, private: Any, algorithm: str) -> None:
        self.name, self.private, self.algorithm = name, private, algorithm

    @property
    def public(self) -> dict[str, Any]:
        kind: Any = RSAAlgorithm if self.algorithm.startswith(("RS", "PS")) else ECAlgorithm
        document = json.loads(kind.to_jwk(self.private.public_key()))
        return document | {"kid": self.name, "alg": self.algorithm, "use": "sig"}


@cache
def rsa_key(name: str) -> Key:
    """A key of 2048 bits, made once for all tests."""
    return Key(name, rsa.generate_private_key(public_exponent=65537, key_size=2048), "RS256")


@cache
def ec_key(name: str) -> Key:
    return Key(name, ec.generate_private_key(ec.SECP256R1()), "ES256")


class IdentityProvider:
    """A provider on a port of this machine, with one person at a time before it.

    Attributes:
        keys: What it publishes; the first one signs.
        person: Claims of the person who logs in.
        callback: Where it sends browsers.
        lies: Claims that it adds to ID tokens instead of the true ones.
        discovery: Fields of its discovery document instead of the true ones.
        away: Whether it closes every connection without an answer.
        answers: Cleared while it answers nobody and closes no connection.
        trickles: Whether it sends its answers a byte at a time.
        forgets: Whether it takes a code more than once.
        secret: What its client must send; None for a public client.
        asked: How often each path was asked for.
    """

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self.keys = [rsa_key("first"), ec_key("second")]
        ana = {"sub": "u-ana", "email": "ana@bank.example", "email_verified": True}
        self.person: dict[str, Any] = ana | {"groups": ["ops"]}
        self.callback = CALLBACK
        self.lies: dict[str, Any] = {}
        self.discovery: dict[str, Any] = {}
        self.away = self.forgets = self.trickles = False
        self.answers = threading.Event()
        self.answers.set()
        self.secret: str | None = None
        self.asked: Counter[str] = Counter()
        self._codes: dict[str, dict[str, str]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider._answer(self, "")

            def do_POST(self) -> None:
                provider._answer(self, self.rfile.read(int(self.headers["content-length"])).decode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.issuer = f"http{'' if certificate is None else 's'}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def claims(self, audience: str, **changes: Any) -> dict[str, Any]:
        """What a token of the person says; a change to None leaves a claim out."""
        now = int(time.time())
        whole = {"iss": self.issuer, "aud": audience, "iat": now, "exp": now + 300, **self.person, **changes}
        return {name: value for name, value in whole.items() if value is not None}

    def token(self, key: Key | None = None, *, typ_header: str = "JWT", **changes: Any) -> str:
        """An access token of the person."""
        return sign(self.claims(AUDIENCE, **changes), key or self.keys[0], typ=typ_header)

    def _answer(self, handler: BaseHTTPRequestHandler, body: str) -> None:
        parts = urlsplit(handler.path)
        self.asked[parts.path] += 1
        assert self.answers.wait(PATIENCE_S)
        if self.away:
            handler.close_connection = True
            return
        given = {name: values[0] for name, values in parse_qs(parts.query or body).items()}
        if parts.path == "/authorize":
            handler.send_response(302)
            handler.send_header("location", self._authorize(given))
            handler.end_headers()
            return
        answers = {
            "/.well-known/openid-configuration": self._describe,
            "/keys": lambda: (200, {"keys": [key.public for key in self.keys]}),
            "/token": lambda: self._exchange(given, handler.headers["authorization"]),
        }
        status, document = answers[parts.path]()
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        whole = f"HTTP/1.0 {status} Here\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content
        with contextlib.suppress(ConnectionError):  # the service may hang up
            for piece in (bytes([one]) for one in whole) if self.trickles else (whole,):
                handler.wfile.write(piece)
                time.sleep(0.05 if self.trickles else 0)

    def _describe(self) -> tuple[int, Any]:
        places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        true = {"issuer": self.issuer} | {name: f"{self.issuer}/{path}" for name, path in places.items()}
        return 200, true | self.discovery

    def _authorize(self, given: dict[str, str]) -> str:
        """Where the browser of a person who has agreed goes."""
        assert (given["client_id"], given["redirect_uri"], given["response_type"]) == (CLIENT, self.callback, "code")
        assert given["code_challenge_method"] == "S256"
        assert "openid" in given["scope"].split()
        code = secrets.token_urlsafe(16)
        self._codes[code] = given
        return f"{self.callback}?{urlencode({'code': code, 'state': given['state'], 'iss': self.issuer})}"

    def _exchange(self, given: dict[str, str], authorization: str | None) -> tuple[int, Any]:
        if self.secret is not None:
            pair = base64.b64decode((authorization or "Basic ").removeprefix("Basic ")).decode()
            if [unquote_plus(part) for part in pair.split(":")] != [CLIENT, self.secret]:
                return 401, {"error": "invalid_client"}
        asked = self._codes.get(given["code"]) if self.forgets else self._codes.pop(given["code"], None)
        digest = hashlib.sha256(given["code_verifier"].encode()).digest()
        proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if asked is None or asked["code_challenge"] != proof or given["redirect_uri"] != asked["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        claims = self.claims(CLIENT, **({"nonce": asked["nonce"]} | self.lies))
        return 200, {"access_token": "opaque", "token_type": "Bearer", "id_token": sign(claims, self.keys[0])}


def sign(claims: dict[str, Any], key: Key, **header: Any) -> str:
    """A token with a signature by this key."""
    return jwt.encode(claims, key.private, key.algorithm, headers={"kid": key.name} | header)


def unsigned(claims: dict[str, Any], key: Key) -> str:
    """A token of algorithm "none"."""
    return jwt.encode(claims, "", "none", headers={"kid": key.name})


def part(document: Any) -> str:
    """A part of a token."""
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
