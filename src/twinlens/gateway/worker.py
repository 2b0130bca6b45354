"""One gateway process: `python -m twinlens.gateway.worker`, started by the supervisor, its orders on standard input.

SIGTERM drains: new requests get 503 with Retry-After while those inside finish; a second SIGTERM ends at once. The
listening socket stays open meanwhile, so that a refusal is an answer and not a broken connection.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import uvicorn
import uvloop

from twinlens.admission.addresses import Proxies
from twinlens.admission.clerk import Clerk
from twinlens.admission.desk import desk_of, follow, places_of
from twinlens.admission.gate import Gate
from twinlens.admission.keys import ring_of
from twinlens.admission.rules import Rules
from twinlens.engines.client import EngineClient
from twinlens.gateway.access import Access
from twinlens.gateway.app import Parts, build
from twinlens.gateway.engine_view import EngineView
from twinlens.gateway.private import CleanFormatter, plan_of
from twinlens.gateway.protocol import BoundedProtocol
from twinlens.media import Loader, memory
from twinlens.media.fetch import Fetcher
from twinlens.media.sources import Supplies
from twinlens.media.uploads import Uploads
from twinlens.model import checkpoint
from twinlens.orders import BEAT_INTERVAL_S, beat, desk_socket, orders_from_json
from twinlens.parent import die_with_parent
from twinlens.pipeline import Pipeline
from twinlens.settings import store_dir
from twinlens.store import Store

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from starlette.types import ASGIApp

    from twinlens.admission.desk import Asked, Desk
    from twinlens.admission.keys import Ring
    from twinlens.engines.wire import Health
    from twinlens.gateway.ops import Metrics
    from twinlens.orders import WorkerOrders

log = logging.getLogger("twinlens.gateway")

REREAD_S = 1.0
SWEEP_S = 60.0
GIVE_BACK_S = 20.0


class Worker:
    """The parts of one gateway process."""

    def __init__(self, orders: WorkerOrders) -> None:
        settings, run = orders.settings, Path(orders.run_dir)
        self.orders = orders
        self.found = checkpoint.read(
            Path(orders.model_folder), revision=settings.revision, served_name=settings.served_name
        )
        self.store = Store(store_dir(settings), settings.store_bytes)
        self.uploads = Uploads(Path(orders.data_dir), settings)
        self.loader = Loader(
            self.found.rule,
            self.store,
            settings,
            salt=self.found.weights_id,
            supplies=Supplies(Fetcher(settings), self.uploads),
        )
        self.client = EngineClient(
            orders.engine,
            model=self.found.name,
            pool=1024,
            idle_timeout_s=settings.idle_timeout_s,
            store=store_dir(settings),
        )
        # One process keeps rates, queue and breakers in itself; several share a desk.
        self.clerk = Clerk(desk_socket(run), orders.worker, Rules(settings)) if settings.workers > 1 else None
        self.desk = None if self.clerk else desk_of(settings, Path(orders.data_dir))
        asked: Asked = self.clerk or cast("Desk", self.desk)
        self.gate = Gate(asked, max_queue=settings.max_queue, timeout_s=settings.request_timeout_s)
        self.engine = EngineView(run, self.client, self.learn)
        self.ring = ring_of(settings, Path(orders.data_dir), orders.own_key)

    def learn(self, health: Health) -> None:
        """Take the number of places from the engine at once; a desk of several looks for itself."""
        if self.desk:
            self.desk.learn(places_of(self.orders.settings, health.capacity), health.room)

    def follow(self) -> Coroutine[Any, Any, None]:
        """What keeps the desk up to date, or the way to it."""
        if self.clerk:
            return self.clerk.run()
        return follow(cast("Desk", self.desk), Path(self.orders.run_dir), self.orders.settings)

    def app(self) -> tuple[ASGIApp, Metrics]:
        """The ASGI application over these parts."""
        settings = self.orders.settings
        pipeline = Pipeline(
            gate=self.gate,
            loader=self.loader,
            store=self.store,
            words=self.found.words(),
            engine=self.client,
            context=self.found.context,
            default_max_tokens=settings.default_max_tokens,
            units=self.found.box_units,
        )
        folder = Path(self.orders.run_dir) / "metrics"
        return build(
            Parts(
                settings=settings,
                ring=self.ring,
                access=Access(
                    self.ring,
                    Proxies(settings.trusted_proxies),
                    names=(settings.host, *settings.allowed_hosts),
                    local_only=self.orders.local_only,
                ),
                model=self.found,
                engine=self.engine,
                pipeline=pipeline,
                uploads=self.uploads,
                metrics_dir=folder if folder.is_dir() else None,
                data_dir=Path(self.orders.data_dir),
            )
        )

    async def close(self) -> None:
        """Give everything back."""
        if self.desk and self.desk.shared:
            await self.desk.shared.close()
        await self.client.close()
        await self.loader.aclose()


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: ours answers while it drains."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


async def serve(orders: WorkerOrders) -> None:
    """Serve until drained."""
    worker = Worker(orders)
    app, gauges = worker.app()
    config = uvicorn.Config(
        app,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # who is believed is ours to say: gateway/access.py
        date_header=True,
        timeout_keep_alive=75,
        # Slack for the few exchanges that are neither at the gate nor over, such as a metrics scrape.
        timeout_graceful_shutdown=5,
        http=BoundedProtocol,
        ws="none",
    )
    server = _Server(config)
    _on_signals(worker.gate, server, orders.settings.drain_timeout_s)
    listener = socket.socket(fileno=orders.listen_fd)
    life = asyncio.ensure_future(_show_life(orders, gauges))
    aside = [
        life,
        asyncio.ensure_future(_follow(worker.ring)),
        asyncio.ensure_future(worker.follow()),
        asyncio.ensure_future(_sweep(worker.uploads)),
        asyncio.ensure_future(_give_back()),
    ]
    try:
        await server.serve(sockets=[listener])
    finally:
        for task in aside:
            task.cancel()
        await asyncio.gather(*aside, return_exceptions=True)
        await worker.close()


def _on_signals(gate: Gate, server: uvicorn.Server, drain_timeout_s: float) -> None:
    loop = asyncio.get_running_loop()
    draining: list[asyncio.Task[None]] = []

    async def drain() -> None:
        gate.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_timeout_s):
                await gate.drained()
        server.should_exit = True

    def stop() -> None:
        if draining:
            server.should_exit = server.force_exit = True
        else:
            draining.append(loop.create_task(drain()))

    loop.add_signal_handler(signal.SIGTERM, stop)
    # Ctrl-C reaches the whole group of processes; the supervisor turns it into SIGTERM where it should.
    loop.add_signal_handler(signal.SIGINT, lambda: None)


async def _follow(ring: Ring) -> None:
    """Take changes of the keys file, off the way of requests."""
    while True:
        await asyncio.sleep(REREAD_S)
        await asyncio.to_thread(ring.reread)


async def _sweep(uploads: Uploads) -> None:
    """Remove files that have expired, and at the start what a killed process left."""
    while True:
        await asyncio.to_thread(uploads.sweep)
        await asyncio.sleep(SWEEP_S)


async def _give_back() -> None:
    """Keep no memory of pictures that are long gone."""
    while True:
        await asyncio.sleep(GIVE_BACK_S)
        await asyncio.to_thread(memory.give_back)


async def _show_life(orders: WorkerOrders, gauges: Metrics) -> None:
    while True:
        beat(Path(orders.run_dir), orders.worker)
        gauges.collect()
        await asyncio.sleep(BEAT_INTERVAL_S)


def main() -> int:
    """Read the orders and serve."""
    parser = argparse.ArgumentParser(prog="python -m twinlens.gateway.worker", description="One gateway process.")
    parser.add_argument("--parent", type=int, required=True, help="end when this process, which started us, ends")
    parser.add_argument("--fd", type=int, required=True, help="the inherited listening socket")
    die_with_parent(parser.parse_args().parent)
    orders = orders_from_json(sys.stdin.buffer.read())
    form = f"%(asctime)s %(levelname)s gateway[{orders.worker}] %(message)s"
    logging.basicConfig(level=orders.settings.log_level.upper(), format=form, stream=sys.stderr)
    if hidden := plan_of(orders.settings):
        logging.root.handlers[0].setFormatter(CleanFormatter(form, hidden))
    os.umask(0o077)
    uvloop.run(serve(orders))
    return 0


if __name__ == "__main__":
    sys.exit(main())
