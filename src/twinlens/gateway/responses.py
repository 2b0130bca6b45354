"""POST /v1/responses: OpenAI's newer form of a question, on the same way as a chat. Nothing is kept between two."""

from __future__ import annotations

import time
import uuid
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from twinlens.errors import TwinlensError
from twinlens.gateway.answers import Frames
from twinlens.gateway.book import folded
from twinlens.gateway.front import exchange_of
from twinlens.gateway.http import STREAM_HEADERS, Stream, send_json
from twinlens.gateway.listing import Listing
from twinlens.gateway.responses_form import Places, chat_of, refuse, unread
from twinlens.gateway.results import result_of
from twinlens.gateway.wire import Extras
from twinlens.gateway.wire_responses import (
    FormatBody,
    Incomplete,
    InputDetails,
    OutputDetails,
    OutputMessage,
    OutputPart,
    ResponseEvent,
    ResponseFault,
    ResponseObject,
    ResponsesBody,
    ResponseUsage,
    TextBody,
)

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from twinlens.core import FinishReason, Request, Usage
    from twinlens.gateway.book import Book
    from twinlens.gateway.chat import Asking
    from twinlens.gateway.front import Exchange
    from twinlens.pipeline import Item
    from twinlens.tasks.task import Task

_REASONS: dict[FinishReason, Any] = {"length": "max_output_tokens", "content_filter": "content_filter"}


@dataclass(frozen=True, slots=True)
class _Asked:
    """What an answer says of its question. Its pictures and texts are not held."""

    model: str
    instructions: str | None
    max_output_tokens: int | None
    temperature: float | None
    top_p: float | None
    text: TextBody
    metadata: dict[str, str]
    places: Places


class Responses:
    """ASGI endpoint of POST /v1/responses."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one question, plain or as a stream of events."""
        exchange = exchange_of(scope)
        body, health = await self._asking.read(scope, receive, ResponsesBody)
        refuse(body)
        exchange.ignored = tuple(sorted({*exchange.ignored, *unread(body)}))
        asked = _asked(body)
        with asked.places.named():
            request, task = self._asking.question(chat_of(body), exchange, health)
            request = asked.places.moved(request)
            del body  # megabytes that nobody needs while the answer is made
            await self._asking.run(scope, receive, self._respond(request, exchange, send, task, asked))

    async def _respond(
        self, request: Request, exchange: Exchange, send: Send, task: Task | None, asked: _Asked
    ) -> None:
        items = self._asking.answer(request, exchange, task)
        read = partial(result_of, task) if task else str
        made = Made(asked)
        if request.stream:
            deltas = task is None or task.answer.kind == "text"
            await Stream(send, ResponseFrames(made, Listing(read, deltas=deltas)), STREAM_HEADERS).run(items)
            return
        async with aclosing(items):
            book = await folded(items, 1, read)
        text = book.text
        await send_json(send, made.done(text, book))


def _asked(body: ResponsesBody) -> _Asked:
    form = (body.text or TextBody()).format or FormatBody()
    return _Asked(
        model=body.model,
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        text=TextBody(format=form),
        metadata=dict(body.metadata or {}),
        places=Places(body),
    )


class Made:
    """Makes the response, as it stands at each moment."""

    def __init__(self, asked: _Asked) -> None:
        self.asked = asked
        self.id = f"resp_{uuid.uuid4().hex}"
        self.item_id = f"msg_{uuid.uuid4().hex}"
        self._created = int(time.time())

    def begun(self) -> ResponseObject:
        """Before its first piece."""
        asked = self.asked
        return ResponseObject(
            id=self.id,
            created_at=self._created,
            status="in_progress",
            instructions=asked.instructions,
            max_output_tokens=asked.max_output_tokens,
            model=asked.model,
            temperature=asked.temperature,
            top_p=asked.top_p,
            text=asked.text,
            metadata=asked.metadata,
        )

    def done(self, text: str, book: Book) -> ResponseObject:
        """When it is whole, or cut."""
        response = self.begun()
        cut = _REASONS.get(book.reason)
        response.status = "incomplete" if cut else "completed"
        response.completed_at = None if cut else int(time.time())
        response.incomplete_details = Incomplete(reason=cut) if cut else None
        response.output = [self.message(text, response.status)]
        response.usage = _usage(book.usage)
        response.twinlens = book.extras
        return response

    def failed(self, text: str, error: TwinlensError) -> ResponseObject:
        """When it failed after its beginning."""
        response = self.begun()
        response.status = "failed"
        detail = error.detail()
        response.error = ResponseFault(**detail)
        response.output = [self.message(text, "incomplete")]
        more = error.body().get("twinlens")
        response.twinlens = Extras(**more) if more else UNSET
        return response

    def message(self, text: str | None, status: Any) -> OutputMessage:
        """The answer as the only item of the output."""
        content = [] if text is None else [OutputPart(text=text)]
        return OutputMessage(id=self.item_id, status=status, content=content)


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputDetails(image_tokens=usage.vision_tokens),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputDetails(),
        total_tokens=usage.total_tokens,
    )


class ResponseFrames(Frames):
    """Makes the events of one stream. They begin with the first piece: until then an error has a status."""

    done = b""  # the last event says that it is the last

    def __init__(self, made: Made, listing: Listing) -> None:
        super().__init__(made.id, made.asked.model, logprobs=False, include_usage=False)
        self._made = made
        self._listing = listing
        self._number = 0
        self._texts: list[str] = []
        self._begun = False

    def of(self, item: Item) -> bytes:
        """See `Frames.of`."""
        text = self._listing.of(item)
        return self._start() + self._delta(text) if text else b""

    def end(self) -> bytes:
        """See `Frames.end`. Raises what the first failed page raised, where nothing has left."""
        book = self._listing.book
        closing = self._listing.end()
        frames = self._delta(closing) if closing else b""
        try:
            book.check()
        except TwinlensError as error:
            if not self._begun:
                raise
            return frames + self.error(error)
        frames = self._start() + frames
        text = "".join(self._texts)
        response = self._made.done(text, book)
        at = self._at()
        frames += self._event("response.output_text.done", text=text, logprobs=[], **at)
        frames += self._event("response.content_part.done", part=OutputPart(text=text), **at)
        frames += self._event("response.output_item.done", output_index=0, item=response.output[0])
        return frames + self._event(f"response.{response.status}", response=response)

    def error(self, error: TwinlensError) -> bytes:
        """See `Frames.error`."""
        frames = b"" if self._number else self._opened()  # a comment to stay alive may have been all so far
        told = self._made.failed("".join(self._texts), self._made.asked.places.renamed(error))
        return frames + self._event("response.failed", response=told)

    def _start(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        item = self._made.message(None, "in_progress")
        frames = self._opened() + self._event("response.output_item.added", output_index=0, item=item)
        return frames + self._event("response.content_part.added", part=OutputPart(text=""), **self._at())

    def _opened(self) -> bytes:
        begun = self._made.begun()
        return self._event("response.created", response=begun) + self._event("response.in_progress", response=begun)

    def _delta(self, text: str) -> bytes:
        self._texts.append(text)
        return self._event("response.output_text.delta", delta=text, logprobs=[], **self._at())

    def _at(self) -> dict[str, Any]:
        return {"item_id": self._made.item_id, "output_index": 0, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = ResponseEvent(type=kind, sequence_number=self._number, **fields)
        self._number += 1
        return f"event: {kind}\n".encode() + self._frame(event)
