"""Counts the deaths of children, in a file that the gateway's /metrics adds to its own numbers.

The supervisor serves no HTTP; in prometheus_client's multi-process mode every process of a service writes its
numbers to a file, and whoever is asked sums them all. This writes such a file.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from prometheus_client import multiprocess
from prometheus_client.mmap_dict import MmapedDict, mmap_key

NAME = "twinlens_child_deaths"
HELP = "Deaths of the service's processes that nobody asked for, by process and cause (signal or exit code)."
KEPT_FILES = 32  # of the dead; a scrape that reads while one goes away is then very unlikely
LABELS = ["child", "cause"]


class Deaths:
    """The counter, and the bookkeeping of the dead."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = MmapedDict(str(folder / f"counter_{os.getpid()}.db"))  # type: ignore[no-untyped-call]

    def count(self, child: str, cause: str, pid: int) -> None:
        """One more. `child` and `cause` are from small sets: process names, signal numbers, exit codes."""
        key = mmap_key(NAME, f"{NAME}_total", LABELS, [child, cause], HELP)
        self._add(key, 1)
        self._fold()
        # Gauges of the dead (requests inside, ...) must not be summed any longer; their counters stay.
        multiprocess.mark_process_dead(pid, str(self._folder))  # type: ignore[no-untyped-call]

    def _fold(self) -> None:
        """Keep the numbers of the longest dead in our own file: a child that dies for days must not fill the disk."""
        files = sorted(self._folder.glob("[ch]*_*.db"), key=lambda path: path.stat().st_mtime)
        dead = [path for path in files if not Path(f"/proc/{_owner(path)}").exists()]
        for path in dead[: max(0, len(dead) - KEPT_FILES)]:
            for key, value, _, _ in MmapedDict.read_all_values_from_file(str(path)):  # type: ignore[no-untyped-call]
                self._add(key, value)
            path.unlink()
            for gauge in self._folder.glob(f"gauge_*_{_owner(path)}.db"):
                gauge.unlink()

    def _add(self, key: str, value: float) -> None:
        before = self._file.read_value(key)[0]  # type: ignore[no-untyped-call]
        self._file.write_value(key, before + value, time.time())  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Release the file."""
        self._file.close()  # type: ignore[no-untyped-call]


def _owner(path: Path) -> str:
    """The process that a file of numbers belongs to."""
    return path.stem.rpartition("_")[2]
