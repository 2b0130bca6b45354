"""One request being answered: tokens come in from the steps, pieces go out to the client. Event loop only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from twinlens.core import Piece, TokenLogprob, Usage
from twinlens.engines.openvino.text import Decoder, Stops
from twinlens.errors import EngineUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twinlens.core import FinishReason
    from twinlens.engines.openvino.prompt import Prompt
    from twinlens.engines.openvino.stepper import Told, Track
    from twinlens.engines.openvino.text import Vocabulary
    from twinlens.engines.wire import Chat
    from twinlens.errors import TwinlensError

# A grammar allows white space between the parts of a document, and some models then write nothing else.
MAX_BLANK = 128


class Choice:
    """One choice: its text so far, and its sequence in the pipeline."""

    def __init__(self, index: int, chat: Chat, vocabulary: Vocabulary) -> None:
        self.index = index
        self.track: Track | None = None
        self.tokens = 0
        self._reason: FinishReason | None = None
        self._vocabulary = vocabulary
        self._decoder = Decoder()
        self._stops = Stops(chat.stops)
        self._logprobs = chat.logprobs
        self._bounded = chat.response_format is not None and chat.response_format.type != "text"
        self._blank = 0

    @property
    def done(self) -> bool:
        """Whether its last piece was made."""
        return self._reason is not None

    def take(self, told: Told) -> Piece | None:
        """The piece that new tokens make, if there is anything to say."""
        text = ""
        logprobs: list[TokenLogprob] = []
        reason: FinishReason | None = None
        for token, logprob in zip(told.tokens, told.logprobs, strict=True):
            self.tokens += 1
            data = self._vocabulary.data(token)
            if self._logprobs and data:
                logprobs.append(TokenLogprob(data.decode(errors="replace"), logprob, tuple(data)))
            text += self._stops.feed(self._decoder.feed(data))
            reason = self._ending(text)
            if reason:
                break
        if reason is None and told.ended:
            reason = told.reason or "stop"
            text += self._stops.feed(self._decoder.end())
            text += "" if self._stops.hit else self._stops.end()
        self._reason = reason
        if not text and not logprobs and reason is None:
            return None
        return Piece(self.index, text, reason, tuple(logprobs))

    def _ending(self, text: str) -> FinishReason | None:
        if self._stops.hit:
            return "stop"
        if self._bounded:
            bare = text.rstrip()
            self._blank = len(text) - len(bare) + (0 if bare else self._blank)
            if self._blank > MAX_BLANK:
                return "length"
        return None


class Answer:
    """All choices of one request. `give_back` is called when the pipeline is done with one of them."""

    def __init__(self, chat: Chat, prompt: Prompt, vocabulary: Vocabulary, give_back: Callable[[], None]) -> None:
        self.choices = [Choice(index, chat, vocabulary) for index in range(chat.n)]
        self.left = False  # the client
        self._prompt_tokens = prompt.tokens  # not the prompt: its pixels are let go once they are encoded
        self._vision_tokens = prompt.vision_tokens
        self.give_back = give_back
        self._pieces: list[Piece] = []
        self._told = asyncio.Event()
        self._silent = False
        self._error: TwinlensError | None = None

    @property
    def done(self) -> bool:
        """Whether every choice has ended and was told."""
        return not self._pieces and all(choice.done for choice in self.choices)

    def hear(self, choice: Choice, told: Told) -> None:
        """Words of a step."""
        if told.ended:
            self.give_back()
            choice.track = None  # each knows the other; without this both stay until the next garbage collection
        if choice.done or self.left:
            return
        if told.failed:
            self.fail(EngineUnavailable("The engine ran out of memory for this answer.", retry_after=1))
            return
        piece = choice.take(told)
        if piece is not None and piece.finish_reason is not None and choice.track is not None:
            choice.track.cancelled = True  # it stopped by itself before the pipeline knows
        if piece is not None:
            self._pieces.append(piece)
            self._told.set()

    def fail(self, error: TwinlensError) -> None:
        """End with an error."""
        self._error = error
        self._told.set()

    def leave(self) -> None:
        """The client is gone, or has all it wanted: what still runs is cancelled at the next step."""
        self.left = True
        for choice in self.choices:
            if choice.track is not None:
                choice.track.cancelled = True

    def pulse(self) -> None:
        """Wake the client's side with nothing to say, if it heard nothing since the last pulse."""
        if self._silent:
            self._told.set()
        self._silent = True

    async def next(self) -> Sequence[Piece]:
        """Pieces since the last time, with the usage behind the very last one; none after a pulse.

        Raises what `fail` was given.
        """
        await self._told.wait()
        self._told.clear()
        self._silent = False
        if self._error is not None:
            raise self._error
        pieces, self._pieces = self._pieces, []
        return [*pieces, self._usage()] if self.done else pieces

    def _usage(self) -> Piece:
        completion = sum(choice.tokens for choice in self.choices)
        return Piece(-1, usage=Usage(self._prompt_tokens, completion, self._vision_tokens))
