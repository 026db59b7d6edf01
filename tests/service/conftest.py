"""Real parts for the service's tests: a trained bundle, running services, PostgreSQL where one answers."""

from __future__ import annotations

import asyncio
import functools
import itertools
import math
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import numpy as np
import numpy.typing as npt
import psycopg
import pytest
import structlog
from fastapi import routing
from fastapi.dependencies import models as fastapi_caches
from httpx._config import create_ssl_context
from httpx._transports import default as transports
from sqlalchemy import delete, func, select
from typer import testing
from typer.main import get_command
from typer.testing import CliRunner

import bundle as bundles
from bundle import Bundle, BundleContents
from service.app import Candor, create_app
from service.cli import app
from service.commands import output
from service.commands.process import Server
from service.inference.runtimes import open_runtime
from service.inference.session import Session
from service.recalibration import refit_process
from service.rest.intake import Intake
from service.row_files.check import CheckTask, check
from service.runtime import Runtime
from service.serving.plane import Plane
from service.serving.proof import Proofs
from service.settings import Settings
from service.state import tables
from service.state.database import Database
from service.state.labelled_sets import Content
from tests.conftest import BIN, MadeOnce
from tests.conftest import Digits as Digits
from tests.ports import free_port
from tests.waiting import PATIENCE_S, WAIT, until

from .cluster import Cluster

POLICIES = Path(__file__).parents[2] / "examples" / "policies"
collect_ignore = ["generated", "on_ray.py"]  # programs of other environments: a generated client's, Ray's
_NUMBERS = itertools.count()
_TLS = ssl.create_default_context()  # once: each reads all certificates of the machine
_PROVEN: set[str] = set()  # ids of bundles
ROWS_PER_REQUEST = 256
_OF_A_FIRST_REVISION = {"bundles", "policies"}  # settings that it depends on
# In the child's place: one that asks for a look, and then takes its time.
SLOW = """
import sys, time
say = lambda text: print(text, flush=True)
sys.stdin.readline()
say('{"progress": "reading rows", "step": 1}')
if LOOKS:
    certify = '{"auto-read": {"basis": "traffic", "earliest": 1, "groups": "labelled"}}'
    groups = '{"gate": "", "labelled": ""}'
    show = '{"show": {"rows": "traffic", "gate": 1, "reference": "", "groups": '
    say(show + groups + ', "certify": ' + certify + '}}')
    sys.stdin.readline()
say('{"progress": "comparing", "step": 4}')
time.sleep(600)
"""


def contents(bundle: Bundle, **changes: Any) -> BundleContents:
    """What a bundle was written from, without vocabulary and columns, with changes."""
    manifest = bundle.manifest
    fields: dict[str, Any] = {
        "model": manifest.model,
        "labels": manifest.labels,
        "input": manifest.input,
        "model_bytes": bundle.model_bytes,
        "calibrator": bundle.calibrator,
        "reference": bundle.reference,
        "golden": bundle.golden,
        "architecture": manifest.architecture,
        "training": manifest.training,
        "versions": manifest.versions,
        "metrics": manifest.metrics,
        "report": bundle.report,
        "diagrams": bundle.diagrams,
    }
    return BundleContents(**(fields | changes))


class HeldUp:
    """A plane whose worker waits before each run until `go` is set; notes the rows of each request, run by run."""

    def __init__(self, plane: Plane) -> None:
        self.go = threading.Event()
        self.runs: list[list[int]] = []
        self._plane = plane
        self._busy = threading.Event()
        self._run = plane._batcher._run
        plane._batcher._run = self
        plane._batcher._row_s = 0.0  # else what is known to be quick would run, and wait, on the event loop's thread

    def __call__(self, requests: list[Any]) -> Any:
        self._busy.set()
        assert self.go.wait(PATIENCE_S)
        self.runs.append([request.rows for request in requests])
        return self._run(requests)

    def wait_until_busy(self) -> None:
        """Return when the worker has taken something, and waits with it."""
        assert self._busy.wait(PATIENCE_S), "nothing came to the worker"

    def wait_for_rows(self, rows: int) -> None:
        """Return when so many rows wait behind what the worker has taken."""
        until(lambda: self._plane.queued_rows == rows, lambda: f"{self._plane.queued_rows} rows wait, not {rows}")


