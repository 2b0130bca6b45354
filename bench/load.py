"""The load generator: a process of its own, closed loop, every target in turn within one run.

    python -m bench.load < plan.json > result.json

Each of N workers sends its next request when the last one is answered. Rounds go over all targets in a new random
order, so that drift of a noisy machine meets all alike. The client is asyncio with httptools, lighter than any gateway.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import httptools
import msgspec
import uvloop

from bench import pictures
from bench.processes import cpu_seconds

STAMP = re.compile(rb'"content": ?"(\d+\.\d+)')  # of bench/stamping_engine.py


class Target(msgspec.Struct, frozen=True):
    """Where requests go, and what is in them."""

    name: str
    port: int
    pids: dict[str, list[int]]  # role, such as gateway or engine -> roots of its processes
    model: str
    picture: str = ""  # path of a JPEG; empty: text only
    same: bool = False  # always the same bytes: hits in the store
    stream: bool = False
    headers: dict[str, str] = {}


class Plan(msgspec.Struct, frozen=True):
    """What to do. `seconds` of each target in each round, after `warm_up` requests of each worker."""

    targets: list[Target]
    at_once: int
    rounds: int
    seconds: float
    warm_up: int = 3
    max_tokens: int = 16
    prompt: str = "What is in this picture?"


class Round(msgspec.Struct):
    """What one target did in one round. Times in seconds."""

    target: str
    seconds: float
    latencies: list[float]
    forwards: list[float]  # of streams: from the stamp in the first piece to its arrival here
    failures: int
    cpu: dict[str, float]  # role -> processor seconds
    first_failure: str = ""


class Connection(asyncio.Protocol):
    """One kept-alive connection with one request at a time."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._answer: asyncio.Future[bool] | None = None
        self._parser: Any = None
        self.body = b""
        self.forward = 0.0  # seconds from the stamp in the first piece of a stream to its arrival
        self.status = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("closed inside an answer"))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.body += body
        if not self.forward and (stamp := STAMP.search(self.body)):
            self.forward = time.monotonic() - float(stamp[1])

    def on_message_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if not self._parser.should_keep_alive():
            self._transport.close()
            self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(True)

    @property
    def open(self) -> bool:
        return self._transport is not None

    async def ask(self, parts: list[bytes]) -> None:
        """Send a request and wait for the whole answer."""
        self._parser = httptools.HttpResponseParser(self)
        self._answer = asyncio.get_running_loop().create_future()
        self.body, self.forward = b"", 0.0
        self._transport.writelines(parts)
        await self._answer


class Requests:
    """Requests for one target; each call makes the next."""

    def __init__(self, target: Target, plan: Plan) -> None:
        text = {"type": "text", "text": plan.prompt}
        image = {"type": "image_url", "image_url": {"url": "@"}}
        content = [image, text] if target.picture else [text]
        body = {"model": target.model, "max_tokens": plan.max_tokens, "temperature": 0.0}
        body |= {"messages": [{"role": "user", "content": content}]} | ({"stream": True} if target.stream else {})
        before, _, after = msgspec.json.encode(body).partition(b"@")
        self._same = target.same
        self._number = random.SystemRandom().getrandbits(62)  # another in every run: the store outlives them
        self._template = pictures.template(Path(target.picture).read_bytes()) if target.picture else None
        if self._template is not None:
            before, after = before + self._template.before, self._template.after + after
        self._before, self._after = before, after
        length = len(before) + len(after) + (len(self._template.changing(0)) if self._template else 0)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Length: {length}\r\n"
        headers = {"Content-Type": "application/json", "Authorization": "Bearer bench"} | target.headers
        self._head = (head + "".join(f"{key}: {value}\r\n" for key, value in headers.items()) + "\r\n").encode()

    def next(self) -> list[bytes]:
        """The parts of one request."""
        if self._template is None:
            return [self._head, self._before, self._after]
        self._number += not self._same
        return [self._head, self._before, self._template.changing(self._number), self._after]


async def run(plan: Plan) -> list[Round]:
    """All rounds."""
    sources = {target.name: Requests(target, plan) for target in plan.targets}
    links = {target.name: deque(Connection() for _ in range(plan.at_once)) for target in plan.targets}
    for target in plan.targets:
        await _measure(target, sources[target.name], links[target.name], plan, requests=plan.warm_up * plan.at_once)
    rounds = []
    for _ in range(plan.rounds):
        order = random.sample(plan.targets, len(plan.targets))
        rounds += [await _measure(target, sources[target.name], links[target.name], plan) for target in order]
    return rounds


async def _measure(
    target: Target, source: Requests, links: deque[Connection], plan: Plan, requests: int | None = None
) -> Round:
    result = Round(target.name, 0.0, [], [], 0, {})
    roots = target.pids | {"client": [os.getpid()]}
    before = {role: cpu_seconds(pids) for role, pids in roots.items()}
    began = time.monotonic()
    left = [requests if requests is not None else sys.maxsize]
    until = sys.maxsize if requests is not None else began + plan.seconds
    await asyncio.gather(*(_worker(target, source, links, result, left, until) for _ in range(plan.at_once)))
    result.seconds = time.monotonic() - began
    result.cpu = {role: cpu_seconds(pids) - before[role] for role, pids in roots.items()}
    return result


async def _worker(
    target: Target, source: Requests, links: deque[Connection], result: Round, left: list[int], until: float
) -> None:
    link = links.popleft()
    try:
        while left[0] > 0 and time.monotonic() < until:
            left[0] -= 1
            if not link.open:
                _, link = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", target.port)
            parts = source.next()
            began = time.monotonic()
            try:
                await link.ask(parts)
            except OSError as error:
                _fail(result, str(error))
                await asyncio.sleep(0.05)
                continue
            took = time.monotonic() - began
            if link.status != 200:
                _fail(result, f"{link.status} {link.body[:300].decode(errors='replace')}")
                continue
            result.latencies.append(took)
            if target.stream:
                result.forwards.append(link.forward)
    finally:
        links.append(link)


def _fail(result: Round, reason: str) -> None:
    result.failures += 1
    result.first_failure = result.first_failure or reason


def main() -> None:
    """Read the plan, do it, write the result."""
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(run(plan))))


if __name__ == "__main__":
    main()
