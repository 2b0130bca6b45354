"""A small https server for tests of fetching: what it answers is written byte by byte, and every hit is counted."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING

import trustme

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

CA = trustme.CA()


def trust() -> ssl.SSLContext:
    """What trusts the test's own authority and nobody else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    CA.configure_trust(context)
    return context


def answer(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def redirect(where: str, status: str = "302 Found") -> bytes:
    return answer(b"", status, location=where)


class Site:
    """`pages`: path to what is sent; a function may send as it likes. `seen`: heads of all requests."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes | Handler] = {}
        self.seen: list[str] = []
        self.connections = 0
        self.most_at_once = 0
        self.port = 0
        self._now = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.seen.append(head)
                page = self.pages.get(head.split(" ")[1], answer(b"", "404 Not Found"))
                if isinstance(page, bytes):
                    writer.write(page)
                    await writer.drain()
                else:
                    await page(reader, writer)
                    return
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            self._now -= 1
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def site(*names: str) -> AsyncIterator[Site]:
    """A server on loopback whose certificate is for these names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert(*names).configure_cert(context)
    made = Site()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
