"""Part “batch”: the runner alone, how busy it keeps an engine, documents of many pages, and a real run.

`--batch items,busy,pages,documents` chooses among them.
"""

from __future__ import annotations

import http.client
import io
import random
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil

from bench import pictures
from bench.batch_service import TASK
from bench.load import Plan, Target
from bench.processes import cpu_seconds, free_port, started, tree, wait_ready
from bench.report import Cell, Table, median
from bench.venvs import CACHE, ROOT
from bench.ways import Way, Ways, measured

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

MIB = 1 << 20
ITEMS, QUICK_ITEMS = 100_000, 2000
SLOTS, WORK_S, BUSY_ITEMS = 8, 0.25, 800
PAGES = 200
DOCUMENTS = 300
SEED = 6 << 40  # of the generated documents: apart from those of training, examples and tests
RUN_S = 3600.0


class Watch:
    """One run of a command: its time, processor and memory, its children's with it."""

    def __init__(self, command: Sequence[str | Path], others: Sequence[int] = (), fine: Sequence[int] = (0,)) -> None:
        """`others`: roots of processes whose processor time is of interest beside; `fine`: expected exit codes."""
        began, before = time.perf_counter(), cpu_seconds(others)
        self.rss: list[int] = []
        self.cpu = 0.0
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        said: list[str] = []
        reading = threading.Thread(target=lambda: said.append(process.stderr.read() if process.stderr else ""))
        reading.start()
        while process.poll() is None and time.perf_counter() - began < RUN_S:
            self._look(process.pid)
            time.sleep(0.1)
        process.kill()
        reading.join()
        self.seconds = time.perf_counter() - began
        self.others = cpu_seconds(others) - before
        self.said = said[0].strip()
        if process.wait() not in fine:
            raise RuntimeError(f"a batch under measurement ended with {process.returncode}: {self.said}")

    def _look(self, pid: int) -> None:
        rss = 0
        cpu = 0.0
        for one in tree(pid):
            try:
                rss += one.memory_info().rss
                times = one.cpu_times()
            except psutil.NoSuchProcess:
                continue
            cpu += times.user + times.system
        if rss:
            self.rss.append(rss)
            self.cpu = max(self.cpu, cpu)

    def after(self, share: float) -> float:
        """Resident memory in MiB after a share of the time."""
        return self.rss[int((len(self.rss) - 1) * share)] / MIB


def run(args: argparse.Namespace) -> list[Table]:
    """A table for each of them."""
    parts = {"items": _items, "busy": _busy, "pages": _pages, "documents": _documents}
    CACHE.mkdir(exist_ok=True)
    tables = []
    for name in args.batch.split(","):
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            tables.append(parts[name](args, Path(folder)))
    return tables


def _batch(folder: Path, url: str, task: str, out: Path, *more: str) -> list[str | Path]:
    return [
        sys.executable,
        "-m",
        "twinlens.cli.main",
        "batch",
        folder,
        "--url",
        url,
        "--task",
        task,
        "--out",
        out,
        *more,
    ]


@contextmanager
def _service() -> Iterator[Way]:
    """bench/batch_service.py."""
    port = free_port()
    with started("batch_service", [sys.executable, "-m", "bench.batch_service", str(port)]) as process:
        wait_ready(process, port, "/readyz")
        yield Way("batch_service", port, process.pid, "none")


def _numbered(folder: Path, jpeg: bytes, count: int) -> None:
    """So many files that differ in a comment, a thousand in a folder."""
    template = pictures.template(jpeg)
    head, tail = template.head, jpeg[_cut(jpeg) :]
    for number in range(count):
        if number % 1000 == 0:
            (folder / f"{number // 1000}").mkdir(parents=True)
        (folder / f"{number // 1000}/{number}.jpg").write_bytes(head + b"%016d" % number + tail)


def _cut(jpeg: bytes) -> int:
    start = jpeg.index(b"\xff\xe0") + 2
    return start + int.from_bytes(jpeg[start : start + 2], "big")


def _items(args: argparse.Namespace, folder: Path) -> Table:
    count = QUICK_ITEMS if args.quick else ITEMS
    _numbered(folder / "in", pictures.scene_photo(48, 64, 0), count)
    with _service() as way:
        seen = Watch(_batch(folder / "in", f"http://127.0.0.1:{way.port}", TASK, folder / "out.jsonl"), [way.pid])
    row = (
        count,
        seen.seconds,
        count / seen.seconds,
        seen.cpu / seen.seconds,
        seen.others / seen.seconds,
        seen.after(0.2),
        seen.after(0.8),
        max(seen.rss) / MIB,
    )
    columns = (
        "items",
        "s",
        "items/s",
        "CPU runner",
        "CPU service",
        "MiB after a fifth",
        "MiB after four fifths",
        "MiB most",
    )
    note = (
        "The whole command, start and table included, against bench/batch_service.py, which answers at once: what is "
        "measured is the runner. Files of 1.4 kB, all different. Memory: resident, children included."
    )
    return Table("Batch: the runner alone", columns, [row], (note,))


