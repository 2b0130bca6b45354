"""Rates: the generic cell rate algorithm (GCRA), a token bucket that needs one number for each client.

The number is the *theoretical arrival time*: the moment at which the bucket is full again. A unit moves it on by one
interval; a request may pass when that leaves it no further ahead than the bucket is deep. So “30 a minute, burst 5”
lets six pass at once and then one every two seconds, without a window at whose edge twice as many pass.

Times are seconds of the monotonic clock, which the processes of a host share and nobody can set.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twinlens.admission.ledger import Ledger

Kind = Literal["requests", "vision_tokens", "text_tokens"]
MINUTE = 60.0
DEBT = 10.0  # how many depths of the bucket an answer may take it below empty; more is forgiven


@dataclass(frozen=True, slots=True)
class Limit:
    """`per_minute` units on average, `depth` at once."""

    kind: Kind
    per_minute: float
    depth: float

    @property
    def interval(self) -> float:
        """Seconds for one unit."""
        return MINUTE / self.per_minute

    @property
    def span(self) -> float:
        """Seconds in which an empty bucket fills."""
        return self.depth * self.interval


@dataclass(frozen=True, slots=True)
class Want:
    """`cost` units of a limit for a client; `name` is the client's bucket."""

    limit: Limit
    name: str
    cost: float


@dataclass(frozen=True, slots=True)
class Reading:
    """How a bucket stands. `wait` is the time until this want could pass: 0 when it does, and inf when it never can."""

    limit: Limit
    remaining: float
    reset: float  # seconds until it is full
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """All wants pass or none does. `denied` is the reading of the one that holds longest."""

    readings: tuple[Reading, ...]
    denied: Reading | None = None


def judged(wants: Sequence[Want], ahead: Sequence[float]) -> Verdict:
    """The verdict over buckets that are `ahead` seconds from full: before a denial, after a pass."""
    waits = [_wait(want, gap) for want, gap in zip(wants, ahead, strict=True)]
    passes = not any(waits)
    readings = []
    for want, gap, wait in zip(wants, ahead, waits, strict=True):
        after = gap + want.cost * want.limit.interval if passes else gap
        room = max(0.0, want.limit.depth - after / want.limit.interval)
        readings.append(Reading(want.limit, room, after, wait))
    denied = None if passes else max(readings, key=lambda reading: reading.wait)
    return Verdict(tuple(readings), denied)


def _wait(want: Want, gap: float) -> float:
    limit = want.limit
    if want.cost > limit.depth:
        return float("inf")
    over = gap + want.cost * limit.interval - limit.span
    return over if over > 1e-9 else 0.0  # what adding and taking away of fractions leaves


class Rates:
    """The buckets of one host."""

    def __init__(self, ledger: Callable[[], Ledger], clock: Callable[[], float] = time.monotonic) -> None:
        """`ledger` makes it when the first limit is asked about: a service without limits has none."""
        self._make = ledger
        self._clock = clock

    @cached_property
    def _ledger(self) -> Ledger:
        return self._make()

    def take(self, wants: Sequence[Want]) -> Verdict:
        """Take all wants, or none of them."""
        now = self._clock()
        ahead = [self._ahead(want, now) for want in wants]
        verdict = judged(wants, ahead)
        if verdict.denied is None:
            for want, reading in zip(wants, verdict.readings, strict=True):
                self._ledger.put(want.name, now + reading.reset, now)
        return verdict

    def give(self, wants: Sequence[Want]) -> None:
        """Give back what was taken for work that was not done."""
        self._move(wants, -1.0)

    def owe(self, wants: Sequence[Want]) -> None:
        """Take what was used already, below empty if need be: the next ones wait for it."""
        self._move(wants, 1.0)

    def _move(self, wants: Sequence[Want], sign: float) -> None:
        now = self._clock()
        for want in wants:
            gap = self._ahead(want, now) + sign * want.cost * want.limit.interval
            self._ledger.put(want.name, now + min(gap, DEBT * want.limit.span), now)

    def _ahead(self, want: Want, now: float) -> float:
        # Bounded both ways, so that a number that cannot be right locks nobody out for ever.
        return min(max(0.0, self._ledger.get(want.name) - now), DEBT * want.limit.span)
