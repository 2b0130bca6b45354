"""What every process of a service does first: have itself ended with the process that started it.

Without this a supervisor that is killed leaves children behind that hold memory and sockets, and the next start fails.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int | None = None, sig: int = signal.SIGKILL) -> None:
    """Have the kernel send `sig` to this process when its parent ends. To be called first thing, by the child.

    `parent` is the process id that the parent gave of itself: if it is already gone, this process ends at once (the
    kernel's signal would never come). The kernel watches the *thread* that started us, so start children from a
    thread that lives as long as they should. Where the kernel cannot do it, a thread looks twice a second.
    """
    if not (sys.platform == "linux" and _prctl(PR_SET_PDEATHSIG, sig)) and parent is not None:
        threading.Thread(target=_watch, args=(parent,), name="parent-watch", daemon=True).start()
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
