"""One object in one file: mapping it, checking it, reading it."""

# ruff: noqa: PTH108 (hot path: plain strings and single system calls)

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from twinlens.store.checksum import checksum
from twinlens.store.header import SIZE, BadHeader, Header, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


def read(path: str, key: str) -> NDArray[Any]:
    """The whole object as a read-only array over its mapping. Raises FileNotFoundError, BadHeader, OSError."""
    with _opened(path) as (fd, about):
        if about.st_size < SIZE:
            raise BadHeader("too short")
        memory = map_file(fd, about.st_size, mmap.PROT_READ)
        header = unpack(memory[:SIZE], key=key, file_size=about.st_size)
        if header.checksum != checksum(np.frombuffer(memory, dtype=np.uint8, offset=SIZE)):
            raise BadHeader("damaged bytes")
        _touch(fd, about)
    return as_array(memory, header)


def look(path: str, key: str) -> Header:
    """The header of a whole object; its bytes are not read. Raises FileNotFoundError, BadHeader, OSError."""
    with _opened(path) as (fd, about):
        header = unpack(os.pread(fd, SIZE, 0), key=key, file_size=about.st_size)
        _touch(fd, about)
    return header


def map_file(fd: int, size: int, protection: int) -> mmap.mmap:
    """A shared mapping of the whole file, its pages made present at once: one call, not a page fault for each.

    Raises OSError.
    """
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
    if sys.version_info >= (3, 13):  # before, every mapping holds a file descriptor of its own while it lives
        return mmap.mmap(fd, size, flags=flags, prot=protection, trackfd=False)
    return mmap.mmap(fd, size, flags=flags, prot=protection)


def as_array(memory: mmap.mmap, header: Header) -> NDArray[Any]:
    """The object inside its mapping, of the dtype and shape of its header."""
    flat = np.frombuffer(memory, dtype=header.dtype, offset=SIZE) if header.length else np.empty(0, header.dtype)
    return flat.reshape(header.shape)


def discard(path: str) -> None:
    """Unlink a file that may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[tuple[int, os.stat_result]]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:  # a symbolic link, a socket: nothing that a store ever makes
        raise BadHeader("no object") from error
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise BadHeader("no file")
        yield fd, about
    finally:
        os.close(fd)


def _touch(fd: int, about: os.stat_result) -> None:
    # By hand, because most file systems note a reading late or not at all; the least recently used goes first.
    os.utime(fd, ns=(time.time_ns(), about.st_mtime_ns))
