"""A fake engine: no model, the whole wire, as fast as a process can answer. For our tests and for users' own.

    python -m twinlens.engines.fake --port 9000
    python -m twinlens.engines.fake --socket /tmp/fake.sock --delay-s 0.2 --pieces 40 --fail-every 3

It never pretends: the model's name says fake, and so does `/health`. The answer is a function of the request alone:
a last user text “say X” is answered with X; a JSON schema with the smallest value that it allows; anything else with
a sentence about what came in. Tokens are words; a picture counts IMAGE_TOKENS, its pixels are never looked at. Data
URIs are taken and not decoded; references are taken and not resolved.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from twinlens.core import Abilities, FinishReason, Piece, TokenLogprob, Usage
from twinlens.engines import wire
from twinlens.engines.example import example
from twinlens.engines.server import EngineApp
from twinlens.errors import EngineUnavailable, InvalidRequest, ServerError, UnsupportedField
from twinlens.parent import die_with_parent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

IMAGE_TOKENS = 64
MAX_N = 8
STEP_S = 0.1  # of the work that a delay stands for
ABILITIES = Abilities(references=True, json_schema=True, logprobs=True, top_logprobs=0, tools=False, max_n=MAX_N)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the fake behaves. Counts are of requests for an answer, from 1; 0 means never."""

    model: str = "fake"
    delay_s: float = 0.0  # before the first piece
    piece_delay_s: float = 0.0  # before each further piece
    pieces: int = 10  # words of an answer that nothing else decides
    answer: str = ""  # the answer to everything
    fail_every: int = 0
    fail_from: int = 0  # from this request on `fail_count` of them fail
    fail_count: int = 0
    fail_status: int = 500
    die_after: int = 0  # the process ends inside this answer, after its first piece
    hang_after: int = 0  # from this request on none is answered
    capacity: int = 256
    context: int = 32768
    room: int = 0  # tokens of a KV cache; 0: not said
    slots: int = 0  # requests that it works on at once, the others wait inside it; 0: all


class FakeEngine:
    """Backend without a model."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.asked = 0
        self.running = 0
        self.cancelled = 0
        self.progress = 0
        self.waiting = 0
        self._slots = asyncio.Semaphore(behaviour.slots or 1 << 30)

    def health(self) -> wire.Health:
        """How it is, with `fake` set."""
        does = self.behaviour
        return wire.Health(
            progress=self.progress,
            running=self.running,
            abilities=ABILITIES,
            capacity=does.capacity,
            context=does.context,
            room=does.room,
            waiting=self.waiting,
            weights_id="fake",
            model=does.model,
            fake=True,
        )

    async def generate(self, chat: wire.Chat) -> AsyncGenerator[Sequence[Piece], None]:
        """The pieces of all choices in turn, then the usage; all at once where nothing was told to be slow."""
        self.asked += 1
        number = self.asked
        self.running += 1
        done = False
        slot = False
        try:
            slot = await self._slot()
            await self._misbehave(number)
            _refuse(chat)
            pieces = self._pieces(chat)
            pieces.append(Piece(-1, usage=_usage(chat, sum(bool(piece.text) for piece in pieces))))
            self.progress += len(pieces)
            if not self.behaviour.piece_delay_s and number != self.behaviour.die_after:
                yield pieces
            else:
                async for batch in self._slowly(pieces, dies=number == self.behaviour.die_after):
                    yield batch
            done = True
        finally:
            self.running -= 1
            self.cancelled += not done
            if slot:
                self._slots.release()

    async def _slot(self) -> bool:
        self.waiting += 1
        try:
            return await self._slots.acquire()
        finally:
            self.waiting -= 1

    async def _slowly(self, pieces: list[Piece], *, dies: bool) -> AsyncGenerator[Sequence[Piece], None]:
        for piece in pieces:
            yield (piece,)
            await self._work(self.behaviour.piece_delay_s)
            if dies:
                await asyncio.sleep(0.05)  # the piece reaches the client first
                os._exit(9)

    async def _misbehave(self, number: int) -> None:
        does = self.behaviour
        if does.hang_after and number >= does.hang_after:
            await asyncio.Event().wait()
        if does.delay_s:
            await self._work(does.delay_s)
        if (does.fail_every and number % does.fail_every == 0) or 0 <= number - does.fail_from < does.fail_count:
            raise _failure(does.fail_status)

    async def _work(self, seconds: float) -> None:
        """Take so long. Progress moves meanwhile: a slow engine is not to be taken for one that hangs."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, STEP_S))
            self.progress += 1

    def _pieces(self, chat: wire.Chat) -> list[Piece]:
        found: list[Piece] = []
        for index in range(chat.n):
            words, reason = self._words(chat, index)
            for word in words:
                logprobs = (TokenLogprob(word, -0.5, tuple(word.encode())),) if chat.logprobs else ()
                found.append(Piece(index, word, logprobs=logprobs))
            found.append(Piece(index, finish_reason=reason))
        return found

    def _words(self, chat: wire.Chat, index: int) -> tuple[list[str], FinishReason]:
        text = self._text(chat) + (f" #{index}" if index and not chat.response_format else "")
        for stop in chat.stops:
            text = text.split(stop, 1)[0]
        words = _split(text)
        if chat.max_tokens is not None and len(words) > chat.max_tokens:
            return words[: chat.max_tokens], "length"
        return words, "stop"

    def _text(self, chat: wire.Chat) -> str:
        wanted = chat.response_format
        if self.behaviour.answer:
            return self.behaviour.answer
        if wanted is not None and wanted.type != "text":
            schema = wanted.json_schema.schema if wanted.json_schema else None
            return msgspec.json.encode(example(schema) if schema else {"fake": True}).decode()
        text = _last_user_text(chat)
        if text.startswith("say "):
            return text[4:]
        texts, urls = _parts(chat)
        digest = zlib.crc32("\0".join(texts + [f"{len(url)}{url[:128]}{url[-64:]}" for url in urls]).encode())
        pieces = chat.max_tokens or self.behaviour.pieces if chat.ignore_eos else self.behaviour.pieces
        says = f"fake {digest:08x} answer to {len(texts)} texts and {len(urls)} pictures".split(" ")
        says += [f"word{number}" for number in range(len(says), pieces)]
        return " ".join(says[:pieces])


