"""What a gateway process knows of the engine: whether it takes requests, and what it can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlens.errors import EngineUnavailable
from twinlens.orders import read_engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from twinlens.engines.client import EngineClient
    from twinlens.engines.wire import Health
    from twinlens.orders import EngineState


class EngineView:
    """Reads the state that the supervisor publishes; asks the engine itself once for each of its lives."""

    def __init__(self, run_dir: Path, client: EngineClient, learned: Callable[[Health], None]) -> None:
        self._run_dir = run_dir
        self._client = client
        self._learned = learned
        self._health: Health | None = None
        self._life: tuple[int, int] | None = None

    def state(self) -> EngineState:
        """How the engine is now."""
        return read_engine(self._run_dir)

    async def ready(self) -> Health:
        """What the engine can do. Raises EngineUnavailable, with the reason, while it takes no requests."""
        state = self.state()
        if state.state != "ready":
            why = f" {state.reason}" if state.reason else ""
            raise EngineUnavailable(f"The engine is {state.state}.{why}", retry_after=5)
        life = (state.pid, state.restarts)
        if self._health is None or life != self._life:
            self._health = await self._client.health()
            self._life = life
            self._learned(self._health)
        return self._health
