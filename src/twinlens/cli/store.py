"""`twinlens store show|clear`: what is in the store, and emptying it. A running service keeps what it uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinlens.cli import flags
from twinlens.settings import store_dir

if TYPE_CHECKING:
    import argparse


def add(commands: Any) -> None:
    """The command's flags."""
    parser = commands.add_parser("store", help="show or clear the store")
    parser.add_argument("action", choices=("show", "clear"), help="what to do")
    flags.add(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do it."""
    from twinlens.store import Store  # noqa: PLC0415 - the other commands need no numpy

    settings = flags.loaded(args).settings
    folder = store_dir(settings)
    if not folder.is_dir():
        print(f"There is no store at {folder} yet.")
        return 0
    store = Store(folder, settings.store_bytes)
    if args.action == "clear":
        print(f"{store.clear()} objects removed from {folder}.")
        return 0
    stats = store.stats()
    print(f"folder   {folder}\nobjects  {stats.objects}\nbytes    {stats.bytes} of {stats.limit}")
    print(f"leased   {stats.leased_bytes} bytes in use by running requests")
    return 0
