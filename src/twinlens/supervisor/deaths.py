"""Counts the deaths of children, in a file that the gateway's /metrics adds to its own numbers.

The supervisor serves no HTTP; in prometheus_client's multi-process mode every process of a service writes its
numbers to a file, and whoever is asked sums them all. This writes such a file.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from prometheus_client import multiprocess
from prometheus_client.mmap_dict import MmapedDict, mmap_key

if TYPE_CHECKING:
    from pathlib import Path

NAME = "twinlens_child_deaths"
HELP = "Deaths of the service's processes that nobody asked for, by process and cause (signal or exit code)."
LABELS = ["child", "cause"]


class Deaths:
    """The counter, and the bookkeeping of the dead."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = MmapedDict(str(folder / f"counter_{os.getpid()}.db"))  # type: ignore[no-untyped-call]

    def count(self, child: str, cause: str, pid: int) -> None:
        """One more. `child` and `cause` are from small sets: process names, signal numbers, exit codes."""
        key = mmap_key(NAME, f"{NAME}_total", LABELS, [child, cause], HELP)
        before = self._file.read_value(key)[0]  # type: ignore[no-untyped-call]
        self._file.write_value(key, before + 1, time.time())  # type: ignore[no-untyped-call]
        # Gauges of the dead (requests inside, ...) must not be summed any longer; their counters stay.
        multiprocess.mark_process_dead(pid, str(self._folder))  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Release the file."""
        self._file.close()  # type: ignore[no-untyped-call]
