"""TLS: on HTTP and gRPC, with certificates that change, with certificates of clients, with workers."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from service.app import create_app
from service.commands.process import Server
from service.errors import ConfigurationError, StateUnavailableError
from service.grpc.messages import SERVICE, message
from service.settings import Settings
from service.state.database import Database
from service.state.keys import KeyStore
from service.workers.tls import Certificates
from tests.conftest import ROOT, Digits
from tests.ports import free_port
from tests.service.authority import Authority
from tests.service.cluster import Cluster
from tests.service.conftest import settings_of
from tests.waiting import PATIENCE_S


class Secure:
    """A service with TLS in a thread of this process."""

    def __init__(self, settings: Settings) -> None:
        self.application = create_app(settings)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"https://127.0.0.1:{self.port}"
        self._server = Server(settings, self.application)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        self._socket.close()

    def certificate(self) -> bytes:
        """The one that a new connection is shown."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", self.port)) as plain, context.wrap_socket(plain) as secure:
            shown = secure.getpeercert(binary_form=True)
        assert shown is not None
        return ssl.DER_cert_to_PEM_cert(shown).encode()


@pytest.fixture
def secure(digits: Digits, tmp_path: Path) -> Iterator[Callable[..., Secure]]:
    started: list[Secure] = []

    def run(**changes: Any) -> Secure:
        started.append(Secure(settings_of(digits, tmp_path, **changes)))
        return started[-1]

    yield run
    for one in started:
        one.close()


def test_what_cannot_be_used_is_tried_again_and_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    certificates = Certificates(*authority.issue("server"))
    authority.issue("server")

    def unreadable() -> None:
        raise PermissionError("not yet")

    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(certificates, "_read", unreadable)
        certificates.check()
        certificates.check()
    certificates.check()  # the files are as they were
    assert len(logs) == 1
    assert certificates._pair[0] == (tmp_path / "server.pem").read_bytes()


def test_http_and_grpc_speak_tls_and_take_a_new_certificate(
    secure: Callable[..., Secure], tmp_path: Path, digits: Digits
) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    grpc_port = free_port()
    running = secure(tls_cert=cert, tls_key=key, grpc_port=grpc_port)
    trust = ssl.create_default_context(cafile=str(authority.file))
    body = {"inputs": digits.images[:2].tolist()}
    ready = message("ModelReadyRequest")(name="digits").SerializeToString()

    def speak() -> None:
        with httpx.Client(verify=trust, timeout=PATIENCE_S) as client:
            for _ in range(2):  # on one connection
                answer = client.post(f"{running.url}/predict", json=body)
                assert (answer.status_code, len(answer.json()["predictions"])) == (200, 2)
        credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
        with grpc.secure_channel(f"127.0.0.1:{grpc_port}", credentials) as channel:
            call = channel.unary_unary(f"/{SERVICE.full_name}/ModelReady")
            assert call(ready, wait_for_ready=True, timeout=PATIENCE_S)

    speak()
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{running.port}/livez", timeout=PATIENCE_S)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", running.port)) as plain, pytest.raises(ssl.SSLError):
        old.wrap_socket(plain)

    certificates = running.application.certificates
    assert certificates is not None
    before = running.certificate()
    assert before == cert.read_bytes()
    key.write_text("half a file")
    certificates.check()
    assert running.certificate() == before  # what cannot be used leaves the last one
    authority.issue("server")
    certificates.check()
    assert running.certificate() == cert.read_bytes() != before
    speak()


