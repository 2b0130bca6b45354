"""An engine that is not ours, as far as the gateway can see: OpenAI's routes; what it was sent is kept."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from aiohttp import web
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Iterator


class Recorder:
    """`asked`: the bodies of all requests that hold a picture or text of a test; `metrics`: what /metrics says."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[dict[str, Any]] = []
        self.metrics: str | None = None
        self.name = ""  # of its model, if it knows only one
        self.hold = threading.Event()  # set: answers come
        self.hold.set()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def pictures(self, at: int = -1) -> list[np.ndarray[Any, Any]]:
        """The pixels of the pictures of a request, as the engine would decode them."""
        found = []
        for turn in self.asked[at]["messages"]:
            for part in turn["content"] if isinstance(turn["content"], list) else ():
                if part["type"] == "image_url":
                    data = base64.b64decode(part["image_url"]["url"].partition(",")[2])
                    found.append(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
        return found

    async def route(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        if request.path == "/metrics":
            return web.Response(text=self.metrics) if self.metrics is not None else web.Response(status=404)
        if request.path == "/v1/models" and self.name:
            return web.json_response({"object": "list", "data": [{"id": self.name, "object": "model"}]})
        if request.method == "GET":
            return web.Response()
        body = await request.json()
        if self.name and body["model"] != self.name:
            message = f"The model `{body['model']}` does not exist."
            return web.json_response({"error": {"message": message, "code": 404}}, status=404)
        if "Colour?" not in json.dumps(body):  # the service's own trial question
            self.asked.append(body)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        while not self.hold.is_set():
            await asyncio.sleep(0.02)
        usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
        text = "{}" if body.get("response_format") else "seen"
        choices = [
            {"index": index, "delta": {"content": text}, "finish_reason": "stop"} for index in range(body.get("n") or 1)
        ]
        chunk = {"choices": choices, "usage": usage}
        await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n")
        return response


@contextlib.contextmanager
def recording() -> Iterator[Recorder]:
    """Serve in a loop of its own, in a thread."""
    made = Recorder()
    loop = asyncio.new_event_loop()

    async def start() -> web.AppRunner:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", made.route)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        made.port = int(runner.addresses[0][1])
        return runner

    runner = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield made
    finally:
        made.hold.set()
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
