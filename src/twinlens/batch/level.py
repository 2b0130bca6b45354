"""How many requests are asked at once: a level that finds itself, by additive increase and multiplicative decrease.

Doubled while each doubling brings throughput; then one more at a time. Down when the service says that it has enough
(429, 503), and when more at once has long brought nothing but latency. It stays above the level that was needed for the
best throughput seen, so that the engine always has work; that best is forgotten slowly, because services change.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST = 4
GAIN = 1.04  # times the best throughput that counts as better
FORGET = 0.98  # of the best throughput with every window
TOO_FAR = 1.6  # times the useful level
DOWN_BUSY, DOWN_LATE = 0.6, 0.8
LEAST_WINDOW_S = 0.25


class Level:
    """`most` is the operator's bound. Not for threads."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._level = float(min(FIRST, most))
        self._useful = self._level  # the level at which throughput last became better
        self._best = 0.0  # answers a second
        self._starting = True
        self._since = clock()
        self._count = 0
        self._lowered = -math.inf  # when it last went down
        self.paused_until = -math.inf  # nothing is asked before

    @property
    def now(self) -> int:
        """Requests that may be under way."""
        return max(1, int(self._level))

    def answered(self, began: float) -> None:
        """A request that was sent at `began` has its answer."""
        if began < self._lowered:
            return  # sent at a higher level
        self._count += 1
        took = self._clock() - self._since
        if self._count >= max(8, 2 * self.now) and took >= LEAST_WINDOW_S:
            self._judge(self._count / took)
            self._count, self._since = 0, self._clock()

    def busy(self, began: float, wait_s: float) -> None:
        """The service had no room for a request that was sent at `began`, and wants to be left alone for `wait_s`."""
        now = self._clock()
        self.paused_until = max(self.paused_until, now + wait_s)
        if began <= self._lowered:
            return  # of the same crowd
        self._starting = False
        self._level = max(1.0, self._level * DOWN_BUSY)
        self._useful = min(self._useful, self._level)
        self._lowered = now
        self._count, self._since = 0, max(now, self.paused_until)

    def _judge(self, rate: float) -> None:
        self._best *= FORGET
        if rate > self._best * GAIN:
            self._best, self._useful = rate, self._level
            self._level *= 2 if self._starting else 1.1
        else:
            self._starting = False
        self._level += 1
        if self._level > self._useful * TOO_FAR + 2:
            self._level = max(self._useful + 1, self._level * DOWN_LATE)
        self._level = min(self._level, float(self._most))
