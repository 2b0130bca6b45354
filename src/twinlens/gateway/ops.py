"""The operator's routes: liveness, readiness, metrics, models, documentation."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, Response

from twinlens.errors import ModelNotFound
from twinlens.gateway.front import exchange_of
from twinlens.gateway.http import header, send_json
from twinlens.gateway.openapi import document, page
from twinlens.gateway.wire import ModelBody, ModelList, Readiness, ReadinessDetails
from twinlens.observe import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from twinlens.admission.gate import Gate
    from twinlens.admission.keys import Ring
    from twinlens.gateway.engine_view import EngineView
    from twinlens.pipeline import Pipeline


MODEL = "/v1/models/{name}"
_HOST = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")  # a name or address, and a port


class Readyz:
    """GET /readyz: 200 only while real inferences are answered and new requests are taken."""

    def __init__(self, engine: EngineView, gate: Gate, ring: Ring) -> None:
        self._engine = engine
        self._gate = gate
        self._ring = ring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the engine's state; 503 with Retry-After when not ready."""
        state = self._engine.state()
        ready = state.state == "ready" and not self._gate.draining
        body = Readiness(ready=ready, engine=state.state, draining=self._gate.draining)
        if exchange_of(scope).operator:
            body.reason = state.reason
            body.details = self._details()
        await send_json(send, body, status=200 if ready else 503, headers={} if ready else {"retry-after": "5"})

    def _details(self) -> ReadinessDetails:
        state = self._gate.state
        return ReadinessDetails(
            running=state.running,
            waiting=state.waiting,
            places=state.places,
            wait_s=round(state.wait, 3),
            booked_tokens=state.booked,
            room_tokens=state.room,
            engine_breaker=state.engine,
            long_prompts="refused" if state.long_until > time.monotonic() else "taken",
            long_prompts_share=round(state.long_share, 4),
            shared_limits=state.shared,
            keys=self._ring.count,
            keys_file="broken: the last good keys are in force" if self._ring.trouble else "good",
        )


class Models:
    """GET /v1/models: the served model, and after it the tasks, which chat completions take as models too.

    GET /v1/models/{name}: one of them.
    """

    def __init__(self, names: Sequence[str], context: int, weights: str) -> None:
        made = int(time.time())
        self._list = ModelList(
            data=[ModelBody(id=name, created=made, max_model_len=context, weights=weights) for name in names]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer in OpenAI's form. Raises ModelNotFound."""
        name = scope["path_params"].get("name")
        if name is None:
            await send_json(send, self._list)
            return
        exchange_of(scope).route = MODEL
        found = next((model for model in self._list.data if model.id == name), None)
        if found is None:
            raise ModelNotFound(f"The model “{name[:100]}” is not served here.", param="model")
        await send_json(send, found)


class Metrics:
    """GET /metrics: Prometheus' text form, summed over all gateway processes when `folder` is given."""

    def __init__(self, pipeline: Pipeline, engine: EngineView, ring: Ring, folder: Path | None) -> None:
        self._gate = pipeline.gate
        self._loader = pipeline.loader
        self._ring = ring
        self._store = pipeline.store
        self._engine = engine
        self._folder = folder

    def collect(self) -> None:
        """Bring the gauges of this process up to date."""
        metrics.INSIDE.set(self._gate.inside)
        metrics.RUNNING.set(self._gate.running)
        metrics.WAITING.set(self._gate.waiting)
        metrics.LOADING.set(self._loader.waiting)
        desk = self._gate.state
        metrics.PLACES.set(desk.places)
        metrics.QUEUED.set(desk.waiting)
        metrics.QUEUE_WAIT.set(desk.wait)
        metrics.BOOKED.set(desk.booked)
        metrics.BREAKER.labels("engine").set(desk.engine != "closed")
        metrics.BREAKER.labels("long_prompts").set(desk.long_until > time.monotonic())
        metrics.LONG_SHARE.set(desk.long_share)
        metrics.SHARED_UP.set(desk.shared != "down")
        metrics.KEYS_TROUBLE.set(bool(self._ring.trouble))
        state = self._engine.state()
        metrics.ENGINE_READY.set(state.state == "ready")
        metrics.ENGINE_RESTARTS.set(state.restarts)

    def measure_store(self) -> None:
        """Bring the store's gauges up to date: walks a folder, so not on the event loop."""
        stats = self._store.stats()
        metrics.STORE_BYTES.set(stats.bytes)
        metrics.STORE_OBJECTS.set(stats.objects)
        metrics.STORE_EVICTIONS.set(stats.evictions)
        metrics.STORE_DAMAGED.set(stats.corrupt)

    def text(self) -> bytes:
        """The exposition."""
        self.measure_store()
        return metrics.exposition(self._folder)


async def livez(request: Request) -> Response:
    """GET /livez: the process runs and its event loop turns; says nothing of the engine."""
    return Response("ok\n", media_type="text/plain")


class Docs:
    """GET /docs: the routes for people; loads nothing from outside. Its example names this service and its model."""

    def __init__(self, model: str) -> None:
        self._model = model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the page, by the address that the client has for this service."""
        host = header(scope, b"host") or ""
        scheme = "https" if header(scope, b"x-forwarded-proto") == "https" else "http"
        base = f"{scheme}://{host if _HOST.fullmatch(host) else '127.0.0.1:8000'}"
        answer = HTMLResponse(page(base, self._model), headers={"cache-control": "no-store"})
        await answer(scope, receive, send)


class OpenApi:
    """GET /openapi.json."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the document."""
        await send_json(send, document())
