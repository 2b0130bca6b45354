"""What every engine process does: end with the process that started it, and serve HTTP on a socket or loopback port.

Without this a supervisor that is killed leaves engines behind that hold memory and sockets, and the next start fails.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG = 1
KEEP_ALIVE_S = 120  # longer than any client of ours keeps a connection, so that it is never us who close it first
DRAIN_S = 5
BACKLOG = 1024


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


def serve(app: Callable[..., Any], *, unix: str | None = None, port: int = 0) -> None:
    """Serve an ASGI application until SIGTERM: on a Unix socket that only this user can open, or on loopback."""
    import uvicorn  # noqa: PLC0415 - the gateway imports this room too, without serving from it

    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
    )
    listening = _unix_socket(unix) if unix else socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        listening.close()


def _unix_socket(path: str) -> socket.socket:
    """Bound by us, because uvicorn would make it writable for every user."""
    Path(path).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(path)
    finally:
        os.umask(before)
    listening.listen(BACKLOG)
    return listening
