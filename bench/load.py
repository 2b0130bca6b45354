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

AT_ONCE = 16
PROMPT = "What is in this picture?"
NUMBERED = "Picture %016d: "
TOKENS = re.compile(rb'"completion_tokens": ?(\d+)')
STAMP = re.compile(rb'"content": ?"(\d+\.\d+)')  # of bench/stamping_engine.py


class Target(msgspec.Struct, frozen=True):
    """Where requests go, and what is in them."""

    name: str
    port: int
    pids: dict[str, list[int]]  # role, such as gateway or engine -> roots of its processes
    model: str
    pictures: list[str] = []  # paths of JPEGs, sent in turn; none: text only
    numbered: bool = False  # a text that counts stands before the picture, so that no prompt has a known beginning
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
    ignore_eos: bool = False  # every answer has max_tokens


class Round(msgspec.Struct):
    """What one target did in one round. Times in seconds."""

    target: str
    seconds: float
    latencies: list[float]
    forwards: list[float]  # of streams: from the stamp in the first piece to its arrival here
    tokens: int  # of the answers
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
    """Requests for one target; each call makes the next. What never changes is encoded once."""

    def __init__(self, target: Target, plan: Plan) -> None:
        self._same = target.same
        self._number = random.SystemRandom().getrandbits(52)  # another in every run: the store outlives them
        before, self._after = _around_picture(target, plan)
        self._before = before.split(b"0" * pictures.DIGITS) if target.numbered else [before]
        self._templates = [pictures.template(Path(file).read_bytes()) for file in target.pictures]
        headers = {
            "Host": "localhost",
            "Content-Type": "application/json",
            "Authorization": "Bearer bench",
        } | target.headers
        lines = ["POST /v1/chat/completions HTTP/1.1", *(f"{key}: {value}" for key, value in headers.items())]
        self._head = ("\r\n".join(lines) + "\r\nContent-Length: ").encode()

    def next(self) -> list[bytes]:
        """The parts of one request."""
        self._number += not self._same
        parts = [self._before[0]]
        for rest in self._before[1:]:
            parts += [b"%016d" % self._number, rest]
        if self._templates:
            picture = self._templates[self._number % len(self._templates)]
            parts += [picture.before, picture.changing(self._number), picture.after]
        parts.append(self._after)
        return [self._head, b"%d\r\n\r\n" % sum(map(len, parts)), *parts]


def _around_picture(target: Target, plan: Plan) -> tuple[bytes, bytes]:
    """The body up to the picture's URL and behind it."""
    text, image = {"type": "text", "text": PROMPT}, {"type": "image_url", "image_url": {"url": "@"}}
    content = ([{"type": "text", "text": NUMBERED % 0}] if target.numbered else []) + (
        [image] if target.pictures else []
    )
    body: dict[str, object] = {"model": target.model, "max_tokens": plan.max_tokens, "temperature": 0.0}
    body["messages"] = [{"role": "user", "content": [*content, text]}]
    if plan.ignore_eos:
        body["ignore_eos"] = True
    if target.stream:
        body["stream"] = True
    before, _, after = msgspec.json.encode(body).partition(b"@")
    return before, after


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
    result = Round(target.name, 0.0, [], [], 0, 0, {})
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
            if usage := TOKENS.search(link.body):
                result.tokens += int(usage[1])
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
