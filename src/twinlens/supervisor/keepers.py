"""Keep a child alive: start it, watch it, replace it with growing pauses, and end it in order.

Cancelling `run` of a keeper ends its child: asked first, killed after a grace.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

from twinlens.errors import OperatorError
from twinlens.orders import BEAT_INTERVAL_S, beat_file
from twinlens.supervisor.children import Child, Command, Death
from twinlens.supervisor.effort import effort
from twinlens.supervisor.pauses import Pauses
from twinlens.supervisor.pulse import Pulse, Sign
from twinlens.supervisor.watch import Asks, Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path
    from typing import Any

    from twinlens.settings import Settings
    from twinlens.supervisor.board import Board
    from twinlens.supervisor.deaths import Deaths

log = logging.getLogger(__name__)

CANNOT_START = 2  # exit code of a child that says what its operator has to mend
ENGINE_GRACE_S = 7.0
TELL_AFTER_S = 3.0  # an engine that somebody else runs need not be silent because it starts
WORKER_START_S = 60.0
WORKER_STALL_S = 20.0
WORKER_BUSY_FACTOR = 2  # whatever keeps its loop busy for so long keeps all of its clients waiting
FRUITLESS_STARTS = 5  # of a child that never served: more would not help, and nobody would see why


class AttachedEngine:
    """An engine that somebody else runs: watched, never touched."""

    def __init__(self, probe: Callable[[], Asks], board: Board, settings: Settings, shown: str) -> None:
        """`shown` is its address, fit for the log."""
        self._probe = probe
        self._board = board
        self._shown = shown
        self._stall_timeout_s = settings.engine_stall_timeout_s

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.sleep(0)  # the workers start first: making the probe takes a while
        watch = Watch(self._probe(), self._board, self._stall_timeout_s, effort=lambda: None)
        while True:
            await watch.until_ready(None, tell_after_s=TELL_AFTER_S)
            reason = await watch.until_lost()
            log.warning("engine at %s: %s; waiting for it", self._shown, reason)
            self._board.show("stalled", "It does not answer.")

    def kill(self) -> None:
        """Nothing of ours to end."""


class EngineKeeper:
    """The engine's process."""

    def __init__(
        self, command: Command, probe: Callable[[], Asks], board: Board, deaths: Deaths, settings: Settings
    ) -> None:
        self._command = command
        self._probe = probe
        self._board = board
        self._deaths = deaths
        self._settings = settings
        self._pauses = Pauses()
        self._child: Child | None = None
        self._was_ready = False

    async def run(self) -> None:
        """Until cancelled.

        Raises OperatorError when the first engine says that it cannot start, or FRUITLESS_STARTS ended before one was
        ready.
        """
        starts = 0
        while True:
            starts += 1
            death, given_up = await self._live()
            if not self._was_ready and (death.returncode == CANNOT_START or starts == FRUITLESS_STARTS):
                log.error("%s; it is not started again", death)
                raise _cannot_start(death, self._child)
            self._deaths.count(death.name, given_up or death.cause, death.pid)
            pause = self._pauses.after(death.lived_s)
            log.error("%s; starting again in %.1f s", death, pause)
            why = "It gave no sign of life and was ended." if given_up else f"It ended by {death.cause}."
            self._board.show("restarting", f"{why} A new one starts.", pid=0)
            await asyncio.sleep(pause)
            self._board.show("restarting", self._board.state.reason, restarts=self._board.state.restarts + 1)

    def kill(self) -> None:
        """End it at once."""
        if self._child:
            self._child.kill()

    async def _live(self) -> tuple[Death, str]:
        """One life; returns its end and, if we gave it up, the label for that."""
        self._child = child = await Child.start(self._command)
        self._board.show(self._board.state.state, self._board.state.reason, pid=child.pid)
        async with _ended_with(child, ENGINE_GRACE_S):
            given_up = await _first(child.wait(), self._watch(child))
            if isinstance(given_up, Death):
                return given_up, ""
            log.error("%s (process %d): %s; it is killed", child.name, child.pid, given_up)
            child.kill()
            return await child.wait(), "stalled"

    async def _watch(self, child: Child) -> str:
        settings = self._settings
        watch = Watch(self._probe(), self._board, settings.engine_stall_timeout_s, lambda: effort(child.pid))
        if not await watch.until_ready(settings.engine_start_timeout_s):
            return f"not ready after {settings.engine_start_timeout_s:.0f} s"
        self._was_ready = True
        return await watch.until_lost()


