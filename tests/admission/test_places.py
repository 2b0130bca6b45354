"""The queue: fair by cost, small before huge, room booked, bulk behind, nobody kept waiting for nothing."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.admission.places import BULK_TURN, LONG, PATIENCE_S, Need, Places
from twinlens.errors import Overloaded, TwinlensError

if TYPE_CHECKING:
    from collections.abc import Callable

FAR = 1e9


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Hall:
    """Places, and who got which in order."""

    def __init__(self, places: int, most: int = 1000, room: int = 0) -> None:
        self.clock = Clock()
        self.places = Places(places, most, self.clock)
        self.places.resize(places, room)
        self.given: list[str] = []
        self.refused: dict[str, TwinlensError] = {}

    def ask(self, name: str, cost: int = 100, *, tenant: str = "", bulk: bool = False, deadline: float = FAR) -> None:
        need = Need(tenant or name.rstrip("0123456789"), cost, deadline, bulk)
        self.places.ask(name, need, self._told(name))

    def _told(self, name: str) -> Callable[[TwinlensError | None], None]:
        def told(error: TwinlensError | None) -> None:
            if error is None:
                self.given.append(name)
            else:
                self.refused[name] = error

        return told

    def work_off(self) -> None:
        """Let each finish in the order in which they began."""
        done = 0
        while done < len(self.given):
            self.places.leave(self.given[done], answered=True)
            done += 1


def test_tenants_take_turns_however_much_one_of_them_sends() -> None:
    hall = Hall(1)
    hall.ask("first")
    for number in range(50):
        hall.ask(f"greedy{number}")
    for number in range(5):
        hall.ask(f"modest{number}")
    hall.work_off()
    assert max(hall.given.index(f"modest{number}") for number in range(5)) <= 12
    assert len(hall.given) == 56


def test_turns_are_weighed_by_cost() -> None:
    hall = Hall(1)
    hall.ask("first")
    for number in range(10):
        hall.ask(f"big{number}", 4000)
        for part in range(10):
            hall.ask(f"small{number}{part}", 400)
    hall.work_off()
    began = hall.given[1:23]
    assert sum(name.startswith("big") for name in began) in (2, 3)  # a tenth of the turns for ten times the cost


def test_short_ones_of_a_tenant_are_not_stuck_behind_its_huge_ones() -> None:
    hall = Hall(1)
    hall.ask("first")
    for number in range(10):
        hall.ask(f"huge{number}", 30_000, tenant="lab")
    hall.ask("short", 200, tenant="lab")
    hall.work_off()
    assert hall.given.index("short") <= 2


def test_long_ones_never_hold_all_places() -> None:
    hall = Hall(8)
    for number in range(12):
        hall.ask(f"huge{number}", LONG + 1)
    assert len(hall.given) == 6
    hall.ask("short")
    assert hall.given[-1] == "short"


def test_room_is_booked_and_never_more_than_there_is() -> None:
    hall = Hall(16, room=10_000)
    for number in range(5):
        hall.ask(f"a{number}", 4000)
    assert hall.given == ["a0", "a1"]
    hall.ask("b", 1900)  # fits, and passes those that do not
    assert hall.given[-1] == "b"
    assert hall.places.booked == 9900
    hall.work_off()
    assert set(hall.given) == {"a0", "a1", "a2", "a3", "a4", "b"}
    assert hall.places.booked == 0


def test_who_was_passed_for_long_gets_what_becomes_free() -> None:
    hall = Hall(16, room=10_000)
    hall.ask("a", 6000)
    hall.ask("huge", 9000)
    hall.ask("b", 1000)
    assert hall.given == ["a", "b"]
    hall.clock.now = PATIENCE_S + 1
    hall.ask("c", 1000)
    assert hall.given == ["a", "b"]
    hall.places.leave("a")
    hall.places.leave("b")
    assert hall.given == ["a", "b", "huge", "c"]


def test_one_larger_than_all_the_room_is_let_in_alone_for_the_engine_to_judge() -> None:
    hall = Hall(4, room=1000)
    hall.ask("vast", 5000)
    assert hall.given == ["vast"]


def test_bulk_work_comes_behind_everybody_but_is_not_forgotten() -> None:
    hall = Hall(1)
    hall.ask("first")
    for number in range(3):
        hall.ask(f"bulk{number}", bulk=True)
    for number in range(40):
        hall.ask(f"chat{number}")
    hall.work_off()
    at = [hall.given.index(f"bulk{number}") for number in range(3)]
    assert BULK_TURN - 2 <= at[0] <= BULK_TURN + 2
    assert at[1] > at[0] + BULK_TURN - 2


def test_bulk_work_leaves_places_free() -> None:
    hall = Hall(8)
    for number in range(20):
        hall.ask(f"bulk{number}", bulk=True)
    assert len(hall.given) == 7
    hall.ask("chat")
    assert hall.given[-1] == "chat"


def test_a_full_queue_refuses_at_once_and_one_tenant_never_fills_it_before_others() -> None:
    hall = Hall(1, most=10)
    hall.ask("first")
    hall.ask("other")
    for number in range(20):
        hall.ask(f"greedy{number}")
    assert hall.places.waiting == 6
    for number in range(20):
        hall.ask(f"modest{number}")
    assert hall.places.waiting == 10
    assert isinstance(hall.refused["greedy19"], Overloaded)
    assert hall.refused["greedy19"].retry_after


def test_who_would_wait_past_the_deadline_is_refused_at_once() -> None:
    hall = Hall(2)
    for number in range(20):  # learn: two seconds each
        hall.ask(f"lesson{number}")
        hall.clock.now += 2
        hall.places.leave(f"lesson{number}", answered=True)
    now = hall.clock.now
    for number in range(30):
        hall.ask(f"q{number}", deadline=now + 10)
    waiting = len(hall.given) - 20 + hall.places.waiting
    assert 5 <= waiting <= 10  # two at once, two seconds each: about ten come to an end in ten seconds
    assert all(isinstance(error, Overloaded) for error in hall.refused.values())
    assert not any(name.startswith("lesson") for name in hall.refused)


def test_who_waited_until_it_is_too_late_does_not_waste_the_engines_time() -> None:
    hall = Hall(1)
    for number in range(20):
        hall.ask(f"lesson{number}")
        hall.clock.now += 2
        hall.places.leave(f"lesson{number}", answered=True)
    now = hall.clock.now
    hall.ask("slow")
    hall.ask("late", deadline=now + 10)
    hall.ask("patient")
    hall.clock.now += 9.5
    hall.places.leave("slow")
    assert isinstance(hall.refused["late"], Overloaded)
    assert hall.given[-1] == "patient"


def test_a_desk_that_was_replaced_gives_nothing_before_it_knows_what_is_held() -> None:
    hall = Hall(2)
    hall.places.paused = True
    hall.ask("new")
    hall.places.hold("old", Need("a", 10, FAR))
    hall.places.hold("older", Need("a", 10, FAR))
    hall.places.paused = False
    hall.places.wake()
    assert hall.given == []
    hall.places.leave("old")
    assert hall.given == ["new"]


@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from([0, 5000, 20_000]))
def test_whatever_happens_the_sums_are_right_and_everybody_ends(seed: int, places: int, room: int) -> None:
    rng = random.Random(seed)
    hall = Hall(places, most=15, room=room)
    alive: set[str] = set()
    for number in range(120):
        hall.clock.now += rng.random()
        name = f"{rng.choice('abc')}{number}"
        hall.ask(name, rng.choice([10, 100, 3000, 6000]), bulk=rng.random() < 0.2)
        alive.add(name)
        if rng.random() < 0.6:
            gone = rng.choice(sorted(alive))
            alive.discard(gone)
            hall.places.leave(gone, answered=rng.random() < 0.5)
        held = hall.places._held
        assert len(held) <= places
        assert hall.places.waiting <= 15
        assert hall.places.booked == sum(entry.need.cost for entry in held.values())
        assert not room or hall.places.booked <= room or len(held) == 1
    for name in sorted(alive):
        hall.places.leave(name)
    assert (hall.places.running, hall.places.waiting, hall.places.booked) == (0, 0, 0)
    assert not hall.places._tenants


@pytest.mark.parametrize("tenants", [10, 10_000])
def test_many_tenants_leave_nothing_behind(tenants: int) -> None:
    hall = Hall(1, most=50)
    hall.ask("first")
    for number in range(tenants):
        hall.ask(f"t{number}", tenant=f"tenant {number}")
        hall.places.leave(f"t{number - 40}")
    assert len(hall.places._finish) <= 5000
