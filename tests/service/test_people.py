"""People whom an OpenID provider identifies: tokens for the API, logins to the dashboard, a provider that lies."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import httpx
import jwt
import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import ValidationError
from sqlalchemy import select
from structlog.testing import capture_logs

from service.dashboard import session as sessions
from service.errors import ForbiddenError, OverloadedError, ProviderUnavailableError, UnauthenticatedError
from service.grpc.messages import SERVICE, message
from service.operations import oidc, people
from service.operations.oidc import EXCHANGES, REFETCH_S, STALE_S, Provider
from service.operations.people import People
from service.operations.principal import Grant, Principal
from service.settings import Settings
from service.state import audit
from service.state.keys import KeyStore
from service.state.sessions import CLOCKS_DIFFER_S, LOGIN_S
from service.state.tables import revisions
from tests.conftest import Digits
from tests.ports import free_port
from tests.service.authority import Authority
from tests.service.conftest import InThread
from tests.service.identity_provider import (
    AUDIENCE,
    CALLBACK,
    CLIENT,
    IdentityProvider,
    Key,
    ec_key,
    part,
    rsa_key,
    sign,
    unsigned,
)
from tests.service.rest.test_labelled_sets import npz, refit, upload
from tests.waiting import PATIENCE_S, until

SCOPES = {
    "ops": ("predict", "read", "calibrate", "approve"),
    "here": ("calibrate@digits",),
    "elsewhere": ("predict", "calibrate@other", "approve@other"),
    "only-there": ("admin@other",),
}
LOGIN = "candor_login"
POLICY = {"positive": "top", "bands": [{"action": "accept", "when": {"min_probability": 0.4}}, {"action": "review"}]}


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    running = IdentityProvider()
    yield running
    running.close()


def given(provider: IdentityProvider, **changes: Any) -> dict[str, Any]:
    """Settings of a service whose people the provider knows."""
    return {
        "oidc_issuer": provider.issuer,
        "oidc_client_id": CLIENT,
        "oidc_audience": AUDIENCE,
        "oidc_redirect_url": CALLBACK,
        "oidc_scopes": SCOPES,
    } | changes


@pytest.fixture
def running(start: Callable[..., InThread], provider: IdentityProvider) -> InThread:
    return start(**given(provider))


def ask(running: InThread, token: str, path: str = "/v1/models", method: str = "GET", **more: Any) -> httpx.Response:
    return running.http.request(method, path, headers={"authorization": f"Bearer {token}"}, **more)


def propose(running: InThread, token: str) -> httpx.Response:
    return ask(running, token, "/v1/models/digits/policies/mine", "PUT", json=POLICY)


def activate(running: InThread, revision: str, token: str) -> httpx.Response:
    headers = {
        "authorization": f"Bearer {token}",
        "if-match": ask(running, token, "/v1/models/digits/revisions").headers["etag"],
    }
    body = {"reason": "it is what the test is about", "accept_change": True}
    return running.http.post(f"/v1/models/digits/revisions/{revision}/activate", json=body, headers=headers)


def begin(running: InThread, to: str = "/dashboard/jobs") -> tuple[str, str]:
    """Begin a login; return its cookie, and where the provider sends the browser afterwards."""
    answer = httpx.get(f"{running.url}/dashboard/login/begin", params={"next": to}, timeout=PATIENCE_S)
    assert answer.status_code == 303, answer.text
    cookie = re.match(f"{LOGIN}=([^;]+);", answer.headers["set-cookie"])
    assert cookie, answer.headers
    agreed = httpx.get(answer.headers["location"], timeout=PATIENCE_S)
    assert agreed.headers["location"].startswith(CALLBACK)
    return cookie[1], f"/dashboard/login/callback?{urlsplit(agreed.headers['location']).query}"


def arrive(running: InThread, cookie: str | None, callback: str) -> httpx.Response:
    headers = {} if cookie is None else {"cookie": f"{LOGIN}={cookie}"}
    return httpx.get(f"{running.url}{callback}", headers=headers, timeout=PATIENCE_S)


def made(age_s: int) -> tuple[str, str]:
    """A login of that age, and the answer to it with a code that the provider does not know."""
    cookie = f"{int(time.time()) - age_s}.{'x' * 43}.%2Fdashboard"
    return cookie, f"/dashboard/login/callback?code=x&state={sessions._part(cookie, 'state')}"


def key_login(running: InThread) -> int:
    """Status of a login with a key."""
    _, key = KeyStore(running.runtime.database).create(f"ops {time.monotonic()}", ["read"])
    token = re.search(r'name="token" value="([0-9a-f]{64})"', running.http.get("/dashboard/login").text)
    assert token
    form = {"token": token[1], "key": key}
    return running.http.post("/dashboard/login", data=form, headers={"sec-fetch-site": "same-origin"}).status_code


def session_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    found = [one for one in answer.headers.get_list("set-cookie") if one.startswith(f"{sessions.SESSION_COOKIE}=")]
    return found[0].partition("=")[2].partition(";")[0]


def visit(running: InThread, session: str, path: str = "/dashboard") -> httpx.Response:
    headers = {"cookie": f"{sessions.SESSION_COOKIE}={session}"}
    return httpx.get(f"{running.url}{path}", headers=headers, timeout=PATIENCE_S)


def entries(running: InThread, action: str) -> list[audit.AuditEntry]:
    return [entry for entry in audit.read(running.runtime.database) if entry.action == action]


class TestTokens:
    @pytest.mark.parametrize("key", [rsa_key, ec_key])
    def test_a_person_does_what_the_groups_may(
        self, start: Callable[..., InThread], provider: IdentityProvider, digits: Digits, key: Callable[[str], Key]
    ) -> None:
        provider.keys = [key("only")]
        running = start(**given(provider))
        token = provider.token()
        body = {"inputs": digits.images[:2].tolist()}
        for _ in range(2):  # the second time, the token is known
            assert ask(running, token, "/predict", "POST", json=body).status_code == 200
        assert propose(running, token).status_code == 201
        refused = ask(running, token, "/v1/models/digits/load", "POST")
        assert refused.status_code == 403
        assert "CANDOR_OIDC_SCOPES" in refused.json()["remedy"]
        assert running.http.get("/v1/models").status_code == 401  # without a key or a token, nothing
        assert entries(running, "propose")[0].by == "ana@bank.example"

    def test_scopes_are_of_a_model(self, running: InThread, provider: IdentityProvider, digits: Digits) -> None:
        body = {"inputs": digits.images[:1].tolist()}
        expected = {"here": (403, 201), "elsewhere": (200, 403), "only-there": (403, 403)}
        for group, (predicted, proposed) in expected.items():
            token = provider.token(groups=[group], sub=group)
            assert ask(running, token, "/predict", "POST", json=body).status_code == predicted, group
            assert ask(running, token, "/v1/models/digits/predict", "POST", json=body).status_code == predicted, group
            assert propose(running, token).status_code == proposed, group
        both = provider.token(groups=["here", "elsewhere"], sub="both")
        for _ in range(2):
            assert ask(running, both, "/predict", "POST", json=body).status_code == 200
        assert propose(running, both).status_code == 201
        revision = propose(running, both).json()["id"]
        assert activate(running, revision, both).status_code == 403  # that is for another model
        listed = {group: ask(running, provider.token(groups=[group])).json()["items"] for group in expected}
        assert [len(listed[group]) for group in expected] == [1, 1, 0]

    def test_the_audit_log_says_whom_the_provider_calls_by_a_name(
        self, running: InThread, provider: IdentityProvider
    ) -> None:
        for changes in ({}, {"iat": int(time.time()) - 1}, {"email": "ana.married@bank.example"}):
            assert ask(running, provider.token(**changes)).status_code == 200
        running.runtime.access_record.write()
        found = entries(running, "identify")
        assert [entry.by for entry in found] == ["ana.married@bank.example", "ana@bank.example"]  # once for each name
        for entry in found:
            assert entry.subject.startswith("person-")
            assert entry.detail == {"issuer": provider.issuer, "subject": "u-ana"}

    @pytest.mark.parametrize("groups", [["strangers"], [], None, "nobody", 7, [["ops"]]])
    def test_groups_that_mean_nothing_may_do_nothing(
        self, running: InThread, provider: IdentityProvider, groups: Any
    ) -> None:
        assert ask(running, provider.token(groups=groups)).status_code == 403

    def test_claims_that_do_not_hold_are_refused(self, running: InThread, provider: IdentityProvider) -> None:
        past, future, key = 1, 4_000_000_000, provider.keys[0]
        wrong: dict[str, list[Any]] = {
            "aud": ["another-service", CLIENT, None],
            "iss": ["https://elsewhere.example", None],
            "exp": [past, None, "never", float("inf")],
            "iat": [future, None],
            "nbf": [future],
            "sub": [None, 7],
            "email": [None, 7, "", "a\nb", "x" * 101],
            "email_verified": [None, False, "true", 1],
            "nonce": ["of a login"],
            "at_hash": ["x"],
            "c_hash": ["x"],
            "events": [{"http://schemas.openid.net/event/backchannel-logout": {}}],
            "typ": ["ID", "Refresh", "bearer", 7],
        }
        for name, values in wrong.items():
            for value in values:
                claims = provider.claims(AUDIENCE, **{name: value})
                signed = f"{part({'alg': 'RS256', 'kid': key.name})}.{part(claims)}"  # as no library would sign it
                signature = jwt.get_algorithm_by_name("RS256").sign(signed.encode(), key.private)
                answer = ask(running, f"{signed}.{part(signature)}")
                assert answer.status_code == 401, (name, value, answer.text)
                assert answer.headers["www-authenticate"] == "Bearer"

    def test_only_access_tokens_call_the_api(self, running: InThread, provider: IdentityProvider) -> None:
        expected = {"JWT": 200, "at+jwt": 200, "application/AT+JWT": 200, "logout+jwt": 401, "id+jwt": 401, "": 200}
        for kind, status in expected.items():  # "": none
            assert ask(running, provider.token(typ="Bearer", typ_header=kind)).status_code == status, kind
        refused = ask(running, provider.token(nonce="n")).json()
        assert (refused["found"], "not an ID token" in refused["expected"]) == ("a token with nonce", True)

    def test_an_address_counts_only_if_the_provider_has_verified_it(
        self, start: Callable[..., InThread], provider: IdentityProvider
    ) -> None:
        running = start(**given(provider))
        refused = ask(running, provider.token(email_verified=None))
        assert refused.status_code == 401
        assert refused.json()["found"] == "email_verified: None"
        assert "CANDOR_OIDC_NAME_CLAIM" in refused.json()["expected"]
        running.close()
        named = start(**given(provider, oidc_name_claim="upn"))
        assert ask(named, provider.token(email_verified=None, upn="ana@bank.example")).status_code == 200

    def test_signatures_that_do_not_hold_are_refused(self, running: InThread, provider: IdentityProvider) -> None:
        claims, key = provider.claims(AUDIENCE), provider.keys[0]
        public = key.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        head = part({"alg": "HS256", "kid": key.name})
        shared = f"{head}.{part(claims)}"
        mac = jwt.get_algorithm_by_name("HS256")
        by_public_key = f"{shared}.{part(mac.sign(shared.encode(), public))}"
        true = sign(claims, key)
        first, _, last = true.split(".")
        forged = {
            "none": unsigned(claims, key),
            "none, with a signature": f"{part({'alg': 'none', 'kid': key.name})}.{part(claims)}.{last}",
            "a public key as shared secret": by_public_key,
            "another key of that name": sign(claims, Key(key.name, rsa_key("thief").private, "RS256")),
            "a key that nobody knows": sign(claims, rsa_key("thief")),
            "a key without a name": jwt.encode(claims, key.private, "RS256"),
            "the name of another kind of key": sign(claims, Key("second", key.private, "RS256")),
            "another algorithm than the key is for": sign(claims, Key(key.name, key.private, "PS256")),
            "a key that comes along": sign(claims, rsa_key("thief"), jwk=rsa_key("thief").public),
            "other claims": f"{first}.{part(claims | {'groups': ['ops', 'here']})}.{last}",
            "no claims": f"{first}..{last}",
            "depth": f"{part(b'[' * 9000)}.{part(claims)}.{last}",
            "length": f"{first}.{'A' * 20_000}.{last}",
            "nothing": "..",
        }
        assert {name: ask(running, token).status_code for name, token in forged.items()} == dict.fromkeys(forged, 401)
        assert ask(running, true).status_code == 200
        running.runtime.access_record.take()
        running.runtime.access_record.write()
        assert entries(running, "refuse_requests")

    def test_clocks_differ_by_as_much_as_the_setting_says(self, running: InThread, provider: IdentityProvider) -> None:
        now = int(time.time())
        assert ask(running, provider.token(exp=now - 20, iat=now - 300)).status_code == 200
        assert ask(running, provider.token(nbf=now + 20, iat=now + 20)).status_code == 200

    def test_a_token_ends_while_it_is_known(self, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
        known = People(Settings(**given(provider, oidc_clock_skew_s=5)))
        token = provider.token()
        person = asyncio.run(known.admit(token))
        assert known.known(token) is person
        ends = (jwt.decode(token, options={"verify_signature": False})["exp"] + 5) * 1_000_000
        for now, found in ((ends - 1, person), (ends, None)):
            monkeypatch.setattr(people, "now_us", lambda now=now: now)
            assert known.known(token) is found

    def test_new_keys_are_found_and_withdrawn_ones_refused(
        self, running: InThread, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(oidc, "REFETCH_S", 0.0)
        old = provider.token()
        assert ask(running, old).status_code == 200
        provider.keys = [ec_key("third")]
        assert ask(running, provider.token()).status_code == 200
        assert ask(running, old).status_code == 401

    @pytest.mark.parametrize("named", [True, False], ids=["key named", "key unnamed"])
    def test_a_provider_with_one_key_need_not_name_it(
        self, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch, named: bool
    ) -> None:
        monkeypatch.setattr(oidc, "REFETCH_S", 0.0)
        public = vars(Key)["public"].fget
        shown = property(lambda key: {name: value for name, value in public(key).items() if named or name != "kid"})
        monkeypatch.setattr(Key, "public", shown)
        claims = provider.claims(AUDIENCE)

        async def subjects() -> list[Any]:
            known, found = Provider(Settings(**given(provider))), []
            for provider.keys in ([rsa_key("first")], [rsa_key("third")]):  # a new one is found
                token = jwt.encode(claims, provider.keys[0].private, "RS256")
                found.append((await known.claims(token, AUDIENCE))["sub"])
            with pytest.raises(UnauthenticatedError, match="does not vouch"):
                await known.claims(jwt.encode(claims, rsa_key("first").private, "RS256"), AUDIENCE)
            return found

        assert asyncio.run(subjects()) == ["u-ana", "u-ana"]

    def test_unknown_keys_make_the_service_ask_once_in_a_while(self, provider: IdentityProvider) -> None:
        now = [0.0]

        async def flood() -> None:
            known = Provider(Settings(**given(provider)), clock=lambda: now[0])
            assert (await known.claims(provider.token(), AUDIENCE))["sub"] == "u-ana"
            for expected in (1, 2):
                tokens = (
                    sign(provider.claims(AUDIENCE), Key(f"k{i}", rsa_key("thief").private, "RS256")) for i in range(20)
                )
                answers = await asyncio.gather(*(known.claims(one, AUDIENCE) for one in tokens), return_exceptions=True)
                assert {type(answer) for answer in answers} == {UnauthenticatedError}
                assert provider.asked["/keys"] == expected
                now[0] += REFETCH_S

        asyncio.run(flood())

    def test_a_provider_that_is_away_stops_neither_keys_nor_known_people(
        self, running: InThread, provider: IdentityProvider
    ) -> None:
        _, key = KeyStore(running.runtime.database).create("batch", ["predict"])
        assert ask(running, provider.token()).status_code == 200
        provider.away = True
        assert ask(running, provider.token(sub="u-ben", email="ben@bank.example")).status_code == 200
        until(lambda: ask(running, key).status_code == 200)
        assert running.http.get("/readyz", headers={"authorization": "Bearer a.b.c"}).status_code == 200

    def test_a_service_starts_without_its_provider(
        self, start: Callable[..., InThread], provider: IdentityProvider
    ) -> None:
        provider.away = True
        running = start(**given(provider))
        answer = ask(running, provider.token())
        assert (answer.status_code, answer.json()["type"]) == (503, "/errors/identity-provider")
        assert "retry-after" in answer.headers
        assert running.http.get("/readyz", headers={"authorization": f"Bearer {provider.token()}"}).status_code == 200
        page = running.http.get("/dashboard/login/begin")
        assert (page.status_code, "retry-after" in page.headers) == (503, True)
        assert "does not answer" in page.text

    def test_keys_are_trusted_for_a_day_without_their_provider(self, provider: IdentityProvider) -> None:
        now = [0.0]

        async def outlast() -> None:
            known = Provider(Settings(**given(provider)), clock=lambda: now[0])
            await known.claims(provider.token(), AUDIENCE)
            provider.away = True
            now[0] = STALE_S - 1
            await known.claims(provider.token(), AUDIENCE)
            now[0] = STALE_S + 1
            with pytest.raises(ProviderUnavailableError):
                await known.claims(provider.token(), AUDIENCE)
            provider.away = False
            now[0] += REFETCH_S
            await known.claims(provider.token(), AUDIENCE)

        asyncio.run(outlast())

    def test_reads_are_one_for_all_who_wait_and_rest_afterwards(
        self, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(oidc, "WAIT_S", 0.01)
        monkeypatch.setattr(oidc, "_TIMEOUT_S", PATIENCE_S)
        now = [0.0]

        async def wait() -> None:
            known = Provider(Settings(**given(provider)), clock=lambda: now[0])
            provider.answers.clear()
            await asyncio.gather(known.read(), known.read())  # they give up; the read goes on
            leaving = asyncio.create_task(known.read())
            await asyncio.sleep(0)
            leaving.cancel()
            with pytest.raises(ProviderUnavailableError):
                await known.description()
            now[0] += REFETCH_S
            monkeypatch.setattr(oidc, "WAIT_S", PATIENCE_S)
            provider.answers.set()
            await known.read()
            await known.read()
            assert (await known.description()).keys.keys() == {"first", "second"}
            assert (provider.asked["/.well-known/openid-configuration"], provider.asked["/keys"]) == (1, 1)
            now[0] += REFETCH_S
            await known.read()
            assert provider.asked["/keys"] == 2

        asyncio.run(wait())

    def test_reading_goes_on_whatever_the_provider_answers(
        self, start: Callable[..., InThread], provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(oidc, "REFETCH_S", 0.001)
        monkeypatch.setattr(oidc, "_key", lambda _: 1 / 0)  # an error that nobody has thought of
        with capture_logs() as logs:
            running = start(**given(provider))
            until(lambda: provider.asked["/keys"] > 3)
        said = [one for one in logs if one["event"] == "identity provider not read"]
        assert [one["error"] for one in said] == ["division by zero"]
        monkeypatch.undo()
        until(lambda: ask(running, provider.token()).status_code == 200)

    def test_failed_reads_are_repeated_soon_then_seldom(self, provider: IdentityProvider) -> None:
        now = [0.0]

        async def fail() -> list[float]:
            known = Provider(Settings(**given(provider)), clock=lambda: now[0])
            provider.away = True
            pauses = []
            for _ in range(12):
                await known.read()
                pauses.append(known.pause_s)
                now[0] += known.pause_s
            provider.away = False
            await known.read()
            return [*pauses, known.pause_s]

        assert asyncio.run(fail()) == [10, 20, 40, 80, 160, *[300] * 8]

    def test_a_provider_over_tls_sends_nobody_to_plain_addresses(
        self, provider: IdentityProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        authority = Authority(tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        secure = IdentityProvider(authority.issue("provider"))
        try:
            settings = Settings(**given(secure))
            assert asyncio.run(Provider(settings).description()).keys.keys() == {"first", "second"}
            secure.discovery = {"jwks_uri": f"{provider.issuer}/keys"}  # it would answer
            self.refuse(secure)
        finally:
            secure.close()

    @pytest.mark.parametrize(
        "discovery",
        [
            {"issuer": "https://elsewhere.example"},
            {"jwks_uri": "http://elsewhere.example/keys"},
            {"jwks_uri": "file:///etc/passwd"},
            {"token_endpoint": None},
            {"token_endpoint_auth_methods_supported": 7},
            {"token_endpoint_auth_methods_supported": "client_secret_post"},
        ],
        ids=str,
    )
    def test_a_provider_that_describes_another_is_refused(
        self, provider: IdentityProvider, discovery: dict[str, Any]
    ) -> None:
        provider.discovery = discovery
        self.refuse(provider)

    @pytest.mark.parametrize(
        "answer", [(200, b"{"), (200, b"[" * 100_000), (200, b"[]"), (404, {}), (200, b" " * 2**21)], ids=range(5)
    )
    def test_an_answer_that_is_none_is_refused(
        self, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, Any]
    ) -> None:
        monkeypatch.setattr(provider, "_describe", lambda: answer)
        self.refuse(provider)

    @staticmethod
    def refuse(provider: IdentityProvider) -> None:
        with pytest.raises(ProviderUnavailableError):
            asyncio.run(Provider(Settings(**given(provider))).description())

    def test_keys_that_cannot_be_trusted_are_left_out(
        self, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        good = rsa_key("first").public
        listed = [
            good,
            {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"},
            good | {"kid": "encrypts", "use": "enc"},
            good | {"kid": "other", "alg": "HS256"},
            good | {"kid": 7},
            {"kty": "RSA", "kid": "broken", "n": "AQ"},
            {"kty": "EC", "kid": "curve", "crv": "secp256k1", "x": "AQ", "y": "AQ"},
            good | {"kid": "weak", "n": good["n"][:170]},
            "nonsense",
        ]
        monkeypatch.setattr(Key, "public", property(lambda _: listed.pop(0)))
        provider.keys = [rsa_key("first")] * len(listed)
        found = asyncio.run(Provider(Settings(**given(provider))).description())
        assert found.keys.keys() == {"first"}

    def test_grpc_takes_the_same_tokens(self, start: Callable[..., InThread], provider: IdentityProvider) -> None:
        port = free_port()
        start(**given(provider, grpc_port=port))
        model_ready = message("ModelReadyRequest")(name="digits").SerializeToString()
        load = message("RepositoryModelLoadRequest")(model_name="digits").SerializeToString()
        denied = grpc.StatusCode.PERMISSION_DENIED
        expected = [
            ("ModelReady", model_ready, {}, None),
            ("ModelReady", model_ready, {"exp": 1}, grpc.StatusCode.UNAUTHENTICATED),
            ("ModelReady", model_ready, {"groups": ["only-there"]}, denied),
            ("RepositoryModelLoad", load, {"groups": ["here", "only-there"]}, denied),  # an admin of another model
        ]
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            for method, request, changes, code in expected:
                call = channel.unary_unary(f"/{SERVICE.full_name}/{method}")
                metadata = [("authorization", f"Bearer {provider.token(**changes)}")]
                found = None
                try:
                    call(request, metadata=metadata, wait_for_ready=True, timeout=PATIENCE_S)
                except grpc.RpcError as error:
                    found = error.code()
                assert found is code, (method, changes)

    def test_tokens_are_refused_without_an_audience(
        self, start: Callable[..., InThread], provider: IdentityProvider
    ) -> None:
        running = start(**given(provider, oidc_audience=None))
        for audience in (AUDIENCE, CLIENT):
            assert ask(running, sign(provider.claims(audience), provider.keys[0])).status_code == 401


class TestLogins:
    def test_a_person_logs_in_and_out(self, running: InThread, provider: IdentityProvider) -> None:
        page = running.http.get("/dashboard/login", params={"next": "/dashboard/jobs"})
        assert 'href="/dashboard/login/begin?next=%2Fdashboard%2Fjobs"' in page.text
        answer = arrive(running, *begin(running))
        assert 'content="0; url=/dashboard/jobs"' in answer.text
        cookies = answer.headers.get_list("set-cookie")
        assert all("httponly" in one.lower() for one in cookies)
        assert any(one.startswith(f'{LOGIN}=""') and "max-age=0" in one.lower() for one in cookies)
        session = session_of(answer)
        shown = visit(running, session)
        assert shown.status_code == 200
        assert "ana@bank.example" in shown.text
        assert visit(running, session, "/dashboard/models/digits/revisions").status_code == 200
        [entry] = entries(running, "log_in")
        assert entry.by == "ana@bank.example"
        assert entry.subject.startswith("person-")
        assert entry.detail["subject"] == "u-ana"
        assert entry.detail["groups"] == ["ops"]
        assert KeyStore(running.runtime.database).revoke(entry.subject)
        until(lambda: visit(running, session).status_code == 303)

    def test_beyond_this_machine_the_cookie_requires_tls(self, running: InThread) -> None:
        answer = running.http.get("/dashboard/login/begin", headers={"host": "candor.example"})
        cookie = answer.headers["set-cookie"].lower()
        assert cookie.startswith(f"__host-{LOGIN}=")
        assert {"secure", "httponly", "samesite=lax", "path=/"} <= {one.strip() for one in cookie.split(";")}

    def test_a_client_with_a_secret_proves_it(
        self, start: Callable[..., InThread], provider: IdentityProvider, tmp_path: Path
    ) -> None:
        provider.secret = "a secret: with + and %"
        file = tmp_path / "secret"
        file.write_text(f"{provider.secret}\n")
        running = start(**given(provider, oidc_client_secret_file=file))
        assert visit(running, session_of(arrive(running, *begin(running)))).status_code == 200
        provider.secret = "another"
        assert arrive(running, *begin(running)).status_code == 401

    def test_a_provider_that_hangs_keeps_few_threads_and_a_limited_number_of_logins(
        self, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(oidc, "_TIMEOUT_S", PATIENCE_S)
        monkeypatch.setattr(oidc, "EXCHANGE_S", PATIENCE_S)

        async def crowd() -> None:
            known = Provider(Settings(**given(provider)))
            await known.description()
            provider.answers.clear()
            waiting = [asyncio.create_task(known.exchange("code", "verifier")) for _ in range(EXCHANGES)]
            await asyncio.to_thread(until, lambda: provider.asked["/token"] >= oidc._THREADS)  # others have threads
            with pytest.raises(OverloadedError):
                await known.exchange("code", "verifier")
            assert provider.asked["/token"] == oidc._THREADS
            assert not any(one.done() for one in waiting)
            provider.answers.set()
            found = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(one) for one in found} == {UnauthenticatedError}
            with pytest.raises(UnauthenticatedError):
                await known.exchange("code", "verifier")

        asyncio.run(crowd())

    def test_a_login_beyond_the_limit_is_repeated(
        self, running: InThread, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun = begin(running)
        monkeypatch.setattr(oidc, "EXCHANGES", 0)
        refused = arrive(running, *begun)
        assert (refused.status_code, "set-cookie" in refused.headers) == (503, False)
        assert int(refused.headers["retry-after"]) > 0
        assert "Reload this page" in refused.text
        monkeypatch.undo()
        assert visit(running, session_of(arrive(running, *begun))).status_code == 200

    @pytest.mark.parametrize(("limit", "found"), [("_TIMEOUT_S", "TimeoutError"), ("EXCHANGE_S", "no answer in 0.3 s")])
    def test_an_answer_that_trickles_ends_in_time(
        self, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch, limit: str, found: str
    ) -> None:
        async def wait() -> None:
            known = Provider(Settings(**given(provider)))
            await known.description()
            provider.trickles = True
            monkeypatch.setattr(oidc, limit, 0.3)
            with pytest.raises(ProviderUnavailableError) as error:
                await known.exchange("code", "verifier")
            assert error.value.found == found

        asyncio.run(wait())

    def test_an_answer_counts_once_and_in_its_own_browser(self, running: InThread, provider: IdentityProvider) -> None:
        cookie, callback = begin(running)
        other, _ = begin(running)
        assert arrive(running, None, callback).status_code == 401
        assert arrive(running, other, callback).status_code == 401  # another state
        assert arrive(running, cookie, callback).status_code == 200
        assert arrive(running, cookie, callback).status_code == 401  # the provider refuses the code
        provider.forgets = True
        cookie, callback = begin(running)
        assert arrive(running, cookie, callback).status_code == 200
        again = arrive(running, cookie, callback)  # the provider does not
        assert again.status_code == 401
        assert "has opened a session before" in again.text
        assert not [one for one in again.headers.get_list("set-cookie") if one.startswith(sessions.SESSION_COOKIE)]
        assert len(entries(running, "log_in")) == 2

    def test_a_stolen_code_is_worth_nothing(self, running: InThread) -> None:
        _, theirs = begin(running)
        cookie, mine = begin(running)
        code = re.search(r"code=[^&]+", theirs)
        assert code
        assert arrive(running, cookie, re.sub(r"code=[^&]+", code[0], mine)).status_code == 401

    @pytest.mark.parametrize(
        "lies",
        [
            {"nonce": "another"},
            {"nonce": None},
            {"aud": AUDIENCE},
            {"aud": [CLIENT, AUDIENCE]},
            {"azp": "another-client"},
            {"iss": "https://elsewhere.example"},
            {"exp": 1},
        ],
        ids=str,
    )
    def test_a_provider_that_lies_opens_no_session(
        self, running: InThread, provider: IdentityProvider, lies: dict[str, Any]
    ) -> None:
        provider.lies = lies
        assert arrive(running, *begin(running)).status_code == 401
        assert entries(running, "log_in") == []

    def test_logins_that_fail_say_why_and_are_counted(self, running: InThread, provider: IdentityProvider) -> None:
        assert ask(running, provider.token()).status_code == 200  # the provider's endpoints are known
        cookie, callback = made(0)
        provider.away = True
        for _ in range(sessions.ATTEMPTS + 1):  # an outage is nobody's fault
            assert arrive(running, cookie, callback).status_code == 503
        assert provider.asked["/token"] == sessions.ATTEMPTS + 1
        provider.away = False
        provider.person["groups"] = ["strangers"]
        answer = arrive(running, *begin(running))
        assert answer.status_code == 403
        assert "No group of" in answer.text
        for _ in range(sessions.ATTEMPTS - 1):
            unknown = arrive(running, cookie, callback)  # the provider does not know the code
            assert unknown.status_code == 401
            assert "Expected: a code that the identity provider accepts" in unknown.text
        assert arrive(running, cookie, callback).status_code == 429
        assert key_login(running) == 303  # they count for logins through the provider alone

    def test_answers_to_no_login_of_this_browser_are_not_counted(
        self, running: InThread, provider: IdentityProvider
    ) -> None:
        cookie, callback = begin(running)
        refused = arrive(running, cookie, re.sub(r"code=[^&]+", "error=%3Cb%3Edenied", callback))
        assert refused.status_code == 401
        assert "&lt;b&gt;denied" in refused.text
        foreign = [
            (None, callback),
            (cookie, "/dashboard/login/callback?code=x&state=x"),
            (cookie, re.sub(r"iss=[^&]+", "iss=elsewhere", callback)),
            (cookie, re.sub(r"code=[^&]+&", "", callback)),
            made(LOGIN_S + CLOCKS_DIFFER_S + 60),
        ]
        asked = provider.asked["/token"]
        for one in foreign * sessions.ATTEMPTS:  # a page of another site can do that to its visitors
            assert arrive(running, *one).status_code == 401
        assert provider.asked["/token"] == asked
        assert key_login(running) == 303
        assert arrive(running, cookie, callback).status_code == 200

    def test_clocks_of_replicas_differ(self, running: InThread) -> None:
        for age_s in (60 - CLOCKS_DIFFER_S, LOGIN_S + CLOCKS_DIFFER_S - 60):
            assert "invalid_grant" in arrive(running, *made(age_s)).text  # the provider was asked
        for age_s in (-60 - CLOCKS_DIFFER_S, LOGIN_S + CLOCKS_DIFFER_S + 60):
            assert "no login that was begun here" in arrive(running, *made(age_s)).text

    @pytest.mark.parametrize(
        "to", ["https://elsewhere.example", "//elsewhere.example/dashboard", f"/dashboard/{'x' * 2000}", "/livez"]
    )
    def test_a_page_that_is_none_of_the_dashboard_or_too_long_is_the_front_page(
        self, running: InThread, to: str
    ) -> None:
        assert 'content="0; url=/dashboard"' in arrive(running, *begin(running, to)).text

    def test_nobody_logs_in_where_only_tokens_are_taken(
        self, start: Callable[..., InThread], provider: IdentityProvider
    ) -> None:
        running = start(**given(provider, oidc_client_id=None, oidc_redirect_url=None))
        assert "login/begin" not in running.http.get("/dashboard/login").text
        assert running.http.get("/dashboard/login/begin").status_code == 404
        assert running.http.get("/dashboard/login/callback?code=x").status_code == 401


def test_four_eyes_are_those_of_two_people(start: Callable[..., InThread], provider: IdentityProvider) -> None:
    running = start(**given(provider, four_eyes=True))
    ana = provider.token()
    _, key = KeyStore(running.runtime.database).create("ana@bank.example", ["approve", "read"])
    revision = propose(running, ana).json()["id"]
    renamed = provider.token(email="ana.married@bank.example")
    spelled = provider.token(sub="u-ana-2", email="\uff21na@BANK.example")
    for token in (
        ana,
        renamed,
        key,
        spelled,
    ):  # one person: a new name, a key of that name, that name spelled otherwise
        until(lambda token=token: ask(running, token).status_code == 200)  # type: ignore[misc]
        refused = activate(running, revision, token)
        assert refused.status_code == 403, refused.text
        assert "second person" in refused.json()["detail"]
    ben = provider.token(sub="u-ben", email="ben@bank.example")
    assert activate(running, revision, ben).status_code == 200
    assert entries(running, "activate")[0].by == "ben@bank.example"


def test_a_person_is_the_claim_of_the_setting(start: Callable[..., InThread], provider: IdentityProvider) -> None:
    running = start(**given(provider, four_eyes=True, oidc_subject_claim="oid"))
    for oid in (None, "", 7, "x" * 256, "\ud800", "\0"):  # the last two cannot be stored
        refused = ask(running, provider.token(oid=oid))
        assert (refused.status_code, refused.json()["expected"][:4]) == (401, "oid:")
    revision = propose(running, provider.token(sub="pairwise-api", oid="ana")).json()["id"]
    provider.person |= {"sub": "pairwise-dashboard", "oid": "ana", "email": "ana.married@bank.example"}
    session_of(arrive(running, *begin(running)))
    [entry] = entries(running, "log_in")
    assert entry.detail["subject"] == "ana"
    with running.runtime.database.connect() as connection:
        assert connection.execute(
            select(revisions.c.by_key).where(revisions.c.number == int(revision[1:]))
        ).scalar() == (entry.subject)
    assert activate(running, revision, provider.token()).status_code == 403
    assert (
        activate(running, revision, provider.token(sub="pairwise-api", oid="ben", email="ben@b.example")).status_code
        == 200
    )


@pytest.mark.usefixtures("checks_here", "refits_here")
def test_who_uploaded_the_rows_of_a_proposal_does_not_activate_it_under_a_new_name(
    start: Callable[..., InThread], provider: IdentityProvider, digits: Digits
) -> None:
    running = start(**given(provider, four_eyes=True))
    running.http.headers["authorization"] = f"Bearer {provider.token()}"
    uploaded = upload(running, npz(label=np.array(digits.labels), inputs=digits.dimmed)).json()["id"]
    ben = provider.token(sub="u-ben", email="ben@bank.example")
    running.http.headers["authorization"] = f"Bearer {ben}"
    made = refit(running, uploaded, mode="propose", calibrator="temperature")
    assert made["source"]["uploaded_by_key"].startswith("person-")
    renamed = provider.token(email="ana.married@bank.example")
    refused = activate(running, made["revision"], renamed)
    assert (refused.status_code, "second person" in refused.json()["detail"]) == (403, True)
    cleo = provider.token(sub="u-cleo", email="cleo@bank.example")
    assert activate(running, made["revision"], cleo).status_code == 200


def test_a_session_ends_when_the_settings_name_another_provider(
    start: Callable[..., InThread], provider: IdentityProvider, postgresql_url: str
) -> None:
    running = start(state=postgresql_url, **given(provider))
    session = session_of(arrive(running, *begin(running)))
    running.close()
    again = start(state=postgresql_url, **given(provider))
    assert visit(again, session).status_code == 200
    again.close()
    provider.issuer = provider.issuer.replace("127.0.0.1", "localhost")
    other = start(state=postgresql_url, **given(provider))
    assert visit(other, session).headers["location"].startswith("/dashboard/login")
    assert visit(other, session_of(arrive(other, *begin(other)))).status_code == 200


def test_lists_leave_out_models_of_which_a_person_may_read_metrics_alone(
    start: Callable[..., InThread], provider: IdentityProvider
) -> None:
    running = start(**given(provider, oidc_scopes={"ops": ("metrics", "read@other"), "here": ("read@digits",)}))
    for groups, listed in ((["ops"], []), (["ops", "here"], ["digits"])):
        token = provider.token(groups=groups)
        assert [one["model"] for one in ask(running, token).json()["items"]] == listed
        assert ask(running, token, "/metrics").status_code == 200
        provider.person["groups"] = groups
        page = visit(running, session_of(arrive(running, *begin(running)))).text
        assert ("/dashboard/models/digits" in page) == bool(listed)


def test_what_a_session_may_do_is_what_the_settings_say_now(running: InThread, provider: IdentityProvider) -> None:
    session_of(arrive(running, *begin(running)))
    [stored] = KeyStore(running.runtime.database).ring().sessions.values()
    limited = People(Settings(**given(provider, oidc_scopes={"ops": ["read@digits"]}))).in_session(stored).principal
    assert (limited.scopes, limited.models) == ({"read"}, {"digits"})
    with pytest.raises(ForbiddenError):
        People(Settings(**given(provider, oidc_scopes={}))).in_session(stored)


def test_a_principal_has_on_a_model_what_was_granted_there() -> None:
    grants = (Grant(frozenset({"read"}), None), Grant(frozenset({"admin"}), frozenset({"a"})))
    person = Principal("ana", frozenset({"read", "admin"}), "person-1", None, None, grants)
    assert [person.on(model).scopes for model in ("a", "b", None)] == [{"read", "admin"}, {"read"}, {"read"}]
    assert [person.on("a").reaches(model) for model in ("a", "b", None)] == [True, False, False]
    with pytest.raises(ForbiddenError):
        person.on("b").require("approve")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"oidc_issuer": None}, "requires CANDOR_OIDC_ISSUER"),
        ({"oidc_issuer": "http://login.example"}, "https://"),
        ({"oidc_issuer": "https://login.example?x=1"}, "without a query"),
        ({"oidc_audience": CLIENT}, "must differ"),
        ({"oidc_redirect_url": None}, "belong together"),
        ({"oidc_redirect_url": "https://candor.example/other"}, "does not end with"),
        ({"oidc_redirect_url": "http://candor.example/dashboard/login/callback"}, "https://"),
        ({"oidc_client_id": None, "oidc_audience": None, "oidc_redirect_url": None}, "or both"),
        ({"oidc_scopes": "ops: read"}, "not valid JSON"),
        ({"oidc_scopes": '{"ops": ["read"], "ops": ["admin"]}'}, "duplicate name 'ops'"),
        ({"oidc_scopes": '{"ops": ["fly"]}'}, "is not a scope"),
        ({"oidc_scopes": {"ops": ["fly"]}}, "is not a scope"),
        ({"oidc_scopes": {"ops": ["read@"]}}, "SCOPE@MODEL"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    provider: IdentityProvider, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValidationError, match=why):
        Settings(**given(provider, **changes))
