"""The embedded engine as a backend of the server: the life of a request from its prompt to its usage."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import openvino as ov

from twinlens.core import Abilities
from twinlens.engines import wire
from twinlens.engines.openvino import sampling
from twinlens.engines.openvino.adder import Adder
from twinlens.engines.openvino.answer import Answer
from twinlens.engines.openvino.grammar import Grammar, wanted_schema
from twinlens.engines.openvino.model import BLOCK
from twinlens.engines.openvino.prompt import Prompter, most_tokens
from twinlens.engines.openvino.room import Guest, Room
from twinlens.engines.openvino.stepper import Stepper, Track
from twinlens.engines.openvino.turns import Turns
from twinlens.errors import ContextLengthExceeded, EngineUnavailable, ServerError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

    import openvino_genai as genai

    from twinlens.core import Piece
    from twinlens.engines.openvino.answer import Choice
    from twinlens.engines.openvino.model import Model
    from twinlens.engines.openvino.prompt import Prompt
    from twinlens.engines.openvino.stepper import Told
    from twinlens.settings import Settings

log = logging.getLogger(__name__)

LAST_WORDS_S = 0.2  # for errors to reach their clients
EXIT_BROKEN = 70
PULSE_S = 5.0  # a silent answer says that it is alive, if anything moved
YIELDS_S = 0.005  # for each vision token: of the order of what encoding takes
ABILITIES = Abilities(logprobs=True, max_n=sampling.MAX_N)


class OpenVinoEngine:
    """Backend over a loaded model. Made and used on one event loop; `close` stops its threads."""

    def __init__(self, model: Model, settings: Settings, store: Path) -> None:
        self._model = model
        self._settings = settings
        self._turns = Turns()
        self._room = Room(model.blocks)
        self._prompter = Prompter(model.words, model.checkpoint.rule, store)
        self._grammar = Grammar(model.tokenizer, model.width)
        self._stepper = Stepper(model.pipeline, self._turns, self._deliver, self._broken)
        self._prepare = ThreadPoolExecutor(2, "prepare")
        self._adder = Adder()  # one thread: the pipeline encodes pictures of one request at a time anyway
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pulse: asyncio.Task[None] | None = None
        self._answers: set[Answer] = set()
        self._ids = itertools.count(1)
        self._added = 0
        self._stepper.start()

    def health(self) -> wire.Health:
        """How it is; asks no other thread."""
        return wire.Health(
            progress=self._stepper.steps + self._added,
            running=len(self._answers),
            waiting=self._room.waiting,
            cache_usage=round(self._room.usage, 2),
            abilities=ABILITIES,
            capacity=self._settings.max_num_seqs,
            context=self._model.checkpoint.context,
            room=self._room.blocks * BLOCK,
            weights_id=self._model.checkpoint.weights_id,
            model=self._model.checkpoint.name,
        )

    async def generate(self, chat: wire.Chat) -> AsyncGenerator[Sequence[Piece], None]:
        """See `server.Backend`. What cannot be done is refused before any work on it."""
        loop = self._running_loop()
        sampling.check(chat)
        schema = wanted_schema(chat)
        prompt = await loop.run_in_executor(self._prepare, self._prompter.make, chat)
        context, default = self._model.checkpoint.context, self._settings.default_max_tokens
        most = most_tokens(prompt, chat.max_tokens, context=context, default=default)
        blocks = self._need(chat, prompt.tokens + most)
        grammar = None if schema is None else await asyncio.wrap_future(self._adder.do(partial(self._compile, schema)))
        answer = Answer(chat, prompt, self._model.vocabulary, partial(self._room.give, blocks))
        configs = self._configurations(chat, most, grammar)
        guest = Guest(blocks * chat.n, partial(self._enter, answer, prompt, configs))
        del prompt  # its mapped pixels each hold a file open; the queues keep it as long as it is needed
        self._answers.add(answer)
        try:
            self._room.enter(guest)
            while not answer.done:
                yield await answer.next()
        finally:
            self._answers.discard(answer)
            self._room.leave_door(guest)
            answer.leave()
            self._stepper.wake()

    def close(self) -> None:
        """Stop all threads. Answers that still run end with their connections."""
        self._stepper.close()
        self._prepare.shutdown(wait=False, cancel_futures=True)
        self._adder.close()

    def _need(self, chat: wire.Chat, tokens: int) -> int:
        """Blocks of one choice. Raises ContextLengthExceeded if all of them are more than there are."""
        blocks = self._model.need(tokens)
        if blocks * chat.n > self._room.blocks:
            raise ContextLengthExceeded(
                f"{chat.n} x {tokens} tokens do not fit into the KV cache, which holds {self._room.blocks * BLOCK}."
            )
        return blocks

    def _compile(self, schema: Any) -> genai.StructuredOutputConfig:
        with self._turns.adding():
            return self._grammar.compile(schema)

    def _configurations(
        self, chat: wire.Chat, most: int, grammar: genai.StructuredOutputConfig | None
    ) -> list[genai.GenerationConfig]:
        seed = sampling.seed_of(chat)
        seeds = [(seed + index * sampling.SEED_STEP) & 0xFFFFFFFF for index in range(chat.n)]
        model = self._model.defaults
        return [sampling.configuration(chat, model, max_tokens=most, seed=one, grammar=grammar) for one in seeds]

    def _enter(self, answer: Answer, prompt: Prompt, configs: list[genai.GenerationConfig]) -> None:
        """Inside the room: each choice is a request of the pipeline, so that each streams and stops by itself."""
        for choice, config in zip(answer.choices, configs, strict=True):
            put = partial(self._put, answer, choice, prompt, config)
            added = self._adder.do(put, yields=prompt.vision_tokens * YIELDS_S)
            asyncio.wrap_future(added, loop=self._running_loop()).add_done_callback(partial(_was_put, answer))

    def _put(self, answer: Answer, choice: Choice, prompt: Prompt, config: genai.GenerationConfig) -> bool:
        """On the adding thread: encode the pictures and hand the sequence to the steps. False: nobody wants it."""
        if answer.left:
            return False
        images = [ov.Tensor(pixels[None]) for pixels in prompt.pixels]
        with self._turns.adding():
            handle = self._model.pipeline.add_request(next(self._ids), prompt.text, images, config)
        self._added += 1
        track = Track(handle, partial(answer.hear, choice))
        choice.track = track
        track.cancelled = answer.left  # read after `track` is set: one of the two sides always sees the other
        self._stepper.add(track)
        return True

    def _deliver(self, told: list[tuple[Track, Told]]) -> None:
        """On the stepping thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_tell, told)

    def _broken(self) -> None:
        """On the stepping thread, which ends."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._give_up)

    def _give_up(self) -> None:
        for answer in self._answers:
            answer.fail(EngineUnavailable("The engine failed while it worked on this answer.", retry_after=2))
        asyncio.get_running_loop().call_later(LAST_WORDS_S, os._exit, EXIT_BROKEN)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._pulse = self._loop.create_task(self._beat())
        return self._loop

    async def _beat(self) -> None:
        """Lets silent answers say that they are alive, as long as anything moves."""
        seen = -1
        while True:
            await asyncio.sleep(PULSE_S)
            now = self._stepper.steps + self._added
            if now != seen or self._adder.busy:  # large pictures take long; the watch sees whether it still works
                for answer in self._answers:
                    answer.pulse()
            seen = now


def _tell(told: list[tuple[Track, Told]]) -> None:
    for track, said in told:
        track.tell(said)


def _was_put(answer: Answer, added: asyncio.Future[bool]) -> None:
    """Nobody else looks at the outcome: whatever went wrong has to become an error of this answer here."""
    if added.cancelled():
        return
    error = added.exception()
    if error is None and added.result():
        return
    answer.give_back()
    if error is not None:
        log.error("a request was not taken", exc_info=error)
        answer.fail(ServerError("The engine could not take this request."))
