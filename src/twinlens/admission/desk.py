"""The desk: where rates, the queue and the breakers of a service are kept, once.

A single gateway process has it inside itself. Several share one in a process of its own (`counter.py`) and ask it over
a socket (`clerk.py`); both offer what `Asked` says.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from twinlens.admission import rules as told
from twinlens.admission.breakers import EngineBreaker, LongPrompts, failing
from twinlens.admission.ledger import Ledger, file_of
from twinlens.admission.places import SLACK, Places, full, late
from twinlens.admission.rates import Rates
from twinlens.admission.rules import Rules
from twinlens.admission.words import State
from twinlens.errors import DeadlineExceeded
from twinlens.orders import read_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from twinlens.admission.places import Need
    from twinlens.admission.rates import Verdict, Want
    from twinlens.admission.rules import Headers
    from twinlens.admission.shared import Shared
    from twinlens.admission.words import End
    from twinlens.core import Caller
    from twinlens.errors import TwinlensError
    from twinlens.settings import Settings

FIRST_GUESS = 16  # places, until the engine has said how many requests it can hold
FOREIGN_PLACES = 256  # of an engine that does not say: what vLLM runs at once by default
PRESSED = 2
FOLLOW_S = 1.0


def places_of(settings: Settings, capacity: int) -> int:
    """Places at an engine that says it takes `capacity` requests at once (0: it does not say)."""
    return settings.max_running or capacity or FOREIGN_PLACES


class Asked(Protocol):
    """A desk, seen from a gateway process."""

    @property
    def state(self) -> State:
        """How it stands; of a desk elsewhere, about a second old."""
        ...

    async def enter(self, caller: Caller) -> Headers:
        """One more request of the caller, before it is read. Raises RateLimited."""
        ...

    async def charge(self, caller: Caller, vision: int, text: int) -> Headers:
        """So many tokens of a prompt. Raises RateLimited, LongPromptsPaused, OverTokenLimit."""
        ...

    def owe(self, caller: Caller, vision: int, text: int) -> None:
        """Tokens that were used already; negative ones are given back."""
        ...

    async def take(self, need: Need) -> int:
        """Wait for a place; gives its number. Raises Overloaded, EngineFailing, DeadlineExceeded."""
        ...

    def leave(self, number: int, end: End) -> None:
        """Give the place back."""
        ...


class Desk:
    """Rates, queue and breakers. Belongs to one event loop."""

    def __init__(
        self,
        settings: Settings,
        ledger: Callable[[], Ledger] = Ledger,
        shared: Shared | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rules = Rules(settings)
        self.rates = Rates(ledger, clock)
        self.places = Places(settings.max_running or FIRST_GUESS, settings.max_queue, clock)
        self.engine = EngineBreaker(clock)
        self.long = LongPrompts(settings.long_prompt_tokens, settings.long_prompt_share, clock)
        self.shared = shared
        self._numbers = itertools.count(1)
        self._most = self._window = self.places.places
        self._pressed = 0

    @property
    def state(self) -> State:
        """How it stands."""
        places = self.places
        return State(
            running=places.running,
            waiting=places.waiting,
            places=places.places,
            booked=places.booked,
            room=places.room,
            seconds=places.pace.seconds,
            wait=places.wait,
            engine=self.engine.phase,
            engine_until=self.engine.until,
            long_until=self.long.until,
            long_share=self.long.share,
            shared=self.shared.state if self.shared else "none",
        )

    async def enter(self, caller: Caller) -> Headers:
        """See `Asked`."""
        return await self._rated(self.rules.entry(caller))

    async def charge(self, caller: Caller, vision: int, text: int) -> Headers:
        """See `Asked`. Bulk work runs behind everybody else, so its long prompts are nobody's trouble."""
        if not caller.bulk:
            self.long.take(vision + text)
        return await self._rated(self.rules.tokens(caller, vision, text))

    def owe(self, caller: Caller, vision: int, text: int) -> None:
        """See `Asked`."""
        given = self.rules.tokens(caller, max(0, -vision), max(0, -text))
        used = self.rules.tokens(caller, max(0, vision), max(0, text))
        if given:
            self.rates.give(given)
        if used:
            self.rates.owe(used)
        if self.shared and (given or used):
            self.shared.move(given, used)

    async def take(self, need: Need) -> int:
        """See `Asked`."""
        number = next(self._numbers)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ask(number, need, partial(_tell, turn))
        if turn.done():
            turn.result()
            return number
        await turn_of(turn, need.deadline, lambda: self.leave(number, "left"))
        return number

    def ask(self, number: object, need: Need, told_: Callable[[TwinlensError | None], None]) -> None:
        """Have `told_` called once with None for a place, or with why there is none. Raises EngineFailing."""
        self.engine.enter()
        self.places.ask(number, need, told_)

    def leave(self, number: object, end: End) -> None:
        """See `Asked`."""
        if end == "left":
            self.engine.lost()
        else:
            self.engine.outcome(failed=end == "failed")
        self.places.leave(number, answered=end == "answered")

    def learn(self, places: int, room: int) -> None:
        """What the engine says it can hold: requests at once, and tokens together (0: it does not say)."""
        if places != self._most:
            self._most = self._window = places
        if (self._window, room) != (self.places.places, self.places.room):
            self.places.resize(self._window, room)

    def watch(self, waiting: int) -> None:
        """How many requests wait inside the engine, looked at about once a second.

        What waits there, waits at the wrong place: out of our order, and for room that work in progress may be thrown
        away for. Twice in a row, and fewer are sent; more again, step by step, once nothing waits.
        """
        self._pressed = self._pressed + 1 if waiting else 0
        if self._pressed >= PRESSED and self.places.running:
            self._window = max(1, min(self._window, self.places.running) * 3 // 4)
            self._pressed = 0
        elif not waiting and self._window < self._most:
            self._window = min(self._most, self._window + max(1, self._most // 16))
        if self._window != self.places.places:
            self.places.resize(self._window, self.places.room)

    async def _rated(self, wants: Sequence[Want]) -> Headers:
        if not wants:
            return []
        verdict = await self._taken(wants)
        if verdict.denied:
            raise told.refusal(verdict)
        return told.headers(verdict)

    async def _taken(self, wants: Sequence[Want]) -> Verdict:
        # First the limits of this host: they hold whatever happens to the server that several hosts share.
        ours = self.rates.take(wants)
        if ours.denied or self.shared is None:
            return ours
        theirs = await self.shared.take(wants)
        if theirs is None:
            return ours
        if theirs.denied:
            self.rates.give(wants)
        return theirs


async def follow(desk: Desk, run_dir: Path, settings: Settings) -> None:
    """Keep the desk to what the engine says, as the supervisor publishes it; until cancelled."""
    while True:
        engine = read_engine(run_dir)
        if engine.state == "ready":
            desk.learn(places_of(settings, engine.capacity), engine.room)
            desk.watch(engine.waiting)
        if desk.shared:
            await desk.shared.look()
        await asyncio.sleep(FOLLOW_S)


def check(state: State, timeout_s: float, most: int) -> None:
    """Raise what a request that comes now would be refused with later. From the state alone: its body is not read."""
    if state.engine == "open" and (left := state.engine_until - time.monotonic()) > 0:
        raise failing(left)
    if state.waiting >= most and state.running >= state.places:
        raise full(state.places, most, state.wait)
    if state.waiting and state.seconds and state.wait + state.seconds > SLACK * timeout_s:
        raise late(state.wait)


def desk_of(settings: Settings, data: Path) -> Desk:
    """The desk of a service, its rates in a file that outlasts it."""
    shared = None
    if settings.redis_url:
        from twinlens.admission.shared import Shared  # noqa: PLC0415 - an extra that most do not need

        shared = Shared(settings.redis_url)
    return Desk(settings, partial(Ledger, file_of(data, settings.port)), shared)


def _tell(turn: asyncio.Future[None], error: TwinlensError | None) -> None:
    if turn.done():
        return
    if error is None:
        turn.set_result(None)
    else:
        turn.set_exception(error)


async def turn_of(turn: asyncio.Future[Any], deadline: float, leave: Callable[[], None]) -> None:
    """Wait for a place until `deadline` of the monotonic clock; `leave` gives the wish back if it is not waited for.

    Raises DeadlineExceeded, and what the turn is told.
    """
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            await turn
    except TimeoutError:
        leave()
        raise DeadlineExceeded("The request waited for the engine until its deadline.", retry_after=5) from None
    except asyncio.CancelledError:
        leave()
        raise
