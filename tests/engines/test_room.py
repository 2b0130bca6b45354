"""The KV cache as a room, and the turns of adding and stepping."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from twinlens.engines.openvino import turns
from twinlens.engines.openvino.room import Guest, Room
from twinlens.engines.openvino.turns import Turns

if TYPE_CHECKING:
    import pytest


@given(st.lists(st.tuples(st.sampled_from(["enter", "leave", "give"]), st.integers(1, 10)), max_size=60))
def test_never_more_inside_than_there_is_room(actions: list[tuple[str, int]]) -> None:
    room = Room(10)
    waiting: list[Guest] = []
    inside: list[Guest] = []

    def admit(guest: Guest) -> None:
        waiting.remove(guest)
        inside.append(guest)

    for what, number in actions:
        if what == "enter":
            guest = Guest(number, lambda: None)
            guest.admitted = lambda guest=guest: admit(guest)  # type: ignore[misc]
            waiting.append(guest)
            room.enter(guest)
        elif what == "leave" and waiting:
            room.leave_door(waiting.pop(number % len(waiting)))
        elif what == "give" and inside:
            room.give(inside.pop(number % len(inside)).blocks)
        assert room.free == 10 - sum(guest.blocks for guest in inside)
        assert 0 <= room.free <= 10
        assert room.waiting == len(waiting)
        assert not waiting or waiting[0].blocks > room.free  # nobody waits who could come in
    for guest in list(inside):
        inside.remove(guest)
        room.give(guest.blocks)


def test_first_come_first_served() -> None:
    room = Room(10)
    order: list[str] = []
    for name, blocks in (("a", 8), ("large", 9), ("small", 1)):
        room.enter(Guest(blocks, lambda name=name: order.append(name)))  # type: ignore[misc]
    assert order == ["a"]  # the small one would fit, but the large one would then wait for ever
    room.give(8)
    assert order == ["a", "large", "small"]


def work_in_turns(seconds: float, add_s: float, step_s: float) -> tuple[Counter[str], list[bool]]:
    both = Turns()
    counts: Counter[str] = Counter()
    inside: set[str] = set()
    met: list[bool] = []
    end = time.monotonic() + seconds

    def add() -> None:
        while time.monotonic() < end:
            with both.adding():
                inside.add("add")
                met.append(len(inside) > 1)
                time.sleep(add_s)
                inside.discard("add")
            counts["add"] += 1

    def step() -> None:
        while time.monotonic() < end:
            with both.stepping():
                inside.add("step")
                met.append(len(inside) > 1)
                time.sleep(step_s)
                inside.discard("step")
            counts["step"] += 1

    threads = [threading.Thread(target=add), threading.Thread(target=step)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    return counts, met


def test_neither_side_starves_nor_meets_the_other() -> None:
    counts, met = work_in_turns(0.6, add_s=0.003, step_s=0.003)
    assert abs(counts["add"] - counts["step"]) <= 2
    assert counts["add"] > 20
    assert not any(met)


def test_steps_go_on_while_a_large_picture_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 0.02)
    counts, _ = work_in_turns(0.6, add_s=0.2, step_s=0.003)
    assert counts["step"] > 5 * counts["add"]
