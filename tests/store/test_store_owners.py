"""Who is alive: process ids are used again, and containers do not see each other's."""

from __future__ import annotations

import multiprocessing
import os
import time

from twinlens.store.owners import FOREIGN_LIFE_S, Living, Owner

NOW = time.time()


def test_this_process_lives_and_its_names_never_repeat() -> None:
    one, other = Owner(), Owner()
    names = [owner.name() for owner in (one, other) for _ in range(100)]
    assert len(set(names)) == 200
    assert not any(Living().is_dead(name, NOW - 10 * FOREIGN_LIFE_S) for name in names)


def test_a_process_id_used_again_is_another_process() -> None:
    pid, started, *rest = Owner().name().split("-")
    assert Living().is_dead("-".join([pid, str(int(started) - 1), *rest]), NOW)


def test_an_ended_process_is_dead_even_before_it_is_waited_for() -> None:
    namespace = Owner().name().split("-")[2]
    child = os.posix_spawn("/bin/sleep", ["sleep", "30"], {})
    with open(f"/proc/{child}/stat") as file:  # noqa: PTH123
        started = file.read().rpartition(") ")[2].split()[19]
    name = f"{child}-{started}-{namespace}-0"
    assert not Living().is_dead(name, NOW)
    os.kill(child, 9)
    while not Living().is_dead(name, NOW):  # a zombie at first
        time.sleep(0.01)
    os.waitpid(child, 0)
    assert Living().is_dead(name, NOW)


def test_another_namespaces_process_is_given_an_hour() -> None:
    pid, started, namespace, count = Owner().name().split("-")
    foreign = f"{pid}-{started}-{int(namespace) + 1}-{count}"
    assert not Living().is_dead(foreign, NOW)
    assert Living().is_dead(foreign, NOW - FOREIGN_LIFE_S - 60)


def test_names_that_nobody_gave_are_kept_for_an_hour_too() -> None:
    for name in ("", "x", "-", "abc-1-2-3", "1", "99999999"):
        assert not Living().is_dead(name, NOW)
        assert Living().is_dead(name, NOW - FOREIGN_LIFE_S - 60)


def test_names_are_made_for_this_process_only() -> None:
    assert str(os.getpid()) == Owner().name().split("-")[0]
    assert multiprocessing.parent_process() is None
