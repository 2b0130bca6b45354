"""The gate: refuses early and plainly, before any work is done for a request.

It keeps three promises: no more than `max_running` requests are at the engine, no more than `max_queue` wait in
front of it, and nothing waits past its deadline. A gate that drains lets the requests inside finish and refuses
whatever comes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlens.errors import DeadlineExceeded, Draining, Overloaded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@dataclass(frozen=True, slots=True)
class Ticket:
    """What an admitted request holds. `deadline` is a time of the event loop's clock, in seconds."""

    deadline: float


class Gate:
    """Counts the requests of one gateway process. Not thread-safe: it belongs to the event loop."""

    def __init__(self, *, max_running: int, max_queue: int, timeout_s: float) -> None:
        self._max_running = max_running
        self._max_queue = max_queue
        self._timeout_s = timeout_s
        self._inside = 0
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._draining = False
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def inside(self) -> int:
        """Requests admitted and not finished."""
        return self._inside

    @property
    def running(self) -> int:
        """Requests that hold a place at the engine."""
        return self._running

    @property
    def waiting(self) -> int:
        """Requests that wait for a place at the engine."""
        return len(self._waiting)

    @property
    def draining(self) -> bool:
        """Whether new requests are refused because the service stops."""
        return self._draining

    def resize(self, max_running: int) -> None:
        """Take another number of places, such as the one that the engine says it can hold."""
        self._max_running = max_running
        self._wake()

    def drain(self) -> None:
        """From now on refuse whatever comes."""
        self._draining = True

    async def drained(self) -> None:
        """Wait until nothing is inside."""
        await self._empty.wait()

    def check(self) -> None:
        """Raise what `admit` would raise now: asked before a body is read."""
        if self._draining:
            raise Draining("The service is stopping and takes no new requests.", retry_after=5)
        if self._inside >= self._max_running + self._max_queue:
            raise Overloaded(
                f"All {self._max_running} places and {self._max_queue} waiting places are taken.", retry_after=1
            )

    @contextmanager
    def admit(self) -> Iterator[Ticket]:
        """Let one request in, or raise Draining or Overloaded."""
        self.check()
        self._inside += 1
        self._empty.clear()
        try:
            yield Ticket(deadline=asyncio.get_running_loop().time() + self._timeout_s)
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def place(self, ticket: Ticket) -> AsyncIterator[None]:
        """Hold a place at the engine, first come first served. Raises DeadlineExceeded when none gets free in time."""
        await self._take(ticket)
        try:
            yield
        finally:
            self._running -= 1
            self._wake()

    async def _take(self, ticket: Ticket) -> None:
        if self._running < self._max_running and not self._waiting:
            self._running += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(ticket.deadline):
                await turn
        except (TimeoutError, asyncio.CancelledError) as reason:
            self._give_up(turn)
            if isinstance(reason, TimeoutError):
                raise DeadlineExceeded("The request waited for the engine until its deadline.", retry_after=5) from None
            raise

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():  # the place was given in the same moment: pass it on
            self._running -= 1
        else:
            self._waiting.remove(turn)
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._running < self._max_running:
            turn = self._waiting.popleft()
            if not turn.done():
                self._running += 1
                turn.set_result(None)