class WorkerKeeper:
    """The process of a gateway worker, or of their desk. It beats (a file's time) while its event loop turns."""

    def __init__(self, number: int, command: Command, run_dir: Path, deaths: Deaths, label: str = "gateway") -> None:
        """`label` counts its deaths."""
        self.number = number
        self._label = label
        self._command = command
        self._beat = beat_file(run_dir, number)
        self._deaths = deaths
        self._pauses = Pauses()
        self._child: Child | None = None
        self._draining = asyncio.Event()
        self.up = asyncio.Event()  # it has served

    async def run(self) -> None:
        """Until drained or cancelled.

        Raises OperatorError when the first worker says that it cannot start, or FRUITLESS_STARTS ended before one
        had served.
        """
        starts = 0
        while not self._draining.is_set():
            starts += 1
            death, given_up = await self._live()
            if self._draining.is_set():
                return
            if not self.up.is_set() and (death.returncode == CANNOT_START or starts == FRUITLESS_STARTS):
                log.error("%s; it is not started again", death)
                raise _cannot_start(death, self._child)
            self._deaths.count(self._label, given_up or death.cause, death.pid)
            pause = self._pauses.after(death.lived_s)
            log.error("%s; starting again in %.1f s", death, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._draining.wait(), pause)

    def drain(self) -> None:
        """Have it finish what runs, take nothing new, and end; it is not replaced."""
        self._draining.set()
        if self._child:
            self._child.terminate()

    def kill(self) -> None:
        """End it at once."""
        if self._child:
            self._child.kill()

    async def _live(self) -> tuple[Death, str]:
        self._beat.unlink(missing_ok=True)
        self._child = child = await Child.start(self._command)
        if self._draining.is_set():
            child.terminate()  # the order to drain came while it was started
        async with _ended_with(child, 1.0):
            given_up = await _first(child.wait(), self._watch(child))
            if isinstance(given_up, Death):
                return given_up, ""
            log.error("%s (process %d): %s; it is killed", child.name, child.pid, given_up)
            child.kill()
            return await child.wait(), "stalled"

    async def _watch(self, child: Child) -> str:
        while not self._beat.exists():
            if child.lived_s > WORKER_START_S:
                return f"not serving after {WORKER_START_S:.0f} s"
            await asyncio.sleep(0.1)
        self.up.set()
        pulse = Pulse(WORKER_STALL_S, WORKER_BUSY_FACTOR)
        while pulse.feel(self._sign(child)) != "lost":  # noqa: ASYNC110 - a file's time sets no event
            await asyncio.sleep(BEAT_INTERVAL_S)
        return f"no sign of life for {pulse.silence:.0f} s"

    def _sign(self, child: Child) -> Sign:
        beats = self._beat.stat().st_mtime_ns if self._beat.exists() else None
        return Sign(time.monotonic(), beats, effort=effort(child.pid))


@contextlib.asynccontextmanager
async def _ended_with(child: Child, grace_s: float) -> AsyncIterator[None]:
    """However the block is left, the child does not outlive it."""
    try:
        yield
    finally:
        await asyncio.shield(child.stop(grace_s))


async def _first(end: Coroutine[Any, Any, Death], watch: Coroutine[Any, Any, str]) -> Death | str:
    """Whatever comes first; the other is cancelled."""
    ended, given_up = asyncio.ensure_future(end), asyncio.ensure_future(watch)
    try:
        await asyncio.wait([ended, given_up], return_when=asyncio.FIRST_COMPLETED)
        return ended.result() if ended.done() else given_up.result()
    finally:
        for task in (ended, given_up):
            task.cancel()
        await asyncio.gather(ended, given_up, return_exceptions=True)


def _cannot_start(death: Death, child: Child | None) -> OperatorError:
    lines = list(child.last_lines) if child else []
    return OperatorError(f"The {death.name} cannot start: {lines[-1] if lines else 'it says why above.'}", cure="")