def test_an_expired_certificate_is_served_and_told_until_it_is_renewed(
    secure: Callable[..., Secure], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server", days=-1)
    with capture_logs() as logs:
        certificates = secure(tls_cert=cert, tls_key=key).application.certificates
        assert [one["error"][: len(str(cert))] for one in logs if one["log_level"] == "error"] == [str(cert)]
        logs.clear()
        authority.issue("server")
        certificates.check()
    assert [one["event"] for one in logs if "certificate" in one["event"]] == ["certificate read again"]


def test_over_tls_the_cookie_is_of_this_host_alone(secure: Callable[..., Secure], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    running = secure(tls_cert=cert, tls_key=key)
    _, text = KeyStore(running.application.runtime.database).create("ops", ["admin"])
    running.application._access.refresh()
    trust = ssl.create_default_context(cafile=str(authority.file))
    same = {"sec-fetch-site": "same-origin"}
    with httpx.Client(base_url=running.url, verify=trust, headers=same, timeout=PATIENCE_S) as browser:
        token = re.search(r'name="token" value="([0-9a-f]{64})"', browser.get("/dashboard/login").text)
        assert token
        answer = browser.post("/dashboard/login", data={"token": token[1], "key": text})
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-candor_session=")
        assert "; secure" in cookie.lower()
        assert browser.get("/dashboard").status_code == 200


def test_with_an_authority_of_clients_a_connection_requires_its_certificate(
    spawn: Any, tmp_path: Path, digits: Digits
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    cert, key = authority.issue("server")
    own, strange = authority.issue("client"), other.issue("stranger")
    files = {"tls_cert": str(cert), "tls_key": str(key), "tls_client_ca": str(authority.file)}
    running = spawn(workers="2", threads="1", **files)
    assert any("running on https://127.0.0.1" in line for line in running.log)
    url = running.url.replace("http://", "https://")

    def ask(certificate: tuple[Path, Path] | None) -> int:
        context = ssl.create_default_context(cafile=str(authority.file))
        if certificate is not None:
            context.load_cert_chain(*certificate)
        with httpx.Client(verify=context, timeout=PATIENCE_S) as client:
            return client.post(f"{url}/predict", json={"inputs": digits.images[:1].tolist()}).status_code

    assert [ask(own) for _ in range(4)] == [200] * 4
    for certificate in (None, strange):
        with pytest.raises(httpx.HTTPError):
            ask(certificate)


def test_with_an_authority_of_clients_grpc_requires_its_certificate_too(
    secure: Callable[..., Secure], tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    cert, key = authority.issue("server")
    own, strange = authority.issue("client"), other.issue("stranger")
    grpc_port = free_port()
    running = secure(tls_cert=cert, tls_key=key, tls_client_ca=authority.file, grpc_port=grpc_port)
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(*own)
    with httpx.Client(verify=context, timeout=PATIENCE_S) as client:  # gRPC listens before HTTP answers
        assert client.get(f"{running.url}/livez").status_code == 200

    def ask(certificate: tuple[Path, Path] | None) -> bool:
        shown, its_key = certificate or (None, None)
        credentials = grpc.ssl_channel_credentials(
            authority.file.read_bytes(), its_key and its_key.read_bytes(), shown and shown.read_bytes()
        )
        with grpc.secure_channel(f"127.0.0.1:{grpc_port}", credentials) as channel:
            call = channel.unary_unary(f"/{SERVICE.full_name}/ServerLive")
            answer = call(message("ServerLiveRequest")().SerializeToString(), timeout=PATIENCE_S)
        return bool(message("ServerLiveResponse").FromString(answer).live)

    assert ask(own)
    for certificate in (None, strange):
        with pytest.raises(grpc.RpcError) as refused:
            ask(certificate)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


def test_the_health_check_of_the_image_speaks_tls(secure: Callable[..., Secure], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    files = {"tls_cert": cert, "tls_key": key}
    client = dict(zip(("HEALTHCHECK_CERT", "HEALTHCHECK_KEY"), map(str, authority.issue("health")), strict=True))
    strange = {name: str(file) for name, file in zip(client, Authority(tmp_path, "other").issue("none"), strict=True)}

    def check(running: Secure, *path: str, **environment: str) -> tuple[int, str]:
        given = {f"CANDOR_{name.upper()}": str(file) for name, file in files.items()} | environment
        command = [sys.executable, "-I", "-S", str(ROOT / "docker" / "healthcheck.py"), *path]
        done = subprocess.run(
            command, env=given | {"CANDOR_PORT": str(running.port)}, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout

    running = secure(**files)
    assert check(running)[0] == check(running, "/livez")[0] == 0
    assert check(running, "/nothing")[0] == 1
    running.close()
    files["tls_client_ca"] = authority.file
    running = secure(**files)
    assert check(running)[0] == check(running, **client)[0] == 0  # its own certificate, or another
    assert check(running, **strange)[0] == 1
    assert "no answer" in check(running, HEALTHCHECK_CERT=str(tmp_path / "nothing"))[1]
    assert check(running, CANDOR_TLS_KEY="") == (1, "no answer: CANDOR_TLS_KEY is not set")


@pytest.mark.parametrize("given", ["tls_cert", "tls_key", "tls_client_ca"])
def test_one_file_alone_is_refused(given: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"belong together|requires CANDOR_TLS_CERT"):
        Settings(**{given: tmp_path / "file"})


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (cert, _), (_, key) = authority.issue("one"), authority.issue("two")
    (tmp_path / "empty").touch()
    for files in ((cert, key), (tmp_path / "none", key), (cert, cert), (tmp_path / "empty", key)):
        with pytest.raises(ConfigurationError) as refused:
            Certificates(*files)
        assert "CANDOR_TLS_KEY" in str(refused.value.where)


def test_a_plain_service_beyond_this_machine_says_so(digits: Digits, tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/state.db")
    KeyStore(database).create("ops", ["admin"])
    database.close()
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    for host, files, said in (
        ("0.0.0.0", {}, True),
        ("127.0.0.1", {}, False),
        ("0.0.0.0", {"tls_cert": cert, "tls_key": key}, False),
    ):
        with capture_logs() as logs:
            create_app(settings_of(digits, tmp_path, host=host, **files)).runtime.close()
        assert any("PLAIN HTTP BEYOND THIS MACHINE" in line["event"] for line in logs) == said, (host, files)


def test_postgresql_is_verified_by_its_certificate_and_name(cluster: Cluster, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    cluster.use_tls(*authority.issue("server"))
    secure = f"{cluster.url}?sslmode=verify-full&sslrootcert="
    Database.open(f"{secure}{authority.file}").close()
    named = cluster.url.replace("127.0.0.1", "db.example") + "?hostaddr=127.0.0.1&sslmode=verify-full&sslrootcert="
    for url, why in (
        (f"{secure}{other.file}", "certificate verify failed"),
        (f"{named}{authority.file}", "does not match host name"),
    ):
        with pytest.raises(StateUnavailableError, match=why):
            Database.open(url)
