"""`candor serve --workers`: real processes behind one port, killed, stopped, and asked for what only all know."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import psycopg
import pytest
from sqlalchemy import select

from bundle.processors import thread_limits
from service.grpc.messages import message
from service.settings import Settings
from service.state import tables
from service.state.database import MIGRATION_LOCK, Database
from service.state.keys import KeyStore
from service.workers.plan import processors_each
from service.workers.supervisor import _SILENT_PINGS, Supervisor
from tests.children import children_of, freeze
from tests.ports import free_port
from tests.waiting import PATIENCE_S, WAIT, until

from .. import remote_models
from ..conftest import Digits, Process, Spawn
from ..remote_models import Hostile, give, upstream_of

WORKERS = 2
CLIENTS = 8


def worker_of(response: httpx.Response) -> str:
    """The process that answered: each begins its request ids with a prefix of its own."""
    return response.headers["x-request-id"].rpartition("-")[0]


def children(pid: int) -> list[int]:
    """The process ids of a process's children that have not ended."""
    return [child for child in children_of(pid) if is_alive(child)]


def leader(service: Process) -> int:
    """The process id of the first worker, as the log says."""
    ready = [json.loads(line) for line in service.log if '"worker ready"' in line]
    pid: int = [line["pid"] for line in ready if line["worker"] == 1][-1]
    return pid


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def clients(service: Process, number: int = CLIENTS) -> Iterator[list[httpx.Client]]:
    """Clients with a connection each; neighbours reach different workers."""
    with ExitStack() as stack:
        opened = [stack.enter_context(httpx.Client(base_url=service.url, timeout=PATIENCE_S)) for _ in range(number)]
        assert {client.get("/livez").status_code for client in opened} == {200}
        yield opened


@contextmanager
def one_for_each_worker(service: Process) -> Iterator[list[httpx.Client]]:
    """A client of each worker. The end of a connection is counted a moment later, so the next ones may be uneven."""
    found: dict[str, httpx.Client] = {}
    with clients(service, 4 * CLIENTS) as opened:
        for client in opened:
            found.setdefault(worker_of(client.get("/livez")), client)
        assert len(found) == WORKERS
        yield [*found.values()]


class Load:
    """Clients that send predictions, one after the other, until they are told to stop or lose the service."""

    def __init__(self, service: Process, body: dict[str, Any]) -> None:
        self.answered: list[httpx.Response] = []
        self.lost: list[str | None] = []  # the worker that had last answered the client of each lost request
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(service.url, body)) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _send(self, url: str, body: dict[str, Any]) -> None:
        worker = None
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            while not self._stop.is_set():
                try:
                    answer = client.post("/predict", json=body)
                    self.answered.append(answer)
                    worker = worker_of(answer)
                except httpx.ConnectError:
                    return
                except httpx.TransportError:
                    self.lost.append(worker)

    def until_more(self) -> None:
        before = len(self.answered)
        until(lambda: len(self.answered) >= before + 5 * CLIENTS)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)


