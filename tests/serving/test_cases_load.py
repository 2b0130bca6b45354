"""Field cases of many requests at once and one after another: what is held up, what grows, what goes on for nobody."""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.media import pdfs
from tests.media.pictures import noise, photo, plain, png, uri
from tests.media.site import answer
from tests.proof.client import ask, chat, request
from tests.serving.harness import serving, until
from tests.serving.test_urls import fetching_from, url_part
from tests.serving.test_urls import web as web  # noqa: PLC0414 - a fixture

if TYPE_CHECKING:
    from pathlib import Path

    from tests.media.site import Site
    from tests.serving.harness import Service

pytestmark = pytest.mark.slow
PIECE_S = 0.02


def part(data: bytes, kind: str = "image/jpeg") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": uri(data, kind)}}


@dataclass
class Flood:
    """What was seen while 32 requests with four pages each came at once. All times in seconds."""

    took: float = 0.0
    statuses: list[int] = field(default_factory=list)
    alive: list[float] = field(default_factory=list)  # of GET /livez
    gaps: list[float] = field(default_factory=list)  # between pieces of a stream of text
    texts: list[float] = field(default_factory=list)  # of requests without a picture
    loading: list[float] = field(default_factory=list)  # the metric
    unseen: list[float] = field(default_factory=list)  # requests inside that are neither at the engine nor in its queue


@pytest.fixture(scope="module")
def flood() -> Flood:
    pages = [photo(1536, 2170, seed) for seed in range(4)]
    # Whatever stands behind a JPEG's end makes it another picture for the store: each has to be decoded.
    bodies = [
        request(chat("read", *(part(page + b"%d" % number) for page in pages), max_tokens=2)) for number in range(32)
    ]
    seen = Flood()
    with serving(
        f"--engine-args=--piece-delay-s={PIECE_S},--pieces=100000", "--max-queue", "100", "--max-pixels", "400000"
    ) as service:
        asyncio.run(_flooded(service, bodies, seen))
    return seen


async def _flooded(service: Service, bodies: list[bytes], seen: Flood) -> None:
    over = asyncio.Event()

    async def alive() -> None:
        probe = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        while not over.is_set():
            seen.alive.append((await ask(service.port, probe)).seconds)
            seen.texts.append((await ask(service.port, request(chat("hi", max_tokens=1)))).seconds)
            await asyncio.sleep(0.05)

    async def streaming() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(request(chat("go", stream=True, max_tokens=3000)))
        last = 0.0
        while not over.is_set() and (line := await reader.readline()):
            if line.startswith(b"data: "):
                now = time.monotonic()
                if last:
                    seen.gaps.append(now - last)
                last = now
        writer.transport.abort()

    async def metrics() -> None:
        while not over.is_set():
            text = (await asyncio.to_thread(service.http.get, "/metrics")).text
            value = {line.split(" ")[0]: float(line.split(" ")[1]) for line in text.splitlines() if line[0] != "#"}
            seen.loading.append(value["twinlens_load_waiting"])
            at_the_engine = value["twinlens_requests_running"] + value["twinlens_requests_waiting"]
            seen.unseen.append(value["twinlens_requests_inside"] - at_the_engine)
            await asyncio.sleep(0.05)

    watchers = [asyncio.ensure_future(work()) for work in (alive, streaming, metrics)]
    await asyncio.sleep(0.2)
    began = time.monotonic()
    seen.statuses = [told.status for told in await asyncio.gather(*(ask(service.port, body) for body in bodies))]
    seen.took = time.monotonic() - began
    over.set()
    await asyncio.gather(*watchers)


def test_conc_01_pictures_hold_up_neither_probes_nor_streams(flood: Flood) -> None:
    """Relative to the whole flood, so that a slow machine measures the same."""
    assert flood.statuses == [200] * 32
    assert statistics.median(flood.alive) < flood.took / 10
    assert max(flood.alive) < flood.took / 3
    assert max(flood.gaps) < flood.took / 3
    assert statistics.median(flood.gaps) < 10 * PIECE_S


def test_conc_04_what_waits_before_the_queue_is_counted_and_short_requests_pass_it(flood: Flood) -> None:
    assert max(flood.loading) > 0
    assert max(flood.unseen) > 4
    assert statistics.median(flood.texts) < flood.took / 5


def test_conc_06_pictures_that_never_repeat_leave_nothing_in_memory() -> None:
    with serving("--store-bytes", str(4 << 20), "--engine-args=--pieces=2") as service:
        (worker,) = service.workers

        async def send(first: int, count: int) -> None:
            async def some(numbers: range) -> None:
                for number in numbers:
                    data = noise("PNG", 64, 64, seed=number)
                    told = await ask(service.port, request(chat("x", part(data, "image/png"))))
                    assert told.status == 200

            await asyncio.gather(*(some(range(first + lane, first + count, 4)) for lane in range(4)))

        def grown(first: int, count: int) -> int:
            asyncio.run(send(first, count))
            memory = worker.memory_info()
            return int(memory.rss - memory.shared)

        warm = grown(0, 1000)
        after = grown(1000, 2000)
        assert after - warm < 4 << 20
        until(lambda: service.metric("twinlens_store_bytes") <= 4 << 20, 5)


