"""The gate: bounded places, bounded waiting, deadlines, draining."""

from __future__ import annotations

import asyncio

import pytest

from twinlens.admission.gate import Gate, Ticket
from twinlens.errors import DeadlineExceeded, Draining, Overloaded


def gate(*, running: int = 2, queue: int = 2, timeout_s: float = 5.0) -> Gate:
    return Gate(max_running=running, max_queue=queue, timeout_s=timeout_s)


async def hold(at: Gate, ticket: Ticket, release: asyncio.Event, order: list[int], number: int) -> None:
    async with at.place(ticket):
        order.append(number)
        await release.wait()


async def test_never_more_than_the_places_are_taken_and_turns_are_fair() -> None:
    at = gate(running=2, queue=8)
    release = asyncio.Event()
    order: list[int] = []
    with at.admit() as ticket:
        tasks = [asyncio.create_task(hold(at, ticket, release, order, n)) for n in range(6)]
        await asyncio.sleep(0.01)
        assert (at.running, at.waiting) == (2, 4)
        release.set()
        await asyncio.gather(*tasks)
    assert order == list(range(6))
    assert (at.inside, at.running, at.waiting) == (0, 0, 0)


async def test_full_queue_is_refused_at_once() -> None:
    at = gate(running=1, queue=1)
    with at.admit(), at.admit():
        with pytest.raises(Overloaded) as refused, at.admit():
            pass
        assert refused.value.status == 503
        assert refused.value.retry_after
    with at.admit():
        assert at.inside == 1


async def test_waiting_ends_at_the_deadline_and_gives_the_turn_back() -> None:
    at = gate(running=1, queue=4, timeout_s=0.05)
    with at.admit() as ticket:
        async with at.place(ticket):
            with pytest.raises(DeadlineExceeded):
                async with at.place(ticket):
                    pass
        assert (at.running, at.waiting) == (0, 0)


async def test_cancelling_who_waits_or_was_just_called_loses_no_place() -> None:
    at = gate(running=1, queue=8)
    release = asyncio.Event()
    with at.admit() as ticket:
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


async def test_more_places_wake_those_who_wait() -> None:
    at = gate(running=1, queue=8)
    release = asyncio.Event()
    with at.admit() as ticket:
        tasks = [asyncio.create_task(hold(at, ticket, release, [], n)) for n in range(3)]
        await asyncio.sleep(0.01)
        at.resize(3)
        assert at.running == 3
        release.set()
        await asyncio.gather(*tasks)


async def test_draining_refuses_the_new_and_waits_for_those_inside() -> None:
    at = gate()
    with at.admit():
        at.drain()
        with pytest.raises(Draining), at.admit():
            pass
        drained = asyncio.create_task(at.drained())
        await asyncio.sleep(0.01)
        assert not drained.done()
    await asyncio.wait_for(drained, 1)
