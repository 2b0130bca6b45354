"""Part “gateway”: requests a second and added latency, beside the peers, with a fake engine behind all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.load import Plan, Round, Target
from bench.report import Cell, Table, median, quantile
from bench.ways import PEERS, Way, Ways, measured, picture_files

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

COLUMNS = (
    "way",
    "requests/s",
    "p50 ms",
    "p99 ms",
    "added p50 ms",
    "added p99 ms",
    "CPU gateway",
    "CPU engine",
    "CPU client",
)
DIRECT, EMPTY, OURS, HITS = "direct", "direct, no picture", "Twinlens", "Twinlens, store hits"
NOTE = (
    "Added: through the gateway less straight to the fake engine with the same body, round by round; the median of "
    "the rounds. CPU: cores in use over the window."
)


def run(args: argparse.Namespace) -> list[Table]:
    """A table for each size and number at a time."""
    tables = []
    with picture_files() as files, Ways(args.model) as ways:
        engine = ways.engine()
        gateways = {OURS: ways.twinlens(engine, "--workers", str(args.workers))}
        gateways |= {name: getattr(ways, name)(engine) for name in PEERS if name not in args.without}
        for size, file in files.items():
            for at_once in (1, 16):
                targets = _targets(engine, gateways, file)
                rounds = measured(Plan(targets, at_once, args.rounds, args.seconds))
                tables.append(_table(f"Gateway: {size} JPEG, {at_once} at a time", rounds, at_once))
    return tables


def _targets(engine: Way, gateways: dict[str, Way], file: str) -> list[Target]:
    behind = {"engine": [engine.pid]}
    targets = [
        Target(DIRECT, engine.port, behind, engine.model, [file]),
        Target(EMPTY, engine.port, behind, engine.model),
    ]
    for name, way in gateways.items():
        targets.append(Target(name, way.port, behind | {"gateway": [way.pid]}, way.model, [file]))
    ours = gateways[OURS]
    targets.append(Target(HITS, ours.port, behind | {"gateway": [ours.pid]}, ours.model, [file], same=True))
    return targets


def _table(title: str, rounds: Sequence[Round], at_once: int) -> Table:
    by_target: dict[str, list[Round]] = {}
    for found in rounds:
        by_target.setdefault(found.target, []).append(found)
    rows = [_row(name, found, by_target[DIRECT]) for name, found in by_target.items()]
    order = [DIRECT, EMPTY, OURS, HITS, *PEERS]
    rows.sort(key=lambda row: order.index(str(row[0])))
    ratios = [
        f"Twinlens / {peer}: {_ratio(by_target[OURS], by_target[peer]):.1f} times the requests/s (median of rounds)."
        for peer in PEERS
        if peer in by_target
    ]
    return Table(title, COLUMNS, rows, (*ratios, NOTE))


def _row(name: str, rounds: Sequence[Round], direct: Sequence[Round]) -> tuple[Cell, ...]:
    rate = median(len(found.latencies) / found.seconds for found in rounds)
    all_ = [latency for found in rounds for latency in found.latencies]
    added: list[Cell] = [None, None]
    if not name.startswith("direct"):
        added = [1e3 * median(_difference(rounds, direct, share)) for share in (0.5, 0.99)]
    cpu = [
        median(found.cpu[role] / found.seconds for found in rounds) if role in rounds[0].cpu else None
        for role in ("gateway", "engine", "client")
    ]
    return (name, rate, 1e3 * quantile(all_, 0.5), 1e3 * quantile(all_, 0.99), *added, *cpu)


def _difference(rounds: Sequence[Round], direct: Sequence[Round], share: float) -> list[float]:
    pairs = zip(rounds, direct, strict=True)
    return [quantile(through.latencies, share) - quantile(straight.latencies, share) for through, straight in pairs]


def _ratio(ours: Sequence[Round], theirs: Sequence[Round]) -> float:
    pairs = zip(ours, theirs, strict=True)
    return median((len(a.latencies) / a.seconds) / (len(b.latencies) / b.seconds) for a, b in pairs)
