"""A whole service: port, run folder, engine and gateway workers, from the first start to the last stop.

    with opened(settings) as service:
        asyncio.run(service.run())

Stopping, in order: workers are told to drain (they finish what runs and refuse what comes), the port is given up,
the workers end or, after drain_timeout_s, are ended, then the engine. A second `stop` ends everything at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from twinlens.admission.addresses import Proxies
from twinlens.admission.keys import checked
from twinlens.orders import ServiceCard, publish_card
from twinlens.settings import run_dir, without_userinfo
from twinlens.supervisor.board import Board
from twinlens.supervisor.deaths import Deaths
from twinlens.supervisor.keepers import AttachedEngine, EngineKeeper, WorkerKeeper
from twinlens.supervisor.listen import listen, url_of
from twinlens.supervisor.plan import Plan, desk_command, engine_command, work_out, worker_command
from twinlens.supervisor.runfolder import RunFolder

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any

    from twinlens.orders import EngineState
    from twinlens.settings import Settings
    from twinlens.supervisor.probe import Probe

log = logging.getLogger(__name__)

WORKER_SLACK_S = 7.0  # for a worker to end after its own drain limit


class Service:
    """Made by `opened`; `run` once."""

    def __init__(self, plan: Plan, folder: RunFolder, listening: socket.socket) -> None:
        self.plan = plan
        self.url = url_of(listening)
        self.on_change: Callable[[EngineState], None] | None = None
        self._folder = folder
        self._listening = listening
        self.ready = asyncio.Event()  # engine and workers have come up
        self._probe: Probe | None = None
        self._stop = asyncio.Event()
        self._at_once = asyncio.Event()

    def stop(self) -> None:
        """Drain and end; called again: end at once. To be called from the loop that runs the service."""
        if self._stop.is_set():
            self._at_once.set()
        self._stop.set()

    async def run(self) -> None:
        """Until stopped. Raises OperatorError when a process says at its first start that it cannot work."""
        settings = self.plan.settings
        board = Board(self._folder.path, self._changed)
        deaths = Deaths(self._folder.metrics)
        engine = self._engine(board, deaths)
        workers = [self._worker(number, deaths) for number in range(settings.workers)]
        desks = [self._desk(deaths)] if settings.workers > 1 else []
        publish_card(self._folder.path, self._card())
        crew = _Crew()
        try:
            crew.add(board.keep_fresh())
            crew.add(self._killing(engine, *workers, *desks))
            aside = [crew.add(engine.run()), *(crew.add(desk.run()) for desk in desks)]
            worker_tasks = [crew.add(worker.run()) for worker in workers]
            crew.add(self._come_up(board, workers))
            await crew.until(self._stop)
            self._listening.close()
            await self._drained(workers, worker_tasks)
            for task in aside:
                task.cancel()
            await asyncio.gather(*aside, return_exceptions=True)
        finally:
            await crew.dismiss()
            if self._probe:
                await self._probe.close()
            deaths.close()

    async def _come_up(self, board: Board, workers: list[WorkerKeeper]) -> None:
        await board.ready.wait()
        for worker in workers:
            await worker.up.wait()
        self.ready.set()
        await self._stop.wait()

    async def _killing(self, *keepers: AttachedEngine | EngineKeeper | WorkerKeeper) -> None:
        """End every process as soon as somebody does not want to wait."""
        await self._at_once.wait()
        for keeper in keepers:
            keeper.kill()

    async def _drained(self, workers: list[WorkerKeeper], tasks: list[asyncio.Task[None]]) -> None:
        for worker in workers:
            worker.drain()
        _, late = await asyncio.wait(tasks, timeout=self.plan.settings.drain_timeout_s + WORKER_SLACK_S)
        if late:
            log.warning("%d gateway workers still work and are ended", len(late))
            for worker in workers:
                worker.kill()
            await asyncio.wait(late)

    def _made_probe(self) -> Probe:
        # Its libraries take a good part of a second to import: time in which the processes already start.
        from twinlens.supervisor.probe import probe_of  # noqa: PLC0415

        if self._probe is None:
            self._probe = probe_of(self.plan)
        return self._probe

    def _engine(self, board: Board, deaths: Deaths) -> EngineKeeper | AttachedEngine:
        settings = self.plan.settings
        if self.plan.attached:
            return AttachedEngine(self._made_probe, board, settings, without_userinfo(self.plan.engine.url))
        return EngineKeeper(engine_command(self.plan, self._folder), self._made_probe, board, deaths, settings)

    def _worker(self, number: int, deaths: Deaths) -> WorkerKeeper:
        command = worker_command(self.plan, self._folder, number, self._listening)
        return WorkerKeeper(number, command, self._folder.path, deaths)

    def _desk(self, deaths: Deaths) -> WorkerKeeper:
        command = desk_command(self.plan, self._folder)
        return WorkerKeeper(self.plan.settings.workers, command, self._folder.path, deaths, "desk")

    def _card(self) -> ServiceCard:
        plan = self.plan
        engine = without_userinfo(plan.engine.url) if plan.attached else plan.settings.engine
        return ServiceCard(self.url, os.getpid(), plan.model.name, engine, time.time(), plan.test_weights)

    def _changed(self, state: EngineState) -> None:
        log.info("engine: %s%s", state.state, f" ({state.reason})" if state.reason else "")
        if self.on_change:
            self.on_change(state)


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[Service]:
    """Bind the port, take the run folder and find the model; give all back at the end.

    Raises SettingsError, ModelError or OperatorError for what the operator has to mend.
    """
    # What is wrong is said here, where the operator looks, and not by each worker.
    Proxies(settings.trusted_proxies)
    if settings.redis_url:
        from twinlens.admission.shared import check  # noqa: PLC0415 - an extra that most do not need

        check(settings.redis_url)
    if settings.url_hosts:
        from twinlens.media.hosts import Hosts  # noqa: PLC0415 - its room brings decoders, which this process needs not

        Hosts(settings.url_hosts)
    if settings.redact:
        from twinlens.gateway.private import plan_of  # noqa: PLC0415 - it brings the tables of telephone numbers

        plan_of(settings)
    keys = checked(settings).configured
    with contextlib.closing(listen(settings, keys=keys)) as listening:
        settings = replace(settings, port=listening.getsockname()[1])
        with RunFolder(run_dir(settings)) as folder:
            plan = replace(work_out(settings, folder), keyed=keys, own_key=secrets.token_urlsafe(32))
            yield Service(plan, folder, listening)


class _Crew:
    """Tasks of which none may fail unseen."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def until(self, event: asyncio.Event) -> None:
        """Until the event is set; raises what a task raises before. No task ends by itself before that."""
        waiting = asyncio.create_task(event.wait())
        try:
            done, _ = await asyncio.wait([waiting, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            waiting.cancel()

    async def dismiss(self) -> None:
        """End them all, and wait for their ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
