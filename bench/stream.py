"""Part “stream”: how long the first piece of a streamed answer is on its way from the engine to the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.load import Plan, Target
from bench.report import Table, quantile
from bench.ways import Ways, measured, picture_files

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> list[Table]:
    """One table: straight from the engine, and through each gateway that streams."""
    rows = []
    with picture_files() as files, Ways(args.model) as ways:
        engine = ways.engine("bench.stamping_engine")
        all_ways = {"direct": engine, "Twinlens": ways.twinlens(engine)}
        if "litellm" not in args.without:
            all_ways["litellm"] = ways.litellm(engine)
        targets = [
            Target(name, way.port, {"gateway": [way.pid]}, way.model, [files["100 kB"]], stream=True)
            for name, way in all_ways.items()
        ]
        for at_once in (1, 16):
            rounds = measured(Plan(targets, at_once, args.rounds, args.seconds))
            for name in all_ways:
                times = [1e3 * took for found in rounds if found.target == name for took in found.forwards]
                rows.append((name, at_once, quantile(times, 0.5), quantile(times, 0.99), len(times)))
    columns = ("way", "at a time", "first piece p50 ms", "p99 ms", "answers")
    note = "From the engine making the piece (a time stamp inside it) to its arrival at the client, 100 kB JPEG."
    return [Table("Stream: first piece forwarded", columns, rows, (note,))]
