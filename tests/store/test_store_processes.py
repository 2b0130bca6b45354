"""Many processes at one store, killed at random moments: nothing wrong, nothing left over, nothing over the bound."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.store.helpers import churn, disk_use, hold_and_sleep, key_of, picture, put
from twinlens.store import Store, resolve

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

SPAWN = multiprocessing.get_context("spawn")
LIMIT = 2 << 20  # twenty of sixty objects: every process evicts all the time
PROCESSES = 4
MOMENT = PROCESSES * 102_400  # an object for each: what a count that was disturbed may miss; see store/space.py


def start(root: Path, seed: int, seconds: float) -> SpawnProcess:
    process = SPAWN.Process(target=churn, args=(root, LIMIT, seed, seconds), daemon=True)
    process.start()
    return process


def stored_now(root: Path, processes: list[SpawnProcess]) -> int:
    """Bytes under the bound at one moment: a count of a store in use may meet an object and what replaced it."""
    living = [process.pid for process in processes if process.is_alive() and process.pid]
    for pid in living:
        os.kill(pid, signal.SIGSTOP)
    for pid in living:
        while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "TZ":
            time.sleep(0.0005)
    try:
        return Store(root, LIMIT).stats().bytes
    finally:
        for pid in living:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_processes_share_one_store_within_its_bound(root: Path) -> None:
    Store(root, LIMIT)
    processes = [start(root, seed, seconds=2.5) for seed in range(PROCESSES)]
    most = 0
    while any(process.is_alive() for process in processes):
        most = max(most, stored_now(root, processes))
        time.sleep(0.01)
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    assert LIMIT * 0.5 < most <= LIMIT + MOMENT
    store = Store(root, LIMIT)
    assert not list((root / "leases").iterdir())
    assert not list((root / "temporary").iterdir())
    assert store.stats().leased_bytes == 0


@pytest.mark.slow
def test_killed_at_random_moments_nothing_is_wrong_or_left_over(root: Path) -> None:
    draw = random.Random(7)
    Store(root, LIMIT)
    processes = [start(root, seed, seconds=60) for seed in range(PROCESSES)]
    time.sleep(1.5)
    for seed in range(4, 24):
        time.sleep(draw.uniform(0.0, 0.3))
        victim = processes.pop(draw.randrange(len(processes)))
        assert victim.is_alive()  # it found nothing wrong until now
        victim.kill()
        victim.join()
        processes.append(start(root, seed, seconds=60))
        assert stored_now(root, processes) <= LIMIT + MOMENT
    time.sleep(1)
    assert all(process.is_alive() for process in processes)
    for process in processes:
        process.kill()
        process.join()
    after = Store(root, LIMIT)
    assert not list((root / "leases").iterdir())
    assert not list((root / "temporary").iterdir())
    assert disk_use(root) <= LIMIT + MOMENT
    for number in range(60):
        found = after.get(key_of(number))
        assert found is None or np.array_equal(found, picture(number))
    assert after.stats().corrupt == 0


def test_what_a_killed_process_leaves_is_swept_and_its_objects_stay(root: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = SPAWN.Process(target=hold_and_sleep, args=(root, LIMIT, 1, ready), daemon=True)
    process.start()
    while not ready.exists():
        assert process.is_alive()
        time.sleep(0.01)
    store = Store(root, LIMIT)  # a start sweeps: what living processes hold stays
    assert store.stats().leased_bytes > 0
    store.clear()
    assert np.array_equal(resolve(root, "twinlens:" + key_of(1)), picture(1))
    put(store, 5)
    process.kill()
    process.join()
    store.sweep()
    assert store.stats().leased_bytes == 0
    assert len(list((root / "temporary").iterdir())) == 1  # this process's own credit
    assert store.get(key_of(1)) is None
    assert store.get(key_of(2)) is None  # never finished
    assert store.get(key_of(5)) is not None


def test_leases_of_killed_processes_make_room_without_a_restart(root: Path, tmp_path: Path) -> None:
    store = Store(root, LIMIT)
    ready = tmp_path / "ready"
    process = SPAWN.Process(target=hold_and_sleep, args=(root, LIMIT, 1, ready), daemon=True)
    process.start()
    while not ready.exists():
        time.sleep(0.01)
    process.kill()
    process.join()
    with store.lease() as lease:
        for number in range(100, 100 + LIMIT // 102_400):
            store.put(key_of(number), "pixels", picture(number), lease)
    assert store.stats().bytes <= LIMIT
