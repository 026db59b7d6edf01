"""The SDK against a real service."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from service.client import ApiError, Client, UnreachableError


@pytest.fixture
def client(service: Any) -> Iterator[Client]:
    with Client(service.url) as opened:
        yield opened


def test_the_main_job_in_python(client: Client, service: Any, digits: Any) -> None:
    assert client.ready()
    assert [model["model"] for model in client.models()] == ["digits"]
    items = []
    for start in range(0, 1000, 250):
        answer = client.predict(digits.dimmed[start : start + 250], policy="auto-read", top=1)
        labels = digits.labels[start : start + 250]
        items += [
            {"prediction_id": row["prediction_id"], "label": label, "source": "reviewer"}
            for row, label in zip(answer["predictions"], labels, strict=True)
        ]
    assert service.runtime.log.flush()
    assert client.feedback(items)["stored"] == 1000
    result = client.recalibrate(mode="propose")
    assert result["gate"]["passed"] is True
    epoch = client.revisions()["epoch"]
    assert client.activate(result["revision"], epoch=epoch, reason="dim")["active"] == result["revision"]
    assert client.revision(result["revision"])["state"] == "active"
    assert client.rollback(epoch=epoch + 1)["active"] == "r1"


def test_references_and_lists_go_along(client: Client, digits: Any) -> None:
    answer = client.predict(digits.images[:2].tolist(), references=["a", None], groups=["g", "h"])
    assert [row["reference"] for row in answer["predictions"]] == ["a", None]


def test_errors_carry_the_problem(client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        client.predict(np.zeros((1, 3, 3)))
    assert caught.value.status == 422
    assert caught.value.problem["type"] == "/errors/input-shape"
    with pytest.raises(ApiError, match="too little labelled feedback"):
        client.recalibrate()
    with pytest.raises(ValueError, match=r"image\.gif"):
        client.predict_file("image.gif")


def test_where_nobody_answers_it_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client:
        assert not client.ready()
        with pytest.raises(UnreachableError, match=str(port)):
            client.activate("r1", epoch=1)


def test_what_is_safe_to_repeat_is_repeated_and_a_move_is_not(service: Any) -> None:
    """A proxy drops the first connection of each kind without an answer."""
    target = ("127.0.0.1", int(service.url.rpartition(":")[2]))
    listener = socket.create_server(("127.0.0.1", 0))
    dropped: list[bytes] = []
    forwarded: list[bytes] = []

    def proxy() -> None:
        while True:
            try:
                inward, _ = listener.accept()
            except OSError:
                return
            with inward:
                request = inward.recv(65536)
                if not dropped or forwarded:  # the first request, and whatever comes after one that went through
                    dropped.append(request)
                    continue
                forwarded.append(request)
                with socket.create_connection(target) as outward:
                    outward.sendall(request.replace(b"Connection: keep-alive", b"Connection: close"))
                    while answer := outward.recv(65536):
                        inward.sendall(answer)

    thread = threading.Thread(target=proxy)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with Client(url) as client:
        assert len(client.models()) == 1
    assert (len(dropped), len(forwarded)) == (1, 1)
    with Client(url, model="digits") as client, pytest.raises(UnreachableError):
        client.rollback(epoch=1)
    assert len(dropped) == 2
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(60)


def test_a_stop_lets_requests_in_flight_finish(launch: Any, digits: Any, tmp_path: Any) -> None:
    service = launch(tmp_path)
    plane = service.runtime.models.get("digits").plane
    go, busy = threading.Event(), threading.Event()
    real = plane._batcher._run

    def slow(requests: list[Any]) -> Any:
        busy.set()
        assert go.wait(60)
        return real(requests)

    plane._batcher._run = slow
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.extend(service.predict(digits.images[:3])))
    asking.start()
    assert busy.wait(60)
    service._server.should_exit = True
    go.set()
    asking.join(60)
    assert len(answers) == 3
    service.close()
