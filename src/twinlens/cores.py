"""How many cores this process may use: its affinity, and the quota that a container gives it.

A container that is given two cores of a machine of 64 still sees 64: so many threads would only wait for each other.
"""

from __future__ import annotations

import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def usable(cgroups: Path = CGROUPS, own: Path = OWN) -> int:
    """Whole cores, at least one. `cgroups` and `own` are where the kernel shows control groups."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min([cores, *(int(quota) for quota in _quotas(cgroups, own))]))


def _quotas(cgroups: Path, own: Path) -> list[float]:
    """Cores that the groups around this process may use, by both versions of control groups; none where none is set."""
    found = []
    for line in _text(own).splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = cgroups / "cpu" if controllers else cgroups
        # Inside a container the name may be that of the host, which is not to be seen: the root is its own group then.
        path = mount / name.lstrip("/")
        groups = [mount, *(group for group in (path, *path.parents) if mount in group.parents)]
        found += [quota for group in groups if (quota := _quota(group)) is not None]
    return found


def _quota(group: Path) -> float | None:
    quota, _, period = _text(group / "cpu.max").partition(" ")
    if not quota:
        quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
    try:
        allowed, of = int(quota), int(period)
    except ValueError:  # “max”, or nothing
        return None
    return allowed / of if allowed > 0 and of > 0 else None


def _text(file: Path) -> str:
    try:
        return file.read_text("ascii").strip()
    except OSError:
        return ""
