"""What the figures were measured on."""

from __future__ import annotations

import datetime as dt
import os
import platform
from pathlib import Path

from bench.report import Table


def table() -> Table:
    """One row: date, processor, cores, memory, kernel, Python."""
    now = dt.datetime.now(dt.UTC)
    row = (f"{now:%Y-%m-%d %H:%M} UTC", _processor(), f"{os.cpu_count()}", _memory(), platform.release())
    versions = (platform.python_version(), os.environ.get("BENCH_COMMIT", ""))
    return Table("Machine", ("date", "processor", "cores", "memory", "kernel", "Python", "commit"), [(*row, *versions)])


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"
