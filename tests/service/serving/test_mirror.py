"""Bundles of a remote folder: copied, verified, kept when it is gone; and remotes that mean harm."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fsspec.implementations.memory import MemoryFileSystem
from typer.testing import CliRunner

import bundle as bundles
from bundle import BundleError, RemoteError, remote, signatures
from bundle.manifest import dump
from service.cli import app
from service.commands.local import settings_of
from service.errors import BundleRefusedError, BundleUnreachableError, ConfigurationError
from service.serving import mirror as mirror_module
from service.serving.mirror import Mirror
from service.serving.verification import verified_in_place
from service.settings import Settings
from tests import mlflow_store
from tests.waiting import until

from ..conftest import contents

REMOTE = "memory://bucket/models"
Upload = Callable[[Path, str], None]


@pytest.fixture
def memory() -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()


@pytest.fixture
def upload(memory: Any) -> Upload:
    def run(folder: Path, to: str) -> None:
        for file in folder.rglob("*"):
            if file.is_file():
                memory.pipe(f"/bucket/models/{to}/{file.relative_to(folder)}", file.read_bytes())

    return run


@pytest.fixture
def begin(start: Any, tmp_path: Path) -> Any:
    return lambda bundles=REMOTE, cache="cache": start(bundles=bundles, bundle_cache=tmp_path / cache)


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(REMOTE, tmp_path / "copies")


def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("no route to the bucket")

    monkeypatch.setattr(MemoryFileSystem, "ls", refuse)
    monkeypatch.setattr(MemoryFileSystem, "open", refuse)


def nothing_half_written(folder: Path) -> bool:
    return not list(folder.rglob(".unfinished-*"))


def test_it_is_served_and_a_newer_bundle_becomes_a_proposal(
    begin: Any, upload: Upload, digits: Any, tmp_path: Path
) -> None:
    upload(digits.bundle.path, "digits/1")
    (old := tmp_path / "cache" / "elsewhere" / "digits" / "1").mkdir(parents=True)
    os.utime(old, (0, 0))
    service = begin()
    assert service.http.get("/readyz").json()["models"] == {"digits": "r1"}
    assert not old.exists()
    assert len(service.predict(digits.images[:2])) == 2
    newer = bundles.write(Path(shutil.copytree(digits.root, tmp_path / "newer")), contents(digits.bundle))
    upload(newer, "digits/2")
    assert service.http.post("/v1/models/digits/load").json()["refused"] == {}
    newest = service.revisions()["items"][0]
    assert (newest["state"], newest["bundle"]) == ("proposed", 2)
    service.activate(newest["id"])
    assert service.predict(digits.images[:1])
    assert service.metric("candor_bundles_listed") == 1
    assert nothing_half_written(tmp_path / "cache")
    service.close()
    second = begin(cache="elsewhere")  # as a further replica, with no copies yet
    assert second.http.get("/readyz").json()["models"] == {"digits": newest["id"]}
    assert [path.name for path in (tmp_path / "elsewhere").glob("*/digits/*")] == ["2"]
    assert second.rollback()["active"] == "r1"
    assert len(list((tmp_path / "elsewhere").glob("*/digits/*"))) == 2


def test_signatures_are_copied_also_where_they_come_later(
    start: Any, upload: Upload, digits: Any, tmp_path: Path
) -> None:
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    remote_one = {"bundles": REMOTE, "bundle_cache": tmp_path / "cache", "trusted_keys": public}
    folder = Path(shutil.copytree(digits.bundle.path, tmp_path / "to-sign"))
    upload(folder, "digits/1")
    with pytest.raises(BundleRefusedError, match="not signed"):
        start(**remote_one)
    signatures.sign(bundles.verify(folder), key)
    upload(folder, "digits/1")
    assert len(start(**remote_one).predict(digits.images[:2])) == 2


def test_what_is_served_stays_when_the_remote_is_gone(
    begin: Any, upload: Upload, digits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(digits.bundle.path, "digits/1")
    first = begin()
    unreachable(monkeypatch)
    assert first.http.post("/v1/models/digits/load").json()["revision"] == "r1"
    answer = first.http.get("/readyz")
    assert (answer.status_code, answer.json()["ready"]) == (200, True)
    assert "no route to the bucket" in answer.json()["problems"]["bundles"]
    assert first.metric("candor_bundles_listed") == 0
    first.close()
    second = begin()  # from the copies
    assert second.http.get("/readyz").json()["models"] == {"digits": "r1"}
    assert second.predict(digits.images[:1])
    second.close()
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(BundleUnreachableError, match="no route to the bucket"):
        begin()


def test_a_damaged_copy_is_replaced(begin: Any, upload: Upload, digits: Any, tmp_path: Path) -> None:
    upload(digits.bundle.path, "digits/1")
    begin().close()
    (copy,) = (tmp_path / "cache").glob("*/digits/1")
    (copy / "model.onnx").write_bytes(b"")
    assert begin().http.get("/readyz").json()["models"] == {"digits": "r1"}
    assert bundles.verify(copy).id == digits.bundle.id


def test_a_single_bundle_is_pinned_to_its_digest(begin: Any, upload: Upload, digits: Any) -> None:
    upload(digits.bundle.path, "single")
    url = f"{REMOTE}/single"
    with pytest.raises(BundleRefusedError, match="pinned to") as refused:
        begin(f"{url}@sha256:{64 * 'a'}")
    assert refused.value.found == digits.bundle.id
    assert begin(f"{url}@sha256:{digits.bundle.id}").http.get("/readyz").json()["models"] == {"digits": "r1"}


def test_a_local_bundle_is_pinned_too(begin: Any, digits: Any) -> None:
    with pytest.raises(BundleRefusedError, match="pinned to"):
        begin(f"{digits.bundle.path}@sha256:{64 * 'a'}")
    service = begin(f"{digits.bundle.path}@sha256:{digits.bundle.id}")
    assert service.http.get("/readyz").json()["models"] == {"digits": "r1"}


def test_another_bundle_under_the_same_version_is_refused(
    mirror: Mirror, upload: Upload, digits: Any, tmp_path: Path
) -> None:
    upload(digits.bundle.path, "digits/1")
    mirror.refresh()
    (location,) = mirror.locations()
    mirror.fetch(location, partial(verified_in_place, location))
    copy = bundles.verify(location.path)
    mirror.check_unchanged(copy)
    upload(bundles.write(tmp_path / "other", contents(digits.bundle)), "digits/1")
    with pytest.raises(BundleRefusedError, match="differs from its copy"):
        mirror.check_unchanged(copy)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("model.onnx", b"another", "differs from the manifest"),  # changed after the manifest was read
        ("model.onnx", None, "no such file"),
        ("calibrator.json", bytes(2**24 + 1), "too large"),
        ("manifest.json", b"{}", "no checksum"),
    ],
)
def test_other_content_is_refused_and_nothing_stays(
    mirror: Mirror,
    memory: Any,
    upload: Upload,
    digits: Any,
    tmp_path: Path,
    name: str,
    content: bytes | None,
    told: str,
) -> None:
    upload(digits.bundle.path, "digits/1")
    file = f"/bucket/models/digits/1/{name}"
    memory.rm(file)
    if content is not None:
        memory.pipe(file, content)
    mirror.refresh()
    (location,) = mirror.locations()
    with pytest.raises(BundleRefusedError, match=told):
        mirror.fetch(location, partial(verified_in_place, location))
    assert not location.path.exists()
    assert nothing_half_written(tmp_path)


def test_a_manifest_that_leads_elsewhere_is_refused(
    mirror: Mirror, memory: Any, upload: Upload, digits: Any, tmp_path: Path
) -> None:
    manifest = digits.bundle.manifest
    outside = manifest.model_copy(update={"files": {**manifest.files, "../../../outside": 64 * "a"}})
    for changed, told in (
        (outside, "does not belong"),
        (manifest.model_copy(update={"model": "other"}), "another model"),
    ):
        upload(digits.bundle.path, "digits/1")
        memory.pipe("/bucket/models/digits/1/manifest.json", dump(changed))
        mirror.refresh()
        (location,) = mirror.locations()
        with pytest.raises(BundleRefusedError, match=told):
            mirror.fetch(location, partial(verified_in_place, location))
    assert not list(tmp_path.rglob("outside"))


def test_an_artifact_is_one_bundle_at_the_digest_of_its_tag(
    digits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = digits.bundle.path  # tests/bundle/test_registry.py reads real artifacts
    digest, read = 64 * "a", []

    def manifest(url: str) -> Any:
        read.append(url)
        return digits.bundle.manifest, (files / "manifest.json").read_bytes()

    monkeypatch.setattr(mirror_module, "pinned", lambda url: f"{url.rpartition(':')[0]}@sha256:{digest}")
    monkeypatch.setattr(mirror_module, "remote_manifest", manifest)
    monkeypatch.setattr(
        mirror_module, "copy", lambda *arguments: shutil.copytree(files, arguments[3], dirs_exist_ok=True)
    )
    found = Mirror("oci://host/digits:latest", tmp_path)
    found.refresh()
    (location,) = found.locations()
    found.fetch(location, partial(verified_in_place, location))
    assert bundles.verify(location.path).id == digits.bundle.id
    assert set(read) == {f"oci://host/digits@sha256:{digest}"}


def test_an_alias_of_mlflow_is_one_bundle_at_the_version_that_it_names(
    begin: Any, digits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = mlflow_store.client(tmp_path / "store", monkeypatch)
    mlflow_store.register(client, "digits-model", "champion", digits.bundle.path)
    address = "models:/digits-model@champion"
    pinned = begin(f"{address}@sha256:{digits.bundle.id}")
    assert pinned.predict(digits.images[:2])
    pinned.close()
    service = begin(address)
    assert service.http.get("/readyz").json()["models"] == {"digits": "r1"}
    newer = bundles.write(Path(shutil.copytree(digits.root, tmp_path / "newer")), contents(digits.bundle))
    mlflow_store.register(client, "digits-model", "champion", newer)
    assert service.http.post("/v1/models/digits/load").json()["refused"] == {}
    newest = service.revisions()["items"][0]
    assert (newest["state"], newest["bundle"]) == ("proposed", 2)
    service.activate(newest["id"])
    assert len(service.predict(digits.images[:2])) == 2
    assert nothing_half_written(tmp_path / "cache")
    service.close()
    with pytest.raises(BundleRefusedError, match="pinned"):
        begin(f"{address}@sha256:{digits.bundle.id}", cache="empty")


def test_what_mlflow_does_not_have_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = mlflow_store.client(tmp_path / "store", monkeypatch)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "MLmodel").write_text("flavors: {}")
    mlflow_store.register(client, "digits", "champion", tmp_path / "other")
    missing = Mirror("models:/digits@challenger", tmp_path / "copies")
    missing.refresh()
    assert "alias challenger not found" in str(missing.problem)
    with pytest.raises(BundleError, match=r"manifest.json: no such file \(found MLmodel"):
        Mirror("models:/digits@champion", tmp_path / "copies").refresh()
    monkeypatch.setitem(sys.modules, "mlflow", None)
    missing.refresh()
    assert "pip install mlflow-skinny" in str(missing.problem)


def test_a_listing_leads_nowhere_else(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {
        REMOTE: ["..", ".", "../x", "UPPER", "a b", "digits"],
        f"{REMOTE}/digits": ["..", "01", "0", "x", "-1", "7"],
    }
    monkeypatch.setattr(remote, "names", lambda url: listed[url])
    mirror.refresh()
    assert [(location.model, location.version) for location in mirror.locations()] == [("digits", 7)]


def test_a_transfer_that_is_cut_off_leaves_nothing_and_the_next_one_works(
    mirror: Mirror, upload: Upload, digits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(digits.bundle.path, "digits/1")
    mirror.refresh()
    (location,) = mirror.locations()

    def cut(*_: Any, **__: Any) -> str:
        raise RemoteError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(remote, "fetch", cut)
        with pytest.raises(BundleUnreachableError, match="cut off"):
            mirror.fetch(location, partial(verified_in_place, location))
    assert not location.path.exists()
    assert nothing_half_written(tmp_path)
    mirror.fetch(location, partial(verified_in_place, location))
    assert bundles.verify(location.path).id == digits.bundle.id


def test_replicas_of_a_node_that_need_a_bundle_at_once_transfer_it_once(
    spawn: Any, digits: Any, tmp_path: Path
) -> None:
    asked: Counter[str] = Counter()

    class Folder(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked[self.path] += 1
            if self.path.endswith(".onnx"):
                until(lambda: asked["/digits/"] == 2)  # both have listed what there is, and need it
            super().do_GET()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Folder, directory=str(digits.root)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        states = [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "other")]
        shared = {"bundles": url, "bundle_cache": str(tmp_path / "cache"), "wait": False}
        for replica in [spawn(database_url=state, **shared) for state in states]:
            replica.wait_until_it_listens()
            assert replica.http.get("/readyz").json()["models"] == {"digits": "r1"}
    finally:
        server.shutdown()
        server.server_close()
    assert asked["/digits/1/model.onnx"] == 1


def test_settings_name_what_cannot_be_a_folder(tmp_path: Path) -> None:
    for text, told in (
        ("s3://bucket/x?version=1", "no query"),
        ("https://a:b@host/x", "password"),
        ("x@sha256:1", "digest"),
    ):
        with pytest.raises(ValueError, match=told):
            Settings(bundles=text)
    with pytest.raises(ConfigurationError) as refused:
        settings_of({"bundles": "https://someone:secret@host/x"})
    assert "secret" not in f"{refused.value} {refused.value.found}"
    assert Settings(bundles="var/bundles").bundle_folder == Path("var/bundles")
    folders = {Settings(bundles=url, bundle_cache=tmp_path).bundle_folder for url in (REMOTE, f"{REMOTE}/a")}
    assert len({folder.parent for folder in folders}) == 1
    assert len(folders) == 2


def test_doctor_lists_it_and_copies_nothing(digits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANDOR_BUNDLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CANDOR_DATABASE_URL", f"sqlite:///{tmp_path}/state.db")

    def look(url: str) -> tuple[int, dict[str, Any]]:
        monkeypatch.setenv("CANDOR_BUNDLES", url)
        done = CliRunner().invoke(app, ["doctor", "--json"])
        return done.exit_code, {finding["subject"]: finding for finding in json.loads(done.stdout)}

    code, found = look(f"file://{digits.root}")
    assert (code, found["remote bundles"]["state"], "bundles" in found) == (0, "ok", False)
    assert found["remote bundles"]["found"].startswith("1, 0 of them copied")
    assert not (tmp_path / "cache").exists()
    code, found = look(f"file://{tmp_path}/nowhere")
    assert (code, found["remote bundles"]["state"]) == (1, "bad")
