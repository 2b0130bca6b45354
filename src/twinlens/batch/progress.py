"""What a batch says while it runs: a line that renews itself on a terminal, and nothing elsewhere."""

from __future__ import annotations

import asyncio
import shutil
import time
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_S = 0.5
SPAN_S = 20.0  # over which the rate is taken
WIDTH = 24


class Progress:
    """`state` gives (finished, failed, all that are known)."""

    def __init__(self, out: IO[str], state: Callable[[], tuple[int, int, int]]) -> None:
        self._out = out
        self._state = state
        self._seen: list[tuple[float, int]] = []

    async def run(self) -> None:
        """Until cancelled."""
        if not self._out.isatty():
            return
        try:
            while True:
                self._show(self.line(time.monotonic()))
                await asyncio.sleep(EVERY_S)
        finally:
            self._show("")

    def line(self, now: float) -> str:
        """The line at `now`."""
        done, failed, total = self._state()
        self._seen = [one for one in self._seen if now - one[0] <= SPAN_S] + [(now, done)]
        span = now - self._seen[0][0]
        rate = (done - self._seen[0][1]) / span if span > 0 else 0.0
        share = min(1.0, done / total) if total else 0.0
        bar = ("#" * round(share * WIDTH)).ljust(WIDTH, ".")
        left = f", {_clock((total - done) / rate)} left" if rate > 0 and total >= done else ""
        failures = f", {failed} failed" if failed else ""
        return f"[{bar}] {done}/{total}{failures}, {rate:.1f}/s{left}"

    def _show(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._out.write("\r" + line[:width] + "\x1b[K")
        self._out.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
