"""The gate of one gateway process: refuses early and plainly, before any work is done for a request.

It counts who is inside, sets deadlines and drains; rates, places and breakers it asks of the desk, which may be shared
by several processes. A gate that drains lets the requests inside finish and refuses whatever comes.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlens.admission import desk as desks
from twinlens.admission.places import Need
from twinlens.errors import DeadlineExceeded, Draining, EngineUnavailable, Overloaded, ServerError, TwinlensError
from twinlens.observe import metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from twinlens.admission.desk import Asked
    from twinlens.admission.rules import Headers
    from twinlens.admission.words import End, State
    from twinlens.core import Caller


@dataclass(slots=True)
class Ticket:
    """What an admitted request holds. `deadline` is a time of the event loop's clock, in seconds."""

    deadline: float
    caller: Caller
    vision: int = 0  # tokens of the prompt that were charged
    text: int = 0
    heard: bool = False  # the engine has said something


class Gate:
    """Counts the requests of one gateway process. Not thread-safe: it belongs to the event loop."""

    def __init__(self, desk: Asked, *, max_queue: int, timeout_s: float) -> None:
        self._desk = desk
        self._max_queue = max_queue
        self._timeout_s = timeout_s
        self._inside = 0
        self._running = 0
        self._waiting = 0
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
        return self._waiting

    @property
    def draining(self) -> bool:
        """Whether new requests are refused because the service stops."""
        return self._draining

    @property
    def state(self) -> State:
        """How the desk stands."""
        return self._desk.state

    def drain(self) -> None:
        """From now on refuse whatever comes."""
        self._draining = True

    async def drained(self) -> None:
        """Wait until nothing is inside."""
        await self._empty.wait()

    async def enter(self, caller: Caller) -> Headers:
        """One request comes, its body not read yet; gives headers for its answer.

        Raises Draining, Overloaded, EngineFailing, RateLimited. What is not let in counts against no limit.
        """
        self.check()
        desks.check(self._desk.state, self._timeout_s, self._max_queue)
        try:
            return await self._desk.enter(caller)
        except TwinlensError as error:
            metrics.REFUSED.labels(error.code).inc()
            raise

    def check(self) -> None:
        """Raise Draining or Overloaded where there is no room for one more."""
        if self._draining:
            raise Draining("The service is stopping and takes no new requests.", retry_after=5)
        if self._inside >= self._desk.state.places + self._max_queue:
            raise Overloaded(f"{self._inside} requests are inside already.", retry_after=1)

    @contextmanager
    def admit(self, caller: Caller) -> Iterator[Ticket]:
        """Let one request in, or raise Draining or Overloaded."""
        self.check()
        self._inside += 1
        self._empty.clear()
        try:
            yield Ticket(asyncio.get_running_loop().time() + self._timeout_s, caller)
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    async def charge(self, ticket: Ticket, vision: int, text: int) -> Headers:
        """Charge the tokens of a prompt; gives headers for the answer.

        Raises RateLimited, LongPromptsPaused, OverTokenLimit.
        """
        try:
            headers = await self._desk.charge(ticket.caller, vision, text)
        except TwinlensError as error:
            metrics.REFUSED.labels(error.code).inc()
            raise
        ticket.vision, ticket.text = vision, text
        return headers

    def answered(self, ticket: Ticket, tokens: int) -> None:
        """Charge the tokens of an answer, which nobody knew before."""
        self._desk.owe(ticket.caller, 0, tokens)

    @asynccontextmanager
    async def place(self, ticket: Ticket, cost: int) -> AsyncIterator[None]:
        """Hold a place at the engine for `cost` tokens. Raises Overloaded, EngineFailing, DeadlineExceeded."""
        number = await self._take(ticket, cost)
        self._running += 1
        end: End = "left"
        try:
            yield
            end = "answered"
        except TwinlensError as error:
            end = "failed" if _fault_of_engine(error, ticket) else "left"
            raise
        finally:
            self._running -= 1
            self._desk.leave(number, end)

    async def _take(self, ticket: Ticket, cost: int) -> int:
        caller = ticket.caller
        now = time.monotonic()
        left = ticket.deadline - asyncio.get_running_loop().time()
        need = Need(caller.tenant or caller.address, cost, now + left, caller.bulk)
        self._waiting += 1
        try:
            number = await self._desk.take(need)
        except BaseException as error:
            # No work was done for it: what it was charged it gets back.
            self._desk.owe(caller, -ticket.vision, -ticket.text)
            if isinstance(error, TwinlensError):
                metrics.REFUSED.labels(error.code).inc()
            raise
        finally:
            self._waiting -= 1
            metrics.SECONDS_OF_STEP.labels("queue").observe(time.monotonic() - now)
        return number


def _fault_of_engine(error: TwinlensError, ticket: Ticket) -> bool:
    """Whether an error speaks against the engine, and not against the request or its deadline."""
    if isinstance(error, DeadlineExceeded):
        return not ticket.heard
    return isinstance(error, EngineUnavailable) or type(error) is ServerError
