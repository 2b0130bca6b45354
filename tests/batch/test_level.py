"""The level that finds itself, against services whose best level is known."""

from __future__ import annotations

import heapq
import random

from twinlens.batch.level import Level


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def asked(level: Level, clock: Clock, *, slots: int, service_s: float, until: float, queue: int = 10_000) -> list[int]:
    """Keep as many requests under way as the level says, at a service with `slots` places that each take `service_s`.

    A request that finds `queue` waiting is answered with “busy, 1 s”. Returns the level at every answer.
    """
    rng = random.Random(7)  # requests are not all alike
    free = [clock.now] * slots
    under_way: list[tuple[float, float, bool]] = []  # (ends, began, whether it was refused)
    seen = []
    while clock.now < until:
        while len(under_way) < level.now and clock.now >= level.paused_until:
            waiting = len(under_way) - slots
            if waiting >= queue:
                heapq.heappush(under_way, (clock.now + 0.001, clock.now, True))
                break
            start = max(clock.now, heapq.heappop(free))
            end = start + service_s * rng.uniform(0.7, 1.3)
            heapq.heappush(free, end)
            heapq.heappush(under_way, (end, clock.now, False))
        if not under_way:
            clock.now = max(clock.now, level.paused_until)
            continue
        ends, began, refused = heapq.heappop(under_way)
        clock.now = max(clock.now, ends)
        if refused:
            level.busy(began, 1.0)
        else:
            level.answered(began)
        seen.append(level.now)
    return seen


def test_it_reaches_what_the_service_can_do_and_does_not_run_away() -> None:
    clock = Clock()
    level = Level(1000, clock)
    seen = asked(level, clock, slots=40, service_s=0.2, until=60)
    settled = seen[len(seen) // 2 :]
    assert min(settled) >= 40
    assert max(settled) <= 160


def test_one_slot_is_not_asked_by_hundreds() -> None:
    clock = Clock()
    seen = asked(Level(1000, clock), clock, slots=1, service_s=0.5, until=200)
    assert max(seen[len(seen) // 2 :]) <= 16
    assert min(seen) >= 1


def test_the_operators_bound_holds() -> None:
    clock = Clock()
    assert max(asked(Level(5, clock), clock, slots=64, service_s=0.1, until=30)) == 5
    assert Level(1, clock).now == 1


def test_busy_answers_lower_it_once_for_the_same_crowd() -> None:
    clock = Clock()
    level = Level(1000, clock)
    asked(level, clock, slots=50, service_s=0.1, until=10)
    before = level.now
    began = clock.now
    clock.now += 1
    for _ in range(30):  # all of them were sent before the first one was refused
        level.busy(began, 2.0)
    assert 0.5 * before <= level.now < before
    assert level.paused_until == clock.now + 2.0
    clock.now += 3
    level.busy(clock.now, 0.0)
    assert level.now < 0.5 * before


def test_it_stays_near_a_queue_that_refuses() -> None:
    clock = Clock()
    seen = asked(Level(1000, clock), clock, slots=8, service_s=0.1, until=60, queue=8)
    settled = seen[len(seen) // 2 :]
    assert max(settled) <= 20
    assert sum(settled) / len(settled) >= 6


def test_it_finds_more_when_the_service_grows() -> None:
    clock = Clock()
    level = Level(1000, clock)
    asked(level, clock, slots=4, service_s=0.1, until=20)
    small = level.now
    asked(level, clock, slots=64, service_s=0.1, until=200)
    assert level.now > 2 * small
    assert level.now >= 50
