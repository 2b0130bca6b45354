"""Objects for tests, and work for processes of their own (the module is imported by spawned children)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import time
from typing import TYPE_CHECKING

import numpy as np

from twinlens.errors import StoreError
from twinlens.store import Store, resolve

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def disk_use(root: Path) -> int:
    """Bytes of all files under the store, each inode once."""
    found = {}
    for path in root.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            about = path.lstat()
            found[about.st_ino] = about.st_blocks * 512 if path.is_file() else 0
    return sum(found.values())


def key_of(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def picture(number: int, size: int = 100_000) -> NDArray[np.uint8]:
    """Contents that follow from the number, so that any process can tell whether they are right."""
    return np.random.default_rng(number).integers(0, 256, (size // 300, 100, 3), dtype=np.uint8)


def put(store: Store, number: int, size: int = 100_000) -> str:
    store.put(key_of(number), "pixels", picture(number, size))
    return key_of(number)


def churn(root: Path, limit: int, seed: int, seconds: float, numbers: int = 60, size: int = 100_000) -> None:
    """Put, get, lease, resolve and now and then clear, at random. Raises AssertionError for wrong contents."""
    store, draw = Store(root, limit), random.Random(seed)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number = draw.randrange(numbers)
        with store.lease() as lease:
            if not store.has(key_of(number), lease):
                try:
                    store.put(key_of(number), "pixels", picture(number, size), lease)
                except StoreError:  # everything leased by the others: an answer, not a fault
                    continue
            found = resolve(root, "twinlens:" + key_of(number))
            assert np.array_equal(found, picture(number, size))
        found_again = store.get(key_of(draw.randrange(numbers)))
        assert found_again is None or found_again.shape == found.shape
        if draw.random() < 0.005:
            store.clear()


def hold_and_sleep(root: Path, limit: int, number: int, ready: Path) -> None:
    """Lease one object, leave one write half done, say so, and wait to be killed."""
    store = Store(root, limit)
    with store.lease() as lease, store.create(key_of(number + 1), "pixels", np.uint8, (10,)):
        store.put(key_of(number), "pixels", picture(number), lease)
        _, fd = store._folders.open_temporary()  # what a kill in the middle of a write leaves
        os.write(fd, b"TWINLENS half")
        ready.touch()
        time.sleep(60)
