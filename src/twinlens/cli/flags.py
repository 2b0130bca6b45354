"""Flags of the settings, made from `Settings` itself, so that a new setting has its flag without another line.

Secrets have no flag: every user of the machine can read the command lines of its processes.
"""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import get_type_hints

from twinlens.settings import Loaded, Settings, defaults, load

KINDS = {int: "N", float: "X", str: "TEXT", bool: "true|false"}


def add(parser: argparse.ArgumentParser) -> None:
    """Give a command every setting as a flag, and --config."""
    group = parser.add_argument_group(
        "settings", "Each can also stand in the environment or in a file: docs/settings.md."
    )
    group.add_argument("--config", metavar="FILE", help="TOML file with settings")
    kinds = get_type_hints(Settings)
    for item in fields(Settings):
        if item.metadata["secret"]:
            continue
        kind = kinds[item.name]
        group.add_argument(
            "--" + item.name.replace("_", "-"),
            dest=item.name,
            metavar=KINDS.get(kind, "A,B"),
            default=argparse.SUPPRESS,  # only what was given beats the environment
            help=described(item.name),
        )


def described(name: str) -> str:
    """What a setting is for, in which unit, and its default where it has one worth showing."""
    meta = next(item.metadata for item in fields(Settings) if item.name == name)
    unit = f" [{meta['unit']}]" if meta["unit"] else ""
    default = defaults()[name]
    shown = f" (default: {default})" if default not in ("", (), 0) else ""
    return f"{meta['help']}{unit}{shown}"


def loaded(args: argparse.Namespace) -> Loaded:
    """The merged settings of a parsed command line. Raises SettingsError."""
    names = {item.name for item in fields(Settings)}
    given = {name: value for name, value in vars(args).items() if name in names}
    return load(given, config=args.config)
