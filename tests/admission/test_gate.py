"""The gate of one process with its desk: bounded places, bounded waiting, deadlines, draining."""

from __future__ import annotations

import asyncio
import time

import pytest

from twinlens.admission.desk import Desk
from twinlens.admission.gate import Gate, Ticket
from twinlens.core import Caller
from twinlens.errors import DeadlineExceeded, Draining, EngineFailing, EngineUnavailable, Overloaded
from twinlens.settings import Settings

ME = Caller(address="127.0.0.1")


def gate(*, running: int = 2, queue: int = 2, timeout_s: float = 5.0) -> tuple[Gate, Desk]:
    desk = Desk(Settings(max_running=running, max_queue=queue))
    return Gate(desk, max_queue=queue, timeout_s=timeout_s), desk


async def hold(at: Gate, ticket: Ticket, release: asyncio.Event, order: list[int], number: int) -> None:
    async with at.place(ticket, 10):
        order.append(number)
        await release.wait()


async def test_never_more_than_the_places_are_taken_and_turns_are_fair() -> None:
    at, _ = gate(running=2, queue=8)
    release = asyncio.Event()
    order: list[int] = []
    with at.admit(ME) as ticket:
        tasks = [asyncio.create_task(hold(at, ticket, release, order, n)) for n in range(6)]
        await asyncio.sleep(0.01)
        assert (at.running, at.waiting) == (2, 4)
        release.set()
        await asyncio.gather(*tasks)
    assert order == list(range(6))
    assert (at.inside, at.running, at.waiting) == (0, 0, 0)


async def test_full_queue_is_refused_at_once() -> None:
    at, _ = gate(running=1, queue=1)
    with at.admit(ME), at.admit(ME):
        with pytest.raises(Overloaded) as refused, at.admit(ME):
            pass
        assert refused.value.status == 503
        assert refused.value.retry_after
    with at.admit(ME):
        assert at.inside == 1


async def test_waiting_ends_at_the_deadline_and_gives_the_turn_back() -> None:
    at, desk = gate(running=1, queue=4, timeout_s=0.05)
    with at.admit(ME) as ticket:
        async with at.place(ticket, 10):
            with pytest.raises(DeadlineExceeded):
                async with at.place(ticket, 10):
                    pass
        assert (at.running, at.waiting) == (0, 0)
    assert (desk.places.running, desk.places.waiting, desk.places.booked) == (0, 0, 0)


async def test_cancelling_who_waits_or_was_just_called_loses_no_place() -> None:
    at, desk = gate(running=1, queue=8)
    release = asyncio.Event()
    with at.admit(ME) as ticket:
        first = asyncio.create_task(hold(at, ticket, release, [], 0))
        await asyncio.sleep(0)
        second = asyncio.create_task(hold(at, ticket, release, [], 1))
        third = asyncio.create_task(hold(at, ticket, release, [], 2))
        await asyncio.sleep(0.01)
        release.set()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second.cancel()  # its turn was set in the same moment
        await asyncio.gather(second, third, return_exceptions=True)
    assert (at.running, at.waiting) == (0, 0)
    assert (desk.places.running, desk.places.waiting, desk.places.booked) == (0, 0, 0)


async def test_more_places_wake_those_who_wait() -> None:
    at, desk = gate(running=1, queue=8)
    release = asyncio.Event()
    with at.admit(ME) as ticket:
        tasks = [asyncio.create_task(hold(at, ticket, release, [], n)) for n in range(3)]
        await asyncio.sleep(0.01)
        desk.learn(3, 0)
        await asyncio.sleep(0)
        assert at.state.running == 3
        release.set()
        await asyncio.gather(*tasks)


async def test_draining_refuses_the_new_and_waits_for_those_inside() -> None:
    at, _ = gate()
    with at.admit(ME):
        at.drain()
        with pytest.raises(Draining), at.admit(ME):
            pass
        with pytest.raises(Draining):
            await at.enter(ME)
        drained = asyncio.create_task(at.drained())
        await asyncio.sleep(0.01)
        assert not drained.done()
    await asyncio.wait_for(drained, 1)


async def test_failures_of_the_engine_open_the_breaker_and_those_of_clients_do_not() -> None:
    at, desk = gate()

    async def ask(error: Exception | None) -> None:
        with at.admit(ME) as ticket:
            async with at.place(ticket, 10):
                if error:
                    raise error

    for _ in range(20):
        with pytest.raises(asyncio.CancelledError):
            await ask(asyncio.CancelledError())  # type: ignore[arg-type]
    await at.enter(ME)
    for _ in range(5):
        with pytest.raises(EngineUnavailable):
            await ask(EngineUnavailable("It broke."))
    began = time.monotonic()
    with pytest.raises(EngineFailing) as refused:
        await at.enter(ME)
    with pytest.raises(EngineFailing):
        await ask(None)
    assert time.monotonic() - began < 0.1
    assert refused.value.retry_after
    assert at.state.engine == "open"
    desk.engine.adopt(0.0)


async def test_an_engine_that_queues_gets_fewer_requests_and_then_more_again() -> None:
    at, desk = gate(running=8, queue=8)
    desk.learn(8, 0)
    with at.admit(ME) as ticket:
        release = asyncio.Event()
        tasks = [asyncio.create_task(hold(at, ticket, release, [], n)) for n in range(8)]
        await asyncio.sleep(0)
        for _ in range(2):
            desk.watch(waiting=3)
        assert desk.places.places == 6
        release.set()
        await asyncio.gather(*tasks)
    for _ in range(10):
        desk.watch(waiting=0)
    assert desk.places.places == 8
