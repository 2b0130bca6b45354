"""What the supervisor hands to its gateway workers, and the small files in the run folder by which they know of
each other.

    orders          standard input of a worker, once                       supervisor -> worker
    engine.json     how the engine is, about once a second, by rename      supervisor -> workers
    service.json    where the service listens and what it serves, by rename supervisor -> `twinlens ask` and people
    worker-N.beat   its time says that the worker's event loop turns       worker     -> supervisor
    desk.sock       where workers ask the desk that they share (see admission/)

A rename is atomic, so a reader sees the old file or the new one and never half of either.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from twinlens.settings import Settings  # noqa: TC001 - msgspec reads the annotation when it decodes

State = Literal["starting", "ready", "stalled", "restarting", "stopped"]
BEAT_INTERVAL_S = 1.0
FRESH_S = 15.0  # an engine.json older than this was left by a supervisor that no longer runs or does not come to run

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Where an engine is asked. The key travels with the address that it belongs to, so that no other gets it."""

    url: str = field(repr=False)  # "unix:/path" or "http://host:port"; may hold a user and a password
    key: str = field(default="", repr=False)  # sent as bearer; empty: none


@dataclass(frozen=True, slots=True)
class WorkerOrders:
    """Everything that one gateway worker needs to start. Holds secrets: it travels through a pipe only."""

    settings: Settings
    engine: EngineAddress
    model_folder: str  # where the processor's settings and the tokenizer are
    run_dir: str
    worker: int  # from 0; the desk has the number behind the last worker's
    listen_fd: int  # the listening socket, inherited
    data_dir: str = ""  # for what outlasts a restart; made by whoever first writes there
    local_only: bool = True  # whether the listening address is loopback
    own_key: str = ""  # digest of the key by which the service asks itself; empty: there is none


@dataclass(frozen=True, slots=True)
class EngineState:
    """How the engine is, as the supervisor last saw it. Only `ready` takes requests."""

    state: State
    since: float  # unix time of the last change of `state`
    restarts: int = 0
    pid: int = 0  # 0: no process of ours (attached), or none at the moment
    reason: str = ""  # one short sentence for people
    capacity: int = 0  # requests that it takes at once; 0: it does not say
    room: int = 0  # tokens that its KV cache holds; 0: it does not say
    waiting: int = 0  # requests that wait inside it
    checked_at: float = 0.0  # monotonic clock, which all processes of a host share

    @property
    def fresh(self) -> bool:
        """Whether somebody still keeps this up to date."""
        return time.monotonic() - self.checked_at < FRESH_S


@dataclass(frozen=True, slots=True)
class ServiceCard:
    """Where a running service is found and what it serves."""

    url: str  # http://host:port
    pid: int  # of the supervisor
    model: str  # served name
    engine: str  # address or kind; no secrets
    started: float  # unix time
    test_weights: bool = False  # the model says nothing sensible: its text is not shown


def orders_to_json(orders: WorkerOrders) -> bytes:
    """For the worker's standard input."""
    return msgspec.json.encode(orders)


def orders_from_json(data: bytes) -> WorkerOrders:
    """The reverse of `orders_to_json`."""
    return msgspec.json.decode(data, type=WorkerOrders)


def publish_engine(run_dir: Path, state: EngineState) -> None:
    """Replace engine.json."""
    _publish(run_dir / "engine.json", state)


def read_engine(run_dir: Path) -> EngineState:
    """What engine.json says; `stopped` where there is none or nobody keeps it up to date. A few microseconds."""
    found = _read(run_dir / "engine.json", EngineState)
    if found is None:
        return EngineState("stopped", 0.0, reason="The supervisor does not run.")
    if not found.fresh:
        return _stale(found)
    return found


def publish_card(run_dir: Path, card: ServiceCard) -> None:
    """Replace service.json."""
    _publish(run_dir / "service.json", card)


def read_card(run_dir: Path) -> ServiceCard | None:
    """The service of this run folder, if its supervisor still lives."""
    card = _read(run_dir / "service.json", ServiceCard)
    return card if card and Path(f"/proc/{card.pid}").exists() else None


def desk_socket(run_dir: Path) -> Path:
    """Where the desk of several workers listens."""
    return run_dir / "desk.sock"


def beat_file(run_dir: Path, worker: int) -> Path:
    """The file by which a worker shows that its event loop turns."""
    return run_dir / f"worker-{worker}.beat"


def beat(run_dir: Path, worker: int) -> None:
    """Called by a worker once it serves and then every BEAT_INTERVAL_S from its event loop."""
    path = beat_file(run_dir, worker)
    try:
        os.utime(path)
    except FileNotFoundError:
        path.touch(mode=0o600)


def _stale(found: EngineState) -> EngineState:
    return replace(found, state="stopped", reason="The supervisor no longer says how the engine is.")


def _publish(path: Path, value: EngineState | ServiceCard) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(msgspec.json.encode(value))
    fresh.replace(path)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