def _ended(job: dict[str, Any]) -> bool:
    return job["state"] not in ("queued", "running")


class Caller:
    """Speaks to a service over HTTP, as a client would."""

    def __init__(self, url: str, **headers: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=PATIENCE_S, headers=headers, verify=_TLS)

    def predict(self, images: npt.NDArray[np.uint8], **parameters: Any) -> list[dict[str, Any]]:
        """Return the predictions of a batch, sent as JSON."""
        predictions = []
        for start in range(0, len(images), ROWS_PER_REQUEST):
            body = {"inputs": images[start : start + ROWS_PER_REQUEST].tolist()}
            response = self.http.post("/predict", json=body, params=parameters)
            assert response.status_code == 200, response.text
            predictions += response.json()["predictions"]
        return predictions

    def teach(self, images: npt.NDArray[np.uint8], labels: list[str]) -> dict[str, Any]:
        """Predict images and send their labels back; returns the receipt."""
        items = [
            {"prediction_id": prediction["prediction_id"], "label": label, "source": "reviewer"}
            for prediction, label in zip(self.predict(images, policy="auto-read"), labels, strict=True)
        ]
        response = self.http.post("/feedback", json={"items": items})
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def recalibrate(self, **body: Any) -> httpx.Response:
        """Refit and wait for the result."""
        return self.http.post("/recalibrate", json=body, headers=WAIT)

    def job(self, location: str, until_: Callable[[dict[str, Any]], bool] = _ended) -> dict[str, Any]:
        """Return a job once it is as wanted: at its end, where nothing is said."""
        return until(lambda: found if until_(found := self.http.get(location).json()) else None, location)

    def revisions(self) -> dict[str, Any]:
        """Return the page of revisions."""
        answer: dict[str, Any] = self.http.get("/v1/models/digits/revisions").json()
        return answer

    def move(self, path: str, epoch: int, **body: Any) -> httpx.Response:
        """POST something that moves the pointer."""
        return self.http.post(f"/v1/models/digits/{path}", json=body, headers={"if-match": f'"{epoch}"'})

    def activate(self, revision: str, **body: Any) -> dict[str, Any]:
        """Activate a revision at the present epoch."""
        reason = {"reason": "it is what the test is about", "accept_change": True}
        response = self.move(f"revisions/{revision}/activate", self.revisions()["epoch"], **(reason | body))
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def rollback(self) -> dict[str, Any]:
        """Roll back at the present epoch."""
        response = self.move("rollback", self.revisions()["epoch"])
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def propose_policy(self, name: str = "default", share: float = 0.5) -> str:
        """Propose a policy, which needs no labels, and return the revision."""
        document = {
            "positive": "top",
            "bands": [{"action": "accept", "when": {"min_probability": share}}, {"action": "review"}],
        }
        response = self.http.put(f"/v1/models/digits/policies/{name}", json=document)
        assert response.status_code == 201, response.text
        answer: str = response.json()["id"]
        return answer

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that carry these labels."""
        total = 0.0
        for line in self.http.get("/metrics").text.splitlines():
            given, _, value = line.rpartition(" ")
            if given.partition("{")[0] == name and all(f'{key}="{text}"' in given for key, text in labels.items()):
                total += float(value)
        return total

    def close(self) -> None:
        self.http.close()


def forget_endpoints() -> None:
    """Empty FastAPI's caches of endpoints: they would keep 10 MB of every service that this process has had."""
    for cache in vars(fastapi_caches).values():
        if hasattr(cache, "cache_clear"):
            cache.cache_clear()


def read_endpoints_once() -> None:
    """Let FastAPI read the signature of an endpoint once, not again for every service: most of what a start takes."""
    read, field = routing._build_dependant_with_parameterless_dependencies, routing.create_model_field
    found: dict[Any, Any] = {}
    fields: dict[Any, Any] = {}

    def build(*, path: str, call: Callable[..., Any], dependencies: Sequence[Any]) -> Any:
        if getattr(call, "__closure__", None):  # made for one service, which it would keep
            return read(path=path, call=call, dependencies=dependencies)
        key = (path, call, *dependencies)
        if key not in found:
            found[key] = read(path=path, call=call, dependencies=dependencies)
        return found[key]

    def create(name: str, type_: Any, *, mode: Any) -> Any:
        key = (name, type_, mode)
        if key not in fields:
            fields[key] = field(name=name, type_=type_, mode=mode)
        return fields[key]

    routing._build_dependant_with_parameterless_dependencies = build
    routing.create_model_field = create  # type: ignore[assignment,attr-defined]


