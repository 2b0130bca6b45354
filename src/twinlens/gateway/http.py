"""The few things about HTTP that the framework leaves to us: bounded bodies, clients that leave, raw streams."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from twinlens.errors import BodyTooLarge, InvalidRequest, ServerError, TwinlensError, UnsupportedMediaType
from twinlens.gateway.answers import ALIVE, DONE
from twinlens.observe import metrics

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Mapping

    from starlette.types import Message, Receive, Scope, Send

    from twinlens.core import Piece
    from twinlens.gateway.answers import Frames
    from twinlens.pipeline import Begun

T = TypeVar("T")

# After so long without a first piece the answer's head is sent, so that proxies and clients see life.
PATIENCE_S = 10.0


class ClientLeftError(Exception):
    """The client closed the connection; there is nobody to answer."""


def header(scope: Scope, name: bytes) -> str | None:
    """The first header of that lower-case name."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body, at most `limit` bytes.

    Raises UnsupportedMediaType, BodyTooLarge (before reading when the client says the length), ClientLeftError.
    """
    if (header(scope, b"content-encoding") or "identity").lower() != "identity":
        raise UnsupportedMediaType("Compressed request bodies are not taken.")
    kind = (header(scope, b"content-type") or "").partition(";")[0].strip().lower()
    # A page of another site can make a browser post text or forms here without asking; JSON it cannot.
    if kind != "application/json" and not kind.endswith("+json"):
        raise UnsupportedMediaType("The body must be sent as Content-Type: application/json.")
    length = header(scope, b"content-length")
    if length is not None and (not length.isdecimal() or int(length) > limit):
        raise BodyTooLarge(f"The body has {length[:20]} bytes, limit {limit}.")
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise BodyTooLarge(f"The body is larger than the limit of {limit} bytes.")
        if not message.get("more_body", False):
            break
    if not size:
        raise InvalidRequest("The body is empty.")
    return b"".join(chunks)


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
    extra = dict(headers or {})
    if error.retry_after is not None:
        extra["retry-after"] = str(max(1, round(error.retry_after)))
    if error.status == BodyTooLarge.status:
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

    async def run(self, items: AsyncGenerator[Begun | Piece, None]) -> None:
        """Send all items. Raises the error of a request whose head was not sent; later ones become a frame."""
        async with aclosing(items):
            try:
                await self._pump(items)
            except TwinlensError as error:
                if not self.started:
                    raise
                metrics.ERRORS.labels(error.code).inc()
                await self._body(self._frames.error(error.body()))
        await self._body(DONE, last=True)

    async def _pump(self, items: AsyncGenerator[Begun | Piece, None]) -> None:
        while not self.started:
            item = await self._patiently(items)
            if item is None:
                return
            await self._frame(item)
        async for item in items:
            await self._frame(item)

    async def _patiently(self, items: AsyncGenerator[Begun | Piece, None]) -> Begun | Piece | None:
        """The next item; while it does not come, comments show that the request lives."""
        coming = asyncio.ensure_future(anext(items, None))
        try:
            while not (await asyncio.wait((coming,), timeout=PATIENCE_S))[0]:
                await self._body(ALIVE)
            return coming.result()
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    async def _frame(self, item: Begun | Piece) -> None:
        if frame := self._frames.of(item):
            await self._body(frame)

    async def _body(self, body: bytes, *, last: bool = False) -> None:
        if not self.started:
            self.started = True
            await self._send(_start(200, dict(self._headers)))
        await self._send({"type": "http.response.body", "body": body, "more_body": not last})


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
