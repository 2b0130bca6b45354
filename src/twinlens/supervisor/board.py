"""The engine's state, as the supervisor shows it to the gateway workers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from twinlens.orders import EngineState, State, publish_engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from twinlens.engines.wire import Health

INTERVAL_S = 1.0


class Board:
    """Holds the state and publishes it, at every change and once a second, so that a stale one can be told."""

    def __init__(self, run_dir: Path, on_change: Callable[[EngineState], None] | None = None) -> None:
        self._run_dir = run_dir
        self._on_change = on_change
        self.ready = asyncio.Event()  # it has been, at least once
        self.state = EngineState("starting", time.time())
        self._publish()

    def show(self, state: State, reason: str = "", *, pid: int | None = None, restarts: int | None = None) -> None:
        """Change the state. `reason` is read by clients too: no paths, no addresses."""
        old = self.state
        self.state = replace(
            old,
            state=state,
            since=old.since if state == old.state else time.time(),
            reason=reason,
            pid=old.pid if pid is None else pid,
            restarts=old.restarts if restarts is None else restarts,
        )
        self._publish()
        if state == "ready":
            self.ready.set()
        if self._on_change and (state, reason) != (old.state, old.reason):
            self._on_change(self.state)

    def load(self, health: Health) -> None:
        """What the engine says it holds and can hold; published with the next state."""
        self.state = replace(self.state, capacity=health.capacity, room=health.room, waiting=health.waiting)

    async def keep_fresh(self) -> None:
        """Publish again and again, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            self._publish()

    def _publish(self) -> None:
        publish_engine(self._run_dir, replace(self.state, checked_at=time.monotonic()))
