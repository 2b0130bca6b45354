"""The worked-out plan of a service: what the settings come to on this machine. Frozen, like the settings."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from twinlens.admission.keyfile import digest
from twinlens.engines.registry import ENGINES, NOT_STARTED_HERE
from twinlens.errors import ModelError, SettingsError
from twinlens.model import checkpoint, hub
from twinlens.orders import EngineAddress, WorkerOrders, orders_to_json
from twinlens.settings import data_dir, to_json
from twinlens.supervisor import address
from twinlens.supervisor.children import Command
from twinlens.supervisor.listen import is_loopback
from twinlens.tasks import shelf as tasks

if TYPE_CHECKING:
    import socket

    from twinlens.engines.registry import EngineKind
    from twinlens.model.checkpoint import Checkpoint
    from twinlens.settings import Settings
    from twinlens.supervisor.runfolder import RunFolder

DEMO_NAME = "twinlens-demo"
TEST_WEIGHTS = "TEST_WEIGHTS"  # a file in the folder of a model whose text means nothing


@dataclass(frozen=True, slots=True)
class Plan:
    """What is started. `settings` hold the port that was really bound and the name that is really served."""

    settings: Settings
    model: Checkpoint
    engine: EngineAddress
    attached: bool  # the engine is somebody else's
    keyed: bool = False  # clients need a key
    own_key: str = field(default="", repr=False)  # by which the service asks itself, for as long as it runs

    @property
    def test_weights(self) -> bool:
        """Whether the model's text means nothing and is not to be shown."""
        return (self.model.folder / TEST_WEIGHTS).exists()


def work_out(settings: Settings, folder: RunFolder) -> Plan:
    """Find the model, which may download it, and check that the engine takes it. Raises ModelError, SettingsError."""
    tasks.load(settings)  # said here, where the operator looks, and not by each worker
    attached = bool(settings.engine_url)
    kind = None if attached else _kind(settings.engine)
    engine = address.attached(settings) if attached else EngineAddress(f"unix:{folder.engine_socket}")
    path = hub.find(settings.model, settings)
    found = checkpoint.read(path, revision=settings.revision, served_name=_served_name(settings))
    if kind and kind.form and found.form != kind.form:
        raise ModelError(
            f"The engine “{settings.engine}” takes a model in its {kind.form} form; {path} holds {found.form}.",
            cure=kind.cure,
        )
    found.rule.of_service(settings)
    return Plan(settings=replace(settings, served_name=found.name), model=found, engine=engine, attached=attached)


def _kind(name: str) -> EngineKind:
    if name in NOT_STARTED_HERE:
        raise SettingsError(f"engine: this build cannot start “{name}” itself yet.", cure=NOT_STARTED_HERE[name])
    if name not in ENGINES:
        raise SettingsError(f"engine: “{name}” is not one of {', '.join(ENGINES)}.")
    return ENGINES[name]


def _served_name(settings: Settings) -> str:
    """The name that clients use; empty: the folder's own."""
    if settings.served_name or Path(settings.model).expanduser().is_dir():
        return settings.served_name
    return DEMO_NAME if settings.model == hub.DEMO else settings.model.rpartition("/")[2]


def engine_command(plan: Plan, folder: RunFolder) -> Command:
    """How the engine is started: settings on its standard input, without the secrets, which it has no use for."""
    kind = ENGINES[plan.settings.engine]
    arguments = kind.arguments(plan.model.folder, folder.engine_socket, os.getpid())
    return Command(
        name="engine",
        argv=(sys.executable, *arguments, *plan.settings.engine_args),
        orders=to_json(replace(plan.settings, api_keys=(), engine_url="", engine_api_key="")),
        piped=True,
    )


def desk_command(plan: Plan, folder: RunFolder) -> Command:
    """How the desk of several workers is started."""
    settings = replace(plan.settings, api_keys=(), engine_url="", engine_api_key="")
    orders = WorkerOrders(
        settings=settings,
        engine=EngineAddress(""),
        model_folder="",
        run_dir=str(folder.path),
        worker=settings.workers,
        listen_fd=-1,
        data_dir=str(data_dir().absolute()),
    )
    return Command(
        name="desk",
        argv=(sys.executable, "-m", "twinlens.admission.counter", "--parent", str(os.getpid())),
        orders=orders_to_json(orders),
    )


def worker_command(plan: Plan, folder: RunFolder, number: int, listening: socket.socket) -> Command:
    """How a gateway worker is started: orders on its standard input, the listening socket inherited."""
    listen_fd, local_only = listening.fileno(), is_loopback(listening.getsockname()[0])
    orders = WorkerOrders(
        settings=plan.settings,
        engine=plan.engine,
        model_folder=str(plan.model.folder),
        run_dir=str(folder.path),
        worker=number,
        listen_fd=listen_fd,
        data_dir=str(data_dir().absolute()),
        local_only=local_only,
        own_key=digest(plan.own_key) if plan.own_key else "",
    )
    return Command(
        name=f"gateway {number}",
        argv=(sys.executable, "-m", "twinlens.gateway.worker", "--fd", str(listen_fd), "--parent", str(os.getpid())),
        orders=orders_to_json(orders),
        environment={
            "PROMETHEUS_MULTIPROC_DIR": str(folder.metrics),
            # Each worker has threads of its own for pictures; the tokenizer's would only compete with them.
            "TOKENIZERS_PARALLELISM": "false",
            # glibc gives each thread a heap of its own, and pictures that several threads decode in turn leave holes in
            # all of them: a worker under mixed traffic grew for as long as it was watched. With two it stays flat.
            "MALLOC_ARENA_MAX": "2",
        },
        pass_fds=(listen_fd,),
    )
