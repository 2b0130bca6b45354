"""The way to a desk in another process: what `Asked` says, over a socket that is taken up again whenever it breaks.

While the desk is away, requests at the engine go on; those that wait for a place ask again at the next desk, until
their deadlines; new ones wait up to PATIENCE_S for it and then get 503. Nothing is let in unasked.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import msgspec

from twinlens.admission import words
from twinlens.admission.desk import FIRST_GUESS, turn_of
from twinlens.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from twinlens.admission.places import Need
    from twinlens.admission.rules import Headers, Rules
    from twinlens.admission.words import End
    from twinlens.core import Caller

log = logging.getLogger("twinlens.admission")

PATIENCE_S = 3.0
RETRY_S = 0.1


@dataclass(slots=True)
class _Wish:
    """A place that is asked for or held."""

    held: words.Held
    turn: asyncio.Future[Headers]
    given: bool = False


class Clerk:
    """Asks the desk at `path` for worker `number`. `run` keeps the connection."""

    def __init__(self, path: Path, number: int, rules: Rules) -> None:
        self.state = words.State(places=FIRST_GUESS)
        self._path = path
        self._worker = number
        self._rules = rules
        self._numbers = itertools.count(1)
        self._line: _Line | None = None
        self._up = asyncio.Event()
        self._wishes: dict[int, _Wish] = {}
        self._asked: dict[int, asyncio.Future[Headers]] = {}
        self._seen: words.State | None = None

    async def run(self) -> None:
        """Connect, and connect again, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                _, line = await loop.create_unix_connection(lambda: _Line(self), str(self._path))
            except OSError:
                await asyncio.sleep(RETRY_S)
                continue
            self._greet(line)
            try:
                await line.lost
            finally:
                self._line = None
                self._up.clear()
                line.close()
            log.warning("the desk is away; looking for the next one")
            for question in self._asked.values():
                if not question.done():
                    question.set_exception(_away())
            self._asked.clear()

    async def enter(self, caller: Caller) -> Headers:
        """See `Asked`. Not asked where no limit holds for the caller."""
        if not self._rules.entry(caller):
            return []
        return await self._ask(lambda number: words.Enter(number, caller))

    async def charge(self, caller: Caller, vision: int, text: int) -> Headers:
        """See `Asked`."""
        return await self._ask(lambda number: words.Charge(number, caller, vision, text))

    def owe(self, caller: Caller, vision: int, text: int) -> None:
        """See `Asked`. Lost when the desk is away: an answer more than counted, once."""
        if (vision or text) and self._rules.tokens(caller, abs(vision), abs(text)):
            self._send(words.Owe(caller, vision, text))

    async def take(self, need: Need) -> int:
        """See `Asked`."""
        number = next(self._numbers)
        turn: asyncio.Future[Headers] = asyncio.get_running_loop().create_future()
        wish = _Wish(words.Held(number, need.tenant, need.cost, need.deadline, need.bulk), turn)
        self._wishes[number] = wish
        self._send(words.Take(wish.held))
        await turn_of(turn, need.deadline, lambda: self.leave(number, "left"))
        return number

    def leave(self, number: int, end: End) -> None:
        """See `Asked`."""
        if self._wishes.pop(number, None) is not None:
            self._send(words.Leave(number, end))

    def hear(self, word: words.Tell) -> None:
        """A word of the desk."""
        if isinstance(word, words.State):
            self.state = self._seen = word
            return
        wish = self._wishes.get(word.number)
        question = self._asked.pop(word.number, None) or (wish.turn if wish else None)
        if question is None:
            return
        if wish:
            wish.given = word.fault is None
            if word.fault:
                del self._wishes[word.number]
        if question.done():
            return
        if word.fault:
            question.set_exception(words.error_of(word.fault))
        else:
            question.set_result(word.headers)

    def _greet(self, line: _Line) -> None:
        held = [wish.held for wish in self._wishes.values() if wish.given]
        line.send(words.framed(words.Hello(self._worker, held, self._seen)))
        self._line = line
        self._up.set()
        for wish in self._wishes.values():
            if not wish.given:
                line.send(words.framed(words.Take(wish.held)))

    async def _ask(self, made: Callable[[int], words.Ask]) -> Headers:
        if self._line is None:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._up.wait()
            except TimeoutError:
                raise _away() from None
        number = next(self._numbers)
        answer: asyncio.Future[Headers] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._send(made(number))
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await answer
        except TimeoutError:
            raise _away() from None
        finally:
            self._asked.pop(number, None)

    def _send(self, word: words.Ask) -> None:
        if self._line is not None:
            self._line.send(words.framed(word))


class _Line(asyncio.Protocol):
    """One life of the connection."""

    def __init__(self, clerk: Clerk) -> None:
        self._clerk = clerk
        self._frames = words.Frames()
        self._transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The desk is there."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not of that class

    def connection_lost(self, exc: Exception | None) -> None:
        """It went away."""
        self._transport = None
        if not self.lost.done():
            self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Words of the desk."""
        try:
            for frame in self._frames.feed(data):
                self._clerk.hear(words.tells.decode(frame))
        except (ValueError, msgspec.DecodeError):
            log.exception("the desk says what nobody understands")
            self.close()

    def send(self, data: bytes) -> None:
        """Send a frame; lost with the connection."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """End this connection."""
        if self._transport is not None:
            self._transport.abort()


def _away() -> Unavailable:
    return Unavailable("The part of the service that keeps its limits starts again.", retry_after=1)
