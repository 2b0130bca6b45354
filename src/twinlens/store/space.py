"""Room in the store: who may take more, and what has to go.

The bound holds at every moment without a lock between processes, by one order of doing things: whoever wants room
first makes it visible (a temporary file of full size), and only then counts. Of two that come at once, at least
the later one sees both.

Counting walks the folders, so it is not done for every object: a count also sets aside *credit*, a sparse file of
this process that every count includes, and the next objects are taken out of it by one `truncate`. Credit can be
taken back by anyone in need, by unlinking it: then `truncate` fails, and its owner counts again.
"""

# ruff: noqa: PTH104, PTH116 (hot path: plain strings and single system calls)

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from twinlens.errors import StoreError
from twinlens.store.files import discard
from twinlens.store.folders import PAGE, make, pages

if TYPE_CHECKING:
    from twinlens.store.folders import Folders

CREDIT_SHARE = 32  # one part in so many of the bound is set aside at a time
CREDIT = "-credit"


class Space:
    """Keeps the folders under `limit` bytes. Safe from several threads."""

    def __init__(self, folders: Folders, limit: int) -> None:
        self.limit = limit
        self.evictions = 0
        self._folders = folders
        self._credit_path = ""
        self._credit = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Make sure that `size` bytes, already visible in a temporary, fit. Raises StoreError, OSError."""
        size = pages(size)
        with self._lock:
            if not self._from_credit(size):
                self._make_room()

    def evict(self, size: int) -> None:
        """Remove at least `size` bytes of the least recently used objects, if so many are without a lease."""
        with self._lock:
            self._evict(self._folders.survey().free, pages(size))

    def close(self) -> None:
        """Give the credit back."""
        with self._lock:
            self._drop_credit()

    def _from_credit(self, size: int) -> bool:
        if size > self._credit:
            return False
        try:
            os.truncate(self._credit_path, self._credit - size)
        except FileNotFoundError:  # someone in need took it back
            self._credit = 0
            return False
        self._credit -= size
        return True

    def _make_room(self) -> None:
        self._renew_credit()
        if self._fits():
            return
        self._revoke_all_credit()
        if not self._fits():
            raise StoreError("The store is full of objects in use.")

    def _fits(self) -> bool:
        found = self._folders.survey()
        over = found.total - self.limit
        return over <= 0 or self._evict(found.free, over) >= over

    def _renew_credit(self) -> None:
        self._drop_credit()
        path, size = self._folders.new_temporary() + CREDIT, self.limit // CREDIT_SHARE // PAGE * PAGE
        fd = make(path)
        try:
            os.ftruncate(fd, size)
        finally:
            os.close(fd)
        self._credit_path, self._credit = path, size

    def _drop_credit(self) -> None:
        if self._credit_path:
            discard(self._credit_path)
        self._credit_path, self._credit = "", 0

    def _revoke_all_credit(self) -> None:
        self._drop_credit()
        with os.scandir(self._folders.temporary) as entries:
            for entry in entries:
                if entry.name.endswith(CREDIT):
                    discard(entry.path)

    def _evict(self, free: list[tuple[int, str, int]], size: int) -> int:
        """Bytes that were freed."""
        freed = 0
        for _, name, length in sorted(free):
            if freed >= size:
                break
            if self._remove_unless_leased(name):
                self.evictions += 1
                freed += length
        return freed

    def _remove_unless_leased(self, name: str) -> bool:
        # Out of sight first: what cannot be found cannot be leased between the look at its links and the unlink.
        path, aside = f"{self._folders.objects}/{name}", self._folders.new_temporary()
        try:
            os.rename(path, aside)
        except FileNotFoundError:
            return False
        if os.stat(aside).st_nlink > 1:
            os.rename(aside, path)
            return False
        discard(aside)
        return True
