"""Puts the routes together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Route, Router

from twinlens.errors import NotFound
from twinlens.gateway.chat import Asking, Chat, Inference
from twinlens.gateway.files import CONTENT, FILE, FILES, ContentRoute, FileRoute, FilesRoute, filing
from twinlens.gateway.front import Front
from twinlens.gateway.http import Intake
from twinlens.gateway.ops import Docs, Metrics, Models, OpenApi, Readyz, livez
from twinlens.gateway.parse import Parser
from twinlens.gateway.private import Private
from twinlens.gateway.responses import Responses
from twinlens.gateway.tasks import TaskCatalogue, TaskRoute, Tasks, UnknownTask
from twinlens.observe.audit import Audit
from twinlens.tasks.shelf import PREFIX, load

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from twinlens.admission.keys import Ring
    from twinlens.gateway.access import Access
    from twinlens.gateway.engine_view import EngineView
    from twinlens.media.uploads import Uploads
    from twinlens.model.checkpoint import Checkpoint
    from twinlens.pipeline import Pipeline
    from twinlens.settings import Settings


# Bodies of the largest size that may arrive at once in one gateway process.
BODIES_TOGETHER = 8
# Headers that a page of another origin may read.
EXPOSED = ["x-request-id", "x-twinlens-ignored", "retry-after"] + [
    f"x-ratelimit-{part}-{what}" for part in ("limit", "remaining", "reset") for what in ("requests", "tokens")
]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the routes are made of.

    `metrics_dir`: where all gateway processes keep their numbers. `data_dir`: for what outlasts a restart.
    """

    settings: Settings
    ring: Ring
    access: Access
    model: Checkpoint
    engine: EngineView
    pipeline: Pipeline
    uploads: Uploads
    metrics_dir: Path | None
    data_dir: Path


def build(parts: Parts) -> tuple[ASGIApp, Metrics]:
    """The ASGI application of one gateway process, and its gauges, which the worker keeps up to date."""
    settings, engine, pipeline = parts.settings, parts.engine, parts.pipeline
    parser = Parser(settings, parts.model.name)
    intake = Intake(
        limit=settings.max_body_bytes,
        together=settings.max_body_bytes * BODIES_TOGETHER,
        timeout_s=settings.request_timeout_s,
    )
    audit = Audit(parts.data_dir / "audit", settings.audit_bytes) if settings.audit else None
    shelf = load(settings)
    tasks = Tasks(shelf, parts.model.weights_id, audit, settings.audit_content)
    asking = Asking(parser, tasks, Private(settings), engine, pipeline, intake, settings.request_timeout_s)
    files = filing(parts.uploads, settings.cors_origins, settings.request_timeout_s, settings.files_life_s)
    catalogue = TaskCatalogue(shelf, private=bool(settings.redact), page_text=settings.page_text)
    gauges = Metrics(pipeline, engine, parts.ring, parts.metrics_dir)

    async def metrics(request: Request) -> Response:
        gauges.collect()
        return Response(await asyncio.to_thread(gauges.text), media_type="text/plain; version=0.0.4; charset=utf-8")

    names = [parts.model.name, *(f"{PREFIX}{name}" for name in shelf.tasks)]
    models = Models(names, parts.model.context, parts.model.weights_id)
    routes = [
        Route("/v1/chat/completions", Chat(asking), methods=["POST"]),
        Route("/v1/responses", Responses(asking), methods=["POST"]),
        Route("/v1/inference", Inference(asking), methods=["POST"]),
        # A route for each task, so that logs and metrics name them and nothing else.
        *(Route(f"/v1/tasks/{name}", TaskRoute(asking, name), methods=["POST"]) for name in shelf.tasks),
        Route("/v1/tasks/{name}", UnknownTask(shelf), methods=["POST"]),
        Route("/v1/tasks", catalogue, methods=["GET"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{name:path}", models, methods=["GET"]),
        Route(FILES, FilesRoute(files), methods=["GET", "POST"]),
        Route(FILE, FileRoute(files), methods=["GET", "DELETE"]),
        Route(CONTENT, ContentRoute(files), methods=["GET"]),
        Route("/livez", livez, methods=["GET"]),
        Route("/readyz", Readyz(engine, pipeline.gate, parts.ring), methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
        Route("/docs", Docs(parts.model.name), methods=["GET"]),
        Route("/openapi.json", OpenApi(), methods=["GET"]),
    ]
    router = Router(routes, redirect_slashes=False, default=_nothing_here)
    app: ASGIApp = Front(router, parts.access, routes=[route.path for route in routes])
    if settings.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],  # clients name what they like there (x-stainless-...); only listed origins are let in
            expose_headers=EXPOSED,
        )
    return app, gauges


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound("There is no such route.")
