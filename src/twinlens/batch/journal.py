"""The journal of a batch: lines that are only ever appended, each with its own checksum.

    16 hex digits of BLAKE3 over the JSON, a space, the JSON, a line end

A process that dies in the middle of a line leaves a torn tail, which the next one sees and cuts off; whatever a line
before it says was finished. Written at once, so that a killed process loses nothing; flushed to the disk every FLUSH_S,
so that a power cut loses no more than that. One process at a time: the file is locked. All methods block for a disk.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from typing import TYPE_CHECKING

import msgspec
from blake3 import blake3

from twinlens.batch.records import Line, decode, encode
from twinlens.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

FLUSH_S = 1.0
BLOCK = 1 << 20
FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_SUM = 16  # characters of a checksum


class Journal:
    """An open journal. `size` is where the next line goes; `torn` bytes of a broken tail were cut off."""

    def __init__(self, path: Path) -> None:
        """Open or make it. Raises BatchError when another process has it, or when it cannot be written."""
        self.path = path
        self.torn = 0
        self.damaged = 0  # lines in the middle that are no lines of ours
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise BatchError(f"The journal {path} cannot be opened: {error.strerror}.", cure="Check --out.") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise BatchError(
                f"Another batch is writing {path}.", cure="Wait for it, or choose another --out."
            ) from error
        self.size = os.fstat(self._fd).st_size
        self._flushed = time.monotonic()

    def replay(self) -> Iterator[tuple[int, Line]]:
        """(offset, line) of all good lines; then the torn tail, if there is one, is cut off. To be read to its end."""
        offset = good = 0
        for raw in self._raw():
            line = _checked(raw)
            if line is not None:
                good = offset + len(raw)
                yield offset, line
            elif raw.endswith(b"\n"):
                self.damaged += 1
            offset += len(raw)
        if good < self.size:
            self.torn = self.size - good
            self._cut(good)

    def _raw(self) -> Iterator[bytes]:
        rest, at = b"", 0
        while block := os.pread(self._fd, BLOCK, at):
            at += len(block)
            lines = (rest + block).splitlines(keepends=True)
            rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
            yield from lines
        if rest:
            yield rest

    def append(self, lines: Iterable[Line]) -> list[int]:
        """Write lines; returns the offset of each. Raises BatchError when they are not written, and then none is."""
        offsets, parts, at = [], [], self.size
        for line in lines:
            data = framed(line)
            offsets.append(at)
            parts.append(data)
            at += len(data)
        data = b"".join(parts)
        try:
            self._write(data)
            if time.monotonic() - self._flushed > FLUSH_S:
                self.flush()
        except OSError as error:
            self._cut(self.size)
            raise unwritable(self.path, error) from error
        self.size = at
        return offsets

    def _write(self, data: bytes) -> None:
        done = 0
        while done < len(data):
            done += os.pwrite(self._fd, data[done:], self.size + done)

    def flush(self) -> None:
        """Have everything on the disk. Raises OSError."""
        os.fdatasync(self._fd)
        self._flushed = time.monotonic()

    def read(self, offset: int) -> Line:
        """The line at an offset that `append` or `replay` gave. Raises BatchError where it has been changed since."""
        data = os.pread(self._fd, 4096, offset)
        while b"\n" not in data and (more := os.pread(self._fd, BLOCK, offset + len(data))):
            data += more
        line = _checked(data[: data.find(b"\n") + 1])
        if line is None:
            raise BatchError(f"The journal {self.path} was changed meanwhile.", cure="Leave it alone; run --resume.")
        return line

    def clear(self) -> None:
        """Forget everything."""
        self._cut(0)

    def _cut(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self.size = size

    def close(self) -> None:
        """Flush and close. Raises BatchError."""
        try:
            self.flush()
        except OSError as error:
            raise unwritable(self.path, error) from error
        finally:
            os.close(self._fd)


def framed(line: Line) -> bytes:
    """A line as it stands in the file."""
    body = encode(line)
    return blake3(body).hexdigest(_SUM // 2).encode() + b" " + body + b"\n"


def _checked(raw: bytes) -> Line | None:
    """The line, or None for a torn or damaged one."""
    body = raw[_SUM + 1 : -1]
    if not raw.endswith(b"\n") or raw[:_SUM] != blake3(body).hexdigest(_SUM // 2).encode():
        return None
    try:
        return decode(body)
    except msgspec.DecodeError:
        return None  # of a later version of this program


def unwritable(path: Path, error: OSError) -> BatchError:
    """What a failed write means to the operator."""
    if error.errno in FULL:
        return BatchError(
            f"There is no space left to write {path}. What was finished is kept.",
            cure="Free space, then run the same command with --resume.",
        )
    return BatchError(f"{path} cannot be written: {error.strerror}.", cure="Mend it, then run again with --resume.")
