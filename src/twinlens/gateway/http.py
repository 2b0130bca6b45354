"""The few things about HTTP that the framework leaves to us: bounded bodies, clients that leave, raw streams."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from twinlens.errors import (
    BodyTooLarge,
    BodyTooSlow,
    InvalidRequest,
    Overloaded,
    ServerError,
    TwinlensError,
    UnsupportedMediaType,
)
from twinlens.gateway.answers import ALIVE
from twinlens.observe import metrics

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Mapping

    from starlette.types import Message, Receive, Scope, Send

    from twinlens.gateway.answers import Frames
    from twinlens.pipeline import Item

log = logging.getLogger("twinlens.gateway")

T = TypeVar("T")

# After so long without a piece a comment is sent, and before the first piece the answer's head with it.
PATIENCE_S = 10.0


class ClientLeftError(Exception):
    """The client closed the connection; there is nobody to answer."""


def header(scope: Scope, name: bytes) -> str | None:
    """The first header of that lower-case name."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


class Intake:
    """Reads bodies, bounded one by one and together: `limit` bytes each, `together` bytes in all, `timeout_s` each."""

    def __init__(self, *, limit: int, together: int, timeout_s: float) -> None:
        self._limit = limit
        self._together = together
        self._timeout_s = timeout_s
        self._held = 0

    async def body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body.

        Raises UnsupportedMediaType, BodyTooLarge (before reading when the client says the length), BodyTooSlow,
        Overloaded, InvalidRequest when it is empty, ClientLeftError.
        """
        _check_head(scope, self._limit)
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._read(receive, chunks)
        except TimeoutError:
            raise BodyTooSlow(f"The body was not there after {self._timeout_s:g} seconds.") from None
        finally:
            self._held -= sum(map(len, chunks))
        if not chunks:
            raise InvalidRequest("The body is empty.")
        return b"".join(chunks)

    async def _read(self, receive: Receive, chunks: list[bytes]) -> None:
        size = 0
        async for chunk in body_chunks(receive):
            chunks.append(chunk)
            size += len(chunk)
            self._held += len(chunk)
            if size > self._limit:
                raise BodyTooLarge(f"The body is larger than the limit of {self._limit} bytes.")
            if self._held > self._together:
                raise Overloaded("Too many large bodies are arriving at once.", retry_after=2)


async def body_chunks(receive: Receive) -> AsyncGenerator[bytes, None]:
    """The body as it comes, without its empty parts. Raises ClientLeftError."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        more = message.get("more_body", False)
        if chunk := message.get("body", b""):
            yield chunk


def _check_head(scope: Scope, limit: int) -> None:
    if (header(scope, b"content-encoding") or "identity").lower() != "identity":
        raise UnsupportedMediaType("Compressed request bodies are not taken.")
    kind = (header(scope, b"content-type") or "").partition(";")[0].strip().lower()
    # A page of another site can make a browser post text or forms here without asking; JSON it cannot.
    if kind != "application/json" and not kind.endswith("+json"):
        raise UnsupportedMediaType("The body must be sent as Content-Type: application/json.")
    length = header(scope, b"content-length")
    if length is not None and (not length.isdecimal() or int(length) > limit):
        raise BodyTooLarge(f"The body has {length[:20]} bytes, limit {limit}.")


async def unless_left(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; when the client leaves first, the work is cancelled and ClientLeftError raised."""
    task = asyncio.ensure_future(work)
    left = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientLeftError
    finally:
        left.cancel()
        task.cancel()
        # The work has to be over, with all that it holds given back, before anybody hears of the end.
        await asyncio.gather(task, left, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_json(send: Send, value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
    """Send a JSON body."""
    body = msgspec.json.encode(value)
    await send(
        _start(status, {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})})
    )
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: TwinlensError, headers: Mapping[str, str] | None = None) -> None:
    """Send an error of the tree, with Retry-After where trying again is the cure."""
    metrics.ERRORS.labels(error.code).inc()
    extra = dict(headers or {}) | {str(name, "latin-1"): str(value, "latin-1") for name, value in error.headers}
    if error.retry_after is not None:
        extra["retry-after"] = str(max(1, math.ceil(error.retry_after)))  # up: whoever waits so long has waited enough
    if error.status in (BodyTooLarge.status, BodyTooSlow.status):
        extra["connection"] = "close"  # the rest of the body is not read
    if error.status == 401:
        extra["www-authenticate"] = "Bearer"
    await send_json(send, error.body(), status=error.status, headers=extra)


class Stream:
    """Sends server-sent events. The head waits for the first piece, so that an error before it has its own status."""

    def __init__(self, send: Send, frames: Frames, headers: Mapping[str, str]) -> None:
        self._send = send
        self._frames = frames
        self._headers = headers
        self.started = False
        self._last = asyncio.get_running_loop().time()
        self._one_at_a_time = asyncio.Lock()

    async def run(self, items: AsyncGenerator[Item, None]) -> None:
        """Send all items. Raises the error of a request whose head was not sent; later ones become a frame."""
        alive = asyncio.ensure_future(self._stay_alive())
        try:
            async with aclosing(items):
                await self._pump(items)
        finally:
            alive.cancel()
            await asyncio.gather(alive, return_exceptions=True)
        await self._body(self._frames.done, last=True)

    async def _pump(self, items: AsyncGenerator[Item, None]) -> None:
        try:
            async for item in items:
                if frame := self._frames.of(item):
                    await self._body(frame)
            if frame := self._frames.end():
                await self._body(frame)
        except Exception as error:
            if not self.started:
                raise
            # The head is out: whatever happened has to be said inside the stream.
            if not isinstance(error, TwinlensError):
                log.exception("unexpected %s inside a stream", type(error).__name__)
            told = as_error(error)
            metrics.ERRORS.labels(told.code).inc()
            await self._body(self._frames.error(told))

    async def _stay_alive(self) -> None:
        """Comments in long silences, so that clients and the proxies between do not give the request up."""
        while True:
            await asyncio.sleep(PATIENCE_S / 2)
            if asyncio.get_running_loop().time() - self._last > PATIENCE_S:
                await self._body(ALIVE)

    async def _body(self, body: bytes, *, last: bool = False) -> None:
        async with self._one_at_a_time:
            if not self.started:
                self.started = True
                await self._send(_start(200, dict(self._headers)))
            await self._send({"type": "http.response.body", "body": body, "more_body": not last})
            self._last = asyncio.get_running_loop().time()


STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # nginx would hold the pieces back
}


def _start(status: int, headers: Mapping[str, str]) -> Message:
    encoded = [(key.encode("latin-1"), value.encode("latin-1", "replace")) for key, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": encoded}


def as_error(error: BaseException) -> TwinlensError:
    """An error outside the tree is a bug: the client gets a fixed text, the log the particulars."""
    return error if isinstance(error, TwinlensError) else ServerError("Something went wrong on the server's side.")
