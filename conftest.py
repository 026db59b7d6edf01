"""What holds for the tests of all packages."""

import gc
import sys
from collections.abc import Generator

import pytest

# jsonschema would build 38 grammars of addresses that no schema here asks for: over a second in each process.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

pytest_plugins = ("tests.durations",)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name bytes by their number: compressed bytes may hold the time, and two processes must collect the same names."""
    return f"{len(val)}bytes" if isinstance(val, bytes) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from modules and tests, which stay: a third of the collection goes into that."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()
