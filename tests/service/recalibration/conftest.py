"""A service that has labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def used(launch: Callable[..., Any], digits: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One service with labels for all tests of a module that only run jobs."""
    service = launch(tmp_path_factory.mktemp("used"))
    service.teach(digits.dimmed[:400], digits.labels[:400])
    yield service
    service.close()
