"""Services to break: made as the tests of the service make them, and one as operators run it, on a committed bundle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hardening.running import Running, serving
from tests.service.conftest import (
    _no_settings_from_outside,
    _plain_logs,
    cluster,
    first_revision,
    in_place_of_python,
    launch,
    migrated,
    migrated_postgresql,
    postgresql_url,
    start,
)

__all__ = [
    "_no_settings_from_outside",
    "_plain_logs",
    "cluster",
    "first_revision",
    "in_place_of_python",
    "launch",
    "migrated",
    "migrated_postgresql",
    "postgresql_url",
    "running",
    "start",
]


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    """A service that lets everybody in, and gives up on a client after two seconds."""
    with serving(client_timeout_s=2, monitor_interval_s=3600) as service:
        yield service
        assert service.popen.poll() is None, "the service ended"
        assert service.complaints() == []
