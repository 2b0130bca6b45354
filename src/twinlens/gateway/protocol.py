"""uvicorn's HTTP protocol with what it leaves out: bounded headers, refusals in our own words, upgrades passed over.

Clients may offer to go on in another protocol (`Upgrade: h2c`: Java's own client does in every request), and a server
may pass over that. httptools stops reading there, before the body, and uvicorn takes what follows for the next
request: the body would be lost, or answered as a request that somebody smuggled in. So the rest is read by a parser
that is told how the body is framed.
"""

from __future__ import annotations

import socket
import sys
import uuid
from typing import TYPE_CHECKING

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from twinlens.errors import HeadersTooLarge, InvalidRequest, TwinlensError

if TYPE_CHECKING:
    import asyncio

MAX_HEAD = 64 << 10  # bytes of request line and headers together, as nginx and others have it

UNREAD_MS = 30_000

FRAMING = frozenset((b"content-length", b"transfer-encoding"))

_REASONS = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}


class BoundedProtocol(HttpToolsProtocol):
    """One connection of a client."""

    _head = 0
    _data = b""  # being read

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

    def on_message_complete(self) -> None:
        """The end of a request; where an upgrade is offered the parser says so before the body, and again after it."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """More bytes of the client; none are looked at once the connection is being closed."""
        if self._head > MAX_HEAD or self.transport.is_closing():
            return
        self._read(data)
        if self._head > MAX_HEAD:
            self._refuse(HeadersTooLarge(f"The headers have more than {MAX_HEAD} bytes."))

    def _read(self, data: bytes) -> None:
        self._data = data
        super().data_received(data)
        self._data = b""

    def _unsupported_upgrade_warning(self) -> None:
        """Called by uvicorn while it handles the parser's stop: go on as if nothing had been offered."""
        stopped = sys.exc_info()[1]
        if not isinstance(stopped, httptools.HttpParserUpgrade) or self._head > MAX_HEAD:
            return
        rest = self._data[stopped.args[0] :]
        framing = [b"%s: %s\r\n" % (name, value) for name, value in self.headers if name in FRAMING]
        self.parser = httptools.HttpRequestParser(_Rest(self))
        self._read(b"POST / HTTP/1.1\r\n%b\r\n%b" % (b"".join(framing), rest))

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


class _Rest:
    """Stands for a connection at a parser that begins with a body: the head before it has been told already."""

    def __init__(self, connection: BoundedProtocol) -> None:
        self._connection = connection
        self._told = False

    def on_message_begin(self) -> None:
        if self._told:
            self._connection.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._told:
            self._connection.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._told:
            self._connection.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._told:
            self._connection.on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._connection.on_body(body)

    def on_message_complete(self) -> None:
        self._told = True
        self._connection.on_message_complete()
