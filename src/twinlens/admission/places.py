"""The places at the engine and the one queue in front of them.

Whose turn it is:

- *Fair by cost*: start-time fair queueing. Each tenant (each address, where there are no keys) has a clock that its
  requests move on by their cost in tokens; the request with the earliest start goes first. Who sends a lot waits for
  itself. Short and long requests of a tenant have clocks of their own, so that short ones are not behind huge ones.
- *Room*: requests book their prompt and longest answer in the engine's KV cache and wait here while it is full, so that
  the engine never has to throw away work. A smaller one may pass one that does not fit, for PATIENCE_S; then all wait.
- *Lanes*: of four places or more one quarter is not given to long requests, and one eighth not to bulk work, which
  comes behind everybody else but gets every sixteenth turn.

Who would not get a place in time is refused at once instead of after a wait, and nobody fills more than its share of
the queue. Nothing here waits: whoever asks is told by a call, at once or later. Not thread-safe.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twinlens.admission.pace import Pace
from twinlens.errors import Overloaded, TwinlensError

if TYPE_CHECKING:
    from collections.abc import Callable

LONG = 4096  # tokens of prompt and answer; more is a long request
PATIENCE_S = 5.0
BULK_TURN = 16
FLOWS = 4096  # clocks that are kept; beyond that only of those who wait
SLACK = 0.75  # of the time to the deadline that may be booked by what was learned


@dataclass(frozen=True, slots=True)
class Need:
    """What a request asks for. `tenant`: whose turn it counts as; `deadline`: on the monotonic clock."""

    tenant: str
    cost: int  # tokens of the prompt and of the longest answer
    deadline: float
    bulk: bool = False


@dataclass(slots=True)
class _Entry:
    number: Any
    need: Need
    told: Callable[[TwinlensError | None], None] = field(repr=False)
    start: float
    since: float

    @property
    def long(self) -> bool:
        return self.need.cost > LONG

    @property
    def flow(self) -> tuple[str, bool, bool]:
        return self.need.tenant, self.need.bulk, self.long


class Places:
    """`places` requests at the engine at once, `room` tokens of them together (0: not known), `most` waiting."""

    def __init__(self, places: int, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._places = places
        self._most = most
        self._room = 0
        self._clock = clock
        self._queue: list[_Entry] = []  # by start
        self._held: dict[Any, _Entry] = {}
        self._finish: dict[tuple[str, bool, bool], float] = {}
        self._now = 0.0  # the virtual time: the start of whoever got a place last
        self._since_bulk = 0
        self._booked = 0
        self._tenants: dict[str, int] = {}  # waiting requests
        self.pace = Pace()
        self.paused = False  # a new desk waits for its workers to say what they hold

    @property
    def running(self) -> int:
        """Requests that hold a place."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    @property
    def places(self) -> int:
        """Places there are."""
        return self._places

    @property
    def room(self) -> int:
        """Tokens that may be booked; 0: not known."""
        return self._room

    @property
    def wait(self) -> float:
        """Seconds until a request that comes now would get a place, by what was learned."""
        return self.pace.wait(self._cost_of(self._queue), self._places) if self._queue else 0.0

    @property
    def booked(self) -> int:
        """Tokens that are booked by those who hold places."""
        return self._booked

    def resize(self, places: int, room: int = 0) -> None:
        """Take another number of places, and tokens that they may book together (0: not known)."""
        self._places, self._room = max(1, places), room
        self.wake()

    def ask(self, number: Any, need: Need, told: Callable[[TwinlensError | None], None]) -> None:
        """Ask for a place: `told(None)` gives it, `told(error)` refuses. It may be called before this returns."""
        entry = _Entry(number, need, told, 0.0, self._clock())
        flow = entry.flow
        entry.start = start = max(self._now, self._finish.get(flow, 0.0))
        if refused := self._refused(entry):
            told(refused)
            return
        if len(self._finish) > FLOWS:
            waiting = {one.flow for one in self._queue}
            self._finish = {known: finish for known, finish in self._finish.items() if known in waiting}
        self._finish[flow] = start + need.cost
        self._insert(entry)
        self.wake()

    def hold(self, number: Any, need: Need) -> None:
        """A place that was given before, by another desk."""
        self._held[number] = _Entry(number, need, _nobody, self._now, self._clock())
        self._booked += need.cost

    def leave(self, number: Any, *, answered: bool = False) -> None:
        """Give a place back, or wait no longer. A number that is not known changes nothing."""
        entry = self._held.pop(number, None)
        if entry is None:
            entry = next((one for one in self._queue if one.number == number), None)
            if entry is not None:
                self._remove(entry)
        else:
            self._booked -= entry.need.cost
        if entry is not None and answered:
            self.pace.ended(self._clock() - entry.since, entry.need.cost)
        self.wake()

    def wake(self) -> None:
        """Give out what is free."""
        while not self.paused and self._queue and len(self._held) < self._places:
            entry = self._next()
            if entry is None:
                return
            self._remove(entry)
            self._now = max(self._now, entry.start)
            now = self._clock()
            if self._useless(entry, now):
                entry.told(late(self.pace.seconds))
                continue
            self._since_bulk = 0 if entry.need.bulk else self._since_bulk + 1
            entry.since = now
            self._held[entry.number] = entry
            self._booked += entry.need.cost
            if not self._queue:
                self._finish.clear()
                self._now = 0.0
            entry.told(None)

    def _refused(self, entry: _Entry) -> Overloaded | None:
        if not self._queue and len(self._held) < self._places and self._fits(entry):
            return None
        # Whoever will get a place as soon as places are given out again takes none of the queue's.
        most = self._most + (max(0, self._places - len(self._held)) if self.paused else 0)
        share = most if len(self._tenants) < 2 else max(1, most // 2)
        if len(self._queue) >= most or self._tenants.get(entry.need.tenant, 0) >= share:
            return full(self._places, self._most, self.wait)
        ahead = self._cost_of([one for one in self._queue if one.start <= entry.start])
        wait = self.pace.wait(ahead, self._places)
        left = entry.need.deadline - self._clock()
        return late(wait) if wait + self.pace.seconds > SLACK * left else None

    def _useless(self, entry: _Entry, now: float) -> bool:
        """Whether it waited for so long that its answer would come past its deadline."""
        waited = now - entry.since
        return waited > self.pace.seconds > 0 and now + self.pace.seconds / 2 > entry.need.deadline

    def _next(self) -> _Entry | None:
        bulk_first = self._since_bulk >= BULK_TURN
        for bulk in (bulk_first, not bulk_first):
            for entry in self._queue:
                if entry.need.bulk != bulk or not self._lane(entry):
                    continue
                if self._fits(entry):
                    return entry
                if self._clock() - entry.since > PATIENCE_S:
                    return None  # it was passed for long enough: now it gets what becomes free
        return None

    def _fits(self, entry: _Entry) -> bool:
        # A request that is larger than all the room is the engine's to refuse; it has to be alone there.
        return not self._room or not self._held or self.booked + entry.need.cost <= self._room

    def _lane(self, entry: _Entry) -> bool:
        if self._places < 4:
            return True
        held = self._held.values()
        if entry.long and sum(one.long for one in held) >= self._places - self._places // 4:
            return False
        return not entry.need.bulk or sum(one.need.bulk for one in held) < self._places - max(1, self._places // 8)

    def _insert(self, entry: _Entry) -> None:
        at = len(self._queue)
        while at and self._queue[at - 1].start > entry.start:
            at -= 1
        self._queue.insert(at, entry)
        self._tenants[entry.need.tenant] = self._tenants.get(entry.need.tenant, 0) + 1

    def _remove(self, entry: _Entry) -> None:
        self._queue.remove(entry)
        left = self._tenants[entry.need.tenant] - 1
        if left:
            self._tenants[entry.need.tenant] = left
        else:
            del self._tenants[entry.need.tenant]

    @staticmethod
    def _cost_of(entries: list[_Entry]) -> float:
        return float(sum(entry.need.cost for entry in entries))


def full(places: int, most: int, wait: float) -> Overloaded:
    """The refusal of a queue that takes no more; `wait`: seconds until who comes now would get a place."""
    return Overloaded(
        f"All {places} places and {most} waiting places are taken.", retry_after=max(1.0, min(30.0, wait / 4))
    )


def late(wait: float) -> Overloaded:
    """The refusal of who would wait too long."""
    return Overloaded(
        f"About {wait:.0f} s of work wait here: this request would not be answered before its deadline.",
        retry_after=max(1.0, min(30.0, wait / 2)),
    )


def _nobody(error: TwinlensError | None) -> None:
    """Nobody waits for a place that was given already."""
