"""How many requests are asked at once: a level that finds itself, by additive increase and multiplicative decrease.

Doubled while each doubling brings throughput. Then it goes round: from the level that is known to be useful up to well
above it, in small steps, and sometimes from a little below it. Where more brings throughput twice, that is the useful
level; where less brings as much, that is. So it follows a service that changes, and noise moves it up no more than
down. At once it goes down when the service says that it has enough (429, 503). What is compared is measured with
requests that were sent at the level in question only.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST = 8
GAIN = 1.04  # times the throughput at the useful level that counts as better
DOUBLE_GAIN = 1.15  # the same while it doubles
TOO_FAR, BACK = 1.6, 0.85  # times the useful level: the ends of a round
BACK_EVERY = 2  # rounds; the engine may starve below
STEP = 0.1  # of the useful level
DOWN_BUSY = 0.6
LEAST_WINDOW_S = 0.25


class Level:
    """`most` is the operator's bound. Not for threads."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._level = float(min(FIRST, most))
        self._useful = self._level
        self._rate = 0.0  # answers a second at the useful level
        self._starting = True
        self._rounds = 0
        self._once = False  # this level has been found useful once
        self._changed = -math.inf  # when the level last changed
        self._lowered = -math.inf  # when the service last had no room
        self._since = math.nan  # the first answer of the window came
        self._count = 0  # of answers since then
        self.paused_until = -math.inf  # nothing is asked before

    @property
    def now(self) -> int:
        """Requests that may be under way."""
        return max(1, int(self._level))

    def answered(self, began: float) -> None:
        """A request that was sent at `began` has its answer."""
        if began < self._changed:
            return  # sent at another level
        now = self._clock()
        if math.isnan(self._since):
            self._since, self._count = now, 0
            return
        self._count += 1
        took = now - self._since
        if self._count >= max(8, self.now * (1 if self._starting else 2)) and took >= LEAST_WINDOW_S:
            self._judge(self._count / took)

    def busy(self, began: float, wait_s: float) -> None:
        """The service had no room for a request that was sent at `began`, and wants to be left alone for `wait_s`."""
        now = self._clock()
        self.paused_until = max(self.paused_until, now + wait_s)
        if began <= self._lowered:
            return  # of the same crowd
        self._starting = self._once = False
        self._lowered = now
        lower = max(1.0, self._level * DOWN_BUSY)
        self._useful, self._rate = min(self._useful, lower), 0.0
        self._go(lower)

    def _judge(self, rate: float) -> None:
        if self._starting and rate > self._rate * DOUBLE_GAIN and self._level < self._most:
            self._useful, self._rate = self._level, rate
            self._go(self._level * 2)
            return
        self._starting = False
        if self._level > self._useful:
            is_useful = rate > self._rate * GAIN
            if is_useful and not self._once:  # many steps up are tried, so that one of them looks better by chance
                self._once = True
                self._go(self._level)
                return
        else:
            is_useful = rate * GAIN > self._rate
            if self._level == self._useful:
                self._rate = rate
        self._once = False
        if is_useful:
            self._useful, self._rate = self._level, rate
        self._go(self._next())

    def _next(self) -> float:
        """The next step of the round; the useful level itself is one of them, so that its throughput stays known."""
        higher = self._level + max(1.0, self._useful * STEP)
        if self._level < self._useful:
            return min(higher, self._useful)
        if higher <= min(self._useful * TOO_FAR + 2, self._most):
            return higher
        self._rounds += 1
        if self._rounds % BACK_EVERY:
            return self._useful
        return self._useful * BACK if self._useful >= 2 else 1.0

    def _go(self, level: float) -> None:
        self._level = min(max(level, 1.0), float(self._most))
        self._changed = self._clock()
        self._since = math.nan
