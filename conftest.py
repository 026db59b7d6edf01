"""What holds for the tests of all packages."""

pytest_plugins = ("tests.durations",)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name bytes by their number: compressed bytes may hold the time, and two processes must collect the same names."""
    return f"{len(val)}bytes" if isinstance(val, bytes) else None
