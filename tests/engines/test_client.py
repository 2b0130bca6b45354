"""Every way in which an engine or its connection can fail is an error of our tree; half an answer is none."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
from PIL import Image as Pillow

from tests.engines.harness import running
from twinlens.core import Image, ImagePart, ImageRef, Message, Request, Sampling, TextPart
from twinlens.engines.client import EngineClient
from twinlens.errors import (
    AnswerError,
    DeadlineExceeded,
    EngineUnavailable,
    InvalidRequest,
    InvalidSchema,
    ServerError,
    TwinlensError,
)
from twinlens.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from twinlens.core import Piece

QUESTION = Request("r", "m", (Message("user", (TextPart("hi"),)),), (), Sampling())


def chunk(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def choice(text: str = "x", reason: str | None = None, index: int = 0) -> bytes:
    return chunk(choices=[{"index": index, "delta": {"content": text}, "finish_reason": reason}])


USAGE = chunk(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5})
DONE = b"data: [DONE]\n\n"


async def read_question(reader: asyncio.StreamReader) -> bytes:
    """The body of one request."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in head else 0
    return await reader.readexactly(length)


@contextlib.asynccontextmanager
async def answering(
    *parts: bytes, status: str = "200 OK", headers: str = "", silent: bool = False
) -> AsyncIterator[EngineClient]:
    """A client of a server that answers everything with these bytes, and then closes or waits."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await read_question(reader)
            writer.write(f"HTTP/1.1 {status}\r\nconnection: close\r\n{headers}\r\n".encode())
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)
            if silent:
                await over.wait()
        writer.close()

    serving: list[asyncio.Task[None] | None] = []
    over = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = EngineClient(f"http://127.0.0.1:{port}", model="m", pool=4, idle_timeout_s=0.3)
    try:
        yield client
    finally:
        await client.close()
        over.set()
        server.close()
        await asyncio.gather(*filter(None, serving))


async def heard(client: EngineClient, request: Request = QUESTION) -> list[Piece]:
    return [piece async for piece in client.generate(request, [])]


async def test_a_whole_answer() -> None:
    async with answering(choice("a"), choice("", "stop"), USAGE, DONE) as client:
        pieces = await heard(client)
    assert "".join(piece.text for piece in pieces) == "a"
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.total_tokens == 5


async def test_events_cut_anywhere() -> None:
    whole = choice("ä€") + b": comment\n\n" + choice("", "length") + USAGE + DONE
    async with answering(*(whole[place : place + 7] for place in range(0, len(whole), 7))) as client:
        pieces = await heard(client)
    assert [piece.text for piece in pieces] == ["ä€", "", ""]
    assert pieces[1].finish_reason == "length"


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (choice("a"),),
        (choice("a"), choice("", "stop")),
        (choice("a"), DONE),
        (choice("a")[:10],),
    ],
    ids=["nothing", "no reason", "no end", "end without a reason", "half an event"],
)
async def test_an_answer_that_ends_early_is_an_error(parts: tuple[bytes, ...]) -> None:
    """API-03."""
    async with answering(*parts) as client:
        with pytest.raises(EngineUnavailable) as lost:
            await heard(client)
    assert lost.value.retry_after


async def test_a_choice_that_is_missing_is_an_error() -> None:
    async with answering(choice("a", "stop"), USAGE, DONE) as client:
        with pytest.raises(EngineUnavailable):
            await heard(client, Request("r", "m", QUESTION.messages, (), Sampling(n=2)))


@pytest.mark.parametrize("junk", [b"data: {nonsense\n\n", b"data: [1]\n\n", b'data: {"choices": 5}\n\n'])
async def test_junk_is_an_error(junk: bytes) -> None:
    async with answering(choice("a"), junk, DONE) as client:
        with pytest.raises(AnswerError):
            await heard(client)


async def test_silence_inside_an_answer() -> None:
    async with answering(choice("a"), silent=True) as client:
        begin = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            await heard(client)
        assert time.monotonic() - begin < 2


async def test_an_error_inside_the_stream() -> None:
    async with answering(
        choice("a"), chunk(error={"message": "/secret/path", "code": "engine_unavailable"}), DONE
    ) as client:
        with pytest.raises(EngineUnavailable) as failed:
            await heard(client)
    assert "secret" not in failed.value.message


OURS = "x-twinlens-engine: 1\r\n"


@pytest.mark.parametrize(
    ("status", "code", "headers", "kind"),
    [
        ("400 Bad Request", "invalid_json_schema", OURS, InvalidSchema),
        ("400 Bad Request", "no_such_code", OURS, InvalidRequest),
        ("400 Bad Request", "invalid_json_schema", "", InvalidRequest),
        ("422 Unprocessable", "x", "", InvalidRequest),
        ("429 Too Many", "x", "", EngineUnavailable),
        ("500 Error", "internal_error", OURS, ServerError),
        ("500 Error", "x", "", EngineUnavailable),
        ("503 Busy", "overloaded", OURS, EngineUnavailable),
        ("504 Slow", "deadline_exceeded", OURS, DeadlineExceeded),
        ("302 Moved", "x", "", EngineUnavailable),
    ],
)
async def test_refusals(status: str, code: str, headers: str, kind: type[TwinlensError]) -> None:
    body = json.dumps({"error": {"message": "0x7f /srv/engine", "type": "t", "param": "p", "code": code}}).encode()
    async with answering(body, status=status, headers=headers) as client:
        with pytest.raises(TwinlensError) as refused:
            await heard(client)
    assert type(refused.value) is kind
    if not headers:
        assert "0x7f" not in refused.value.message


async def test_our_engines_text_reaches_the_client_unchanged() -> None:
    error = InvalidSchema("The schema is odd.", param="response_format")
    async with answering(json.dumps(error.body()).encode(), status="400 Bad Request", headers=OURS) as client:
        with pytest.raises(InvalidSchema) as refused:
            await heard(client)
    assert refused.value.body() == error.body()


async def test_a_page_instead_of_json() -> None:
    async with answering(b"<html>proxy</html>", status="502 Bad Gateway") as client:
        with pytest.raises(EngineUnavailable):
            await heard(client)


@pytest.mark.parametrize("address", ["unix:/nowhere/engine.sock", "http://127.0.0.1:1"])
async def test_nobody_there(address: str) -> None:
    client = EngineClient(address, model="m", pool=1, idle_timeout_s=1)
    with pytest.raises(EngineUnavailable):
        await client.health()
    with pytest.raises(EngineUnavailable):
        await heard(client)
    await client.close()


async def test_an_engine_that_is_not_ours_gets_the_pixels_as_png(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = await read_question(reader)
        if not body:
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        else:
            seen.append(body)
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + choice("a", "stop") + DONE)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = EngineClient(address, model="m", pool=1, idle_timeout_s=1, store=tmp_path / "store")
    keys = ["0a" * 32, "0b" * 32]
    pixels = [np.full((56, 84, 3), value, np.uint8) for value in (10, 20)]
    store = Store(tmp_path / "store", 1 << 24)
    for key, array in zip(keys, pixels, strict=True):
        store.put(key, "pixels", array)
    health = await client.health()
    assert not health.abilities.references
    refs = (ImageRef("a", "data:image/png;base64,AAAA"), ImageRef("b", "BBBB"))
    request = Request("r", "m", (Message("user", (ImagePart(0), ImagePart(1))),), refs)
    images = [Image(key, key, (56, 84), (1, 4, 6), 6, hit=False) for key in keys]
    assert [piece async for piece in client.generate(request, images)]
    parts = json.loads(seen[0])["messages"][0]["content"]
    for part, array in zip(parts, pixels, strict=True):
        kind, _, data = part["image_url"]["url"].partition(",")
        assert kind == "data:image/png;base64"
        assert np.array_equal(np.asarray(Pillow.open(io.BytesIO(base64.b64decode(data)))), array)
    await client.close()
    server.close()


async def test_engine_that_fails_now_and_then() -> None:
    with running("fake", "--fail-every", "2", "--fail-status", "503") as engine:
        async with engine.asking() as asking:
            outcomes = await asyncio.gather(*(asking.ask("x") for _ in range(6)), return_exceptions=True)
    assert sum(isinstance(outcome, EngineUnavailable) for outcome in outcomes) == 3


async def test_engine_that_dies_inside_an_answer() -> None:
    with running("fake", "--die-after", "1") as engine:
        async with engine.asking() as asking:
            with pytest.raises(EngineUnavailable):
                await asking.ask("x")
            with pytest.raises(EngineUnavailable):
                await asking.ask("x")


async def test_engine_that_hangs() -> None:
    with running("fake", "--hang-after", "1") as engine:
        async with engine.asking(idle_timeout_s=0.3) as asking:
            with pytest.raises(DeadlineExceeded):
                await asking.ask("x")
            assert (await asking.health()).status == "ok"


async def test_connections_are_kept_and_bounded() -> None:
    """CONC-10: no connection is made for each request, and none is left over after those that failed."""
    with running("fake", "--fail-every", "5") as engine:
        async with engine.asking(pool=4) as asking:
            for _ in range(3):
                await asyncio.gather(*(asking.ask("x") for _ in range(40)), return_exceptions=True)
            session = asking.client._made
            assert session is not None
            assert len(session.connector._conns) <= 4  # type: ignore[union-attr]
            assert open_sockets() < 64


def open_sockets() -> int:
    return psutil.Process().num_fds()
