"""Processes under measurement: started, waited for, ended; what they use."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench.venvs import CACHE, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LOGS = CACHE / "bench-logs"
LARGE = 64 << 20  # bytes


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def started(
    name: str, command: Sequence[str | os.PathLike[str]], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command with its output in a log file; on exit end it and all its children."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    children = tree(process.pid)[1:]
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def tree(pid: int) -> list[psutil.Process]:
    """The process and all its children."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def wait_ready(process: subprocess.Popen[bytes], port: int, path: str, seconds: float = 120) -> float:
    """Seconds until GET `path` gives 200, asked every few milliseconds. RuntimeError if the process ends or never."""
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        if process.poll() is not None:
            raise RuntimeError(f"a process under measurement ended with {process.returncode}; see {LOGS}")
        if status(port, path) == 200:
            return time.perf_counter() - began
        time.sleep(0.005)
    raise RuntimeError(f"a process under measurement did not become ready within {seconds:g} s; see {LOGS}")


def status(port: int, path: str) -> int:
    """HTTP status of a GET, 0 when nobody answers."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
            link.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            return int(link.recv(64).split(b" ")[1])
    except (OSError, IndexError, ValueError):
        return 0


@dataclass(frozen=True, slots=True)
class Memory:
    """Proportional set size of one process in bytes: shared pages are divided among those who share them."""

    name: str
    own: int  # all but the two below
    store: int  # mapped objects of the store
    kv_cache: int  # what is in use of reservations of LARGE and more: how the embedded engine keeps its KV cache


def memory(pid: int, store: Path) -> list[Memory]:
    """Of a process and its children, the parent first."""
    found = []
    for process in tree(pid):
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
            found.append(_memory(process, store))
    return found


def _memory(process: psutil.Process, store: Path) -> Memory:
    sums = {"own": 0, "store": 0, "kv_cache": 0}
    with Path(f"/proc/{process.pid}/smaps").open() as lines:
        words: list[str] = []
        size = 0
        for line in lines:
            name, *values = line.split()
            if "-" in name and not name.endswith(":"):
                words = values
            elif name == "Size:":
                size = int(values[0]) * 1024
            elif name == "Pss:":
                sums[_kind(" ".join(words[4:]), size, store)] += int(values[0]) * 1024
    return Memory(_name(process.cmdline()), **sums)


def _kind(path: str, size: int, store: Path) -> str:
    if str(store) in path:
        return "store"
    return "kv_cache" if path == "" and size >= LARGE else "own"


def _name(command: list[str]) -> str:
    if "-m" in command:
        return command[command.index("-m") + 1]
    return " ".join(Path(word).name for word in command[1:3]) or command[0]


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time of some processes and all their children until now."""
    total = 0.0
    for pid in pids:
        for process in tree(pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
    return total
