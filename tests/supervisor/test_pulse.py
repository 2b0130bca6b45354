"""The rule of life, on simulated engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from twinlens.supervisor.pulse import BUSY_FACTOR, LONGEST_GAP_S, STALLED_FACTOR, Pulse, Sign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

S = 20.0


def life(until: float, sign: Callable[[float], Sign], step: float = 1.0) -> Iterator[tuple[float, str]]:
    """(time, verdict) of an engine whose signs are a function of time."""
    pulse = Pulse(S)
    at = 0.0
    while at <= until:
        yield at, pulse.feel(sign(at))
        at += step


def first(verdict: str, run: Iterator[tuple[float, str]]) -> float | None:
    """When a verdict came first."""
    return next((at for at, said in run if said == verdict), None)


def test_an_idle_engine_that_answers_is_alive_for_ever() -> None:
    assert {said for _, said in life(10_000, lambda at: Sign(at, 7, idle=True, effort=1.0))} == {"alive"}


def test_a_working_engine_whose_progress_moves_is_alive() -> None:
    assert {said for _, said in life(10_000, lambda at: Sign(at, int(at / 5), effort=0.0))} == {"alive"}


def test_a_stopped_engine_is_stalled_at_half_the_time_and_lost_at_the_whole() -> None:
    def stopped_at_30(at: float) -> Sign:
        return Sign(at, int(at), effort=at) if at <= 30 else Sign(at, None, effort=30.0)

    assert first("stalled", life(100, stopped_at_30)) == 30 + S / 2
    assert first("lost", life(100, stopped_at_30)) == 30 + S


def test_a_frozen_loop_behind_a_healthy_probe_is_found() -> None:
    """It answers, has work, makes no progress, and answering is all that its processor time goes to."""

    def frozen(at: float) -> Sign:
        return Sign(at, 5, effort=at * 0.01)

    assert first("stalled", life(100, frozen)) == S / 2
    assert first("lost", life(100, frozen)) == S


def test_one_very_long_step_takes_it_out_of_service_and_never_replaces_it() -> None:
    def long_step(at: float) -> Sign:
        return Sign(at, 5 if at < 200 else 6 + int(at), effort=at)

    said = dict(life(300, long_step))
    assert "lost" not in said.values()
    assert said[S * STALLED_FACTOR - 1] == "alive"
    assert said[S * STALLED_FACTOR] == "stalled"
    assert said[200] == "alive"


def test_a_starved_event_loop_counts_as_busy() -> None:
    def silent_but_working(at: float) -> Sign:
        return Sign(at, None, effort=at * 0.06)

    assert first("lost", life(S * BUSY_FACTOR - 1, silent_but_working)) is None


def test_an_engine_that_spins_for_ever_is_lost_in_the_end() -> None:
    assert first("lost", life(1000, lambda at: Sign(at, 5, effort=at * 2))) == S * BUSY_FACTOR


def test_a_machine_that_slept_does_not_cost_the_engine_its_life() -> None:
    pulse = Pulse(S)
    pulse.feel(Sign(0, 1, effort=0.0))
    assert pulse.feel(Sign(3600, None, effort=0.0)) == "alive"
    assert pulse.silence == LONGEST_GAP_S


def test_without_knowledge_of_its_effort_only_answers_count() -> None:
    assert first("lost", life(100, lambda at: Sign(at, None))) == S


signs = st.builds(
    lambda gap, progress, idle, effort: (gap, progress, idle, effort),
    st.floats(0, 10),
    st.none() | st.integers(0, 3),
    st.booleans(),
    st.none() | st.floats(0, 100),
)


@given(st.lists(signs, max_size=60))
def test_lost_needs_a_whole_timeout_of_quiet(steps: list[tuple[float, int | None, bool, float | None]]) -> None:
    """Whatever comes: no engine is lost within S seconds of a sign of life."""
    pulse = Pulse(S)
    at = since = 0.0
    last: int | None = None
    for gap, progress, idle, effort in steps:
        at += gap
        verdict = pulse.feel(Sign(at, progress, idle, effort))
        if progress is not None and (idle or progress != last):
            since = at
            assert verdict == "alive"
        last = last if progress is None else progress
        if verdict == "lost":
            assert at - since >= S - 1e-6
