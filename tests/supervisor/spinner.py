"""An engine that does odd things when told to: for the rule of life. `python -m tests.supervisor.spinner …`

“spin 5” keeps its event loop busy for 5 s, “hang” never ends while the loop turns, anything else is answered.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

from twinlens.core import Abilities, Piece, Usage
from twinlens.engines import wire
from twinlens.engines.process import serve
from twinlens.engines.server import EngineApp
from twinlens.parent import die_with_parent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence


class Spinner:
    """Backend."""

    def __init__(self) -> None:
        self.running = 0
        self.progress = 0

    def health(self) -> wire.Health:
        can = Abilities()  # one of ours: its progress counts
        return wire.Health(progress=self.progress, running=self.running, abilities=can, capacity=4, model="spinner")

    async def generate(self, chat: wire.Chat) -> AsyncGenerator[Sequence[Piece], None]:
        self.running += 1
        try:
            content = chat.messages[-1].content
            words = content.split() if isinstance(content, str) else []
            if words[:1] == ["spin"]:
                end = time.monotonic() + float(words[1])
                while time.monotonic() < end:
                    """Busy."""
            if words[:1] == ["hang"]:
                await asyncio.Event().wait()
            self.progress += 1
            yield [Piece(0, "done", finish_reason="stop"), Piece(-1, usage=Usage(1, 1))]
        finally:
            self.running -= 1


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    serve(EngineApp(Spinner(), "spinner"), unix=sys.argv[1])