def test_conc_08_the_largest_pictures_at_once_take_the_memory_of_one() -> None:
    """Ninety million pixels in 100 kB each: they are decoded one after another."""
    rows = (b"\0" + b"\x80" * 9500) * 9500
    picture = png(9500, 9500, rows)
    with serving() as service:
        (worker,) = service.workers
        peak = 0
        over = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not over.wait(0.02):
                peak = max(peak, worker.memory_info().rss)

        def send(number: int) -> int:
            # A chunk that nobody reads makes each another file.
            return service.chat("x", part(picture + b"%d" % number, "image/png")).status_code

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            peaks = []
            for first, count in ((0, 1), (1, 5)):
                peak = 0
                with ThreadPoolExecutor(5) as pool:
                    assert set(pool.map(send, range(first, first + count))) == {200}
                peaks.append(peak)
        finally:
            over.set()
            watcher.join()
        assert peaks[1] < 1.5 * peaks[0]
        assert service.chat("x", part(png(10_001, 10_001, b""), "image/png")).status_code == 400  # over the bound
        assert service.workers[0].pid == worker.pid


def test_conc_08_the_memory_of_large_pictures_is_given_back() -> None:
    rows = (b"\0" + b"\x80" * 9500) * 9500
    picture = png(9500, 9500, rows)
    with serving() as service:
        (worker,) = service.workers
        assert service.chat("x", part(plain("PNG", (300, 200)), "image/png")).status_code == 200
        before = worker.memory_info().rss
        for number in range(3):
            assert service.chat("x", part(picture + b"%d" % number, "image/png")).status_code == 200
        until(lambda: worker.memory_info().rss < before + (24 << 20), 90)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_conc_09_the_workers_share_the_cores(workers: int) -> None:
    """The threads of each are set from the cores and said; one core left over is not taken by four times two."""
    cores = len(os.sched_getaffinity(0))
    with serving("--workers", str(workers)) as service:
        each = max(2, -(-cores // workers))
        until(lambda: service.log().count(f" {each} threads decode pictures") == workers, 20)
        with ThreadPoolExecutor(16) as pool:
            sent = pool.map(lambda seed: service.chat("x", part(photo(700, 500, seed))), range(48))
            assert {one.status_code for one in sent} == {200}
        # Decoding, waiting for the disk, the event loop: none of them grows with the number of requests.
        assert all(process.num_threads() <= each + 40 for process in service.workers)


def test_conc_10_fetches_that_fail_and_succeed_leave_no_descriptor(web: Site, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with fetching_from(web, tmp_path) as service:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            (worker,) = service.workers
            web.pages |= {f"/{number}.png": answer(plain("PNG", (40 + number, 30))) for number in range(20)}
            web.pages["/cut.png"] = b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\nabc"

            def fetch(number: int) -> int:
                name = "cut" if number % 10 == 0 else "none" if number % 3 == 0 else str(number % 20)
                host = "closed.test:9" if number % 17 == 0 else f"img.test:{web.port}"
                return service.chat("x", url_part(f"https://{host}/{name}.png")).status_code

            counts = []
            for first in (0, 150, 300):
                with ThreadPoolExecutor(12) as pool:
                    assert set(pool.map(fetch, range(first, first + 150))) == {200, 400}
                counts.append(worker.num_fds())
            assert counts[2] <= counts[0] + 16
            assert counts[2] < 200
            assert "Errno 24" not in service.log()
            assert "Too many open files" not in service.log()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_conc_13_a_document_past_its_deadline_is_not_read_on() -> None:
    slow = b"".join(pdfs.words(f"line {number}", 10, number % 800, 8) for number in range(30_000))
    data = pdfs.document([pdfs.words(f"page {number}") + slow for number in range(20)])
    body = {"type": "file", "file": {"file_data": uri(data, "application/pdf"), "filename": "a.pdf"}}
    with serving("--request-timeout-s", "1", "--max-pixels", "100000") as service:
        objects = service.folder / "store" / "objects"
        began = time.monotonic()
        told = service.chat(body, "read")
        assert (told.status_code, told.json()["error"]["code"]) == (504, "deadline_exceeded"), told.text
        assert time.monotonic() - began < 20
        drawn = len(list(objects.iterdir()))
        assert drawn < 20
        _idle(service)
        assert len(list(objects.iterdir())) <= drawn + 1
        assert not service.leases()


def _idle(service: Service) -> None:
    """Wait until nothing of the gateway works any more: its processor time stands still."""
    family = [*service.workers, *(child for one in service.workers for child in one.children(recursive=True))]

    def spent() -> float:
        return sum(
            sum(one.cpu_times()[:2]) for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE
        )

    def still() -> bool:
        before = spent()
        time.sleep(0.3)
        return spent() - before < 0.05

    until(still, 30)
