"""Mixed traffic for minutes: good, bad, huge, and hang-ups; then memory, descriptors and store have to be flat.

    python -m tests.proof.soak [--minutes 10] [--workers 2] [--at-once 8] [--engine openvino]

What it fails for: a 5xx that was the client's fault, an answer that the kind of request does not allow, processes
that grow, a store above its bound, anything left over when all is quiet. Ends by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from tests.media import pdfs
from tests.media.pictures import png, uri
from tests.proof.client import Told, ask, chat, form, request
from tests.serving.harness import data_uri, image_part, picture, serving, until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tests.serving.harness import Service

STORE = 48 << 20
FLAGS = ("--store-bytes", str(STORE), "--max-queue", "64", "--files-per-owner", "40")
ENGINES = {"fake": ("--engine-args=--piece-delay-s=0.005,--pieces=20",), "openvino": ("--engine", "openvino")}
EVERY_S = 5.0
PATIENCE_S = 330.0  # longer than the service's own deadline: it is the one to say that an answer takes too long


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request: how often, how it is made, and which answers are right. 0: none, because we leave."""

    weight: int
    made: Callable[[random.Random], bytes]
    right: frozenset[int]
    leaves: bool = False


def _cut(rng: random.Random) -> dict[str, Any]:
    uri = data_uri(rng.getrandbits(30), (320, 240))
    return {"type": "image_url", "image_url": {"url": uri[: len(uri) * 2 // 3 // 4 * 4 + 2]}}


def _document(rng: random.Random) -> bytes:
    """Three pages unlike those of any other document."""
    return pdfs.document([pdfs.words(f"Page {rng.random()}") for _ in range(3)])


def _picture(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": uri(data)}}


def _file(data: bytes) -> dict[str, Any]:
    return {"type": "file", "file": {"file_data": uri(data, "application/pdf")}}


BUSY = {429, 503}  # with Retry-After
KINDS: dict[str, Kind] = {
    "text": Kind(10, lambda r: request(chat(f"hello {r.random()}")), frozenset({200} | BUSY)),
    "picture": Kind(
        10, lambda r: request(chat("see", image_part(r.getrandbits(30), (400, 300)))), frozenset({200} | BUSY)
    ),
    "same picture": Kind(5, lambda r: request(chat("see", image_part(7, (400, 300)))), frozenset({200} | BUSY)),
    "stream": Kind(
        6, lambda r: request(chat("go", image_part(r.getrandbits(30)), stream=True)), frozenset({200} | BUSY)
    ),
    "huge picture": Kind(
        1, lambda r: request(chat("see", image_part(r.getrandbits(30), (5000, 3500)))), frozenset({200, 400} | BUSY)
    ),
    "cut picture": Kind(5, lambda r: request(chat("see", _cut(r))), frozenset({400} | BUSY)),
    "bomb": Kind(2, lambda r: request(chat("x", _picture(png(60000, 60000, b"")))), frozenset({400} | BUSY)),
    "line": Kind(2, lambda r: request(chat("x", _picture(png(1, 999, b"\0\0" * 999)))), frozenset({400} | BUSY)),
    "document": Kind(3, lambda r: request(chat("read", _file(_document(r)))), frozenset({200} | BUSY)),
    "cut document": Kind(2, lambda r: request(chat("read", _file(_document(r)[:200]))), frozenset({400} | BUSY)),
    "upload": Kind(3, lambda r: form(picture(r.getrandbits(30))), frozenset({200, 400})),  # 400: forty are kept
    "no upload": Kind(2, lambda r: form(b"text, no picture"), frozenset({400})),
    "no JSON": Kind(3, lambda r: request(b'{"model": "demo", "messages": [' + r.randbytes(200)), frozenset({400})),
    "no such model": Kind(2, lambda r: request(chat("x").replace(b"demo", b"other")), frozenset({404} | BUSY)),
    "no such route": Kind(2, lambda r: request(b"{}", path=f"/v2/{r.random()}"), frozenset({404})),
    "over the context": Kind(1, lambda r: request(chat("word " * 60_000)), frozenset({400, 429, 503})),
    "too many stops": Kind(2, lambda r: request(chat("x", stop=["a"] * 5000)), frozenset({400})),
    "too large": Kind(2, lambda r: request(b"x" * 100_000, length=1 << 40), frozenset({413})),
    "compressed": Kind(1, lambda r: request(b"x", headers={"Content-Encoding": "gzip"}), frozenset({415})),
    "nonsense": Kind(2, lambda r: r.randbytes(300) + b"\r\n\r\n", frozenset({400, 0})),
    "leaves in the body": Kind(3, lambda r: request(b"{" + b" " * 50_000, length=5 << 20), frozenset({0}), leaves=True),
    "leaves an upload": Kind(2, lambda r: form(picture(1))[:-900], frozenset({0, 400}), leaves=True),
    "leaves a document": Kind(
        2, lambda r: request(chat("read", _file(_document(r)))), frozenset({0, 200} | BUSY), leaves=True
    ),
    "leaves while waiting": Kind(
        4,
        lambda r: request(chat("see", image_part(r.getrandbits(30), (900, 700)))),
        frozenset({0, 200} | BUSY),
        leaves=True,
    ),
    "leaves a stream": Kind(4, lambda r: request(chat("go", stream=True)), frozenset({0, 200} | BUSY), leaves=True),
}


@dataclass(frozen=True, slots=True)
class Sample:
    """The service at a moment."""

    seconds: float
    rss: int  # of all its processes, in bytes, without pages of files (the store, libraries), which they share
    descriptors: int
    store: int


def sample(service: Service, began: float) -> Sample:
    """Look at all processes and the store. What ends meanwhile counts nothing."""
    root = psutil.Process(service.process.pid)
    rss = descriptors = stored = 0
    for one in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            memory = one.memory_info()
            rss += memory.rss - memory.shared
            descriptors += one.num_fds()
    for path in (service.folder / "store").rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if "leases" not in path.parts and path.is_file():
                stored += path.stat().st_size
    return Sample(time.monotonic() - began, rss, descriptors, stored)


async def traffic(
    service: Service, seconds: float, at_once: int, samples: list[Sample], seed: int, only: Collection[str]
) -> list[str]:
    """Send, and look; gives what was wrong."""
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    began = time.monotonic()
    names = [name for name in KINDS if not only or name in only]
    weights = [KINDS[name].weight for name in names]

    async def one(number: int) -> None:
        rng = random.Random(seed + number)
        while time.monotonic() - began < seconds:
            name = rng.choices(names, weights)[0]
            kind = KINDS[name]
            data = await asyncio.to_thread(kind.made, rng)
            leave = rng.uniform(0.01, 0.2) if kind.leaves else None
            told = await ask(service.port, data, leave_after=leave, limit_s=PATIENCE_S)
            counts[f"{name}: {told.status}"] += 1
            wrong.extend(_wrong(name, kind, told))

    async def look() -> None:
        while True:
            samples.append(await asyncio.to_thread(sample, service, began))
            await asyncio.sleep(EVERY_S)

    looking = asyncio.create_task(look())
    await asyncio.gather(*(one(number) for number in range(at_once)))
    looking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await looking  # raises what ended it before its time
    for name, count in sorted(counts.items()):
        sys.stdout.write(f"  {name:28} {count}\n")
    return wrong


def _wrong(name: str, kind: Kind, told: Told) -> list[str]:
    if told.status not in kind.right:
        return [f"{name}: {told.status} {told.body[:200]!r}"]
    if told.status in BUSY and not told.retry_after:
        return [f"{name}: {told.status} without Retry-After"]
    if name == "stream" and told.status == 200 and b"[DONE]" not in told.body:
        return [f"{name}: no end"]
    return []


def grown(samples: list[Sample]) -> list[str]:
    """What is not flat: the last quarter against the second, in which all is warm."""
    quarter = max(1, len(samples) // 4)
    warm, last = samples[quarter : 2 * quarter] or samples[:1], samples[-quarter:]
    found = []
    rss = [statistics.median(one.rss for one in part) for part in (warm, last)]
    if rss[1] > rss[0] * 1.05 + (16 << 20):
        found.append(f"memory grew from {rss[0] / 2**20:.0f} to {rss[1] / 2**20:.0f} MiB")
    descriptors = [statistics.median(one.descriptors for one in part) for part in (warm, last)]
    if descriptors[1] > descriptors[0] + 32:
        found.append(f"descriptors grew from {descriptors[0]:.0f} to {descriptors[1]:.0f}")
    if max(one.store for one in samples) > STORE * 1.1:
        found.append(f"the store had {max(one.store for one in samples)} bytes, bound {STORE}")
    return found


def run(
    seconds: float, workers: int, at_once: int, seed: int = 0, only: Collection[str] = (), engine: str = "fake"
) -> list[str]:
    """Everything; gives what was wrong."""
    samples: list[Sample] = []
    with serving("--workers", str(workers), *FLAGS, *ENGINES[engine]) as service:
        wrong = asyncio.run(traffic(service, seconds, at_once, samples, seed, only))
        until(lambda: service.metric("twinlens_requests_inside") == 0, 20)
        until(lambda: service.http.get("/readyz").json()["details"]["running"] == 0, 5)
        until(lambda: not service.leases(), 5)
        log = service.log()
        wrong += [line for line in log.splitlines() if "unexpected" in line or "Traceback" in line][:5]
        quiet = sample(service, time.monotonic() - seconds)
    for one in [*samples[:: max(1, len(samples) // 12)], quiet]:
        sys.stdout.write(
            f"  {one.seconds:6.0f} s  {one.rss / 2**20:7.1f} MiB  {one.descriptors:5} descriptors  "
            f"{one.store / 2**20:6.1f} MiB in the store\n"
        )
    return wrong + grown(samples)


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--only", metavar="KIND,KIND", default="", help="not all kinds of requests")
    parser.add_argument("--engine", choices=ENGINES, default="fake", help="openvino: with the demo model")
    parser.add_argument("--seed", type=int, default=time.time_ns())
    args = parser.parse_args()
    only = [name for name in args.only.split(",") if name]
    wrong = run(args.minutes * 60, args.workers, args.at_once, args.seed, only, args.engine)
    for line in wrong[:20]:
        sys.stdout.write(f"WRONG {line}\n")
    sys.stdout.write("flat, and nothing wrong\n" if not wrong else f"{len(wrong)} things are wrong\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
