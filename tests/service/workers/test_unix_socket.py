"""`candor serve --uds`: a Unix socket in place of a port."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.conftest import ROOT
from tests.waiting import PATIENCE_S, until

from ..conftest import Spawn

PREDICT = {"inputs": np.zeros((1, 8, 8, 1), int).tolist()}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_service_listens_on_a_unix_socket_alone(workers: str, spawn: Spawn, tmp_path: Path) -> None:
    path = tmp_path / "candor.sock"
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    service = spawn(wait=False, uds=str(path), workers=workers)
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost", timeout=PATIENCE_S
    ) as client:
        until(lambda: listens(path), lambda: service.log)
        assert client.post("/predict", json=PREDICT).status_code == 200
        assert client.post("/predict", json=PREDICT, headers={"host": "example.org"}).status_code == 403
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{service.url}/livez", timeout=PATIENCE_S)
        check = [sys.executable, "-I", "-S", str(ROOT / "docker" / "healthcheck.py"), "/livez"]
        assert b"live" in subprocess.run(check, env={"CANDOR_UDS": str(path)}, check=True, capture_output=True).stdout
    service.popen.send_signal(signal.SIGTERM)
    assert service.end()[0] == 0
    assert not path.exists()


def listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


@pytest.mark.parametrize("taken_by", ["a service", "a file"])
def test_a_path_that_is_taken_is_left_alone(taken_by: str, spawn: Spawn, tmp_path: Path) -> None:
    path = tmp_path / "taken"
    with socket.socket(socket.AF_UNIX) as other:
        if taken_by == "a service":
            other.bind(str(path))
            other.listen()
        else:
            path.write_text("no socket")
        status, said = spawn(wait=False, uds=str(path)).end()
    assert status == 2
    assert f"The service could not listen on the Unix socket {path}: Address already in use." in " ".join(said.split())
    assert path.exists()
