"""How hard a process works, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path

NANO = 1e-9


def effort(pid: int) -> float | None:
    """Seconds that the threads of a process have spent on a core or waiting for one; None where it cannot be read.

    Waiting counts: on a crowded machine a healthy engine may get little time, but a stopped or deadlocked one never
    even asks for it. Threads that ended take their share with them, so the number can fall.
    """
    try:
        threads = [path / "schedstat" for path in Path(f"/proc/{pid}/task").iterdir()]
        return sum(_wanted(path) for path in threads) * NANO
    except (FileNotFoundError, ProcessLookupError):
        return _processor_time(pid)
    except OSError:
        return None


def _wanted(schedstat: Path) -> int:
    on_core, in_queue, _ = schedstat.read_bytes().split()
    return int(on_core) + int(in_queue)


def _processor_time(pid: int) -> float | None:
    """The coarser count of kernels without schedstat: user and system time in ticks of 10 ms."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return None
