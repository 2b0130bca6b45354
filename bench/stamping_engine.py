"""A fake engine that writes into each piece when it made it: the monotonic clock, which all processes share.

python -m bench.stamping_engine PORT
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

from twinlens.core import Piece, Usage
from twinlens.engines.fake import Behaviour, FakeEngine
from twinlens.engines.process import serve
from twinlens.engines.server import EngineApp

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from twinlens.engines import wire

PIECES = 4
PAUSE_S = 0.005


class StampingEngine(FakeEngine):
    """Every piece is the time at which it was made."""

    async def generate(self, chat: wire.Chat) -> AsyncGenerator[Sequence[Piece], None]:
        """PIECES pieces with a pause after each."""
        self.progress += 1
        for _ in range(PIECES):
            yield (Piece(0, f"{time.monotonic():.6f} "),)
            await asyncio.sleep(PAUSE_S)
        yield (Piece(0, finish_reason="stop"), Piece(-1, usage=Usage(1, PIECES)))


if __name__ == "__main__":
    serve(EngineApp(StampingEngine(Behaviour()), "fake"), unix=None, port=int(sys.argv[1]))
