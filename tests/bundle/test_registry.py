"""Artifacts of registries, over the real protocol: what is read, and registries and authors that mean harm."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

import bundle as bundles
from bundle import BundleDamagedError, BundleError, BundleFormatError, RemoteError, layers
from bundle.copying import copy, pinned, remote_manifest
from bundle.references import Reference
from bundle.registry import Artifact
from tests.waiting import PATIENCE_S, until

from .conftest import make_contents

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
TAR = "application/vnd.oci.image.layer.v1.tar"
TITLE = "org.opencontainers.image.title"
TOKEN = "Bearer a-token"
LOGIN = "Basic " + base64.b64encode(b"me:secret").decode()


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


class Registry:
    """Blobs and manifests under `/v2/repo`; `login` is None, `Basic` or `Bearer`."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.login: str | None = None
        self.host = ""

    def push(self, tag: str, *layers: dict[str, Any], image: bool = False, **changes: Any) -> str:
        config = "application/vnd.oci.image.config.v1+json" if image else "application/vnd.unknown.config.v1+json"
        document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": {"mediaType": config}, "layers": layers}
        content = json.dumps(document | changes).encode()
        self.manifests[tag] = self.manifests[digest(content)] = content
        return digest(content)

    def layer(self, content: bytes, title: str | None = None, kind: str = TAR, **notes: str) -> dict[str, Any]:
        self.blobs[digest(content)] = content
        notes |= {} if title is None else {TITLE: title}
        return {"mediaType": kind, "digest": digest(content), "size": len(content), "annotations": notes}

    def answer(self, path: str, authorization: str | None) -> tuple[int, bytes, dict[str, str]]:
        if path.startswith("/token?"):
            return (200, b'{"token": "a-token"}', {}) if authorization == LOGIN else (401, b"", {})
        if self.login == "Bearer" and authorization != TOKEN:
            challenge = f'Bearer realm="http://{self.host}/token",service="me",scope="repository:repo:pull"'
            return 401, b"", {"WWW-Authenticate": challenge}
        if self.login == "Basic" and authorization != LOGIN:
            return 401, b"", {"WWW-Authenticate": 'Basic realm="it"'}
        kind, _, name = path.removeprefix("/v2/repo/").partition("/")
        found = {"manifests": self.manifests, "blobs": self.blobs}[kind].get(name)
        return (404, b"", {}) if found is None else (200, found, {})


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    made = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content, headers = made.answer(self.path, self.headers["authorization"])
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.host = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def nobody(registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Start with an empty registry that requires no login, and without a password."""
    registry.blobs, registry.manifests, registry.login = {}, {}, None
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


def tar(files: dict[str, bytes | tarfile.TarInfo]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in files.items():
            if isinstance(content, tarfile.TarInfo):
                content.name = name
                archive.addfile(content)
            else:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def entry(kind: bytes, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo()
    found.type, found.linkname = kind, link
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


FILES = {"manifest.json": b"{}", "report/a.svg": b"<svg/>", "model.onnx": bytes(range(256)) * 900}


def as_files(registry: Registry) -> str:
    return registry.push("1", *(registry.layer(content, name) for name, content in FILES.items()))


def as_folder(registry: Registry) -> str:
    packed = gzip.compress(tar({f"3/{name}": content for name, content in FILES.items()}))
    return registry.push("1", registry.layer(packed, "3", f"{TAR}+gzip", **{"io.deis.oras.content.unpack": "true"}))


def as_tar_file(registry: Registry) -> str:
    return registry.push("1", registry.layer(tar({f"./{name}": content for name, content in FILES.items()}), "b.tar"))


def as_image(registry: Registry) -> str:
    base = tar({"bin/sh": entry(tarfile.SYMTYPE, "/etc/passwd"), "dev/null": entry(tarfile.CHRTYPE)})
    own = gzip.compress(tar({f"models/{name}": content for name, content in FILES.items()} | {"models/old": b""}))
    found = registry.push("image", registry.layer(base), registry.layer(own, kind=f"{TAR}+gzip"), image=True)
    ours = {"mediaType": MANIFEST, "digest": found, "platform": {"os": "linux", "architecture": "amd64"}}
    attestation = {"mediaType": MANIFEST, "digest": digest(b""), "platform": {"os": "unknown"}}
    index = {"mediaType": INDEX, "manifests": [attestation, ours]}
    return registry.push("1", **index)


@pytest.mark.parametrize("push", [as_files, as_folder, as_tar_file, as_image])
def test_every_way_to_push_gives_the_same_files(
    registry: Registry, tmp_path: Path, push: Callable[[Registry], str]
) -> None:
    found = push(registry)
    artifact = Artifact(f"oci://{registry.host}/repo:1")
    assert artifact.address == f"oci://{registry.host}/repo@{found}"
    sizes: list[int] = []
    pulled = contents(Artifact(artifact.address).pull(tmp_path, step=sizes.append))
    assert {name: pulled[name] for name in FILES} == FILES
    assert sizes[-1] == sum(map(len, registry.blobs.values()))
    assert artifact.read("model.onnx", limit=10**7) == FILES["model.onnx"]
    with pytest.raises(BundleDamagedError, match="too large"):
        artifact.read("model.onnx", limit=10**5)
    with pytest.raises(BundleDamagedError, match="no such file"):
        artifact.read("report", limit=10**6)


def test_a_tag_that_moves_does_not_move_its_digest(registry: Registry) -> None:
    first = pinned(f"oci://{registry.host}/repo@{as_files(registry)}")
    registry.push("1", registry.layer(b"another", "model.onnx"))
    assert Artifact(first).read("manifest.json", limit=9) == b"{}"
    assert Artifact(f"oci://{registry.host}/repo:1").read("model.onnx", limit=9) == b"another"


@pytest.mark.parametrize("way", ["Basic", "Bearer"])
@pytest.mark.parametrize("place", ["environment", "docker"])
def test_a_registry_may_require_a_login(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str, place: str
) -> None:
    as_files(registry)
    registry.login = way
    address = f"oci://{registry.host}/repo:1"
    with pytest.raises(RemoteError, match="requires a login") as refused:
        Artifact(address)
    assert refused.value.found == "no password"
    if place == "environment":
        monkeypatch.setenv("CANDOR_REGISTRY_USER", "me")
        monkeypatch.setenv("CANDOR_REGISTRY_PASSWORD", "wrong")
        with pytest.raises(RemoteError, match="requires a login"):
            Artifact(address)
        monkeypatch.setenv("CANDOR_REGISTRY_PASSWORD", "secret")
    else:
        (tmp_path / "docker").mkdir()
        auths = {"elsewhere": {"auth": "eDp5"}, f"https://{registry.host}/v2/": {"auth": LOGIN.split()[1]}}
        (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": auths}))
    assert Artifact(address).read("manifest.json", limit=9) == b"{}"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"../up": b""}, "leads elsewhere"),
        ({"/etc/passwd": b""}, "leads elsewhere"),
        ({"a/../../up": b""}, "leads elsewhere"),
        ({"link": entry(tarfile.SYMTYPE, "/etc/passwd")}, "a link"),
        ({"link": entry(tarfile.LNKTYPE, "/etc/passwd")}, "a link"),
        ({"pipe": entry(tarfile.FIFOTYPE)}, "a link, a device"),
        ({"a": b"", "a/b": b""}, "have one name"),
        ({".wh.model.onnx": b""}, "the removal of a file"),
        ({"n" * 100_000: b""}, "an extended header"),
        ({str(number): b"" for number in range(12)}, "too many entries"),
    ],
)
def test_an_archive_leads_nowhere_else(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Any, told: str
) -> None:
    monkeypatch.setattr(layers, "MAX_FILES", 11)
    registry.push("1", registry.layer(gzip.compress(tar(files), 1), kind=f"{TAR}+gzip"))
    folder = tmp_path / "inside"
    folder.mkdir()
    with pytest.raises(BundleDamagedError, match=told):
        Artifact(f"oci://{registry.host}/repo:1").pull(folder)
    assert list(tmp_path.iterdir()) == [folder]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (gzip.compress(tar({"zeros": bytes(2_000_000)})), "too large unpacked"),
        (gzip.compress(tar({"a": bytes(1000)}))[:-30], "not a valid tar file"),
        (b"\x1f\x8bnonsense", "not a valid tar file"),
        (b"\x28\xb5\x2f\xfd and more", "zstd"),
        (bytes(range(256)) * 4, "not a valid tar file"),
    ],
)
def test_an_archive_that_is_none_is_refused(registry: Registry, tmp_path: Path, content: bytes, told: str) -> None:
    registry.push("1", registry.layer(content, kind=f"{TAR}+gzip"))
    with pytest.raises(BundleDamagedError, match=told):
        Artifact(f"oci://{registry.host}/repo:1").pull(tmp_path, limit=10**6)


def test_a_registry_that_lies_is_refused(registry: Registry, tmp_path: Path) -> None:
    address = f"oci://{registry.host}/repo:1"
    found = as_files(registry)
    layer = digest(FILES["model.onnx"])
    for content, told in (
        (FILES["model.onnx"][:-1] + b"x", "differs from its digest"),
        (FILES["model.onnx"] + b"x", "too large"),
    ):
        registry.blobs[layer] = content
        with pytest.raises(BundleDamagedError, match=told):
            Artifact(address).pull(tmp_path)
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(BundleDamagedError, match="too large"):
        Artifact(address).pull(tmp_path, limit=1000)
    registry.manifests[found] += b" "
    with pytest.raises(BundleDamagedError, match="the manifest differs from its digest"):
        Artifact(f"oci://{registry.host}/repo@{found}")
    with pytest.raises(BundleDamagedError, match="no such file"):
        Artifact(f"oci://{registry.host}/repo:2")
    with pytest.raises(RemoteError, match="cannot be found"):
        pinned(f"oci://{registry.host}/repo:2")
    with pytest.raises(RemoteError, match="cannot be reached"):
        Artifact("oci://127.0.0.1:9/repo:1")


@pytest.mark.parametrize(
    "changes",
    [
        {"mediaType": "text/plain"},
        {"config": None},
        {"layers": None},
        {"layers": ["x"]},
        {"layers": [{"mediaType": TAR, "digest": "sha512:12", "size": 1}]},
        {"layers": [{"mediaType": TAR, "digest": digest(b""), "size": -1}]},
        {"layers": [{"mediaType": "text/plain", "digest": digest(b""), "size": 0}]},
        {"layers": [{"mediaType": "application/vnd.oci.empty.v1+json"}] * 1025},
        {"mediaType": INDEX, "manifests": []},
        {"mediaType": INDEX, "manifests": [{"digest": "x"}]},
        {"mediaType": INDEX, "manifests": 3},
    ],
)
def test_a_manifest_that_is_none_is_refused(registry: Registry, changes: dict[str, Any]) -> None:
    registry.push("1", **changes)
    with pytest.raises(BundleFormatError):
        Artifact(f"oci://{registry.host}/repo:1")
    registry.manifests["1"] = b"["
    with pytest.raises(BundleFormatError, match="not valid JSON"):
        Artifact(f"oci://{registry.host}/repo:1")


@pytest.mark.parametrize(
    "text", ["oci://host/repo", "oci://host", "oci://host/Repo:1", "oci://host/a/../b:1", "oci://host/repo:1@sha256:12"]
)
def test_an_address_names_one_artifact(text: str) -> None:
    with pytest.raises(BundleError, match="not the address of an artifact"):
        Reference.parse(text)
    with pytest.raises(BundleError) as refused:
        Reference.parse("oci://me:secret@host/repo:1")
    assert "secret" not in str(refused.value)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[str]:
    """Debian's docker-registry on a port of its own."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed")
    config = tmp_path / "registry.yml"
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as free:
        host = f"127.0.0.1:{free.server_port}"
    storage = {"filesystem": {"rootdirectory": str(tmp_path / "registry")}}
    config.write_text(json.dumps({"version": 0.1, "storage": storage, "http": {"addr": host}}))
    running = subprocess.Popen([program, "serve", str(config)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def answers() -> bool:
        try:
            return httpx.get(f"http://{host}/v2/", timeout=PATIENCE_S).status_code == 200
        except httpx.TransportError:
            return False

    try:
        until(answers, "the registry does not start")
        yield host
    finally:
        running.terminate()
        running.wait()


def test_a_bundle_comes_back_from_a_real_registry(real: str, tmp_path: Path) -> None:
    path = bundles.write(tmp_path / "bundles", make_contents())
    pushed_layers = []
    with httpx.Client(base_url=f"http://{real}/v2/team/model", timeout=PATIENCE_S) as client:
        for name, content in contents(path).items():
            place = httpx.URL(client.post("/blobs/uploads/").headers["location"])
            assert client.put(place.copy_merge_params({"digest": digest(content)}), content=content).status_code == 201
            note = {TITLE: name}
            pushed_layers.append(
                {"mediaType": TAR, "digest": digest(content), "size": len(content), "annotations": note}
            )
        document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": pushed_layers[0], "layers": pushed_layers}
        pushed = client.put("/manifests/3", json=document, headers={"content-type": MANIFEST})
    url = pinned(f"oci://{real}/team/model:3")
    assert url.endswith(pushed.headers["docker-content-digest"])
    manifest, data = remote_manifest(url)
    (target := tmp_path / "copy").mkdir()
    copy(url, manifest, data, target)
    assert contents(target) == contents(path)
