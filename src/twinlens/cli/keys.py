"""`twinlens keys new|list|change|revoke`: the keys file. A running service takes a change within two seconds."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from twinlens.admission import keyfile
from twinlens.cli import flags
from twinlens.errors import OperatorError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from twinlens.admission.keyfile import Record

LIMITS = ("requests", "burst", "vision_tokens", "text_tokens")
AS_SET = "default"
UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def add(commands: Any) -> None:
    """The command's flags."""
    parser = commands.add_parser("keys", help="make, list, change and revoke API keys")
    parser.add_argument("action", choices=("new", "list", "change", "revoke"), help="what to do")
    parser.add_argument("id", nargs="?", help="of the key to change or revoke, as “list” shows it")
    parser.add_argument("--tenant", metavar="NAME", help="new: whose key it is; list: only this one's")
    parser.add_argument("--scope", action="append", choices=keyfile.SCOPES, help="new: what it may do; may be repeated")
    parser.add_argument("--expires", metavar="WHEN", help="new: 90d, 12h, 30m, 4w, or 2030-01-31T00:00:00Z")
    parser.add_argument("--note", metavar="TEXT", default="", help="new: what it is for")
    for name in LIMITS:
        what = "requests at once beyond the first" if name == "burst" else f"{name.replace('_', ' ')} a minute"
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            metavar="N",
            help=f"new, change: {what} of this key, 0 for no limit, or “{AS_SET}”: as the settings say",
        )
    parser.add_argument(
        "--priority", choices=("normal", "low", AS_SET), help="new, change: low comes behind everybody else"
    )
    flags.add(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do it."""
    path = keyfile.path_of(flags.loaded(args).settings)
    if args.action == "new":
        return _new(args, path)
    if args.action == "change":
        return _change(args, path)
    if args.action == "revoke":
        return _revoke(args.id, path)
    return _list(args.tenant, path)


def _new(args: argparse.Namespace, path: Path) -> int:
    if not args.tenant or args.id:
        raise OperatorError("Whose key is it?", cure="Say so with --tenant NAME.")
    expires = when(args.expires) if args.expires else None
    key, record = keyfile.made(args.tenant, args.scope or ["chat"], expires=expires, note=args.note[:200])
    record = msgspec.structs.replace(record, **_own(args))
    with keyfile.changing(path) as records:
        records.append(record)
    print(key)
    sys.stderr.write(
        f"Key {record.id} of {record.tenant} is in {path}. It is shown this once: only its digest is kept.\n"
    )
    return 0


def _change(args: argparse.Namespace, path: Path) -> int:
    changes = _own(args)
    if not args.id or not changes:
        raise OperatorError("Which key, and what of it?", cure="Give its id and a limit, such as --requests 60.")
    with keyfile.changing(path) as records:
        at = _place(args.id, records, path)
        records[at] = msgspec.structs.replace(records[at], **changes)
    print(f"Key {args.id} is changed.")
    return 0


def _own(args: argparse.Namespace) -> dict[str, Any]:
    """What was given of limits and priority, as fields of a record. Raises OperatorError."""
    given: dict[str, Any] = {}
    for name in LIMITS:
        text = getattr(args, name)
        if text is None:
            continue
        if text != AS_SET and not re.fullmatch(r"\d{1,9}", text):
            raise OperatorError(
                f"--{name.replace('_', '-')} {text[:40]}: this is no number of that kind.",
                cure=f"Give 0 to 999999999, or “{AS_SET}”.",
            )
        given[name] = None if text == AS_SET else int(text)
    if args.priority:
        given["priority"] = None if args.priority == AS_SET else args.priority
    return given


def _revoke(number: str | None, path: Path) -> int:
    if not number:
        raise OperatorError("Which key?", cure="“twinlens keys list” shows the ids.")
    with keyfile.changing(path) as records:
        del records[_place(number, records, path)]
    print(f"Key {number} is revoked; requests that run are finished.")
    return 0


def _place(number: str, records: list[Record], path: Path) -> int:
    """Where the key of this id stands; no two have the same. Raises OperatorError."""
    for at, record in enumerate(records):
        if record.id == number:
            return at
    raise OperatorError(f"There is no key {number} in {path}.", cure="“twinlens keys list” shows the ids.")


def _list(tenant: str | None, path: Path) -> int:
    if not path.exists():
        print(f"There is no keys file at {path} yet.")
        return 0
    now = datetime.now(UTC).timestamp()
    rows: list[tuple[str, ...]] = [("id", "tenant", "scopes", "created", "expires", "own limits", "note")]
    rows += [_row(record, now) for record in keyfile.read(path) if tenant in (None, record.tenant)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _row(record: Record, now: float) -> tuple[str, ...]:
    expires = "never" if record.expires is None else f"{record.expires:%Y-%m-%dT%H:%M:%SZ}"
    over = " (over)" if record.expired(now) else ""
    created = f"{record.created:%Y-%m-%d}"
    own = {name: getattr(record, name) for name in (*LIMITS, "priority")}
    limits = " ".join(f"{name}={value}" for name, value in own.items() if value is not None)
    return record.id, record.tenant, ",".join(record.scopes), created, expires + over, limits, record.note


def when(text: str) -> datetime:
    """A moment in the future, in UTC. Raises OperatorError for one that is past, or that has no time zone."""
    now = datetime.now(UTC).replace(microsecond=0)
    cure = "Give 90d, 12h, 30m or 4w from now, or a time with its zone such as 2030-01-31T00:00:00Z."
    if span := re.fullmatch(r"(\d{1,5})([mhdw])", text):
        return now + int(span[1]) * UNITS[span[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise OperatorError(f"“{text[:40]}” is not a time.", cure=cure) from error
    if moment.tzinfo is None:
        raise OperatorError(f"“{text[:40]}” has no time zone.", cure=cure)
    if moment <= now:
        raise OperatorError(f"“{text[:40]}” is past.", cure=cure)
    return moment.astimezone(UTC)