def _refuse(chat: wire.Chat) -> None:
    if chat.top_logprobs:
        raise UnsupportedField("The fake engine gives no alternatives to a token.", param="top_logprobs")
    if chat.tools:
        raise UnsupportedField("The fake engine calls no tools.", param="tools")
    if chat.n > MAX_N:
        raise UnsupportedField(f"At most {MAX_N} answers to one request.", param="n")


def _failure(status: int) -> Exception:
    if status == 400:
        return InvalidRequest("The fake engine was told to refuse this request.")
    if status == 503:
        return EngineUnavailable("The fake engine was told to be busy.", retry_after=1)
    return ServerError("The fake engine was told to fail.")


def _parts(chat: wire.Chat) -> tuple[list[str], list[str]]:
    texts: list[str] = []
    urls: list[str] = []
    for message in chat.messages:
        if isinstance(message.content, str):
            texts.append(message.content)
        for part in message.content if isinstance(message.content, list) else ():
            if isinstance(part, wire.TextPart):
                texts.append(part.text)
            else:
                urls.append(part.image_url.url)
    return texts, urls


def _last_user_text(chat: wire.Chat) -> str:
    for message in reversed(chat.messages):
        if message.role == "user":
            if isinstance(message.content, str):
                return message.content
            return next((part.text for part in message.content or () if isinstance(part, wire.TextPart)), "")
    return ""


def _split(text: str) -> list[str]:
    """Words with the space in front of them, so that they join to the text."""
    if not text:
        return []
    first, *rest = text.split(" ")
    return [word for word in (first, *(" " + word for word in rest)) if word]


def _usage(chat: wire.Chat, completion: int) -> Usage:
    texts, urls = _parts(chat)
    vision = IMAGE_TOKENS * len(urls)
    return Usage(sum(text.count(" ") + 1 for text in texts) + vision, completion, vision)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m twinlens.engines.fake", description="A fake engine, for tests.")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--socket", help="Unix socket to listen on")
    place.add_argument("--port", type=int, help="port of 127.0.0.1 to listen on")
    parser.add_argument("--parent", type=int, help="end when this process, which started us, ends")
    for name, default in (("model", "fake"), ("answer", "")):
        parser.add_argument(f"--{name}", default=default)
    for name in ("delay-s", "piece-delay-s"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    numbers = (
        "pieces",
        "fail-every",
        "fail-from",
        "fail-count",
        "fail-status",
        "die-after",
        "hang-after",
        "capacity",
        "context",
        "room",
        "slots",
    )
    for name in numbers:
        parser.add_argument(f"--{name}", type=int, default=getattr(Behaviour(), name.replace("-", "_")))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM."""
    from twinlens.engines.process import serve  # noqa: PLC0415 - uvicorn is not needed to import the fake

    args = _arguments(argv)
    die_with_parent(args.parent)
    names = Behaviour.__dataclass_fields__
    behaviour = Behaviour(**{name: value for name, value in vars(args).items() if name in names})
    serve(EngineApp(FakeEngine(behaviour), behaviour.model), unix=args.socket, port=args.port or 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
