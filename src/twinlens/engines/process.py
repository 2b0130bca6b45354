"""What every engine process does: serve HTTP on a socket or loopback port."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

KEEP_ALIVE_S = 120  # longer than any client of ours keeps a connection, so that it is never us who close it first
DRAIN_S = 5
BACKLOG = 1024


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
