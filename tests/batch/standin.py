"""A service that does what a test tells it: the routes that a batch asks, and nothing behind them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VERSION = "standin-1"

Said = tuple[int, dict[str, Any], dict[str, str]]


def answer(result: Any = "hello", **more: Any) -> Said:
    """A task's result."""
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    body = {"object": "task.result", "version": VERSION, "finish_reason": "stop", "usage": usage, "result": result}
    return 200, body | more, {}


def refusal(status: int, code: str, **headers: str) -> Said:
    """An error as Twinlens writes it. Headers by their names with “_” for “-”."""
    body = {"error": {"code": code, "message": f"The stand-in says {code}."}}
    return status, body, {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass
class StandIn:
    """`answers` is called with the number of the request, from 1, and its body; None breaks the connection."""

    answers: Callable[[int, dict[str, Any]], Said | None] = lambda number, body: answer()
    url: str = ""
    delay_s: float = 0.0
    delay: Callable[[], float] | None = None
    ready: Callable[[], bool] = lambda: True
    weights: str = "weights-1"
    version: str = VERSION
    pages: dict[str, Any] = field(default_factory=dict)
    boxes: list[dict[str, str]] = field(default_factory=list)
    private: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0

    async def task(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/tasks/words."""
        body = await request.json()
        self.bodies.append(body)
        number = len(self.bodies)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(self.delay() if self.delay else self.delay_s)
            said = self.answers(number, body)
        finally:
            self.under_way -= 1
        if said is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        status, about, headers = said
        return web.json_response(about, status=status, headers=headers)

    def sent(self) -> list[bytes]:
        """The picture of every request, in the order in which they came."""
        images = [body["images"][0] for body in self.bodies]
        return [base64.b64decode(one if isinstance(one, str) else one["url"]) for one in images]

    async def readyz(self, _: web.Request) -> web.Response:
        """GET /readyz."""
        return web.Response(status=200 if self.ready() else 503)

    async def models(self, _: web.Request) -> web.Response:
        """GET /v1/models."""
        return web.json_response({"data": [{"id": "demo", "weights": self.weights}]})

    async def tasks(self, _: web.Request) -> web.Response:
        """GET /v1/tasks."""
        task: dict[str, Any] = {"id": "words", "version": self.version, "variables": {}, "columns": [], "paths": []}
        task |= {"pages": self.pages, "boxes": self.boxes, "private": self.private}
        return web.json_response({"data": [task]})


async def _end(runner: web.AppRunner) -> None:
    """Also those who still wait for an answer."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await runner.cleanup()


@contextlib.contextmanager
def standing_in(standin: StandIn) -> Iterator[StandIn]:
    """Serve on a free port, from a thread, until the end of the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> web.AppRunner:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/tasks/words", standin.task)
        app.router.add_get("/v1/tasks", standin.tasks)
        app.router.add_get("/v1/models", standin.models)
        app.router.add_get("/readyz", standin.readyz)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        standin.url = f"http://127.0.0.1:{port}"
        return runner

    try:
        runner = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
        try:
            yield standin
        finally:
            asyncio.run_coroutine_threadsafe(_end(runner), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
