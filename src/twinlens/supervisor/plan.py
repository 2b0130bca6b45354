"""The worked-out plan of a service: what the settings come to on this machine. Frozen, like the settings."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from twinlens.engines.registry import ENGINES
from twinlens.errors import ModelError, SettingsError
from twinlens.model import checkpoint, hub
from twinlens.orders import WorkerOrders, orders_to_json
from twinlens.settings import to_json
from twinlens.supervisor.children import Command

if TYPE_CHECKING:
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
    engine: str  # address: "unix:/path" or "http://host:port"
    attached: bool  # the engine is somebody else's

    @property
    def test_weights(self) -> bool:
        """Whether the model's text means nothing and is not to be shown."""
        return (self.model.folder / TEST_WEIGHTS).exists()


def work_out(settings: Settings, folder: RunFolder) -> Plan:
    """Find the model, which may download it, and check that the engine takes it. Raises ModelError, SettingsError."""
    kind = ENGINES.get(settings.engine)
    if kind is None:
        raise SettingsError(f"engine: “{settings.engine}” is not one of {', '.join(ENGINES)}.")
    attached = bool(settings.engine_url)
    path = hub.find(settings.model, settings)
    found = checkpoint.read(path, revision=settings.revision, served_name=_served_name(settings))
    if not attached and kind.form and found.form != kind.form:
        raise ModelError(
            f"The engine “{settings.engine}” takes a model in its {kind.form} form; {path} holds {found.form}.",
            cure=kind.cure,
        )
    return Plan(
        settings=replace(settings, served_name=found.name),
        model=found,
        engine=settings.engine_url if attached else f"unix:{folder.engine_socket}",
        attached=attached,
    )


def _served_name(settings: Settings) -> str:
    """The name that clients use; empty: the folder's own."""
    if settings.served_name or Path(settings.model).expanduser().is_dir():
        return settings.served_name
    return DEMO_NAME if settings.model == hub.DEMO else settings.model.rpartition("/")[2]


def engine_command(plan: Plan, folder: RunFolder) -> Command:
    """How the engine is started: settings on its standard input."""
    kind = ENGINES[plan.settings.engine]
    arguments = kind.arguments(plan.model.folder, folder.engine_socket, os.getpid())
    return Command(
        name="engine",
        argv=(sys.executable, *arguments, *plan.settings.engine_args),
        orders=to_json(plan.settings),
        piped=True,
    )


def worker_command(plan: Plan, folder: RunFolder, number: int, listen_fd: int) -> Command:
    """How a gateway worker is started: orders on its standard input, the listening socket inherited."""
    orders = WorkerOrders(
        settings=plan.settings,
        engine=plan.engine,
        model_folder=str(plan.model.folder),
        run_dir=str(folder.path),
        worker=number,
        listen_fd=listen_fd,
    )
    return Command(
        name=f"gateway {number}",
        argv=(sys.executable, "-m", "twinlens.gateway.worker", "--fd", str(listen_fd), "--parent", str(os.getpid())),
        orders=orders_to_json(orders),
        environment={
            "PROMETHEUS_MULTIPROC_DIR": str(folder.metrics),
            # Each worker has threads of its own for pictures; the tokenizer's would only compete with them.
            "TOKENIZERS_PARALLELISM": "false",
        },
        pass_fds=(listen_fd,),
    )
