"""python -m bench [PART ...] [--json FILE]: see docs/performance.md."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

import msgspec

from bench import machine

PARTS = ("gateway", "stream", "start", "engine", "store", "media", "batch")

BATCHES = ("items", "busy", "pages", "documents")


def main() -> int:
    """Run the parts, print their tables."""
    args = _arguments()
    tables = [machine.table()]
    print(tables[0].markdown(), flush=True)
    for part in args.parts or PARTS:
        for table in importlib.import_module(f"bench.{part}").run(args):
            tables.append(table)
            print(table.markdown(), flush=True)
    if args.json:
        Path(args.json).write_bytes(msgspec.json.format(msgspec.json.encode([table.plain() for table in tables])))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Benchmarks; docs/performance.md explains them.")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", choices=[*PARTS, []], help=f"{', '.join(PARTS)}; default all"
    )
    parser.add_argument("--json", metavar="FILE", help="write the tables there as well")
    parser.add_argument("--quick", action="store_true", help="a dry run: short, its figures mean little")
    parser.add_argument("--rounds", type=int, help="rounds over all ways (default 7)")
    parser.add_argument("--seconds", type=float, help="of each way in each round (default 3)")
    parser.add_argument("--workers", type=int, default=1, help="gateway processes of Twinlens (default 1)")
    parser.add_argument("--without", action="append", default=[], metavar="PEER", help="leave out plain or litellm")
    parser.add_argument("--batch", default=",".join(BATCHES), help=f"which of part batch (default {','.join(BATCHES)})")
    model = os.environ.get("TWINLENS_MODEL", "demo")
    parser.add_argument("--model", default=model, help="folder or hub id (default: $TWINLENS_MODEL or the demo model)")
    args = parser.parse_args()
    args.rounds = args.rounds or (2 if args.quick else 7)
    args.seconds = args.seconds or (0.5 if args.quick else 3.0)
    return args


if __name__ == "__main__":
    sys.exit(main())
