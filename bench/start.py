"""Part “start”: from the start of the process to ready, and the memory of the whole service then and after work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.load import Plan, Target
from bench.processes import Memory, memory
from bench.report import Cell, Table, median
from bench.ways import Ways, measured, picture_files
from twinlens.store import Store

if TYPE_CHECKING:
    import argparse

MIB = 1 << 20


def run(args: argparse.Namespace) -> list[Table]:
    """Two tables: time to ready, memory by process."""
    times = [_time_to_ready(args) for _ in range(args.rounds)]
    with picture_files() as files, Ways(args.model) as ways:
        way = ways.twinlens(None)
        idle = memory(way.pid, ways.store)
        target = Target("Twinlens", way.port, {}, way.model, [files["100 kB"]])
        measured(Plan([target], 16, 1, args.seconds))
        busy = memory(way.pid, ways.store)
        stored = Store(ways.store, 1 << 40).stats().bytes
    row = (median(times), min(times), max(times), len(times))
    start = Table("Start: process to ready", ("median s", "least s", "most s", "starts"), [row])
    return [start, _memory_table(idle, busy, stored)]


def _time_to_ready(args: argparse.Namespace) -> float:
    with Ways(args.model) as ways:
        began = time.perf_counter()
        ways.twinlens(None)
        return time.perf_counter() - began


def _memory_table(idle: list[Memory], busy: list[Memory], stored: int) -> Table:
    before = {one.name: one for one in idle}
    rows: list[tuple[Cell, ...]] = []
    for one in busy:
        quiet = before.get(one.name)
        rows.append((one.name, quiet.own / MIB if quiet else None, one.own / MIB))
    rows += [
        ("sum", sum(one.own for one in idle) / MIB, sum(one.own for one in busy) / MIB),
        ("KV cache in use", sum(one.kv_cache for one in idle) / MIB, sum(one.kv_cache for one in busy) / MIB),
        ("the store's objects", None, stored / MIB),
    ]
    note = "PSS; KV cache and store apart, not in the sum. “busy”: after 16 at a time, 100 kB JPEGs, all different."
    return Table("Memory: proportional set size, MiB", ("process", "idle", "busy"), rows, (note,))