read_endpoints_once()


def read_certificates_once() -> None:
    """Let httpx read the certificates that it trusts once, not again for every client: 30 ms of each."""
    found: dict[Any, ssl.SSLContext] = {}

    def create(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is not True or cert is not None:
            return create_ssl_context(verify, cert, trust_env)
        key = (trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        if key not in found:
            found[key] = create_ssl_context(trust_env=trust_env)
        return found[key]

    transports.create_ssl_context = create  # type: ignore[attr-defined]


read_certificates_once()
# The tree of an app's commands, once and not again for every command that is run here: four fifths of what most take.
testing._get_command = functools.cache(get_command)  # type: ignore[attr-defined]


class InThread(Caller):
    """A service behind uvicorn in a thread of this process.

    Its socket listens before the service does, so that nobody needs to wait for the start: a request waits for it.
    """

    def __init__(self, settings: Settings, *, loop: str = "uvloop", port: int = 0) -> None:
        self.application: Candor = create_app(settings)
        self._socket = socket.create_server((settings.host, port))
        host, port = self._socket.getsockname()[:2]
        super().__init__(f"http://{host}:{port}")
        self._server = Server(settings, self.application)
        self._server.config.loop = loop
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()
        assert self.http.get("/livez").status_code == 200

    @property
    def runtime(self) -> Runtime:
        return self.application.runtime

    def teach(self, images: npt.NDArray[np.uint8], labels: list[str]) -> dict[str, Any]:
        receipt = super().teach(images, labels)
        assert self.runtime.log.flush()
        return receipt

    def looks(self) -> int:
        """Return the number of looks, at any rows, that are recorded."""
        with self.runtime.database.connect() as connection:
            return connection.execute(select(func.count()).select_from(tables.exposures)).scalar_one()

    def close(self) -> None:
        super().close()
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the service did not stop"
        self._socket.close()
        forget_endpoints()


class Process(Caller):
    """A service as operators run it: `candor serve` or `candor worker` in a process of its own."""

    def __init__(self, environment: dict[str, str], *, port: int, command: str = "serve") -> None:
        self.popen = subprocess.Popen(
            [BIN / "candor", command, "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.log: list[str] = []
        self._listens = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        super().__init__(f"http://127.0.0.1:{port}")

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.log.append(line)
            if " running on http" in line:
                self._listens.set()
        self._listens.set()

    def wait_until_it_listens(self) -> None:
        assert self._listens.wait(PATIENCE_S), "it did not start"
        assert self.popen.poll() is None, "".join(self.log)

    def kill(self) -> None:
        """Kill it at once, as a power cut would."""
        self.popen.kill()
        self.popen.wait(PATIENCE_S)
        self.close()

    def end(self) -> tuple[int, str]:
        """Wait for its end; returns the exit status and what it said."""
        status = self.popen.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return status, "".join(self.log)

    def close(self) -> None:
        super().close()
        if self.popen.poll() is None:
            self.popen.terminate()
            self.popen.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self.popen.stderr is not None
        self.popen.stderr.close()


# A dimmed digit's probability changes by up to 0.7, which would leave every recalibration to a person with a reason.
_CAPS = ("limit_flipped", "limit_flag_rate_ratio", "limit_probability_change")
NO_CAPS = {f"CANDOR_{name.upper()}": "none" for name in _CAPS}


def settings_of(digits: Digits, state: Path | str, **changes: Any) -> Settings:
    """Settings of a service on the trained bundle with its own state."""
    url = state if isinstance(state, str) else f"sqlite:///{state}/state.db"
    uploads = digits.root.parent / "uploads" / str(next(_NUMBERS))
    fields: dict[str, Any] = {"bundles": digits.root, "policies": POLICIES, "database_url": url, "uploads": uploads}
    # Tests keep every processor busy: refits would wait for their end, and predictions beyond their deadline. Polling
    # 20 times a second, a service took a sixteenth of a processor for as long as it lived.
    fields |= {"poll_interval_s": 0.25, "refit_cpu": "low", "deadline_s": PATIENCE_S}
    fields |= dict.fromkeys(_CAPS)
    return Settings(**fields | changes)


@pytest.fixture
def root(digits: Digits, tmp_path: Path) -> Path:
    """A copy of the bundles that may be damaged."""
    return Path(shutil.copytree(digits.root, tmp_path / "bundles"))


@pytest.fixture(scope="module")
def session(digits: Digits) -> Session:
    """The model without a service."""
    return Session(digits.bundle, provider="cpu", threads=1)


@pytest.fixture(autouse=True, scope="session")
def _plain_logs() -> None:
    """Services in this process log plainly; the default renders every local variable of a traceback.

    They log to standard output as it is now, not into that of a command which runs beside them.
    """
    structlog.configure(
        logger_factory=structlog.WriteLoggerFactory(sys.stdout),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
    )


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("CANDOR_") and not name.startswith("CANDOR_TEST_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True, scope="session")
def _proven_once(digits: Digits) -> Iterator[None]:
    """Prove each first bundle once: a child process takes a second, and most services of tests have an empty state."""
    _PROVEN.add(digits.bundle.id)
    prove = Proofs.run

    def run(self: Proofs, found: bundles.Bundle, until: float = math.inf) -> None:
        if found.id not in _PROVEN:
            prove(self, found, until)
            _PROVEN.add(found.id)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Proofs, "run", run)
        yield


@pytest.fixture(scope="session")
def migrated(made_once: MadeOnce) -> Path:
    """An SQLite state with its tables and without a secret, to be copied, since all migrations take a while."""

    def make(folder: Path) -> None:
        forget_secret(f"sqlite:///{folder}/state.db")

    return made_once("migrated", make) / "state.db"


@pytest.fixture(scope="session")
def first_revision(digits: Digits, made_once: MadeOnce) -> Path:
    """As `migrated`, with the first revision of the digits, whose proof takes a service most of its start."""

    def make(folder: Path) -> None:
        InThread(settings_of(digits, folder)).close()
        forget_secret(f"sqlite:///{folder}/state.db")

    return made_once("first-revision", make) / "state.db"


def forget_secret(url: str) -> None:
    """Make the tables that a state lacks, and let every service that starts on a copy make a secret of its own."""
    database = Database.open(url)
    with database.begin() as connection:
        connection.execute(delete(tables.secrets))
    database.close()


@pytest.fixture(scope="session")
def launch(digits: Digits, migrated: Path, first_revision: Path) -> Callable[..., InThread]:
    """Start a service on a state folder; whoever does closes it."""

    def run(state: Path | str, *, port: int = 0, **changes: Any) -> InThread:
        if isinstance(state, Path) and not (state / "state.db").exists():
            shutil.copy(first_revision if _OF_A_FIRST_REVISION.isdisjoint(changes) else migrated, state / "state.db")
        return InThread(settings_of(digits, state, **changes), port=port)

    return run


@pytest.fixture(scope="session")
def launch_many(launch: Callable[..., InThread]) -> Callable[..., InThread]:
    """As `launch`, for a service of many bundles, which it proves in this process: a child takes half a second each."""

    def prove(self: Proofs, found: Bundle, until: float = math.inf) -> None:
        if found.id not in _PROVEN:
            open_runtime(found, **self._options)
            _PROVEN.add(found.id)

    def run(state: Path, **changes: Any) -> InThread:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Proofs, "run", prove)
            return launch(state, **changes)

    return run


@pytest.fixture(scope="session")
def shared(launch: Callable[..., InThread], tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    """One service for all tests that leave its revisions as they are."""
    running = launch(tmp_path_factory.mktemp("shared"))
    yield running
    running.close()


@pytest.fixture
def start(launch: Callable[..., InThread], tmp_path: Path) -> Iterator[Callable[..., InThread]]:
    """Start services of one's own, in this process; settings may be given."""
    started: list[InThread] = []

    def run(**changes: Any) -> InThread:
        state = changes.pop("state", tmp_path)
        started.append(launch(state, **changes))
        return started[-1]

    yield run
    for running in started:
        running.close()


@pytest.fixture
def service(start: Callable[..., InThread]) -> InThread:
    """A service of one's own, in this process."""
    return start()


@pytest.fixture
def hold() -> Iterator[Callable[[Plane], HeldUp]]:
    """Hold up the worker of a plane; at the end of the test it goes on, whatever happened."""
    held: list[HeldUp] = []

    def run(plane: Plane) -> HeldUp:
        held.append(HeldUp(plane))
        return held[-1]

    yield run
    for one in held:
        one.go.set()


def refit_processes() -> list[int]:
    """Process ids of the refits that this process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == os.getpid() and b"service.recalibration.refit_process" in command:
                found.append(int(entry.name))
    return found


@pytest.fixture
def in_place_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a script, with its `#!` line, run where the service starts Python for a child process."""

    def run(script: str) -> None:
        fake = tmp_path / "python"
        fake.write_text(script)
        fake.chmod(0o755)

        class Sys:
            executable = str(fake)

        monkeypatch.setattr("service.serving.child.sys", Sys)

    return run


@pytest.fixture
def checks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check uploads in this process: a child process takes a second to start, which is much for many small files."""

    async def checked(_: Intake, task: CheckTask) -> Content:
        return await asyncio.to_thread(check, task, bundles.verify(Path(task.bundle)))

    monkeypatch.setattr(Intake, "_checked", checked)


@pytest.fixture
def proofs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prove bundles in this process, for tests of many bundles: a child process takes half a second of CPU time."""

    def prove(self: Proofs, found: Bundle, until: float = math.inf) -> None:
        open_runtime(found, **self._options)

    monkeypatch.setattr(Proofs, "run", prove)


@pytest.fixture
def refits_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recalibrate in this process, for tests of many models: a child process takes two seconds of CPU time."""

    def recalibrate(theirs: socket.socket) -> None:
        with theirs, theirs.makefile("rb") as asked, theirs.makefile("wb") as told:
            refit_process.recalibrate(asked, told)

    @asynccontextmanager
    async def here(_module: str, _priority: str) -> AsyncIterator[Any]:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours, limit=2**26)
        complaints = asyncio.StreamReader()
        complaints.feed_eof()

        async def write(data: bytes) -> None:
            writer.write(data)

        running = asyncio.create_task(asyncio.to_thread(recalibrate, theirs))
        try:
            yield SimpleNamespace(write=write, stdout=reader, stderr=complaints)
            await running
        finally:
            writer.close()

    monkeypatch.setattr("service.recalibration.execution.child", here)


@pytest.fixture
def slow(in_place_of_python: Callable[[str], None]) -> Callable[[bool], None]:
    """Let refits take ten minutes, with or without a look."""

    def run(looks: bool = True) -> None:
        in_place_of_python(f"#!{sys.executable}\n{SLOW.replace('LOOKS', str(looks))}\n")

    return run


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server of the test's own."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not programs:
        pytest.skip("the programs of a PostgreSQL server are not installed")
    with tempfile.TemporaryDirectory() as folder:  # short enough for a socket, and open to another user
        opened = Cluster(Path(folder), programs[-1].parent)
        yield opened
        opened.crash()


@pytest.fixture(params=["sqlite", "postgresql"])
def on_both(request: pytest.FixtureRequest) -> InThread:
    """A service of one's own on each database."""
    changes = {}
    if request.param == "postgresql":  # set up before `start`, so that it is torn down after it
        address: str = request.getfixturevalue("postgresql_url")
        changes["state"] = address.replace("postgresql://", "postgresql+psycopg://")
    starter: Callable[..., InThread] = request.getfixturevalue("start")
    return starter(**changes)


@dataclass
class Spawn:
    """Starts `candor serve` and other commands as processes, on one state folder.

    Attributes:
        environment: Of the processes.
        first_revision: SQLite state that a service with the usual bundles and policies begins with.
    """

    environment: dict[str, str]
    first_revision: Path
    started: list[Process] = field(default_factory=list)

    def __call__(self, command: str = "serve", *, wait: bool = True, **changes: str) -> Process:
        port = free_port()
        environment = self.environment | {f"CANDOR_{name.upper()}": value for name, value in changes.items()}
        kind, _, state = environment["CANDOR_DATABASE_URL"].partition(":///")
        if kind == "sqlite" and _OF_A_FIRST_REVISION.isdisjoint(changes) and not Path(state).exists():
            shutil.copy(self.first_revision, state)
        running = Process(environment, port=port, command=command)
        self.started.append(running)
        if wait:
            running.wait_until_it_listens()
        return running

    def run(self, *arguments: str | Path, **changes: str) -> subprocess.CompletedProcess[str]:
        """Run `candor` with arguments in this process, which saves the half second that it takes to start."""
        given = [str(argument) for argument in arguments]
        environment = self._environment(changes)
        with pytest.MonkeyPatch.context() as patch:
            for console in (output.console, output.complaints):  # which read COLUMNS when they were made
                patch.setattr(console, "width", int(environment["COLUMNS"]))
            for name in [name for name in os.environ if name.startswith("CANDOR_TEST_")]:
                patch.delenv(name)  # `doctor` would tell of it
            done = CliRunner().invoke(app, given, env=environment)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return subprocess.CompletedProcess(given, done.exit_code, done.stdout, done.stderr)

    def process(self, *arguments: str | Path, **changes: str) -> subprocess.CompletedProcess[str]:
        """Run `candor` with arguments in a process of its own, to its end."""
        return subprocess.run(
            [BIN / "candor", *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env=self._environment(changes),
        )

    def _environment(self, changes: dict[str, str]) -> dict[str, str]:
        plain = {"COLUMNS": "200", "NO_COLOR": "1"}
        return plain | self.environment | {f"CANDOR_{name.upper()}": value for name, value in changes.items()}


@contextmanager
def spawning(digits: Digits, state: Path, first_revision: Path) -> Iterator[Spawn]:
    """Give what starts processes, and end them."""
    # Without COLUMNS, which pytest's processes set for themselves.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("CANDOR_", "COLUMNS"))}
    starter = Spawn(
        environment
        | NO_CAPS
        | {
            "CANDOR_BUNDLES": str(digits.root),
            "CANDOR_POLICIES": str(POLICIES),
            "CANDOR_DATABASE_URL": f"sqlite:///{state}/state.db",
            "CANDOR_UPLOADS": f"{state}/uploads",
            "CANDOR_POLL_INTERVAL_S": "0.25",
            "CANDOR_REFIT_CPU": "low",
            "CANDOR_DEADLINE_S": f"{PATIENCE_S}",
        },
        first_revision,
    )
    yield starter
    for running in starter.started:
        if running.popen.poll() is None:
            running.popen.kill()
        running.close()


@pytest.fixture
def spawn(digits: Digits, tmp_path: Path, first_revision: Path) -> Iterator[Spawn]:
    with spawning(digits, tmp_path, first_revision) as starter:
        yield starter


@pytest.fixture(scope="module")
def module_spawn(digits: Digits, tmp_path_factory: pytest.TempPathFactory, first_revision: Path) -> Iterator[Spawn]:
    """As `spawn`, for a process that serves a whole module."""
    with spawning(digits, tmp_path_factory.mktemp("module"), first_revision) as starter:
        yield starter


@pytest.fixture
def empty_postgresql_url() -> Iterator[str]:
    """A database of the test's own, without tables."""
    yield from new_postgresql()


@pytest.fixture(scope="session")
def migrated_postgresql() -> Iterator[str]:
    """A state on PostgreSQL with its tables and without a secret, to be copied, since all migrations take a second."""
    for url in new_postgresql():
        forget_secret(url)
        yield url


@pytest.fixture
def postgresql_url(migrated_postgresql: str) -> Iterator[str]:
    """A state of the test's own."""
    yield from new_postgresql(f'TEMPLATE "{urlsplit(migrated_postgresql).path[1:]}"')


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """One database for the whole session; whoever takes it empties it."""
    yield from new_postgresql()


def new_postgresql(how: str = "") -> Iterator[str]:
    """Give a new database on the test server, dropped at the end."""
    server = os.environ.get("CANDOR_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres")
    name = f"candor_test_{secrets.token_hex(6)}"
    try:
        with psycopg.connect(server, autocommit=True, connect_timeout=30) as connection:
            connection.execute(f'CREATE DATABASE "{name}" {how}')
            # Not to wait for the disk: no test crashes this server, and one that crashes a server has its own.
            connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    except psycopg.OperationalError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI needs PostgreSQL, and none answers at {server}: {error}")
        pytest.skip(f"no PostgreSQL answers at {server} (CANDOR_TEST_POSTGRES names another)")
    yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
