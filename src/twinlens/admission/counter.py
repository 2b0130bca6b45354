"""The desk of several gateway workers, in a process of its own: `python -m twinlens.admission.counter`.

Started and watched by the supervisor, like a worker; its orders come on standard input. What it knows survives it as
far as it must: rates are in a mapped file, the workers say what they hold (`Hello`), and until all of them have, or
GRACE_S are over, no new place is given out. A worker that goes away gives back what it held with its connection.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import uvloop

from twinlens.admission import words
from twinlens.admission.desk import Desk, desk_of, follow
from twinlens.admission.places import Need
from twinlens.errors import TwinlensError
from twinlens.orders import BEAT_INTERVAL_S, beat, desk_socket, orders_from_json
from twinlens.parent import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from twinlens.admission.rules import Headers
    from twinlens.orders import WorkerOrders

log = logging.getLogger("twinlens.admission")

GRACE_S = 3.0
SHOW_S = 0.5
UNREAD = 4 << 20  # bytes that a worker may leave unread; one that hangs is the supervisor's to end


class Counter:
    """The desk and the workers that stand at it."""

    def __init__(self, desk: Desk, workers: int) -> None:
        self.desk = desk
        self._expected = workers
        self._links: set[Link] = set()
        self._greeted: set[int] = set()
        desk.places.paused = True

    def join(self, link: Link) -> None:
        """A worker connected."""
        self._links.add(link)

    def part(self, link: Link) -> None:
        """A worker is gone: nothing of it stays."""
        self._links.discard(link)

    def greeted(self, hello: words.Hello) -> None:
        """A worker has said what it holds."""
        self._greeted.add(hello.worker)
        if hello.last:
            self.desk.engine.adopt(hello.last.engine_until)
            self.desk.long.adopt(hello.last.long_until)
        if len(self._greeted) >= self._expected:
            self.open()

    def open(self) -> None:
        """Give out places from now on."""
        self.desk.places.paused = False
        self.desk.places.wake()

    async def show(self) -> None:
        """Show the state to all, again and again."""
        await asyncio.sleep(0)
        shown = self.desk.state
        while True:
            state = self.desk.state
            data = words.framed(state)
            for link in list(self._links):
                link.send(data)
            # Breakers at once, so that all refuse as one; the rest can wait.
            for _ in range(10):
                await asyncio.sleep(SHOW_S / 10)
                shown, state = state, self.desk.state
                if (shown.engine, shown.long_until) != (state.engine, state.long_until):
                    break


class Link(asyncio.Protocol):
    """One worker's connection."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._desk = counter.desk
        self._frames = words.Frames()
        self._transport: asyncio.Transport | None = None
        self._numbers: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A worker came."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not of that class
        self._counter.join(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It went, whatever became of it."""
        self._transport = None
        self._counter.part(self)
        for task in self._tasks:
            task.cancel()
        for number in list(self._numbers):
            self._desk.leave((self, number), "left")
        self._numbers.clear()

    def data_received(self, data: bytes) -> None:
        """Words of the worker."""
        try:
            for frame in self._frames.feed(data):
                self._hear(words.asks.decode(frame))
        except (ValueError, msgspec.DecodeError):
            log.exception("a worker says what nobody understands")
            if self._transport:
                self._transport.abort()

    def send(self, data: bytes) -> None:
        """Send a frame."""
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size() > UNREAD:
            self._transport.abort()
        else:
            self._transport.write(data)

    def _hear(self, word: words.Ask) -> None:
        match word:
            case words.Take(held):
                self._take(held)
            case words.Leave(number, end):
                self._numbers.discard(number)
                self._desk.leave((self, number), end)
            case words.Enter(number, caller):
                self._start(number, self._desk.enter(caller))
            case words.Charge(number, caller, vision, text):
                self._start(number, self._desk.charge(caller, vision, text))
            case words.Owe(caller, vision, text):
                self._desk.owe(caller, vision, text)
            case words.Hello(_, held):
                for one in held:
                    self._numbers.add(one.number)
                    self._desk.places.hold((self, one.number), _need(one))
                self._counter.greeted(word)

    def _take(self, held: words.Held) -> None:
        self._numbers.add(held.number)
        try:
            self._desk.ask((self, held.number), _need(held), partial(self._told, held.number))
        except TwinlensError as error:
            self._told(held.number, error)

    def _told(self, number: int, error: TwinlensError | None) -> None:
        if error is not None:
            self._numbers.discard(number)
        self.send(words.framed(words.Reply(number, fault=words.fault_of(error) if error else None)))

    def _start(self, number: int, work: Coroutine[None, None, Headers]) -> None:
        """Most of this work never waits: it is stepped once here, and becomes a task only when it does wait."""
        if self._desk.shared is None:
            try:
                work.send(None)
            except StopIteration as done:
                self.send(words.framed(words.Reply(number, done.value)))
            except TwinlensError as error:
                self.send(words.framed(words.Reply(number, fault=words.fault_of(error))))
            else:
                raise RuntimeError("a desk without shared limits never waits")
            return
        task = asyncio.get_running_loop().create_task(self._finish(number, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, number: int, work: Coroutine[None, None, Headers]) -> None:
        try:
            reply = words.Reply(number, await work)
        except TwinlensError as error:
            reply = words.Reply(number, fault=words.fault_of(error))
        self.send(words.framed(reply))


def _need(held: words.Held) -> Need:
    return Need(held.tenant, held.cost, held.deadline, held.bulk)


async def serve(orders: WorkerOrders) -> None:
    """Until SIGTERM."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    run_dir = Path(orders.run_dir)
    desk = desk_of(orders.settings, Path(orders.data_dir))
    counter = Counter(desk, orders.settings.workers)
    path = desk_socket(run_dir)
    path.unlink(missing_ok=True)
    server = await loop.create_unix_server(lambda: Link(counter), str(path))
    tasks = [asyncio.ensure_future(work) for work in (counter.show(), follow(desk, run_dir, orders.settings))]
    tasks.append(asyncio.ensure_future(_show_life(run_dir, orders.worker)))
    loop.call_later(GRACE_S, counter.open)
    try:
        waiting = asyncio.ensure_future(over.wait())
        done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # none of them ends by itself
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if desk.shared:
            await desk.shared.close()


async def _show_life(run_dir: Path, number: int) -> None:
    while True:
        beat(run_dir, number)
        await asyncio.sleep(BEAT_INTERVAL_S)


def main() -> int:
    """Read the orders and serve."""
    parser = argparse.ArgumentParser(prog="python -m twinlens.admission.counter", description="The workers' desk.")
    parser.add_argument("--parent", type=int, required=True, help="end when this process, which started us, ends")
    die_with_parent(parser.parse_args().parent)
    orders = orders_from_json(sys.stdin.buffer.read())
    logging.basicConfig(
        level=orders.settings.log_level.upper(),
        format="%(asctime)s %(levelname)s desk %(message)s",
        stream=sys.stderr,
    )
    os.umask(0o077)
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(orders))
    return 0


if __name__ == "__main__":
    sys.exit(main())
