"""The gateway worker's keeper with real processes: what is replaced, and what ends the service."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

import pytest

from twinlens.errors import OperatorError
from twinlens.orders import beat_file
from twinlens.supervisor import keepers
from twinlens.supervisor.children import Command
from twinlens.supervisor.deaths import Deaths
from twinlens.supervisor.keepers import FRUITLESS_STARTS, WorkerKeeper
from twinlens.supervisor.pauses import Pauses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEATS_ONCE_AND_SPINS = "import pathlib, sys\npathlib.Path(sys.argv[1]).touch()\nwhile True: pass"


@pytest.fixture
def deaths(tmp_path: Path) -> Iterator[Deaths]:
    (tmp_path / "metrics").mkdir()
    counter = Deaths(tmp_path / "metrics")
    yield counter
    counter.close()


def keeper(folder: Path, script: str, deaths: Deaths) -> WorkerKeeper:
    command = Command("gateway 0", (sys.executable, "-S", "-c", script, str(beat_file(folder, 0))), orders=b"")
    return WorkerKeeper(0, command, folder, deaths)


async def test_a_worker_that_is_busy_without_a_beat_is_replaced_soon(
    tmp_path: Path, deaths: Deaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loop only hands over: an engine may step for minutes, a gateway never may."""
    monkeypatch.setattr(keepers, "WORKER_STALL_S", 1.0)
    counted: list[tuple[str, str]] = []
    monkeypatch.setattr(deaths, "count", lambda child, cause, _: counted.append((child, cause)))
    kept = keeper(tmp_path, BEATS_ONCE_AND_SPINS, deaths)
    began = time.monotonic()
    running = asyncio.create_task(kept.run())
    try:
        async with asyncio.timeout(20):
            while not counted:
                await asyncio.sleep(0.05)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert kept.up.is_set()
    assert counted == [("gateway", "stalled")]
    assert time.monotonic() - began < 10


async def test_a_worker_that_never_comes_up_ends_the_service(
    tmp_path: Path, deaths: Deaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pauses, "after", lambda *_: 0.0)
    started = tmp_path / "started"
    script = f"open({str(started)!r}, 'a').write('x'); raise SystemExit(1)"
    with pytest.raises(OperatorError, match="The gateway 0 cannot start: it says why above"):
        await asyncio.wait_for(keeper(tmp_path, script, deaths).run(), 30)
    assert started.read_text() == "x" * FRUITLESS_STARTS


async def test_a_worker_that_has_served_is_replaced_however_often_it_dies(
    tmp_path: Path, deaths: Deaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pauses, "after", lambda *_: 0.0)
    started = tmp_path / "started"
    script = (
        f"import pathlib, sys, time; open({str(started)!r}, 'a').write('x')\n"
        "pathlib.Path(sys.argv[1]).touch(); time.sleep(0.3); raise SystemExit(1)"
    )
    running = asyncio.create_task(keeper(tmp_path, script, deaths).run())
    try:
        async with asyncio.timeout(30):
            while not started.exists() or len(started.read_text()) <= FRUITLESS_STARTS + 1:
                await asyncio.sleep(0.05)
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
