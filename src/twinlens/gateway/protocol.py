"""uvicorn's HTTP protocol with two things it leaves out: bounded headers, and refusals in our own words."""

from __future__ import annotations

import socket
import uuid
from typing import TYPE_CHECKING

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from twinlens.errors import HeadersTooLarge, InvalidRequest, TwinlensError

if TYPE_CHECKING:
    import asyncio

MAX_HEAD = 64 << 10  # bytes of request line and headers together, as nginx and others have it

UNREAD_MS = 30_000

_REASONS = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}


class BoundedProtocol(HttpToolsProtocol):
    """One connection of a client."""

    _head = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A new connection: the kernel drops it when its client takes nothing for so long, whatever we wait for."""
        super().connection_made(transport)  # type: ignore[arg-type]
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)

    def on_message_begin(self) -> None:
        """A new request on the connection."""
        self._head = 0
        super().on_message_begin()
        # For whoever has to end a connection whose client reads nothing: closing would wait for it.
        self.scope["twinlens.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]

    def on_url(self, url: bytes) -> None:
        """A part of the request line."""
        if self._fits(url):
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        if self._fits(name, value):
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """All headers are there."""
        if self._head <= MAX_HEAD:
            super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """More bytes of the client; none are looked at once the connection is being closed."""
        if self._head > MAX_HEAD or self.transport.is_closing():
            return
        super().data_received(data)
        if self._head > MAX_HEAD:
            self._refuse(HeadersTooLarge(f"The headers have more than {MAX_HEAD} bytes."))

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets an answer in the shape of every other refusal."""
        if self._head <= MAX_HEAD:
            self._refuse(InvalidRequest("This is not a valid HTTP request."))

    def _fits(self, *parts: bytes) -> bool:
        # Each header costs more than its bytes, so that many short ones count as well.
        self._head += sum(map(len, parts)) + 32
        return self._head <= MAX_HEAD

    def _refuse(self, error: TwinlensError) -> None:
        body = msgspec.json.encode(error.body())
        lines = [
            b"HTTP/1.1 %d %s" % (error.status, _REASONS[error.status]),
            b"content-type: application/json",
            b"content-length: %d" % len(body),
            b"connection: close",
            b"x-request-id: " + uuid.uuid4().hex.encode(),
        ]
        self.transport.write(b"\r\n".join([*lines, b"", body]))
        self.transport.close()
