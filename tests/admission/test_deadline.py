"""The deadline of one request, against asyncio's own rules."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from twinlens.admission.deadline import Deadline
from twinlens.errors import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def soon(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_gives_what_is_done_in_time() -> None:
    with Deadline(soon(60)) as clock:
        assert await clock.over(asyncio.sleep(0, "done")) == "done"


async def test_cancels_what_is_not() -> None:
    ended = False

    async def work() -> None:
        nonlocal ended
        try:
            await asyncio.Event().wait()
        finally:
            ended = True

    with Deadline(soon(0.01)) as clock, pytest.raises(DeadlineExceeded):
        await clock.over(work())
    assert ended
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_one_timer_for_many_pieces() -> None:
    async def pieces() -> AsyncGenerator[int, None]:
        for number in range(3):
            yield number
        await asyncio.Event().wait()

    seen = []
    stream = pieces()
    with Deadline(soon(0.05)) as clock, pytest.raises(DeadlineExceeded):
        while True:
            seen.append(await clock.over(anext(stream)))
    assert seen == [0, 1, 2]
    await stream.aclose()


async def test_does_not_interrupt_between_two_awaits_and_refuses_the_next() -> None:
    async def pieces() -> AsyncGenerator[int, None]:
        while True:
            yield 1

    stream = pieces()
    with Deadline(soon(0.01)) as clock:
        assert await clock.over(anext(stream)) == 1
        await asyncio.sleep(0.03)  # a client that takes its time
        for work in (anext(stream), anext(stream, None), asyncio.sleep(0)):
            with pytest.raises(DeadlineExceeded):
                await clock.over(work)
    await stream.aclose()


async def test_a_time_that_has_passed_starts_nothing() -> None:
    started = False

    async def work() -> None:
        nonlocal started
        started = True

    with Deadline(soon(-1)) as clock, pytest.raises(DeadlineExceeded):
        await clock.over(work())
    assert not started


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def waits() -> None:
        with Deadline(soon(60)) as clock:
            await clock.over(asyncio.Event().wait())

    task = asyncio.ensure_future(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_from_elsewhere_wins_over_the_deadline() -> None:
    task: asyncio.Task[None]

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            task.cancel()  # comes while the deadline's own is under way

    async def waits() -> None:
        with Deadline(soon(0.01)) as clock:
            await clock.over(work())

    task = asyncio.ensure_future(waits())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_leaves_no_timer_behind() -> None:
    with Deadline(soon(0.01)) as clock:
        await clock.over(asyncio.sleep(0))
    await asyncio.sleep(0.03)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
