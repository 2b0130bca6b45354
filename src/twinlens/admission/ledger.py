"""The numbers of all buckets, in a file that is mapped into memory, so that neither a killed process nor a restart of
the service forgets who has used what.

    header  magic and the id of this boot of the machine, because the monotonic clock starts anew with it
    slot    16 bytes of a digest of the bucket's name, 8 bytes of its number

The number of slots is fixed. A bucket that is full again is worth nothing and makes room. When there is no such either,
further names share slots: their limits are then tighter than they should be, but memory stays flat and limits stay.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import mmap
import os
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import BinaryIO

log = logging.getLogger("twinlens.admission")

SLOTS = 1 << 16
_MAGIC = b"TWLRATE1"
_HEADER = 64
_SLOT = struct.Struct("=16sd")
_NUMBER = struct.Struct("=d")
_FREE = b"\0" * 16
STALE_S = 86_400.0


class Ledger:
    """Name of a bucket -> its number. Belongs to one process at a time."""

    def __init__(self, path: Path | None = None, *, slots: int = SLOTS) -> None:
        """Without a path, or where the file is in use by another service or cannot be had, in memory only."""
        self._slots = slots
        self._file = _opened(path, _HEADER + slots * _SLOT.size) if path else None
        size = _HEADER + slots * _SLOT.size
        self._map = mmap.mmap(self._file.fileno() if self._file else -1, size)
        self._where: dict[bytes, int] = {}
        self._free: list[int] = []
        self._fresh = 0  # slots from here on were never used
        self._load()

    @property
    def lasting(self) -> bool:
        """Whether it outlives this process."""
        return self._file is not None

    def __len__(self) -> int:
        return len(self._where)

    def get(self, name: str) -> float:
        """The number; 0 for a name without one."""
        mark = _mark(name)
        slot = self._where.get(mark)
        if slot is None:
            if not self._full:
                return 0.0
            slot = self._shared(mark)
        return float(_NUMBER.unpack_from(self._map, _at(slot) + 16)[0])

    def put(self, name: str, number: float, now: float) -> None:
        """Set the number; at the time `now` smaller ones are worth nothing."""
        mark = _mark(name)
        slot = self._where.get(mark)
        if slot is None:
            if number <= now:
                return
            slot = self._new(mark, now)
        if slot is None:
            at = _at(self._shared(mark)) + 16
            number = max(number, float(_NUMBER.unpack_from(self._map, at)[0]))
            _NUMBER.pack_into(self._map, at, number)
        else:
            _SLOT.pack_into(self._map, _at(slot), mark, number)

    def close(self) -> None:
        """Give the file back."""
        self._map.close()
        if self._file:
            self._file.close()

    @property
    def _full(self) -> bool:
        return self._fresh >= self._slots and not self._free

    def _new(self, mark: bytes, now: float) -> int | None:
        if self._full:
            self._sweep(now)
        if self._free:
            slot = self._free.pop()
        elif self._fresh < self._slots:
            slot = self._fresh
            self._fresh += 1
        else:
            return None
        self._where[mark] = slot
        return slot

    def _sweep(self, now: float) -> None:
        """Free the slots of all buckets that are full again."""
        for mark, slot in list(self._where.items()):
            if _NUMBER.unpack_from(self._map, _at(slot) + 16)[0] <= now:
                _SLOT.pack_into(self._map, _at(slot), _FREE, 0.0)
                del self._where[mark]
                self._free.append(slot)

    def _shared(self, mark: bytes) -> int:
        return int.from_bytes(mark[:4], "big") % self._slots

    def _load(self) -> None:
        head = (_MAGIC + _boot_id()).ljust(_HEADER, b"\0")
        if self._map[:_HEADER] != head:
            if self._file:
                self._map[_HEADER:] = b"\0" * (len(self._map) - _HEADER)
            self._map[:_HEADER] = head
            return
        now = time.monotonic()
        for slot, (mark, number) in enumerate(_SLOT.iter_unpack(self._map[_HEADER:])):
            if mark == _FREE:
                continue
            self._fresh = slot + 1
            if number > now:
                self._where[mark] = slot
        taken = set(self._where.values())
        self._free = [slot for slot in range(self._fresh) if slot not in taken]


def file_of(data: Path, port: int) -> Path:
    """Where the service at a port keeps its numbers."""
    return data / "rates" / str(port)


def sweep(folder: Path) -> None:
    """Remove the files of services that nobody has run for a day."""
    for path in folder.glob("[0-9]*"):
        try:
            with path.open("rb") as file:
                if time.time() - os.fstat(file.fileno()).st_mtime > STALE_S:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
        except OSError:  # in use, or gone meanwhile
            continue


def _opened(path: Path, size: int) -> BinaryIO | None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        file = os.fdopen(descriptor, "r+b", buffering=0)
        os.utime(path)
    except OSError as error:
        log.warning("rates are kept in memory only: %s", error.strerror)
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_size != size:
            os.ftruncate(file.fileno(), 0)
            os.ftruncate(file.fileno(), size)
        os.posix_fallocate(file.fileno(), 0, size)  # a full disk is met here, and not as SIGBUS later
    except OSError as error:
        log.warning("rates are kept in memory only: %s", error.strerror)
        file.close()
        return None
    return file


def _boot_id() -> bytes:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:40]
    except OSError:
        return b"unknown"


def _at(slot: int) -> int:
    return _HEADER + slot * _SLOT.size


def _mark(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=16).digest()
