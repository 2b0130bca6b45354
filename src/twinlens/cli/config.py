"""`twinlens config`: every setting, its value, and where it came from; secrets are masked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from twinlens.cli import flags

if TYPE_CHECKING:
    import argparse


def add(commands: Any) -> None:
    """The command's flags."""
    parser = commands.add_parser("config", help="show the effective settings and where each came from")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    flags.add(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    rows = flags.loaded(args).shown()
    if args.json:
        named = [{"name": name, "value": msgspec.Raw(value.encode()), "from": origin} for name, value, origin in rows]
        print(msgspec.json.format(msgspec.json.encode(named)).decode())
        return 0
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, origin in rows:
        print(f"{name:{widths[0]}}  {value:{widths[1]}}  {origin}")
    return 0
