"""Services that several tests share. The fake engine stands behind them: its answers are made of the request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.serving.harness import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """One worker in front of a quick fake engine."""
    with serving() as running:
        yield running


@pytest.fixture(scope="session", params=["1", "4"], ids=["1 worker", "4 workers"])
def services(request: pytest.FixtureRequest) -> Iterator[Service]:
    """The same with one and with several gateway processes."""
    with serving("--workers", request.param) as running:
        yield running


@pytest.fixture(scope="session")
def slow_service() -> Iterator[Service]:
    """A fake engine that takes its time: two hundred pieces, 20 ms apart."""
    with serving("--engine-args=--piece-delay-s=0.02,--pieces=200") as running:
        yield running
