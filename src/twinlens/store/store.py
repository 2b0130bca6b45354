"""The store: objects shared by all processes of one user on one host, published by rename and read by mmap.

Nothing here waits for another process. A writer that is killed leaves a temporary that the next count removes; a
reader that is killed leaves a lease that the next count removes.
"""

# ruff: noqa: PTH104, PTH208 (hot path: plain strings and single system calls)

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from twinlens.errors import InvalidField, StoreError, StoreMiss
from twinlens.store.checksum import checksum
from twinlens.store.files import discard, look, read, write
from twinlens.store.folders import Folders, check
from twinlens.store.header import SIZE, BadHeader, Header
from twinlens.store.keys import is_key
from twinlens.store.lease import Lease
from twinlens.store.space import Space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import DTypeLike, NDArray

SCHEME = "twinlens:"
Found = TypeVar("Found")
FILESYSTEM_SHARE = 0.9
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EFBIG})


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What is there now (of all processes) and what this process saw since it opened the store. Sizes in bytes."""

    objects: int
    bytes: int  # everything under the bound, also what only leases still hold
    leased_bytes: int
    limit: int
    hits: int
    misses: int
    evictions: int
    corrupt: int


class Store:
    """One process's door to the store. Safe from several threads; make a new one in each process, never fork one."""

    def __init__(self, root: Path, limit_bytes: int) -> None:
        """Makes `root` (mode 0700) if missing and sweeps it. Raises StoreError for a symlink or another user's."""
        self._folders = Folders(os.fspath(root))
        # A container's tmpfs may be smaller than the bound; what is left over is for what is in flight.
        whole = self._folders.prepare()
        self._space = Space(self._folders, min(limit_bytes, int(whole * FILESYSTEM_SHARE)))
        self._folders.sweep()
        self._lock = threading.Lock()
        self._seen = {"hits": 0, "misses": 0, "corrupt": 0}

    def lease(self) -> Lease:
        """A hold on objects for the life of a request."""
        return Lease(self._folders.new_lease())

    def get(self, key: str, lease: Lease | None = None) -> NDArray[Any] | None:
        """The object as a read-only array over its mapping, or None. Leased if there. A bad file is a miss."""
        return self._found(key, lease, read)

    def has(self, key: str, lease: Lease) -> bool:
        """Whether a whole object is there, by its header; if so it is leased. Its bytes are not read."""
        return self._found(key, lease, look) is not None

    def put(self, key: str, kind: str, array: NDArray[Any], lease: Lease | None = None) -> None:
        """Publish `array` under `key`, and lease it. A key that is there, or is being put, is no fault.

        Raises StoreError when the object does not fit, or its dtype or shape cannot be stored.
        """
        header = self._header(key, kind, array.dtype, array.shape)
        body = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        try:
            self._publish(dataclasses.replace(header, checksum=checksum(body)), body, lease)
        except OSError as error:
            raise StoreError("The store cannot be written to, or has no memory left.") from error

    @contextlib.contextmanager
    def create(
        self, key: str, kind: str, dtype: DTypeLike, shape: tuple[int, ...], lease: Lease | None = None
    ) -> Iterator[NDArray[Any]]:
        """An array to fill, its contents undefined; `put` on a clean exit, forgotten on any other.

        For those who have no array yet; with one, `put` saves a copy. Raises StoreError as `put` does.
        """
        self._header(key, kind, np.dtype(dtype), shape)
        array = np.empty(shape, dtype)
        yield array
        self.put(key, kind, array, lease)

    def stats(self) -> StoreStats:
        """Counts the folder: a millisecond or so per thousand objects."""
        found = self._folders.survey()
        return StoreStats(
            objects=found.objects,
            bytes=found.stored,
            leased_bytes=found.leased,
            limit=self._space.limit,
            evictions=self._space.evictions,
            **self._seen,
        )

    def clear(self) -> int:
        """Remove every published object; how many there were. What is leased stays with its leases."""
        removed = 0
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._folders.objects):
                removed += discard(f"{self._folders.objects}/{name}")
        return removed

    def sweep(self) -> None:
        """Remove unpublished temporaries and leases of dead processes; nothing else."""
        self._folders.sweep()

    def close(self) -> None:
        """Give back the room set aside for this process. Objects stay; the store can be used again."""
        self._space.close()

    def _path(self, key: str) -> str:
        if not is_key(key):
            raise StoreError("This cannot be the key of an object.", cure="Use a key made by store/keys.")
        return f"{self._folders.objects}/{key}"

    def _hold(self, lease: Lease, path: str, key: str) -> bool:
        try:
            return lease.add(path, key)
        except OSError as error:
            raise StoreError("An object of the store cannot be leased.") from error

    def _header(self, key: str, kind: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Header:
        try:
            header = Header(key, kind, dtype.str, tuple(shape))
        except BadHeader as error:
            raise StoreError("This kind of object cannot be stored.") from error
        if SIZE + header.length > self._space.limit:
            raise StoreError("An object is larger than the whole store.", cure="Raise store_bytes.")
        return header

    def _publish(self, header: Header, body: NDArray[np.uint8], lease: Lease | None) -> None:
        temporary, fd = self._folders.open_temporary()
        try:
            self._fill(fd, header, body)
            if lease is not None:
                lease.add(temporary, header.key)
            os.rename(temporary, f"{self._folders.objects}/{header.key}")
        finally:
            os.close(fd)
            discard(temporary)

    def _fill(self, fd: int, header: Header, body: NDArray[np.uint8]) -> None:
        size = SIZE + header.length
        os.ftruncate(fd, size)  # its size is seen by every count before room for it is taken
        self._space.take(size)
        try:
            write(fd, header, body)
        except OSError as error:
            if error.errno not in FULL:
                raise
            # The file system is smaller than the bound, or others fill it: our own old objects make room.
            self._space.evict(size)
            os.lseek(fd, 0, os.SEEK_SET)
            write(fd, header, body)

    def _found(self, key: str, lease: Lease | None, way: Callable[[str, str], Found]) -> Found | None:
        path = self._path(key)
        try:
            if lease is None or self._hold(lease, path, key):
                found = way(path if lease is None else lease.path(key), key)
                self._saw("hits")
                return found
        except FileNotFoundError:
            pass
        except BadHeader:
            self._saw("corrupt")
            self._drop_damaged(path, key, lease)
        except OSError as error:
            raise StoreError("An object of the store cannot be read.") from error
        self._saw("misses")
        return None

    def _drop_damaged(self, path: str, key: str, lease: Lease | None) -> None:
        # Out of the way, so that the next writer's object is found again.
        discard(path)
        if lease is not None:
            lease.drop(key)

    def _saw(self, what: str) -> None:
        with self._lock:
            self._seen[what] += 1


def resolve(root: Path, reference: str) -> NDArray[Any]:
    """The read-only array behind `twinlens:<key>`, for an engine.

    Published objects first, then those that only a lease still holds. Raises StoreMiss when it is gone or damaged,
    InvalidField when the text is no reference, StoreError when the folder is not ours.
    """
    key = reference.removeprefix(SCHEME)
    if not reference.startswith(SCHEME) or not is_key(key):
        raise InvalidField("A picture's URL is not a reference to the store.")
    try:
        check(os.fspath(root))
        for path in _places(os.fspath(root), key):
            with contextlib.suppress(FileNotFoundError, BadHeader):
                return read(path, key)
    except OSError as error:
        raise StoreMiss("A picture cannot be read from the store.", retry_after=1) from error
    discard(f"{root}/objects/{key}")  # damaged, if it is there: the next request loads the picture again
    raise StoreMiss("A picture is no longer in the store.", retry_after=1)


def _places(root: str, key: str) -> Iterator[str]:
    yield f"{root}/objects/{key}"
    for name in os.listdir(f"{root}/leases"):
        if name.endswith(key):
            yield f"{root}/leases/{name}"
