"""Part “store”: one process putting, finding and mapping objects, and the checksums that could have been chosen."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from blake3 import blake3

from bench.report import Table, quantile
from twinlens.store import Store, resolve
from twinlens.store.checksum import checksum

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

Input = TypeVar("Input")
SIZES = (1_000_000, 1_400_000, 10_000_000)  # bytes
LIMIT = 1 << 28
BYTES = np.random.default_rng(0).integers(0, 256, max(SIZES), dtype=np.uint8)


def run(args: argparse.Namespace) -> list[Table]:
    """Two tables."""
    count = 20 if args.quick else 300
    folder = Path(tempfile.mkdtemp(prefix="twinlens-bench-", dir="/dev/shm"))
    try:
        rows = [row for size in SIZES for row in _operations(folder / "store", size, count)]
    finally:
        shutil.rmtree(folder)
    columns = ("operation", "bytes", "p50 ms", "p99 ms")
    note = "“put” into a full store, so that each evicts another; “has” with taking and giving back the lease."
    operations = Table("Store: one process", columns, rows, (note,))
    return [operations, Table("Checksums", columns, _checksums(count))]


def _operations(root: Path, size: int, count: int) -> list[tuple[str, int, float, float]]:
    store = Store(root, LIMIT)
    keys = [hashlib.sha256(f"{size} {number}".encode()).hexdigest() for number in range(LIMIT // size + count)]
    for key in keys[:-count]:
        store.put(key, "pixels", BYTES[:size])
    last = keys[-min(count, 20) :]  # surely there

    def has(key: str) -> None:
        with store.lease() as lease:
            assert store.has(key, lease)

    rows = [
        ("put", size, *_timed(lambda key: store.put(key, "pixels", BYTES[:size]), keys[-count:])),
        ("get", size, *_timed(store.get, last * 10)),
        ("resolve", size, *_timed(lambda key: resolve(root, f"twinlens:{key}"), last * 10)),
        ("has", size, *_timed(has, last * 10)),
    ]
    store.clear()
    store.close()
    return rows


def _checksums(count: int) -> list[tuple[str, int, float, float]]:
    ways: dict[str, Callable[[int], object]] = {
        "ours": lambda size: checksum(BYTES[:size]),
        "zlib.crc32": lambda size: zlib.crc32(BYTES[:size].data),
        "numpy sum": lambda size: BYTES[:size].view(np.uint64).sum(),
        "BLAKE3": lambda size: blake3(BYTES[:size].data).digest(),
        "BLAKE2b": lambda size: hashlib.blake2b(BYTES[:size].data).digest(),
    }
    return [(name, size, *_timed(way, [size] * count)) for name, way in ways.items() for size in SIZES]


def _timed(work: Callable[[Input], object], inputs: Sequence[Input]) -> tuple[float, float]:
    """p50 and p99 in ms."""
    times = []
    for one in inputs:
        began = time.perf_counter()
        work(one)
        times.append(1e3 * (time.perf_counter() - began))
    return quantile(times, 0.5), quantile(times, 0.99)
