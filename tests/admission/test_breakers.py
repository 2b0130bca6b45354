"""Breakers: open when they should, closed when they should, and never by a client's fault alone."""

from __future__ import annotations

import pytest

from twinlens.admission.breakers import (
    FIRST_PAUSE_S,
    LONG_PAUSE_S,
    LONGEST_PAUSE_S,
    PROMPT_WINDOW_S,
    TRIAL_S,
    EngineBreaker,
    LongPrompts,
)
from twinlens.errors import EngineFailing, LongPromptsPaused


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def phase(breaker: EngineBreaker) -> str:
    return breaker.phase


def broken(clock: Clock) -> EngineBreaker:
    breaker = EngineBreaker(clock)
    for _ in range(5):
        breaker.enter()
        breaker.outcome(failed=True)
    return breaker


def test_it_opens_probes_and_closes() -> None:
    clock = Clock()
    breaker = broken(clock)
    with pytest.raises(EngineFailing) as refused:
        breaker.enter()
    assert refused.value.retry_after == FIRST_PAUSE_S
    clock.now += FIRST_PAUSE_S
    breaker.check()
    breaker.enter()
    assert phase(breaker) == "probing"
    with pytest.raises(EngineFailing):
        breaker.enter()
    breaker.outcome(failed=False)
    assert phase(breaker) == "closed"
    breaker.enter()


def test_each_failed_trial_makes_the_pause_longer_up_to_a_bound() -> None:
    clock = Clock()
    breaker = broken(clock)
    pauses = []
    for _ in range(8):
        pauses.append(breaker.until - clock.now)
        clock.now = breaker.until
        breaker.enter()
        breaker.outcome(failed=True)
    assert pauses[:4] == [FIRST_PAUSE_S * 2**n for n in range(4)]
    assert pauses[-1] == LONGEST_PAUSE_S


def test_a_trial_that_tells_nothing_gives_way_to_another() -> None:
    clock = Clock()
    breaker = broken(clock)
    clock.now += FIRST_PAUSE_S
    breaker.enter()
    breaker.lost()
    breaker.enter()
    clock.now += TRIAL_S
    breaker.enter()
    assert phase(breaker) == "probing"


def test_a_few_failures_among_many_answers_do_not_open_it() -> None:
    clock = Clock()
    breaker = EngineBreaker(clock)
    for number in range(300):
        breaker.enter()
        breaker.outcome(failed=number % 3 == 0)
    assert phase(breaker) == "closed"


def test_old_failures_are_forgotten() -> None:
    clock = Clock()
    breaker = EngineBreaker(clock)
    for _ in range(20):
        breaker.enter()
        breaker.outcome(failed=True)
        clock.now += 10
    assert phase(breaker) == "closed"


def test_over_long_prompts_above_their_share_are_refused_for_a_while_and_others_pass() -> None:
    clock = Clock()
    long = LongPrompts(8192, 0.05, clock)
    for _ in range(60):
        long.take(100)
    for _ in range(3):
        long.take(9000)
    before = long.paused  # 3 of 63 are below the share
    long.take(9000)
    assert (before, long.paused) == (False, True)
    with pytest.raises(LongPromptsPaused) as refused:
        long.take(8193)
    assert refused.value.retry_after == LONG_PAUSE_S
    assert refused.value.status == 429
    long.take(8192)
    clock.now += LONG_PAUSE_S
    long.take(9000)


def test_few_prompts_say_nothing_about_a_share() -> None:
    long = LongPrompts(8192, 0.05, Clock())
    for _ in range(19):
        long.take(9000)
    assert not long.paused


def test_the_window_slides() -> None:
    clock = Clock()
    long = LongPrompts(8192, 0.05, clock)
    for _ in range(15):
        long.take(9000)
    clock.now += PROMPT_WINDOW_S + 1
    for _ in range(50):
        long.take(100)
    assert long.share == 0
    assert not long.paused


def test_it_can_be_switched_off() -> None:
    long = LongPrompts(10, 0.0, Clock())
    for _ in range(100):
        long.take(1000)
    assert not long.paused
