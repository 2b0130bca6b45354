"""Probes one life of an engine: until a real inference succeeded, then until the rule of life says it is lost."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

from twinlens.errors import EngineUnavailable, TwinlensError
from twinlens.supervisor.pulse import Pulse, Sign

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinlens.engines.wire import Health
    from twinlens.supervisor.board import Board

INTERVAL_S = 1.0
EAGER_S = 0.1  # while the engine starts, so that nobody waits longer than it takes
HEALTH_DEADLINE_S = 2.0


class Asks(Protocol):
    """The watch's view of an engine: `probe.Probe`."""

    async def health(self) -> Health:
        """How it is. Raises TwinlensError."""
        ...

    async def inference(self) -> None:
        """One real, tiny answer. Raises TwinlensError."""
        ...


class Watch:
    """Watches one engine and shows its state on the board."""

    def __init__(self, probe: Asks, board: Board, stall_timeout_s: float, effort: Callable[[], float | None]) -> None:
        self._probe = probe
        self._board = board
        self._stall_timeout_s = stall_timeout_s
        self._effort = effort
        # Several probes must fit into the time in which a silence is noticed.
        self._interval_s = min(INTERVAL_S, stall_timeout_s / 8)
        self._deadline_s = min(HEALTH_DEADLINE_S, stall_timeout_s / 4)

    async def until_ready(self, limit_s: float | None, *, tell_after_s: float | None = None) -> bool:
        """Show `ready` after a real inference and return True; False if `limit_s` seconds were not enough.

        Why the engine does not even answer is shown after `tell_after_s` seconds: an engine that we started says
        nothing while it loads, which is no news.
        """
        began = time.monotonic()
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    why = await self._refusal()
                    if why is None:
                        break
                    late = tell_after_s is not None and time.monotonic() - began > tell_after_s
                    if late and why != self._board.state.reason:
                        self._board.show(self._board.state.state, why)
                    await asyncio.sleep(EAGER_S)
        except TimeoutError:
            return False
        self._board.show("ready")
        return True

    async def until_lost(self) -> str:
        """Show `ready` and `stalled` in turn; return why the engine is given up."""
        pulse = Pulse(self._stall_timeout_s)
        while True:
            verdict = pulse.feel(await self._sign())
            if verdict == "lost":
                return f"no sign of life for {pulse.silence:.0f} s"
            if verdict == "stalled" and self._board.state.state != "stalled":
                self._board.show("stalled", "It gives no sign of life.")
            if verdict == "alive" and self._board.state.state == "stalled":
                self._board.show("ready")
            await asyncio.sleep(self._interval_s)

    async def _refusal(self) -> str | None:
        """Why it cannot be used yet; None if it can."""
        try:
            await self._health()
        except TwinlensError as error:
            return error.message
        try:
            await self._probe.inference()
        except TwinlensError as error:
            # It talks and refuses: worth saying while everybody waits, and no use to ask again in haste.
            # Texts about an unreachable engine are always ours; others may be the engine's own.
            said = error.message if isinstance(error, EngineUnavailable) else f"{error.code}."
            why = f"A trial request failed: {said}"
            self._board.show(self._board.state.state, why)
            await asyncio.sleep(INTERVAL_S)
            return why
        return None

    async def _sign(self) -> Sign:
        try:
            health = await self._health()
        except TwinlensError:
            return Sign(time.monotonic(), None, effort=self._effort())
        # Of an engine that is not ours no progress is known: that it answers is all its life that can be seen.
        idle = not health.abilities.references or (not health.running and not health.waiting)
        return Sign(time.monotonic(), health.progress, idle, self._effort())

    async def _health(self) -> Health:
        try:
            async with asyncio.timeout(self._deadline_s):
                health = await self._probe.health()
        except TimeoutError as error:
            raise EngineUnavailable("The engine does not answer its health probe.") from error
        self._board.load(health)
        return health
