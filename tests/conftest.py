"""For all tests: one way of running hypothesis, on machines that are slow and shared."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
settings.load_profile("shared")
