"""A child process: started with its orders on standard input, in a session of its own, watched until its end.

A session of its own keeps Ctrl-C at a terminal away from the children: the supervisor alone decides their end. That
they end with the supervisor, whatever kills it, is their own part (parent.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twinlens.settings import child_environment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

LONGEST_LINE = 2000  # characters of one line of a child's output
LINES_A_SECOND = 200  # more are counted instead of shown
KEPT_LINES = 20


@dataclass(frozen=True, slots=True)
class Command:
    """How a child is started. `piped`: its output comes line by line, with its name in front; else it is ours."""

    name: str
    argv: tuple[str, ...]
    orders: bytes = field(repr=False)  # for its standard input
    environment: Mapping[str, str] = field(default_factory=dict)
    pass_fds: tuple[int, ...] = ()
    piped: bool = False


@dataclass(frozen=True, slots=True)
class Death:
    """How a child ended."""

    name: str
    pid: int
    returncode: int  # as subprocess gives it: negative for a signal
    lived_s: float

    @property
    def cause(self) -> str:
        """A bounded label: `signal 9` or `exit 1`."""
        return f"signal {-self.returncode}" if self.returncode < 0 else f"exit {self.returncode}"

    def __str__(self) -> str:
        sign = f" ({signal.Signals(-self.returncode).name})" if self.returncode < 0 else ""
        return f"{self.name} (process {self.pid}) ended by {self.cause}{sign} after {self.lived_s:.1f} s"


class Child:
    """A running child. Made by `start`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.pid = process.pid
        self.last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._process = process
        self._started = time.monotonic()
        self._pump = asyncio.create_task(self._pass_on()) if process.stdout else None

    @classmethod
    async def start(cls, command: Command) -> Child:
        """Start it and write its orders."""
        output = asyncio.subprocess.PIPE if command.piped else None
        process = await asyncio.create_subprocess_exec(
            *command.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT if command.piped else None,
            env=child_environment(command.environment),
            pass_fds=command.pass_fds,
            start_new_session=True,
        )
        child = cls(command.name, process)
        stdin = process.stdin
        assert stdin is not None  # noqa: S101 - asked for above
        try:
            with contextlib.suppress(ConnectionError):  # it died at once; `wait` tells
                stdin.write(command.orders)
                await stdin.drain()
        except asyncio.CancelledError:
            child.kill()
            raise
        stdin.close()
        return child

    @property
    def lived_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.returncode is None

    async def wait(self) -> Death:
        """Until the end, with all of its output passed on."""
        code = await self._process.wait()
        lived = self.lived_s
        if self._pump:
            # A grandchild may hold the pipe open longer than the child lives.
            await asyncio.wait([self._pump], timeout=1)
            self._pump.cancel()
        return Death(self.name, self.pid, code, lived)

    def terminate(self) -> None:
        """Ask it to end."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self) -> None:
        """End it and the children of its session at once; a stopped process too."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def stop(self, grace_s: float) -> None:
        """Ask it to end, and end it after `grace_s` seconds."""
        self.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            self.kill()
            await self._process.wait()

    async def _pass_on(self) -> None:
        output = self._process.stdout
        assert output is not None  # noqa: S101 - the caller looked
        budget = _Budget()
        async for line in _lines(output):
            self.last_lines.append(line)
            if budget.allows():
                _show(f"{self.name} | {line}")
        if budget.left_out:
            _show(f"{self.name} | ({budget.left_out} lines left out)")


class _Budget:
    """At most LINES_A_SECOND lines pass in each second."""

    def __init__(self) -> None:
        self.left_out = 0
        self._second = 0
        self._count = 0

    def allows(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._count = second, 0
        self._count += 1
        self.left_out += self._count > LINES_A_SECOND
        return self._count <= LINES_A_SECOND


async def _lines(output: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines without their ends, cut to LONGEST_LINE; a child that never ends its line cannot fill our memory."""
    rest = b""
    while chunk := await output.read(1 << 16):
        *whole, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            yield _text(line)
        if len(rest) > LONGEST_LINE:
            yield _text(rest)
            rest = b""
    if rest:
        yield _text(rest)


def _text(line: bytes) -> str:
    return line[:LONGEST_LINE].decode("utf-8", "replace")


def _show(line: str) -> None:
    with contextlib.suppress(OSError):  # whoever read our errors left; the child must not block for that
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
