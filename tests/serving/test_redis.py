"""Several gateways with one real Redis: one limit; and what stands in when Redis is away, full, or comes back."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.serving.harness import free_port, serving, until
from tests.serving.test_keys import BODY, CHAT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.serving.harness import Service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not shutil.which("redis-server"), reason="needs redis-server (Debian: apt install redis-server)"
    ),
]

LIMITS = ("--address-requests", "6", "--address-burst", "5")  # one comes back every ten seconds


class Redis:
    """A redis-server of a test's own, on loopback."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/3"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", "."]
        self._process = subprocess.Popen(command, cwd=self._folder, stdout=subprocess.DEVNULL)
        until(self._listens, 10)

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait(5)
            self._process = None

    def ask(self, *words: str) -> Any:
        with redis.Redis(port=self.port, db=3, decode_responses=True) as client:
            return client.execute_command(*words)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Redis]:
    found = Redis(tmp_path)
    found.start()
    try:
        yield found
    finally:
        found.kill()


@contextlib.contextmanager
def gateways(server: Redis, *workers: str) -> Iterator[list[Service]]:
    """Services that share the server, each with so many workers."""
    with contextlib.ExitStack() as stack:
        environ = {"TWINLENS_REDIS_URL": server.url}
        yield [stack.enter_context(serving(*LIMITS, "--workers", number, environ=environ)) for number in workers]


def status(service: Service) -> int:
    return service.http.post(CHAT, json=BODY, headers={"connection": "close"}).status_code


def shared(service: Service) -> str:
    return str(service.http.get("/readyz").json()["details"]["shared_limits"])


def test_two_gateways_with_one_redis_have_one_limit_and_go_on_without_it(server: Redis) -> None:
    with gateways(server, "1", "4") as both:
        until(lambda: [shared(one) for one in both] == ["up", "up"], 5)
        found = Counter(status(both[number % 2]) for number in range(20))
        assert found == {200: 6, 429: 14}
        keys = server.ask("KEYS", "*")
        assert keys == ["twinlens:rate:address 127.0.0.1 requests"]
        assert 0 < server.ask("PTTL", keys[0]) <= 61_000

        server.kill()  # in the middle: what the other host let in is forgotten, what this one did is not
        began = time.monotonic()
        after = [Counter(status(one) for _ in range(10)) for one in both]
        assert time.monotonic() - began < 8
        assert all(set(found) <= {200, 429} for found in after)
        assert all(1 <= found[200] <= 4 for found in after)
        for one in both:
            until(lambda one=one: shared(one) == "down", 5)  # type: ignore[misc]
            until(lambda one=one: one.metric("twinlens_shared_limits_up") == 0, 5)  # type: ignore[misc]
            assert "stand in" in one.log()
            assert one.http.get("/readyz").status_code == 200

        server.start()
        for one in both:
            until(lambda one=one: shared(one) == "up", 10)  # type: ignore[misc]
            assert "are back" in one.log()


def test_rate_04_a_full_redis_is_no_open_door(server: Redis) -> None:
    with gateways(server, "1") as (service,):
        server.ask("CONFIG", "SET", "maxmemory", "1")
        found = Counter(status(service) for _ in range(20))
        assert found == {200: 6, 429: 14}
        assert shared(service) == "down"
        time.sleep(2.5)
        assert shared(service) == "down"  # it answers pings and takes nothing: that is not back
        server.ask("CONFIG", "SET", "maxmemory", "0")
        until(lambda: shared(service) == "up", 10)


def test_rate_04_a_redis_that_forgets_is_said(server: Redis) -> None:
    server.ask("CONFIG", "SET", "maxmemory", "100mb")
    server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with gateways(server, "1") as (service,):
        until(lambda: "evicts keys" in service.log(), 10)
        found: Counter[int] = Counter()
        for _ in range(12):
            found[status(service)] += 1
            server.ask("FLUSHDB")
        assert found[200] <= 7  # the host's own limit is always taken as well


def test_a_redis_that_hangs_keeps_nobody_waiting(server: Redis) -> None:
    with gateways(server, "1") as (service,):
        assert status(service) == 200
        process = server._process
        assert process
        import signal  # noqa: PLC0415

        process.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            assert {status(service) for _ in range(4)} == {200}
            assert time.monotonic() - began < 3
        finally:
            process.send_signal(signal.SIGCONT)
        until(lambda: shared(service) == "up", 10)
