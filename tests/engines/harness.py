"""An engine for a test: a real process, asked through the real client, its pictures in a real store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np

from tests.models import model_folder
from twinlens.core import AnswerFormat, Image, ImagePart, ImageRef, Message, Request, Sampling, TextPart
from twinlens.engines.client import EngineClient
from twinlens.engines.registry import ENGINES
from twinlens.model import checkpoint
from twinlens.settings import Settings, to_json
from twinlens.store import Store, pixels_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from twinlens.core import FinishReason, Piece, Usage
    from twinlens.engines.wire import Health

START_S = 60.0


class Said:
    """A whole answer, put together from its pieces."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        self.texts: dict[int, str] = {}
        self.reasons: dict[int, FinishReason | None] = {}
        for piece in pieces[:-1]:
            self.texts[piece.index] = self.texts.get(piece.index, "") + piece.text
            self.reasons[piece.index] = piece.finish_reason or self.reasons.get(piece.index)

    @property
    def text(self) -> str:
        return self.texts[0]

    @property
    def reason(self) -> FinishReason | None:
        return self.reasons[0]

    @property
    def usage(self) -> Usage:
        assert self.pieces[-1].usage is not None
        return self.pieces[-1].usage


class RunningEngine:
    """A started engine. Clients belong to the event loop of one test: `asking()` gives one."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, settings: Settings) -> None:
        self.process = process
        self.socket = folder / "engine.sock"
        self.store = Store(Path(settings.store), settings.store_bytes)
        self.model = checkpoint.read(model_folder())
        self.log = folder / "log"

    @contextlib.asynccontextmanager
    async def asking(self, pool: int = 128, idle_timeout_s: float = 60) -> AsyncIterator[Asking]:
        client = EngineClient(f"unix:{self.socket}", model="m", pool=pool, idle_timeout_s=idle_timeout_s)
        try:
            yield Asking(self, client)
        finally:
            await client.close()

    def picture(self, seed: int = 0, height: int = 112, width: int = 112) -> Image:
        """A picture of noise in the store."""
        size = self.model.rule.target(height, width)
        key = pixels_key(seed.to_bytes(32, "big"), part="test", recipe="noise", size=size)
        with self.store.lease() as lease:
            if not self.store.has(key, lease):
                noise = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
                self.store.put(key, "pixels", noise, lease)
        return Image(
            f"picture {seed}", key, size, self.model.rule.grid(*size), self.model.rule.tokens(*size), hit=False
        )


class Asking:
    """One client of an engine."""

    def __init__(self, engine: RunningEngine, client: EngineClient) -> None:
        self.engine = engine
        self.client = client

    def request(self, *content: str | Image, answer: AnswerFormat | None = None, **sampling: Any) -> Request:
        """One user turn of texts and pictures."""
        return self.talk([("user", content)], answer=answer, **sampling)

    def talk(
        self, turns: Sequence[tuple[Any, Sequence[str | Image]]], answer: AnswerFormat | None = None, **sampling: Any
    ) -> Request:
        """Several turns."""
        images: list[Image] = []
        messages = []
        for role, content in turns:
            parts: list[TextPart | ImagePart] = []
            for part in content:
                if isinstance(part, Image):
                    parts.append(ImagePart(len(images)))
                    images.append(part)
                else:
                    parts.append(TextPart(part))
            messages.append(Message(role, tuple(parts)))
        self.images = images
        asked = Sampling(**{"max_tokens": 16, "temperature": 0.0, **sampling})
        refs = tuple(ImageRef(image.where, "data:,") for image in images)
        return Request("t", "m", tuple(messages), refs, asked, answer or AnswerFormat())

    async def ask(self, *content: str | Image, **fields: Any) -> Said:
        """The whole answer."""
        return await self.answer(self.request(*content, **fields))

    async def answer(self, request: Request) -> Said:
        images = list(self.images)
        return Said([piece async for piece in self.client.generate(request, images)])

    async def health(self) -> Health:
        return await self.client.health()

    async def post(self, body: Any) -> tuple[int, Any]:
        """A request past the client, such as it would never send."""
        connector = aiohttp.UnixConnector(str(self.engine.socket))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post("http://e/v1/chat/completions", json=body) as response,
        ):
            return response.status, await response.json()

    async def until_waiting(self, count: int, seconds: float = 10) -> None:
        """Wait until so many requests wait for room."""
        async with asyncio.timeout(seconds):
            while (await self.health()).waiting != count:
                await asyncio.sleep(0.02)

    async def until_idle(self, seconds: float) -> float:
        """Wait until nothing runs; the seconds that it took."""
        begin = time.monotonic()
        while (health := await self.health()).running or health.waiting or health.cache_usage:
            assert time.monotonic() - begin < seconds, health
            await asyncio.sleep(0.02)
        return time.monotonic() - begin


@contextlib.contextmanager
def running(kind: str, *extra: str, **settings: Any) -> Iterator[RunningEngine]:
    """Start an engine as the supervisor does, and stop it."""
    with tempfile.TemporaryDirectory(prefix="tl-") as temporary:
        folder = Path(temporary)
        asked = replace(Settings(), store=str(folder / "store"), kv_cache_gb=0.2, **settings)
        arguments = ENGINES[kind].arguments(model_folder(), folder / "engine.sock", os.getpid())
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments, *extra], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
            )
            assert process.stdin is not None
            with process.stdin:
                process.stdin.write(to_json(asked))
            engine = RunningEngine(process, folder, asked)
            try:
                _await_socket(engine)
                yield engine
            finally:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(15)
                process.kill()
                process.wait()


def _await_socket(engine: RunningEngine) -> None:
    end = time.monotonic() + START_S
    while not engine.socket.exists():
        assert engine.process.poll() is None, engine.log.read_text()
        assert time.monotonic() < end, engine.log.read_text()
        time.sleep(0.02)
