"""The client and the contract are tested against real services: those of the service's own tests."""

from __future__ import annotations

from tests.service.cases.conftest import reviewing
from tests.service.conftest import (
    _no_settings_from_outside,
    _plain_logs,
    checks_here,
    first_revision,
    hold,
    in_place_of_python,
    launch,
    launch_many,
    migrated,
    refits_here,
    service,
    shared,
    slow,
    spawn,
    start,
)

__all__ = [
    "_no_settings_from_outside",
    "_plain_logs",
    "checks_here",
    "first_revision",
    "hold",
    "in_place_of_python",
    "launch",
    "launch_many",
    "migrated",
    "refits_here",
    "reviewing",
    "service",
    "shared",
    "slow",
    "spawn",
    "start",
]
