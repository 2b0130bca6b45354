"""Room in the store: who may take more, and what has to go.

The bound holds without a lock between processes, by one order of doing things: whoever wants room first makes it
visible (a temporary file of full size), and only then counts. Of two that come at once, at least the later one
sees both. What is left is that a count is no single moment: where the folder changes under every one of its repeated
walks, it can come out short by what changed, and the bound be passed by an object until the next count.

Counting walks the folders, so it is not done for every object. A count also sets aside *credit*: a sparse file of
this process, as long as what it may still add, which every count includes. An object is taken out of it by one
`truncate`; in a full store each eviction lengthens it first. Anyone in need may take credit back by unlinking it:
then `truncate` fails, and its owner counts again.
"""

# ruff: noqa: PTH104, PTH116 (hot path: plain strings and single system calls)

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from twinlens.errors import StoreError
from twinlens.store.files import discard
from twinlens.store.folders import CREDIT, PAGE, make, pages

if TYPE_CHECKING:
    from twinlens.store.folders import Folders

CREDIT_SHARE = 32  # one part in so many of the bound is set aside at a time


class Space:
    """Keeps the folders under `limit` bytes. Safe from several threads."""

    def __init__(self, folders: Folders, limit: int) -> None:
        self.limit = limit
        self.evictions = 0
        self._folders = folders
        self._credit_path = ""
        self._credit = 0
        self._oldest: list[tuple[int, str, int]] = []  # when full: the last count's without a lease, oldest at the end
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
            self._count()
            self._evict(pages(size))

    def close(self) -> None:
        """Give the credit back."""
        with self._lock:
            self._drop_credit()

    def _from_credit(self, size: int) -> bool:
        try:
            while self._credit < size and self._oldest and self._credit_path:
                self._turn_into_credit(*self._oldest.pop())
            if self._credit < size:
                return False
            os.truncate(self._credit_path, self._credit - size)
        except FileNotFoundError:  # someone in need took it back
            self._credit_path, self._credit = "", 0
            return False
        self._credit -= size
        return True

    def _turn_into_credit(self, used: int, name: str, size: int) -> None:
        os.truncate(self._credit_path, self._credit + size)  # longer first, so that nobody else counts on this room
        if self._remove_unless_in_use(used, name):
            self._credit += size

    def _make_room(self) -> None:
        self._renew_credit()
        over = self._count() - self.limit
        if over <= 0:
            self._oldest.clear()  # not full: nothing has to go
            return
        if self._evict(over - self._spare_credit(over)):
            return
        self._revoke_all_credit()
        if not self._evict(self._count() - self.limit):
            raise StoreError("The store is full of objects in use.")

    def _spare_credit(self, size: int) -> int:
        """Bytes of credit, at most `size`, that were given back."""
        spared = min(size, self._credit)
        self._credit -= spared
        with contextlib.suppress(FileNotFoundError):
            os.truncate(self._credit_path, self._credit)
        return spared

    def _count(self) -> int:
        found = self._folders.survey()
        self._oldest = sorted(found.free, reverse=True)
        return found.total

    def _evict(self, size: int) -> bool:
        """Whether as much could be freed."""
        while size > 0 and self._oldest:
            used, name, length = self._oldest.pop()
            if self._remove_unless_in_use(used, name):
                size -= length
        return size <= 0

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

    def _remove_unless_in_use(self, used: int, name: str) -> bool:
        """`used`: time of the last use when it was counted, in ns."""
        path, aside = f"{self._folders.objects}/{name}", self._folders.new_temporary()
        try:
            if _in_use(os.stat(path), used):
                return False
            # Out of sight, and then the last look: what cannot be found cannot be leased before it is unlinked.
            os.rename(path, aside)
        except FileNotFoundError:
            return False
        if _in_use(os.stat(aside), used):
            os.rename(aside, path)
            return False
        discard(aside)
        self.evictions += 1
        return True


def _in_use(about: os.stat_result, used: int) -> bool:
    return about.st_nlink > 1 or about.st_atime_ns != used
