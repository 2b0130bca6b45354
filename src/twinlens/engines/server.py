"""The engine's side of the seam: an ASGI application over anything that can generate pieces.

Plain ASGI instead of a framework: three routes, and every microsecond here is paid by each request. A client that
leaves cancels the generation at once, whether it streams or waits for a plain answer.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from twinlens.engines import wire
from twinlens.errors import BodyTooLarge, MethodNotAllowed, NotFound, ServerError, TwinlensError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from twinlens.core import Piece, Usage

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

MAX_BODY = 512 << 20  # a last resort; the gateway's own limit is far lower
OURS = (b"x-twinlens-engine", b"1")  # tells the client that texts of errors are fit for users
JSON = [(b"content-type", b"application/json"), OURS]
EVENTS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), OURS]
KEEP_ALIVE = b": waiting\n\n"

_encode = msgspec.json.Encoder().encode


class Backend(Protocol):
    """What an engine has to be able to do."""

    def health(self) -> wire.Health:
        """How it is. Must not block."""
        ...

    def generate(self, chat: wire.Chat) -> AsyncGenerator[Sequence[Piece], None]:
        """Yield what is there, in batches that go out together; the last piece carries the usage (index -1).

        An empty batch means “alive, nothing to say yet”. Raises TwinlensError. Closing the generator ends the work.
        """
        ...


class EngineApp:
    """ASGI application: `POST /v1/chat/completions`, `GET /v1/models`, `GET /health`."""

    def __init__(self, backend: Backend, model: str) -> None:
        self.backend = backend
        self.model = model
        self._ids = itertools.count(1)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        try:
            await self._route(scope["method"], scope["path"], receive, send)
        except TwinlensError as error:
            await _send(send, error.status, _encode(error.body()), error.retry_after)

    async def _route(self, method: str, path: str, receive: Receive, send: Send) -> None:
        if path == "/v1/chat/completions":
            _only("POST", method)
            await self._chat(receive, send)
        elif path == "/health":
            _only("GET", method)
            await _send(send, 200, _encode(self.backend.health()))
        elif path == "/v1/models":
            _only("GET", method)
            entry = {"id": self.model, "object": "model", "created": 0, "owned_by": "twinlens"}
            await _send(send, 200, _encode({"object": "list", "data": [entry]}))
        else:
            raise NotFound("The engine has no such route.")

    async def _chat(self, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if body is None:
            return
        chat = wire.read_chat(body)
        answer = _Answer(f"chatcmpl-{next(self._ids)}", self.model, chat)
        work = asyncio.current_task()
        watcher = asyncio.ensure_future(receive())  # after the body, only “the client left” can come
        watcher.add_done_callback(lambda done: None if done.cancelled() or work is None else work.cancel())
        batches = self.backend.generate(chat)
        try:
            await (answer.stream(batches, send) if chat.stream else answer.plain(batches, send))
        except asyncio.CancelledError:
            if not watcher.done():
                raise
            if work is not None:
                work.uncancel()  # the client left: this ends here, and is no fault of the server
        finally:
            watcher.cancel()
            await batches.aclose()


class _Answer:
    """One answer on its way out."""

    def __init__(self, id_: str, model: str, chat: wire.Chat) -> None:
        self.id = id_
        self.model = model
        self.chat = chat
        self.created = int(time.time())
        self.begun: set[int] = set()

    async def stream(self, batches: AsyncGenerator[Sequence[Piece], None], send: Send) -> None:
        """Server-sent events. Headers go out with the first piece, so that an early refusal keeps its status."""
        started = False
        try:
            async for batch in batches:
                if not started:
                    await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
                    started = True
                data = b"".join([self._event(piece) for piece in batch]) if batch else KEEP_ALIVE
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except TwinlensError as error:
            if not started:
                raise
            await send(_last(b"data: " + _encode(error.body()) + b"\n\n" + wire.DONE))
            return
        await send(_last(wire.DONE))

    async def plain(self, batches: AsyncGenerator[Sequence[Piece], None], send: Send) -> None:
        """The fold over the pieces."""
        parts: dict[int, list[Piece]] = {}
        usage: Usage | None = None
        async for batch in batches:
            for piece in batch:
                if piece.usage is not None:
                    usage = piece.usage
                else:
                    parts.setdefault(piece.index, []).append(piece)
        if usage is None:
            raise ServerError("The engine gave no usage.")
        choices = [_choice(index, parts[index], logprobs=self.chat.logprobs) for index in sorted(parts)]
        completion = wire.Completion(self.id, "chat.completion", self.created, self.model, choices, _usage(usage))
        await _send(send, 200, _encode(completion))

    def _event(self, piece: Piece) -> bytes:
        if piece.usage is not None:
            if not self.chat.wants_usage:
                return b""
            chunk = self._chunk([], _usage(piece.usage))
        else:
            role = None if piece.index in self.begun else "assistant"
            self.begun.add(piece.index)
            delta = wire.Delta(role=role, content=piece.text or (None if piece.finish_reason else ""))
            logprobs = _logprobs([piece]) if self.chat.logprobs else None
            chunk = self._chunk([wire.ChunkChoice(piece.index, delta, piece.finish_reason, logprobs)])
        return b"data: " + _encode(chunk) + b"\n\n"

    def _chunk(self, choices: list[wire.ChunkChoice], usage: wire.Usage | None = None) -> wire.Chunk:
        return wire.Chunk(self.id, "chat.completion.chunk", self.created, self.model, choices, usage)


def _only(allowed: str, method: str) -> None:
    if method != allowed:
        raise MethodNotAllowed(f"This route takes {allowed}.")


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None when the client left before it was complete."""
    parts: list[bytes] = []
    length = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        if length > MAX_BODY:
            raise BodyTooLarge(f"The request body is over {MAX_BODY} bytes.")
        if not message.get("more_body"):
            return b"".join(parts) if len(parts) > 1 else parts[0]


async def _send(send: Send, status: int, body: bytes, retry_after: float | None = None) -> None:
    headers = [*JSON, (b"content-length", str(len(body)).encode())]
    if retry_after is not None:
        headers.append((b"retry-after", str(math.ceil(retry_after)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send(_last(body))


def _last(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body}


def _usage(usage: Usage) -> wire.Usage:
    details = wire.PromptDetails(usage.vision_tokens)
    return wire.Usage(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens, details)


def _logprobs(pieces: list[Piece]) -> wire.Logprobs:
    tokens = [token for piece in pieces for token in piece.logprobs]
    return wire.Logprobs([wire.TokenLogprob(token.token, token.logprob, list(token.bytes)) for token in tokens])


def _choice(index: int, pieces: list[Piece], *, logprobs: bool) -> wire.Choice:
    reason = pieces[-1].finish_reason
    if reason is None:
        raise ServerError("The engine ended an answer without a reason.")
    message = wire.Answer("assistant", "".join(piece.text for piece in pieces))
    return wire.Choice(index, message, reason, _logprobs(pieces) if logprobs else None)