@pytest.fixture(scope="module")
def upstream(launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    """The server of a model that the service asks for, and which answers when it should."""
    near = launch(tmp_path_factory.mktemp("near"))
    proxy = Hostile(near.url)
    yield proxy
    proxy.close()
    near.close()


@pytest.fixture(scope="module")
def service(
    module_spawn: Spawn, upstream: Hostile, digits: Digits, tmp_path_factory: pytest.TempPathFactory
) -> Process:
    """Workers on SQLite, all ready, with a model of their own and one on another server."""
    root = tmp_path_factory.mktemp("bundles")
    (root / "digits").symlink_to(digits.root / "digits")
    remote_models.write(root, digits.bundle, upstream_of(upstream.url))
    grpc_port = free_port()
    changes = {"bundles": str(root), "default_model": "digits", "grpc_port": str(grpc_port), "triton_metrics": "true"}
    running = module_spawn(workers=str(WORKERS), threads="1", **changes)
    running.grpc_address = f"127.0.0.1:{grpc_port}"
    until(lambda: running.http.get("/readyz").status_code == 200)
    return running


@pytest.fixture(scope="module")
def body(digits: Any) -> dict[str, Any]:
    return {"inputs": digits.dimmed[:1].tolist()}


def test_connections_are_spread_evenly_and_counts_are_those_of_all(service: Process, body: dict[str, Any]) -> None:
    with clients(service) as all_:
        answers = [client.post("/predict", json=body) for client in all_ for _ in range(5)]
        assert {answer.status_code for answer in answers} == {200}
        by_worker = [worker_of(answer) for answer in answers]
        counts = [by_worker.count(worker) for worker in set(by_worker)]
        assert len(counts) == WORKERS
        assert max(counts) - min(counts) <= 2 * 5, "but for a connection whose end is not counted yet"
        for client in all_[:WORKERS]:
            statistics = client.get("/v2/models/digits/stats").json()["model_stats"][0]
            assert statistics["inference_count"] == len(answers)
    assert service.metric("candor_http_requests_total", route="/predict", status="200") == len(answers)
    assert service.metric("candor_predictions_total") == len(answers)
    assert service.metric("nv_inference_request_success", model="digits", version="1") == len(answers)
    assert service.metric("candor_epoch", model="digits") == 1
    assert service.metric("candor_workers_ready") == WORKERS
    assert until(lambda: service.metric("candor_log_written_total") == len(answers))


def test_the_workers_share_the_port_of_grpc(service: Any, digits: Any) -> None:
    tensor = {"name": "input", "datatype": "UINT8", "shape": [1, 8, 8, 1]}
    request = message("ModelInferRequest")(model_name="digits", inputs=[tensor])
    request.raw_input_contents.append(digits.images[:1].tobytes())
    own_connection = [("grpc.use_local_subchannel_pool", 1)]
    for _ in range(CLIENTS):
        with grpc.insecure_channel(service.grpc_address, own_connection) as channel:
            assert channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(request.SerializeToString())
    until(lambda: service.metric("candor_grpc_requests_total", method="ModelInfer", code="OK") == CLIENTS)


def test_no_child_of_a_worker_inherits_connections(service: Process) -> None:
    """A recalibration's process would keep them open, and their clients would send to nobody."""
    with clients(service) as by:
        assert all(each.get("/livez").status_code == 200 for each in by)
        for worker in children(service.popen.pid):
            opened = [entry for entry in Path(f"/proc/{worker}/fd").iterdir() if int(entry.name) > 2]
            assert sum("socket:" in str(entry.readlink()) for entry in opened) >= 2
            for entry in opened:
                flags = Path(f"/proc/{worker}/fdinfo/{entry.name}").read_text().split("flags:")[1].split()[0]
                assert int(flags, 8) & os.O_CLOEXEC, entry.readlink()


def test_an_activation_has_reached_all_when_it_is_answered(service: Process, body: dict[str, Any]) -> None:
    with clients(service) as all_, ThreadPoolExecutor(CLIENTS) as pool:
        for share in (0.3, 0.6):
            revision = service.propose_policy("default", share)
            service.activate(revision)
            answers = list(pool.map(lambda client: client.post("/predict", json=body).json(), all_))
            assert {answer["revision"] for answer in answers} == {revision}
        service.rollback()
        answers = list(pool.map(lambda client: client.post("/predict", json=body), all_))
        assert len({worker_of(answer) for answer in answers}) == WORKERS
        assert revision not in {answer.json()["revision"] for answer in answers}
        assert service.http.post("/v1/models/digits/unload").status_code == 200
        assert {client.post("/predict", json=body).status_code for client in all_} == {503}
        assert service.http.post("/v1/models/digits/load").status_code == 200
        assert {client.post("/predict", json=body).status_code for client in all_} == {200}


def test_one_silent_worker_makes_the_service_unready(service: Process) -> None:
    (other,) = set(children(service.popen.pid)) - {leader(service)}
    with one_for_each_worker(service) as both, ThreadPoolExecutor(WORKERS) as pool:
        freeze(other)
        try:
            asked = [pool.submit(client.get, "/readyz") for client in both]
            answer = next(as_completed(asked)).result()
        finally:
            os.kill(other, signal.SIGCONT)
        assert answer.status_code == 503
        assert answer.json()["problems"] == {"worker 2": "It does not answer."}
    until(lambda: service.http.get("/readyz").status_code == 200)


def test_callers_who_give_up_waiting_for_a_silent_worker_harm_no_other(service: Process) -> None:
    workers = set(children(service.popen.pid))
    (other,) = workers - {leader(service)}
    own_connection = [("grpc.use_local_subchannel_pool", 1)]
    os.kill(other, signal.SIGSTOP)
    try:
        for _ in range(CLIENTS):
            with grpc.insecure_channel(service.grpc_address, own_connection) as channel:
                ready = channel.unary_unary("/inference.GRPCInferenceService/ServerReady")
                with pytest.raises(grpc.RpcError) as error:
                    ready(b"", timeout=0.3)
                assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    finally:
        os.kill(other, signal.SIGCONT)
    with one_for_each_worker(service) as both:
        until(lambda: {client.get("/readyz").status_code for client in both} == {200})
    assert set(children(service.popen.pid)) == workers


def test_a_worker_that_hangs_is_not_ready_then_killed_and_replaced(spawn: Spawn, tmp_path: Path) -> None:
    hurry = "from service.workers import supervisor; supervisor._PING_EVERY_S = 0.1"
    (tmp_path / "sitecustomize.py").write_text(hurry)  # Python imports it when it starts
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    spawn.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    service = spawn(workers=str(WORKERS), threads="1", run_timeout_s="3")
    until(lambda: service.http.get("/readyz").status_code == 200)
    (other,) = set(children(service.popen.pid)) - {leader(service)}
    freeze(other)
    until(lambda: not is_alive(other))
    until(lambda: len(children(service.popen.pid)) == WORKERS)
    until(lambda: service.http.get("/readyz").status_code == 200)
    told = [line["event"] for line in map(json.loads, service.log) if line.get("pid") == other]
    killed = "worker killed, because it does not answer"
    # On a busy machine it may have been silent for half a second before.
    assert [*dict.fromkeys(told)] == ["worker ready", "worker does not answer", killed, "worker ended"]
    assert told.count(killed) == 1
    service.popen.terminate()
    assert service.end()[0] == 0


def test_a_worker_that_does_not_answer_is_not_ready(tmp_path: Path) -> None:
    supervisor = Supervisor(Settings(database_url=f"sqlite:///{tmp_path}/state.db"), WORKERS, [], None)
    for worker, unanswered in zip(supervisor._workers, (_SILENT_PINGS, _SILENT_PINGS + 1), strict=True):
        worker.member, worker.unanswered = True, unanswered
    assert {family[0]: family[3][0][2] for family in supervisor._metrics()}["candor_workers_ready"] == 1
    supervisor._rates.close()


def restarts(service: Process) -> float | None:
    """Return how many workers were restarted; None where the answer's connection was to the worker that was killed."""
    try:
        return service.metric("candor_worker_restarts_total")
    except httpx.TransportError:
        return None


def test_a_killed_leader_takes_only_its_own_requests_along_and_comes_back(
    service: Process, body: dict[str, Any]
) -> None:
    before = service.metric("candor_http_requests_total", route="/predict")
    load = Load(service, body)
    load.until_more()
    os.kill(leader(service), signal.SIGKILL)
    load.until_more()
    until(lambda: restarts(service) == 1)  # until then it may count as ready
    until(lambda: service.metric("candor_workers_ready") == WORKERS)
    load.until_more()
    load.stop()
    assert {answer.status_code for answer in load.answered} == {200}
    assert len({*load.lost} - {None}) <= 1, "only clients of the worker that was killed lose a request"
    assert service.metric("candor_worker_restarts_total") == 1
    assert service.metric("candor_http_requests_total", route="/predict") >= before
    assert any("worker ended" in line and '"status": -9' in line for line in service.log)
    assert service.http.get("/readyz").status_code == 200
    with clients(service, 3 * CLIENTS) as many:  # more than the other one has more
        assert len({worker_of(client.get("/livez")) for client in many}) == WORKERS


def test_a_worker_that_is_asked_to_end_is_replaced_and_loses_nothing(service: Process, body: dict[str, Any]) -> None:
    (other,) = set(children(service.popen.pid)) - {leader(service)}
    given = dict(line.partition("=")[::2] for line in Path(f"/proc/{other}/environ").read_text().split("\0"))
    limits = thread_limits(processors_each(WORKERS)) | os.environ
    assert given["OPENBLAS_NUM_THREADS"] == limits["OPENBLAS_NUM_THREADS"]
    before = service.metric("candor_worker_restarts_total")
    load = Load(service, body)
    load.until_more()
    os.kill(other, signal.SIGTERM)
    until(lambda: not is_alive(other))
    load.until_more()
    until(lambda: service.metric("candor_workers_ready") == WORKERS)
    load.until_more()
    load.stop()
    assert {answer.status_code for answer in load.answered} == {200}
    assert not load.lost
    assert service.metric("candor_worker_restarts_total") == before + 1
    with clients(service, 3 * CLIENTS) as many:
        assert len({worker_of(client.get("/livez")) for client in many}) == WORKERS


def test_no_count_falls_while_a_worker_ends(service: Process, upstream: Hostile, body: dict[str, Any]) -> None:
    """Prometheus would take that for a restart of everything, and count it all again."""
    (other,) = set(children(service.popen.pid)) - {leader(service)}
    go = threading.Event()

    def hold(handler: Any, found: httpx.Response) -> None:
        assert go.wait(PATIENCE_S)
        give(handler, found.content, found.status_code, **found.headers)

    with one_for_each_worker(service) as both, ThreadPoolExecutor(WORKERS) as pool:
        for client in both:
            assert client.post("/predict", json=body).status_code == 200
        before, restarted = service.metric("candor_predictions_total"), service.metric("candor_worker_restarts_total")
        upstream.answer, asked = hold, upstream.asked
        held = [pool.submit(client.post, "/v1/models/far/predict", json=body) for client in both]
        until(lambda: upstream.asked >= asked + WORKERS, lambda: str(held))
        os.kill(other, signal.SIGTERM)
        until(lambda: service.metric("candor_workers_ready") == WORKERS - 1)
        assert is_alive(other)
        assert service.metric("candor_predictions_total") == before
        go.set()
        assert [answer.result(PATIENCE_S).status_code for answer in held] == [200] * WORKERS
    upstream.answer = None
    until(lambda: service.metric("candor_worker_restarts_total") == restarted + 1)
    until(lambda: service.metric("candor_workers_ready") == WORKERS)


def recalibrate(service: Process, digits: Any, by: list[httpx.Client]) -> None:
    """Each of these clients takes its job's result."""
    service.teach(digits.dimmed[:300], digits.labels[:300])
    until(lambda: service.metric("candor_log_depth") == 0)
    document = {"calibrator": "temperature", "mode": "dry_run"}
    for client in by:
        answer = client.post("/recalibrate", json=document, headers=WAIT)
        assert answer.status_code == 200, answer.text
    assert service.metric("candor_recalibrations_total", outcome="dry_run") == len(by)


def test_each_worker_takes_recalibrations_which_the_new_leader_runs(service: Process, digits: Any) -> None:
    with one_for_each_worker(service) as both:
        recalibrate(service, digits, both)
        place = both[0].post("/recalibrate", json={"mode": "dry_run"}).headers["location"]
        assert both[1].delete(place).json()["state"] == "cancelled"
        assert both[0].get(place).json()["state"] == "cancelled"
    assert service.metric("candor_recalibrations_total", outcome="cancelled") == 1


def is_listening(service: Process) -> bool:
    url = httpx.URL(service.url)
    with socket.socket() as probe:
        return probe.connect_ex((url.host, url.port)) == 0


def test_a_stop_under_load_answers_all_and_has_logged_what_was_answered(
    service: Process, upstream: Hostile, body: dict[str, Any], module_spawn: Spawn
) -> None:
    workers = children(service.popen.pid)
    go = threading.Event()

    def hold(handler: Any, found: httpx.Response) -> None:
        assert go.wait(PATIENCE_S)
        give(handler, found.content, found.status_code, **found.headers)

    upstream.answer, asked = hold, upstream.asked
    load = Load(service, body)
    with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=service.url, timeout=PATIENCE_S) as client:
        held = pool.submit(client.post, "/v1/models/far/predict", json=body)
        until(lambda: upstream.asked > asked, lambda: str(held))
        load.until_more()
        service.popen.terminate()
        until(lambda: not is_listening(service))
        assert not held.done()
        go.set()
        assert held.result(PATIENCE_S).status_code == 200, held.result().text
    status, said = service.end()
    load.stop()
    load.answered.append(held.result())
    assert status == 0, said
    assert {answer.status_code for answer in load.answered} <= {200, 503}
    assert "Traceback" not in said
    assert not any(map(is_alive, workers))
    database = Database.open(module_spawn.environment["CANDOR_DATABASE_URL"])
    ids = [answer.json()["predictions"][0]["prediction_id"] for answer in load.answered if answer.status_code == 200]
    with database.connect() as connection:
        id_ = tables.predictions.c.id
        stored = connection.execute(select(id_).where(id_ >= min(ids))).scalars().all()
    database.close()
    assert len(ids) >= 5 * CLIENTS
    assert sorted(stored) == sorted(ids), "all that was answered is stored, and all that was computed is answered"


