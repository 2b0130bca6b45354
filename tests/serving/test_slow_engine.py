"""An engine that takes its time is not replaced: the fake one, told to be slower than the rule of life allows."""

from __future__ import annotations

import pytest

from tests.serving.harness import serving

pytestmark = pytest.mark.slow


def test_a_delay_longer_than_the_stall_timeout_replaces_no_engine() -> None:
    with serving("--engine-args=--delay-s=4", "--engine-stall-timeout-s", "1") as service:
        before = service.engine.pid
        assert service.chat("say hello").json()["choices"][0]["message"]["content"] == "hello"
        assert service.engine.pid == before
