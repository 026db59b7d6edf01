"""What holds for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No test asserts a time: a loaded machine is no failure.
settings.register_profile("candor", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("candor")
