"""Rates: what passes at once, what passes over time, what is told, and what outlives a process."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.admission.ledger import Ledger, file_of, sweep
from twinlens.admission.rates import Limit, Rates, Want
from twinlens.admission.rules import Rules, duration, headers, refusal
from twinlens.core import Caller, KeyLimits
from twinlens.errors import OverTokenLimit, RateLimited
from twinlens.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

KEY = Caller(tenant="lab", key="k1", address="192.0.2.1")


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def rates(clock: Clock, path: Path | None = None, *, slots: int = 64) -> Rates:
    return Rates(lambda: Ledger(path, slots=slots), clock)


def passed(at: Rates, wants: list[Want]) -> bool:
    return at.take(wants).denied is None


def test_thirty_a_minute_with_burst_five_lets_six_at_once_and_then_one_every_two_seconds() -> None:
    clock = Clock()
    at, wants = rates(clock), Rules(Settings()).entry(KEY)
    assert [passed(at, wants) for _ in range(8)] == [True] * 6 + [False] * 2
    denied = at.take(wants)
    error = refusal(denied)
    assert isinstance(error, RateLimited)
    assert error.retry_after == pytest.approx(2.0)
    clock.now += 1.9
    assert not passed(at, wants)
    clock.now += 0.1
    assert passed(at, wants)
    assert not passed(at, wants)
    clock.now += 60
    assert sum(passed(at, wants) for _ in range(20)) == 6


def test_a_key_may_have_limits_of_its_own() -> None:
    clock = Clock()
    at, rules = rates(clock), Rules(Settings())

    def at_once(**own: int) -> int:
        caller = Caller(tenant="lab", key=f"k{own}", address="192.0.2.1", limits=KeyLimits(**own))
        wants = rules.entry(caller)
        return sum(passed(at, wants) for _ in range(100)) if wants else -1

    assert at_once() == 6
    assert at_once(burst=0) == 1
    assert at_once(requests=600, burst=59) == 60
    assert at_once(requests=0) == -1
    batch = Caller(tenant="lab", key="b", address="192.0.2.1", batch=True, bulk=True)
    assert rules.entry(batch) == []
    assert len(rules.entry(replace(batch, limits=KeyLimits(requests=10)))) == 1
    more = Caller(tenant="lab", key="t", address="192.0.2.1", limits=KeyLimits(vision_tokens=10, text_tokens=0))
    assert [(want.limit.kind, want.limit.per_minute) for want in rules.tokens(more, 5, 5)] == [("vision_tokens", 10)]


def test_what_is_denied_costs_nothing_and_waiting_as_told_is_enough() -> None:
    clock = Clock()
    at, wants = rates(clock), [Want(Limit("text_tokens", 100, 100), "k", 70)]
    assert passed(at, wants)
    denied = [at.take(wants).denied for _ in range(50)][-1]
    assert denied
    clock.now += denied.wait + 1e-6
    assert passed(at, wants)


def test_of_several_limits_all_pass_or_none_and_the_one_that_denied_is_told() -> None:
    clock = Clock()
    at, rules = rates(clock), Rules(Settings(rate_vision_tokens=1000, rate_text_tokens=100))
    assert passed(at, rules.tokens(KEY, 10, 60))
    verdict = at.take(rules.tokens(KEY, 10, 60))
    told = dict(headers(verdict))
    assert told[b"x-ratelimit-limit-tokens"] == b"100"
    assert told[b"x-ratelimit-remaining-tokens"] == b"40"
    assert "text tokens" in refusal(verdict).message
    assert passed(at, rules.tokens(KEY, 990, 40))


def test_a_request_that_can_never_pass_is_told_so() -> None:
    at, rules = rates(Clock()), Rules(Settings(rate_vision_tokens=1000))
    error = refusal(at.take(rules.tokens(KEY, 1001, 1)))
    assert isinstance(error, OverTokenLimit)
    assert error.status == 400
    assert "1000" in error.message
    assert passed(at, rules.tokens(KEY, 1000, 1))


def test_answers_may_take_a_bucket_below_empty_and_refunds_fill_it() -> None:
    clock = Clock()
    at, rules = rates(clock), Rules(Settings(rate_text_tokens=60))
    wants = rules.tokens(KEY, 0, 30)
    assert passed(at, wants)
    at.owe(rules.tokens(KEY, 0, 90))  # 60 below empty: one second a token
    verdict = at.take(wants)
    assert verdict.denied
    assert verdict.denied.wait == pytest.approx(90)
    at.give(rules.tokens(KEY, 0, 90))
    assert passed(at, wants)


def test_no_debt_locks_anybody_out_for_ever() -> None:
    clock = Clock()
    at, rules = rates(clock), Rules(Settings(rate_text_tokens=60))
    for _ in range(100):
        at.owe(rules.tokens(KEY, 0, 10_000))
    verdict = at.take(rules.tokens(KEY, 0, 1))
    assert verdict.denied
    assert verdict.denied.wait <= 601


def test_who_is_limited_by_what() -> None:
    rules = Rules(Settings(address_requests=5))
    assert [want.name for want in rules.entry(KEY)] == ["key k1 requests", "address 192.0.2.1 requests"]
    bulk = Caller(tenant="lab", key="k2", address="192.0.2.1", batch=True)
    assert not rules.entry(bulk)
    assert [want.limit.kind for want in rules.tokens(bulk, 5, 5)] == ["vision_tokens", "text_tokens"]
    nobody = Caller(address="192.0.2.1")
    assert not Rules(Settings()).entry(nobody)
    assert not Rules(Settings()).tokens(nobody, 5, 5)
    assert rules.entry(nobody)


def test_rate_02_keys_behind_one_proxy_have_limits_of_their_own() -> None:
    at, rules = rates(Clock()), Rules(Settings())
    other = Caller(tenant="shop", key="k2", address=KEY.address)
    while passed(at, rules.entry(KEY)):
        pass
    assert passed(at, rules.entry(other))


def test_rate_05_a_restart_forgets_nothing(tmp_path: Path) -> None:
    import time  # noqa: PLC0415

    path = file_of(tmp_path, 8000)
    rules = Rules(Settings(rate_requests=5, rate_burst=4))

    def some(number: int) -> int:
        ledger = Ledger(path, slots=1000)
        assert ledger.lasting
        at = Rates(lambda: ledger, time.monotonic)
        found = sum(passed(at, rules.entry(KEY)) for _ in range(number))
        ledger.close()
        return found

    assert some(3) + some(40) + some(40) == 5


def test_a_file_of_another_boot_or_of_no_sense_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "rates"
    for content in (b"", b"nonsense", b"\xff" * 5000):
        path.write_bytes(content)
        ledger = Ledger(path, slots=100)
        assert ledger.get("k") == 0.0
        ledger.put("k", 5.0, 1.0)
        assert ledger.get("k") == 5.0
        ledger.close()


def test_one_file_has_one_owner(tmp_path: Path) -> None:
    first = Ledger(tmp_path / "rates", slots=10)
    second = Ledger(tmp_path / "rates", slots=10)
    assert (first.lasting, second.lasting) == (True, False)
    second.put("k", 5.0, 1.0)
    assert first.get("k") == 0.0
    first.close()
    third = Ledger(tmp_path / "rates", slots=10)
    assert third.lasting
    second.close()
    third.close()


def test_files_of_services_that_are_no_more_are_removed(tmp_path: Path) -> None:
    import os  # noqa: PLC0415

    for name in ("8000", "8001", "notes"):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (1, 1))
    (tmp_path / "8001").touch()
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"8001", "notes"}


def test_a_full_ledger_stays_flat_and_still_limits() -> None:
    clock = Clock()
    at = rates(clock, slots=8)
    limit = Limit("requests", 60, 1)
    for number in range(1000):
        at.take([Want(limit, f"address {number}", 1)])
    assert len(at._ledger) == 8
    assert not passed(at, [Want(limit, "address 3", 1)])
    newcomers = sum(passed(at, [Want(limit, f"new {number}", 1)]) for number in range(100))
    assert newcomers <= 8  # they share slots: tighter than they should be, never looser
    clock.now += 100
    assert passed(at, [Want(limit, "late", 1)])


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 40)), max_size=60), st.integers(1, 600), st.integers(1, 60))
def test_never_more_passes_than_rate_and_depth_allow(arrivals: list[tuple[float, int]], rate: int, depth: int) -> None:
    clock = Clock()
    at, limit = rates(clock), Limit("text_tokens", rate, depth)
    begun, got = clock.now, 0
    for pause, cost in arrivals:
        clock.now += pause
        verdict = at.take([Want(limit, "k", cost)])
        if verdict.denied is None:
            got += cost
        else:
            assert verdict.denied.wait > 0
            assert math.isinf(verdict.denied.wait) == (cost > depth)
        assert 0 <= verdict.readings[0].remaining <= depth
        assert got <= depth + (clock.now - begun) * rate / 60 + 1e-6


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (-1, "0s"), (0.02, "20ms"), (0.9999, "1000ms"), (1, "1s"), (1.2, "2s"), (60, "1m0s"), (3725, "1h2m5s")],
)
def test_times_are_written_as_openai_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text
