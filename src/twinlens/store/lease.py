"""A lease holds what one request uses: a hard link keeps the bytes when the name is evicted or cleared.

Links lie flat in one folder, `<owner>-<n>-<key>`: a hold costs one system call and giving it back another.
"""

# ruff: noqa: PTH108 (hot path: plain strings and single system calls)

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Lease:
    """Context manager; closing gives everything back. Safe from several threads; after closing it takes nothing."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._held: set[str] = set()
        self._closed = False
        self._lock = threading.Lock()

    def add(self, path: str, key: str) -> bool:
        """Link the file at `path` as `key`. False when it is gone or the lease is closed. Raises OSError."""
        with self._lock:
            if self._closed:
                return False
            if key in self._held:
                return True
            try:
                os.link(path, self.path(key))
            except FileNotFoundError:
                return False
            self._held.add(key)
            return True

    def path(self, key: str) -> str:
        """Where the linked file of `key` is while the lease holds it."""
        return f"{self._prefix}-{key}"

    def drop(self, key: str) -> None:
        """Give one object back."""
        with self._lock:
            self._held.discard(key)
            self._unlink(key)

    def close(self) -> None:
        """Give everything back. Any number of times."""
        with self._lock:
            self._closed = True
            for key in self._held:
                self._unlink(key)
            self._held.clear()

    def _unlink(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(key))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
