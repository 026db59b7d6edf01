"""gRPC through a real nginx with the configuration that the documentation names."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.ports import free_port
from tests.waiting import PATIENCE_S

from .conftest import address

CONFIGURATION = Path(__file__).parents[3] / "docker/nginx/grpc.conf"
AROUND = """\
{user}pid {folder}/pid;
error_log stderr;
events {{}}
http {{
access_log off;
{paths}
{included}
}}
"""

pytestmark = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed (Debian's nginx-light)")


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Callable[[str, str], str]]:
    """Start nginx before two replicas; give the address that it listens on."""
    started: list[subprocess.Popen[bytes]] = []

    def start(first: str, second: str) -> str:
        listening = f"127.0.0.1:{free_port()}"
        included = CONFIGURATION.read_text()
        for written, real in (
            ("replica-1:8001", first),
            ("replica-2:8001", second),
            ("listen 8001", f"listen {listening}"),
        ):
            assert written in included
            included = included.replace(written, real)
        paths = "\n".join(
            f"{name}_temp_path {tmp_path}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        user = "user root;\n" if os.geteuid() == 0 else ""
        file = tmp_path / "nginx.conf"
        file.write_text(AROUND.format(user=user, folder=tmp_path, paths=paths, included=included))
        started.append(subprocess.Popen(["nginx", "-p", tmp_path, "-c", file, "-g", "daemon off;"]))
        return listening

    yield start
    for process in started:
        process.terminate()
        process.wait(PATIENCE_S)


def test_calls_streams_and_errors_pass_and_a_dead_replica_is_passed_over(
    proxy: Callable[[str, str], str], speaking: Any, digits: Any
) -> None:
    given = triton.InferInput("input", [2, 8, 8, 1], "UINT8")
    given.set_data_from_numpy(digits.images[:2])
    with triton.InferenceServerClient(proxy(f"127.0.0.1:{free_port()}", address(speaking))) as client:
        grpc.channel_ready_future(client._channel).result(PATIENCE_S)
        for _ in range(4):
            answer = client.infer("digits", [given]).as_numpy("probabilities")
        expected = speaking.http.post("/predict", json={"inputs": digits.images[:2].tolist()}).json()["predictions"]
        np.testing.assert_allclose(answer.max(axis=1), [row["confidence"] for row in expected], atol=1e-5)
        with pytest.raises(triton.InferenceServerException) as refused:
            client.infer("letters", [given])
        assert "NOT_FOUND" in refused.value.status()
        answers: list[Any] = []
        client.start_stream(lambda result, error: answers.append((result, error)))
        for number in range(3):
            client.async_stream_infer("digits", [given], request_id=str(number))
        client.stop_stream()
        assert [result.get_response().id for result, error in answers if error is None] == ["0", "1", "2"]


def test_without_a_replica_the_status_is_one_that_clients_retry(proxy: Callable[[str, str], str]) -> None:
    with grpc.insecure_channel(proxy(f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}")) as channel:
        grpc.channel_ready_future(channel).result(PATIENCE_S)
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"")
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    assert refused.value.details() == "no replica answers"
