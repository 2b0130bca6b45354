"""Engines that are not ours, over real HTTP: their habits, their faults, and that none of them passes for success."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from twinlens.core import Message, Request, Sampling, TextPart
from twinlens.engines import translate
from twinlens.engines.client import EngineClient
from twinlens.engines.wire import FOREIGN
from twinlens.errors import AnswerError, EngineUnavailable, InvalidRequest, TwinlensError
from twinlens.orders import EngineAddress

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from twinlens.core import Piece


class Foreign:
    """A server with OpenAI's routes. `chunks` are the events of every answer."""

    def __init__(self, *chunks: Any, health: int = 404, models: int = 200, key: str = "") -> None:
        self.chunks = chunks
        self.statuses = {"/health": health, "/v1/models": models}
        self.key = key
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.metrics: str | None = None

    async def route(self, request: web.Request) -> web.StreamResponse:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "no key"}}, status=401)
        self.paths.append(request.path)
        if request.path == "/metrics":
            return web.Response(status=404) if self.metrics is None else web.Response(text=self.metrics)
        if request.path in self.statuses:
            return web.Response(status=self.statuses[request.path], headers={"location": "/elsewhere"})
        self.asked.append(await request.json())
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for chunk in self.chunks:
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response


@asynccontextmanager
async def client(server: Foreign, key: str = "") -> AsyncIterator[EngineClient]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.route)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    found = EngineClient(EngineAddress(f"http://127.0.0.1:{port}", key), model="m", pool=2, idle_timeout_s=5)
    try:
        yield found
    finally:
        await found.close()
        await runner.cleanup()


def choice(index: int = 0, text: str = "", reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": {"content": text}, "finish_reason": reason}]}


def error(code: Any) -> dict[str, Any]:
    return {"error": {"message": "CUDA out of memory at /opt/hidden 0x7f00", "type": "x", "code": code}}


async def ask(server: Foreign, key: str = "", **fields: Any) -> list[Piece]:
    request = Request("r", "m", (Message("user", (TextPart("hello"),)),), (), **fields)
    async with client(server, key) as engine:
        return [piece async for piece in engine.generate(request, [])]


async def test_without_a_health_route_its_models_say_that_it_lives() -> None:
    async with client(Foreign(health=404, models=200)) as engine:
        assert (await engine.health()).abilities == FOREIGN


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (Foreign(health=404, models=404), "answers with status 404"),
        (Foreign(health=503), "answers with status 503"),
        (Foreign(health=302), "answers with status 302"),
        (Foreign(health=200, key="right"), "does not take the service's key"),
    ],
)
async def test_why_it_is_not_ready_is_said(server: Foreign, words: str) -> None:
    async with client(server) as engine:
        with pytest.raises(EngineUnavailable, match=words):
            await engine.health()


async def test_its_key_is_sent_as_bearer() -> None:
    server = Foreign(choice(text="hi"), choice(reason="stop"), health=200, key="right")
    async with client(server, "right") as engine:
        assert (await engine.health()).status == "ok"
    assert (await ask(server, "right"))[0].text == "hi"
    with pytest.raises(EngineUnavailable, match="does not take the service's key"):
        await ask(server, "wrong")


@pytest.mark.parametrize("reason", ["abort", "error"])
async def test_an_answer_that_the_engine_aborted_is_no_success(reason: str) -> None:
    with pytest.raises(EngineUnavailable, match="lost before the answer was complete"):
        await ask(Foreign(choice(text="half an ans"), choice(reason=reason)))


async def test_a_reason_that_is_not_known_is_no_success() -> None:
    with pytest.raises(AnswerError):
        await ask(Foreign(choice(reason="who knows")))


async def test_an_empty_reason_is_none() -> None:
    pieces = await ask(Foreign(choice(text="a", reason=""), choice(text="b", reason="stop")))
    assert [piece.finish_reason for piece in pieces] == [None, "stop", None]


async def test_a_choice_too_many_is_the_engines_fault_and_no_bug_of_ours() -> None:
    with pytest.raises(AnswerError, match="nobody asked for"):
        await ask(Foreign(choice(index=2, text="x")), sampling=Sampling(n=2))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, InvalidRequest),  # hopeless: no client is told to try again
        (500, EngineUnavailable),
        (429, EngineUnavailable),
        ("invalid_image", EngineUnavailable),  # a word of our tree, but not from one of ours
        (None, EngineUnavailable),
    ],
)
async def test_errors_inside_a_stream_keep_their_meaning_and_lose_their_text(
    code: Any, kind: type[TwinlensError]
) -> None:
    with pytest.raises(kind) as caught:
        await ask(Foreign(choice(text="x"), error(code)))
    assert type(caught.value) is kind
    assert "hidden" not in json.dumps(caught.value.body())
    assert (caught.value.retry_after is not None) == (kind is EngineUnavailable)


async def test_nothing_is_promised_that_is_not_passed_on() -> None:
    """Alternatives to a token are not carried, so they are refused instead of dropped."""
    assert FOREIGN.top_logprobs == 0
    assert translate.read_health(b"[]", "m").abilities == translate.read_health(b"{}", "m").abilities == FOREIGN


async def test_how_tools_may_be_called_reaches_the_engine() -> None:
    server = Foreign(choice(reason="stop"))
    await ask(server, tools=({"type": "function"},), tool_choice="auto", parallel_tool_calls=False)
    await ask(server)
    assert (server.asked[0]["tool_choice"], server.asked[0]["parallel_tool_calls"]) == ("auto", False)
    assert "parallel_tool_calls" not in server.asked[1]
