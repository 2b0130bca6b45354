"""POST /v1/chat/completions and the seed-style POST /v1/inference: body in, pieces through the pipeline, answer out."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from twinlens.core import Piece, Usage
from twinlens.gateway.answers import Frames, usage_body
from twinlens.gateway.book import folded
from twinlens.gateway.front import exchange_of
from twinlens.gateway.http import STREAM_HEADERS, ClientLeftError, Stream, send_json, unless_left
from twinlens.gateway.listing import ListFrames, Listing
from twinlens.gateway.parse import body_of
from twinlens.gateway.results import result_of
from twinlens.gateway.wire import ChatBody, InferenceAnswer, InferenceBody
from twinlens.observe import metrics
from twinlens.pipeline import Begun

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

    from starlette.types import Receive, Scope, Send

    from twinlens.core import Request
    from twinlens.engines.wire import Health
    from twinlens.gateway.engine_view import EngineView
    from twinlens.gateway.front import Exchange
    from twinlens.gateway.http import Intake
    from twinlens.gateway.parse import Parser
    from twinlens.gateway.private import Private
    from twinlens.gateway.tasks import Tasks
    from twinlens.pipeline import Item, Pipeline
    from twinlens.tasks.task import Task


B = TypeVar("B", bound=msgspec.Struct)

# What the sending of a whole answer may take beyond the request's deadline, for a client that reads slowly.
SLACK_S = 10.0


@dataclass(frozen=True, slots=True)
class Asking:
    """What all routes that ask need. `timeout_s` is the deadline of a request, in seconds."""

    parser: Parser
    tasks: Tasks
    private: Private
    engine: EngineView
    pipeline: Pipeline
    intake: Intake
    timeout_s: float

    async def read(self, scope: Scope, receive: Receive, kind: type[B]) -> tuple[B, Health]:
        """The body, and what the engine can do. Refuses before it reads when there is no room."""
        exchange = exchange_of(scope)
        exchange.headers += await self.pipeline.gate.enter(exchange.caller)
        raw = await self.intake.body(scope, receive)
        body, exchange.ignored = body_of(raw, kind)
        return body, await self.engine.ready()

    def question(self, body: ChatBody, exchange: Exchange, health: Health) -> tuple[Request, Task | None]:
        """The request, and the task that is named as its model."""
        task = self.tasks.of_chat(body)
        if task:
            body.model = self.parser.served_name
        request = self.parser.chat(body, exchange.request_id, health.abilities)
        request = replace(request, caller=exchange.caller)
        if task:
            request = self.tasks.question(task, request, health.abilities, None)
        return self.private.request(request), task

    async def run(self, scope: Scope, receive: Receive, work: Coroutine[Any, Any, None]) -> None:
        """Do the work of a request unless the client leaves, or reads so slowly that it holds a place for ever."""
        try:
            async with asyncio.timeout(self.timeout_s + SLACK_S):
                await unless_left(receive, work)
        except TimeoutError:
            if abort := scope.get("twinlens.abort"):
                abort()
            raise ClientLeftError from None

    def answer(self, request: Request, exchange: Exchange, task: Task | None = None) -> AsyncGenerator[Item, None]:
        """The pipeline's items, counted; those of a task are audited."""
        items = _counted(self.pipeline.answer(request), exchange)
        return self.tasks.audited(items, task, exchange) if task and self.tasks.audit else items


class Chat:
    """ASGI endpoint of POST /v1/chat/completions."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one chat request, plain or as a stream."""
        exchange = exchange_of(scope)
        body, health = await self._asking.read(scope, receive, ChatBody)
        request, task = self._asking.question(body, exchange, health)
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        del body  # megabytes that nobody needs while the answer is made
        work = self._respond(request, exchange, send, task, include_usage=include_usage)
        await self._asking.run(scope, receive, work)

    async def _respond(
        self, request: Request, exchange: Exchange, send: Send, task: Task | None, *, include_usage: bool
    ) -> None:
        answer_id = f"chatcmpl-{uuid.uuid4().hex}"
        items = self._asking.answer(request, exchange, task)
        logprobs = request.sampling.logprobs
        read = partial(result_of, task) if task else str
        if request.stream:
            if request.each_page:
                deltas = task is not None and task.answer.kind == "text"
                listing = Listing(read, deltas=deltas)
                frames: Frames = ListFrames(answer_id, request.model, listing, include_usage=include_usage)
            else:
                frames = Frames(answer_id, request.model, logprobs=logprobs, include_usage=include_usage)
            await Stream(send, frames, STREAM_HEADERS).run(items)
            return
        async with aclosing(items):
            book = await folded(items, request.sampling.n, read)
        await send_json(send, book.chat(answer_id, request.model, logprobs=logprobs))


class Inference:
    """ASGI endpoint of POST /v1/inference."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one picture and prompt with text and usage."""
        exchange = exchange_of(scope)
        body, _ = await self._asking.read(scope, receive, InferenceBody)
        request = replace(self._asking.parser.inference(body, exchange.request_id), caller=exchange.caller)
        request = self._asking.private.request(request)
        await self._asking.run(scope, receive, self._respond(request, exchange, send))

    async def _respond(self, request: Request, exchange: Exchange, send: Send) -> None:
        items = self._asking.answer(request, exchange)
        async with aclosing(items):
            book = await folded(items, 1)
        await send_json(send, InferenceAnswer(text=book.whole.texts()[0], usage=usage_body(book.usage)))


async def _counted(items: AsyncGenerator[Item, None], exchange: Exchange) -> AsyncGenerator[Item, None]:
    """The same items; their numbers go into metrics and the log line."""
    start = time.perf_counter()
    first = True
    spent = Usage(0, 0, 0)
    async with aclosing(items):
        async for item in items:
            if isinstance(item, Begun):
                names = {name for name, _ in item.headers}  # of the pages of a document the last one counts
                exchange.headers = [one for one in exchange.headers if one[0] not in names] + list(item.headers)
            elif first:
                first = False
                metrics.FIRST_PIECE.observe(time.perf_counter() - start)
            if isinstance(item, Piece) and item.usage is not None:
                usage = item.usage
                metrics.TOKENS_BY_KIND["prompt"].inc(usage.prompt_tokens - usage.vision_tokens)
                metrics.TOKENS_BY_KIND["vision"].inc(usage.vision_tokens)
                metrics.TOKENS_BY_KIND["completion"].inc(usage.completion_tokens)
                spent = spent.plus(usage)
                exchange.note = (
                    f"prompt={spent.prompt_tokens} vision={spent.vision_tokens} completion={spent.completion_tokens}"
                )
            yield item
