"""THE WAY of a request: admit -> load -> recall -> generate -> finish, on one screen.

Every entrance (chat, inference, later tasks, batch and jobs) makes a `Request` and comes through here. The plain
answer is a fold over the same pieces that a stream sends. Closing the iterator frees whatever the request holds:
its place, its leases, its work at the engine.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from twinlens.admission.deadline import Deadline
from twinlens.core import Piece, TextPart
from twinlens.errors import AnswerError, ContextLengthExceeded, ImageError, PdfTimeout, TwinlensError
from twinlens.finish.boxes import Page
from twinlens.finish.line import finished
from twinlens.finish.seam import Frame, Seen
from twinlens.media.orientation import orientation
from twinlens.media.spread import alone, questions
from twinlens.observe import metrics

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from twinlens.admission.gate import Gate, Ticket
    from twinlens.core import Image, PagePlace, Request, Sight
    from twinlens.finish.line import Ask
    from twinlens.finish.seam import Units
    from twinlens.media import Loader
    from twinlens.model.words import Words
    from twinlens.store import Store

BLOCK = 64  # tokens that an engine may round a request up by, because it gives out blocks
SHORT = 1000  # characters of text that are counted on the spot, in about 0.1 ms
OF_A_PAGE = (AnswerError, ImageError, ContextLengthExceeded)  # say nothing of the other pages of a document


@dataclass(frozen=True, slots=True)
class Begun:
    """What is known before the first piece: yielded once, ahead of the pieces; for a page of many, once a page."""

    images: tuple[Sight, ...]
    prompt_tokens: int
    warnings: tuple[str, ...]
    headers: Sequence[tuple[bytes, bytes]] = ()  # for the head of the answer: how its limits stand
    units: Units = "thousandths"  # in which the model writes boxes
    page: PagePlace | None = None  # where the pages of a document are asked one by one: the one that begins here


@dataclass(frozen=True, slots=True)
class Failed:
    """A page of a document has no answer. Its neighbours are asked all the same."""

    page: PagePlace
    error: TwinlensError


Item: TypeAlias = Begun | Failed | Piece


class Generates(Protocol):
    """The pipeline's view of an engine: `engines.client.EngineClient`, or anything like it."""

    def generate(self, request: Request, images: Sequence[Image]) -> AsyncGenerator[Piece, None]:
        """Stream the pieces of an answer; closing the generator ends the work at the engine."""
        ...


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The steps of one gateway process, in their order."""

    gate: Gate
    loader: Loader
    store: Store
    words: Words
    engine: Generates
    context: int  # tokens that prompt and answer may take together
    default_max_tokens: int
    units: Units = "thousandths"  # in which the model writes boxes

    async def answer(self, request: Request) -> AsyncGenerator[Item, None]:
        """Yield `Begun`, then the pieces; where the pages of a document are asked one by one, so for each page.

        Raises only errors of the tree (and CancelledError).
        """
        with self.gate.admit(request.caller) as ticket, Deadline(ticket.deadline) as clock:
            with _timed("load"):
                look = self.loader.look(request.images, request.caller.tenant, each=request.each_page)
                looked = await clock.over(look)
            for asked, sights in questions(request, looked):  # one, or one for each page of a document
                page = sights[0].page if alone(asked) else None
                try:
                    async with aclosing(self._one(asked, sights, page, ticket, clock)) as items:
                        async for item in items:
                            yield item
                except OF_A_PAGE as error:
                    if page is None or isinstance(error, PdfTimeout):  # of which each costs everybody as much
                        raise
                    yield Failed(page, error)

    async def _one(
        self, asked: Request, sights: tuple[Sight, ...], page: PagePlace | None, ticket: Ticket, clock: Deadline
    ) -> AsyncGenerator[Begun | Piece, None]:
        """One question, from its prompt to its last piece."""
        prompt_tokens = await clock.over(self._measure(asked, sights))
        question = self._bounded(asked, sights, prompt_tokens)
        vision = sum(sight.tokens for sight in sights)
        headers = await self.gate.charge(ticket, vision, prompt_tokens - vision)
        async with self.gate.place(ticket, _cost(question, prompt_tokens)):
            with self.store.lease() as lease:
                with _timed("recall"):
                    images = await clock.over(self.loader.load(sights, lease))
                for image in images:
                    metrics.PICTURES_BY_HIT[image.hit].inc()
                warnings = tuple(warning for image in images for warning in image.warnings)
                yield Begun(sights, prompt_tokens, warnings, headers, self.units, page)
                asking = self._asking(question, sights, images)
                pieces = finished(asking, question, self._seen(question, sights))
                async for piece in _within(clock, pieces):
                    ticket.heard = True
                    if piece.usage:
                        self.gate.answered(ticket, piece.usage.completion_tokens)
                    yield _exact(piece, vision) if piece.usage and not question.finishing else piece

    def _asking(self, request: Request, sights: Sequence[Sight], images: Sequence[Image]) -> Ask:
        """How the finishing steps get an answer; those of a task may ask twice."""
        if not request.finishing:
            return lambda request: self.engine.generate(request, images)

        async def ask(request: Request) -> AsyncGenerator[Piece, None]:
            # Measured again: a second question is longer than the first.
            request = self._bounded(request, sights, await self._measure(request, sights))
            vision = sum(image.tokens for image in images)
            async with aclosing(self.engine.generate(request, images)) as pieces:
                async for piece in pieces:
                    yield _exact(piece, vision) if piece.usage else piece

        return ask

    def _seen(self, request: Request, sights: Sequence[Sight]) -> Seen:
        if not request.finishing:
            return Seen()
        return Seen(tuple(map(_frame, sights)), self.units, request.variables)

    async def _measure(self, request: Request, sights: Sequence[Sight]) -> int:
        """Exact tokens of the prompt: the rendered text holds one token for each picture."""
        long = sum(len(part.text) for turn in request.messages for part in turn.parts if isinstance(part, TextPart))
        # Waking a thread costs more than counting a short prompt; a long one would hold up everybody.
        here = long <= SHORT and not request.tools and not any(turn.tool_calls for turn in request.messages)
        text = self._count(request) if here else await asyncio.to_thread(self._count, request)
        return text + sum(sight.tokens for sight in sights) - len(sights)

    def _count(self, request: Request) -> int:
        return self.words.count(self.words.render(request.messages, request.tools))

    def _bounded(self, request: Request, sights: Sequence[Sight], prompt: int) -> Request:
        """The request with a limit on its answer; raises ContextLengthExceeded before the engine is asked."""
        asked = request.sampling.max_tokens
        if prompt + (asked or 1) > self.context:
            vision = sum(sight.tokens for sight in sights)
            raise ContextLengthExceeded(
                f"The prompt has {prompt - vision} text tokens and {vision} vision tokens, and {asked or 1} more are "
                f"asked for; the model's context holds {self.context}.",
                param="messages",
            )
        if asked is not None:
            return request
        limit = min(self.default_max_tokens, self.context - prompt)
        return replace(request, sampling=replace(request.sampling, max_tokens=limit))


def _frame(sight: Sight) -> Frame:
    place = sight.page
    page = Page(place.box, place.rotate) if place and place.box else None
    return Frame(sight.source_size, sight.size, orientation(sight), page)


def _cost(request: Request, prompt: int) -> int:
    """Tokens that the request can take in the engine's KV cache: prompt and longest answer, for each choice."""
    return (prompt + (request.sampling.max_tokens or 0) + BLOCK) * request.sampling.n


def _exact(piece: Piece, vision: int) -> Piece:
    """The usage with the vision tokens that we computed; how many the text takes is the engine's to say."""
    usage = piece.usage
    if usage is None or usage.vision_tokens == vision:
        return piece
    prompt = usage.prompt_tokens - usage.vision_tokens + vision
    return replace(piece, usage=replace(usage, prompt_tokens=prompt, vision_tokens=vision))


@contextmanager
def _timed(step: str) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        metrics.STEPS[step].observe(time.perf_counter() - start)


async def _within(clock: Deadline, pieces: AsyncGenerator[Piece, None]) -> AsyncGenerator[Piece, None]:
    """The same pieces, until the deadline."""
    async with aclosing(pieces):
        with _timed("generate"):
            while (piece := await clock.over(anext(pieces, None))) is not None:
                yield piece
