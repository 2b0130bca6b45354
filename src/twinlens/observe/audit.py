"""The audit trail: one JSON line for every answer of a task, in files that only this user can read.

A line is appended in one write under a lock, so that several gateway processes share the file; a file that has grown to
its bound is renamed and kept. Nothing here deletes: how long a trail is kept is the operator's rule.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from twinlens.errors import AuditError

if TYPE_CHECKING:
    from pathlib import Path

NAME = "audit.jsonl"


@dataclass(frozen=True, slots=True)
class Audit:
    """The trail in one folder. `most` is the size in bytes at which a new file is begun."""

    folder: Path
    most: int

    def write(self, record: dict[str, Any]) -> None:
        """Append `record` with the time, UTC. Blocks for a disk; raises AuditError when it is not written whole."""
        line = msgspec.json.encode({"time": _now(), **record}) + b"\n"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._append(line)
            finally:
                os.close(lock)
        except OSError as error:
            raise AuditError(f"The audit line could not be written: {error.strerror}.") from error

    def _append(self, line: bytes) -> None:
        path = self.folder / NAME
        size = path.stat().st_size if path.exists() else 0
        if size and size + len(line) > self.most:
            path.rename(self.folder / f"audit-{_now().replace(':', '')}-{os.getpid()}.jsonl")
            size = 0
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            written = os.write(handle, line)
            if written != len(line):  # the disk is full: half a line would spoil the next one
                os.ftruncate(handle, size)
                raise AuditError("The audit line could not be written: no space left.")
        finally:
            os.close(handle)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
