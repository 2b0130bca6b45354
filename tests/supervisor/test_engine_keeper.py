"""The engine's keeper with real processes: what is replaced, and what never is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from twinlens.core import Message, Request, TextPart
from twinlens.engines.client import EngineClient
from twinlens.errors import EngineUnavailable, OperatorError
from twinlens.settings import Settings
from twinlens.supervisor.board import Board
from twinlens.supervisor.children import Command
from twinlens.supervisor.deaths import Deaths
from twinlens.supervisor.keepers import FRUITLESS_STARTS, EngineKeeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from twinlens.engines.wire import Health

pytestmark = pytest.mark.slow

STALL_S = 2.0


@dataclass
class Probe:
    """Text instead of a picture: the spinner has no eyes."""

    client: EngineClient

    async def health(self) -> Health:
        return await self.client.health()

    async def inference(self) -> None:
        await ask(self.client, "hello")


@dataclass
class Kept:
    """An engine that is kept, and its board."""

    board: Board
    client: EngineClient
    told: list[str]

    async def until(self, state: str, seconds: float = 20) -> None:
        async with asyncio.timeout(seconds):
            while self.board.state.state != state:
                await asyncio.sleep(0.02)


async def ask(client: EngineClient, text: str) -> str:
    request = Request("r", "spinner", (Message("user", (TextPart(text),)),), ())
    return "".join([piece.text async for piece in client.generate(request, [])])


@asynccontextmanager
async def kept(folder: Path, *, script: str = "", stall_s: float = STALL_S) -> AsyncIterator[Kept]:
    """The spinner (or a script) under a keeper."""
    socket = folder / "e.sock"
    arguments = ("-c", script) if script else ("-m", "tests.supervisor.spinner", str(socket), str(os.getpid()))
    told: list[str] = []
    board = Board(folder, lambda state: told.append(state.state))
    client = EngineClient(f"unix:{socket}", model="spinner", pool=4, idle_timeout_s=60)
    deaths = Deaths(folder)
    settings = Settings(engine_stall_timeout_s=stall_s, engine_start_timeout_s=20)
    command = Command("engine", (sys.executable, *arguments), orders=b"", piped=True)
    keeper = EngineKeeper(command, lambda: Probe(client), board, deaths, settings)
    running = asyncio.create_task(keeper.run())
    try:
        yield Kept(board, client, told)
        if running.done():
            running.result()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError, OperatorError):
            await running
        await client.close()
        deaths.close()


async def test_a_busy_engine_is_taken_out_of_service_and_never_replaced(tmp_path: Path) -> None:
    """Its event loop starves for several times the stall timeout, and it works all the while."""
    async with kept(tmp_path) as engine:
        await engine.until("ready")
        pid = engine.board.state.pid
        assert await ask(engine.client, f"spin {5 * STALL_S}") == "done"
        await engine.until("ready")
        assert engine.told == ["ready", "stalled", "ready"]
        assert (engine.board.state.pid, engine.board.state.restarts) == (pid, 0)


async def test_a_hung_engine_behind_a_healthy_probe_is_replaced(tmp_path: Path) -> None:
    async with kept(tmp_path) as engine:
        await engine.until("ready")
        pid = engine.board.state.pid
        with pytest.raises(EngineUnavailable):
            await ask(engine.client, "hang")
        await engine.until("restarting")
        await engine.until("ready")
        assert engine.board.state.pid != pid
        assert engine.board.state.restarts == 1
        assert await ask(engine.client, "hello") == "done"


async def test_a_stopped_engine_is_replaced(tmp_path: Path) -> None:
    async with kept(tmp_path) as engine:
        await engine.until("ready")
        began = time.monotonic()
        os.kill(engine.board.state.pid, signal.SIGSTOP)
        await engine.until("stalled")
        await engine.until("restarting")
        assert time.monotonic() - began < 3 * STALL_S + 3
        await engine.until("ready")


async def test_pauses_between_starts_grow(tmp_path: Path) -> None:
    async with kept(tmp_path, script="raise SystemExit(1)") as engine:
        await asyncio.sleep(3)
        assert engine.board.state.state == "restarting"
        assert engine.board.state.restarts in (1, 2)  # at 0.5 s and 1.5 s, and the time of the starts themselves
        assert "ended by exit 1" in engine.board.state.reason


async def test_an_operators_fault_ends_the_service_with_the_engines_words(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="The engine cannot start: the model is missing"):
        async with kept(tmp_path, script="print('the model is missing'); raise SystemExit(2)"):
            await asyncio.sleep(1)


async def test_an_engine_that_never_gets_ready_is_not_started_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlens.supervisor.pauses.FIRST_S", 0.02)
    starts = tmp_path / "starts"
    script = f"print('out of memory', file=open({str(starts)!r}, 'a')); print('out of memory'); raise SystemExit(1)"
    with pytest.raises(OperatorError, match="The engine cannot start: out of memory"):
        async with kept(tmp_path, script=script):
            await asyncio.sleep(5)
    assert len(starts.read_text().splitlines()) == FRUITLESS_STARTS