def check_that_workers_count_a_key_together(url: str, by: list[httpx.Client]) -> None:
    """One of these clients, each of another worker, uses up what the key may send in a quarter of an hour."""
    database = Database.open(url)
    _, key = KeyStore(database).create("till", frozenset({"predict"}), requests_per_s=0.001)
    database.close()
    for client in by:
        until(lambda client=client: client.get("/v1/models").status_code == 401)
    statuses = [client.get("/v1/models", headers={"authorization": f"Bearer {key}"}).status_code for client in by]
    assert statuses == [200, 429]


def start_behind_a_slow_first_worker(spawn: Spawn, url: str) -> Process:
    """Start a service whose first worker waits for the lock of the schema: it is alone until it is ready."""
    waiting = """SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
        WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()"""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
        service = spawn(wait=False, workers=str(WORKERS), database_url=url)
        until(lambda: connection.execute(waiting).fetchone() == (1,), lambda: "".join(service.log))
        assert len(children(service.popen.pid)) == 1
        assert not is_listening(service)
    service.wait_until_it_listens()
    return service


def check_that_activations_and_counts_are_of_all(service: Process, by: list[httpx.Client], body: Any) -> None:
    """Each of these clients, each of another worker, gets the new revision and the counts of all."""
    revision = service.propose_policy("default", 0.4)
    service.activate(revision)
    before = service.metric("candor_predictions_total")
    answers = [client.post("/predict", json=body).json() for client in by]
    assert {answer["revision"] for answer in answers} == {revision}
    assert service.metric("candor_predictions_total") == before + len(by)
    for client in by:
        newest = client.get("/v2/models/digits/stats").json()["model_stats"][-1]
        assert newest["inference_count"] == len(by)


def test_on_postgresql_too_and_nothing_outlives_the_supervisor(
    spawn: Spawn, digits: Any, body: dict[str, Any], postgresql_url: str
) -> None:
    service = start_behind_a_slow_first_worker(spawn, postgresql_url)
    leads = worker_of(service.http.get("/livez"))  # the first connection
    until(lambda: service.http.get("/readyz").status_code == 200)
    with one_for_each_worker(service) as both:
        check_that_activations_and_counts_are_of_all(service, both, body)
        other = next(client for client in both if worker_of(client.get("/livez")) != leads)
        recalibrate(service, digits, [other])
        check_that_workers_count_a_key_together(postgresql_url, both)
    workers = children(service.popen.pid)
    assert len(workers) == WORKERS
    service.popen.kill()
    service.popen.wait(PATIENCE_S)
    until(lambda: not any(map(is_alive, workers)))


def test_a_first_worker_that_cannot_start_ends_the_service(spawn: Spawn, tmp_path: Path) -> None:
    status, said = spawn(wait=False, workers=str(WORKERS), policies=f"{tmp_path}/missing").end()
    assert status == 2, said
    assert "The folder of policies" in said
    assert "Traceback" not in said
