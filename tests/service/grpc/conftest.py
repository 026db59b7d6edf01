"""Services that also speak gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from service.grpc.messages import SERVICE, message
from tests.ports import free_port

collect_ignore = ["peers"]  # programs of other environments


def address(service: Any) -> str:
    return f"127.0.0.1:{service.runtime.settings.grpc_port}"


class Channel:
    """Calls methods with the messages of this project."""

    def __init__(self, service: Any, key: str | None = None) -> None:
        self.channel = grpc.insecure_channel(address(service))
        self._metadata = (("authorization", f"Bearer {key}"),) if key else ()

    def __call__(self, method: str, **fields: Any) -> Any:
        described = SERVICE.methods_by_name[method]
        request = message(described.input_type.name)(**fields)
        call = self.channel.unary_unary(f"/{SERVICE.full_name}/{method}")
        content = call(request.SerializeToString(), metadata=self._metadata, wait_for_ready=True)
        return message(described.output_type.name).FromString(content)


@pytest.fixture(scope="session")
def speaking(launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One service for all tests that leave its revisions as they are."""
    running = launch(tmp_path_factory.mktemp("speaking"), grpc_port=free_port())
    yield running
    running.close()


@pytest.fixture
def speak(start: Callable[..., Any]) -> Callable[..., Any]:
    """Start services of one's own; settings may be given."""
    return lambda **changes: start(grpc_port=free_port(), **changes)


@pytest.fixture
def dial() -> Iterator[Callable[..., Channel]]:
    """Open channels to services; they are closed at the end, with every call on them."""
    opened: list[Channel] = []

    def run(service: Any, key: str | None = None) -> Channel:
        opened.append(Channel(service, key))
        return opened[-1]

    yield run
    for one in opened:
        one.channel.close()


@pytest.fixture
def call(speaking: Any, dial: Callable[..., Channel]) -> Channel:
    return dial(speaking)
