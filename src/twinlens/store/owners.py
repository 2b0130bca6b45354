"""Names of what belongs to a running process, and whether that process still lives.

A name is `<pid>-<start time>-<pid namespace>-<n>`: the start time guards against a process id used again, the
namespace against containers that share a store and cannot see each other's processes.
"""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

FOREIGN_LIFE_S = 3600  # what a process of another pid namespace left unchanged for so long counts as left behind


_count = itertools.count()  # one for the whole process, however many stores it opens


class Owner:
    """This process, as a giver of names. Not to be carried over a fork."""

    def __init__(self) -> None:
        pid = os.getpid()
        self._prefix = f"{pid}-{_started(pid)}-{_namespace()}"

    def name(self) -> str:
        """A new name, unique on this host."""
        return f"{self._prefix}-{next(_count)}"


class Living:
    """Tells living owners from dead ones; asks the kernel once for each, so keep one only for a single pass."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}
        self._namespace = _namespace()

    def is_dead(self, name: str, changed_s: float) -> bool:
        """Whether the owner of `name` is gone; `changed_s` is the Unix time of the last change of what is named."""
        pid, _, rest = name.partition("-")
        started, _, rest = rest.partition("-")
        namespace, _, _ = rest.partition("-")
        if not pid.isdecimal() or namespace != self._namespace:
            return time.time() - changed_s > FOREIGN_LIFE_S
        owner = f"{pid}-{started}"
        if owner not in self._known:
            self._known[owner] = started != "" and _started(int(pid)) == started
        return not self._known[owner]


def _started(pid: int) -> str:
    """Start time of a process in clock ticks since boot; empty when there is none."""
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    # The second field is the command in brackets and may hold spaces and brackets itself.
    fields = line[line.rindex(b")") + 2 :].split()
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "0"