class _Sampler:
    """How many of an engine's slots are in use, looked at every 20 ms from the first that is to the last."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        self._seen: list[int] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._http.close()

    def _run(self) -> None:
        while not self._end.wait(0.02):
            self._http.request("GET", "/health")
            health = msgspec.json.decode(self._http.getresponse().read())
            self._seen.append(health["running"] - health["waiting"])

    def share(self) -> float:
        """Per cent of all slots."""
        at = [place for place, used in enumerate(self._seen) if used]
        seen = self._seen[at[0] : at[-1] + 1]
        return 100 * sum(seen) / len(seen) / SLOTS


def _busy(args: argparse.Namespace, folder: Path) -> Table:
    count = 100 if args.quick else BUSY_ITEMS
    jpeg = pictures.photo("100 kB")
    (folder / "one.jpg").write_bytes(jpeg)
    _numbered(folder / "in", jpeg, count)
    flags = ("--slots", str(SLOTS), "--delay-s", str(WORK_S), "--pieces", "2")
    shares: dict[str, list[float]] = {"bare engine": [], "batch": []}
    rates: dict[str, list[float]] = {"bare engine": [], "batch": []}
    with Ways(args.model) as ways:
        engine = ways.engine("twinlens.engines.fake", *flags)
        service = ways.twinlens(engine)
        target = Target("bare", engine.port, {}, engine.model, [str(folder / "one.jpg")], numbered=True)
        for number in range(min(args.rounds, 3)):
            with _Sampler(engine.port) as sampler:
                seconds = count / (SLOTS / WORK_S)
                (found,) = measured(Plan([target], 2 * SLOTS, 1, seconds, warm_up=0))
            shares["bare engine"].append(sampler.share())
            rates["bare engine"].append(len(found.latencies) / found.seconds)
            with _Sampler(engine.port) as sampler:
                out = folder / f"{number}.jsonl"
                url = f"http://127.0.0.1:{service.port}"
                seen = Watch(_batch(folder / "in", url, "chart-to-table", out))
            shares["batch"].append(sampler.share())
            rates["batch"].append(count / seen.seconds)
    bare = median(shares["bare engine"])
    rows: list[tuple[Cell, ...]] = [
        (name, median(shares[name]), 100 * median(shares[name]) / bare, median(rates[name])) for name in shares
    ]
    note = (
        f"A fake engine with {SLOTS} places and {WORK_S:g} s of work for an answer, so at most {SLOTS / WORK_S:g}/s; "
        f"{count} JPEGs of 100 kB. Busy: places in use, from the first answer to the last. Bare: the load generator, "
        f"{2 * SLOTS} at a time, straight to the engine. Answers/s of the batch: the whole command with its start."
    )
    return Table("Batch: how busy the engine is", ("fed by", "busy %", "% of bare", "answers/s"), rows, (note,))


def _pages(args: argparse.Namespace, folder: Path) -> Table:
    from PIL import Image  # noqa: PLC0415

    count = 10 if args.quick else PAGES
    (folder / "in").mkdir()
    path = folder / "in/scan.pdf"

    def page(number: int) -> Image.Image:
        return Image.open(io.BytesIO(pictures.scene_photo(1754, 1240, number)))

    page(0).save(
        path, "PDF", resolution=150.0, quality=55, save_all=True, append_images=(page(at) for at in range(1, count))
    )
    with _service() as way:
        seen = Watch(_batch(folder / "in", f"http://127.0.0.1:{way.port}", TASK, folder / "out.jsonl"))
    row = (count, path.stat().st_size / MIB, seen.seconds, count / seen.seconds, max(seen.rss) / MIB)
    note = "A4, one scan of 150 dots an inch a page. Memory: resident, of the command and the process that reads PDFs."
    return Table("Batch: a long PDF", ("pages", "MiB", "s", "pages/s", "MiB most"), [row], (note,))


def _documents(args: argparse.Namespace, folder: Path) -> Table:
    from demo_model.documents import document  # noqa: PLC0415 - draws with Pillow alone
    from demo_model.fonts import DEFAULT_FOLDER  # noqa: PLC0415
    from demo_model.words import Values  # noqa: PLC0415

    count = 8 if args.quick else DOCUMENTS
    fonts = (
        "the generator's fonts" if DEFAULT_FOLDER.is_dir() else "Pillow's font (python -m demo_model.fonts has more)"
    )
    (folder / "in").mkdir()
    for number in range(count):
        rng = random.Random(SEED + number)
        drawn = document(rng, Values(rng, held=False), 420, 400, chinese=False, kind="receipt")
        drawn.image.save(folder / f"in/{number:03}.jpg", quality=90)
    times: dict[str, list[float]] = {"twinlens batch": [], "plain script": []}
    answers: dict[str, list[object]] = {}
    for number in range(min(args.rounds, 2)):
        for name in (list(times), list(times)[::-1])[number % 2]:
            out = folder / f"{name}-{number}.jsonl"
            with Ways(args.model) as ways:  # a new service each time: nothing is remembered
                way = ways.twinlens(None)
                url = f"http://127.0.0.1:{way.port}"
                script = "bench.batch_plain"
                plain: list[str | Path] = [sys.executable, "-m", script, url, "receipt", folder / "in", out]
                command = plain if name == "plain script" else _batch(folder / "in", url, "receipt", out)
                times[name].append(Watch(command, fine=(0, 1)).seconds)
            answers[name] = [msgspec.json.decode(line)["answer"] for line in out.read_bytes().splitlines()]
    plain_s = median(times["plain script"])
    rows: list[tuple[Cell, ...]] = [
        (name, median(found), count / median(found), median(found) / plain_s) for name, found in times.items()
    ]
    failed = sum(one is None for one in answers["twinlens batch"])
    same = sum(one == other for one, other in zip(*answers.values(), strict=True))
    note = (
        f"{count} receipts of the generator in {fonts}, the task “receipt”, embedded engine, a new service for each "
        f"run; the plain script (bench/batch_plain.py) has 16 at a time. {same} of {count} answers are the same; "
        f"{failed} had no end, which both count as failures."
    )
    return Table("Batch: a real run", ("way", "s", "documents/s", "times the plain script"), rows, (note,))
