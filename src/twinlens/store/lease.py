"""A lease holds what one request uses: a hard link keeps the bytes when the name is evicted or cleared."""

# ruff: noqa: PTH103, PTH106, PTH108 (hot path: plain strings and single system calls)

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Lease:
    """Context manager; closing gives everything back. Safe from several threads; after closing it takes nothing."""

    def __init__(self, folder: str) -> None:
        self._folder = folder  # made with the first object: most text-only requests never need it
        self._made = False
        self._closed = False
        self._lock = threading.Lock()

    def add(self, path: str, key: str) -> bool:
        """Link the file at `path` under `key`. False when it is gone or the lease is closed. Raises OSError."""
        with self._lock:
            if self._closed:
                return False
            if not self._made:
                os.makedirs(self._folder, 0o700, exist_ok=True)
                self._made = True
            try:
                os.link(path, f"{self._folder}/{key}")
            except FileExistsError:
                return True
            except FileNotFoundError:
                return False
            return True

    def path(self, key: str) -> str:
        """Where the linked file of `key` is while the lease is open."""
        return f"{self._folder}/{key}"

    def drop(self, key: str) -> None:
        """Give one object back."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._folder}/{key}")

    def close(self) -> None:
        """Give everything back. Any number of times."""
        with self._lock:
            self._closed = True
            if self._made:
                self._made = False
                remove(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def remove(folder: str) -> None:
    """Remove a lease's folder with its links; several processes may do so at once."""
    with contextlib.suppress(FileNotFoundError):
        with os.scandir(folder) as entries:
            names = [entry.path for entry in entries]
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        os.rmdir(folder)
