"""For all tests: one way of running hypothesis, on machines that are slow and shared; and signals that arrive."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
settings.load_profile("shared")

# A shell starts what runs in the background with Ctrl-C ignored, and every process started from here would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
