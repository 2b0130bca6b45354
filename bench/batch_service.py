"""The least that a batch can be run against: it answers at once, says nothing worth reading, and opens no picture.

python -m bench.batch_service PORT
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import httptools
import msgspec
import uvloop

TASK = "words"
_USAGE = {"prompt_tokens": 70, "completion_tokens": 20, "total_tokens": 90}
_BODIES: dict[bytes, Any] = {
    b"/readyz": {},
    b"/v1/models": {"data": [{"id": "bench", "weights": "none"}]},
    b"/v1/tasks": {"data": [{"id": TASK, "version": "1", "variables": {}, "columns": [], "paths": []}]},
    b"/v1/tasks/words": {
        "object": "task.result",
        "version": "1",
        "finish_reason": "stop",
        "usage": _USAGE,
        "result": {"merchant": "Example Store", "date": "2026-12-07", "total": 12.5, "tax": None},
    },
}


def _answer(body: Any) -> bytes:
    data = msgspec.json.encode(body)
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data)


ANSWERS = {path: _answer(body) for path, body in _BODIES.items()}


class Connection(asyncio.Protocol):
    """Answers one request after the other."""

    def __init__(self) -> None:
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._url = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._url = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_message_complete(self) -> None:
        self._transport.write(ANSWERS[self._url])


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
