"""`twinlens batch PATH... --task NAME --out FILE`: the same task over many files, into one table."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinlens.cli import ask, flags
from twinlens.errors import BatchError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import BinaryIO

    from twinlens.batch.job import Job, Outcome

STDIN = "-"


def add(commands: Any) -> None:
    """The command's flags."""
    parser = commands.add_parser(
        "batch",
        help="ask a task about many files",
        usage="twinlens batch [PATH ...] [--list FILE] [-] --task NAME --out FILE [--resume] [...]",
        epilog="Ends with 1 when something failed or was left undone, with 130 after Ctrl-C. docs/batch.md tells more.",
    )
    parser.add_argument(
        "words", metavar="PATH", nargs="*", help="files, folders, patterns in quotes, archives; “-”: a list on stdin"
    )
    parser.add_argument(
        "--list", metavar="FILE", action="append", default=[], help="file with one path a line; “-”: stdin"
    )
    parser.add_argument("--task", metavar="NAME", required=True, help="task of the service")
    parser.add_argument("--var", metavar="NAME=VALUE", action="append", default=[], help="a variable of the task")
    parser.add_argument("--max-tokens", metavar="N", type=int, help="longest answer, in tokens")
    parser.add_argument(
        "--password-file", metavar="FILE", help="passwords, one a line, that are tried on PDFs that need one"
    )
    parser.add_argument("--out", metavar="FILE", required=True, help="the table: .jsonl, .csv or .parquet")
    parser.add_argument("--report", metavar="FILE", help="a page for people beside the table, .html")
    parser.add_argument(
        "--order", choices=("stable", "ready"), default="stable", help="of the records: as the inputs, or as they came"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the journal beside --out: only what is left")
    parser.add_argument("--retry-failed", action="store_true", help="with --resume: ask failed ones again")
    parser.add_argument(
        "--accept-changes", action="store_true", help="with --resume: go on though inputs, task or weights changed"
    )
    parser.add_argument("--overwrite", action="store_true", help="begin anew; what is there is forgotten")
    parser.add_argument(
        "--at-once", metavar="N", type=int, default=256, help="most requests under way (default: 256; finds its level)"
    )
    parser.add_argument("--url", help="service to ask; default: the one at the configured host and port, or a new one")
    parser.add_argument("--key-file", metavar="FILE", help="file with the API key for --url")
    parser.add_argument(
        "--wait", metavar="S", type=float, default=120.0, help="longest wait for a service that is away (default: 120)"
    )
    flags.add(parser)
    parser.set_defaults(run=run, refuse=parser.error)


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    from twinlens.batch.job import Job, Plan  # noqa: PLC0415 - the other commands need none of it
    from twinlens.batch.session import Wish  # noqa: PLC0415

    if not args.words and not args.list:
        args.refuse("there is no PATH")
    if args.at_once < 1 or (args.max_tokens is not None and args.max_tokens < 1):
        args.refuse("--at-once and --max-tokens are at least 1")
    if (args.retry_failed or args.accept_changes) and not args.resume:
        args.refuse("--retry-failed and --accept-changes go with --resume")
    if args.resume and args.overwrite:
        args.refuse("--resume and --overwrite exclude each other")
    settings = flags.loaded(args).settings
    plan = Plan(
        paths=tuple(word for word in args.words if word != STDIN),
        task=args.task,
        out=Path(args.out),
        variables=ask.variables_of(args.var),
        max_tokens=args.max_tokens,
        order=args.order,
        wish=Wish(args.resume, args.overwrite, args.accept_changes, args.retry_failed),
        at_once=args.at_once,
        wait_s=args.wait,
        passwords=_passwords(args.password_file),
        report=_report(args.report),
    )
    outcomes: list[Outcome] = []

    async def putting(url: str, withheld: bool, key: str, job: Job, wait_s: float) -> None:
        del wait_s  # the plan has it
        if withheld:
            sys.stderr.write("The service has test weights: the answers mean nothing.\n")
        outcomes.append(await job.run(url, key))

    with contextlib.closing(Job(plan, settings, sys.stderr)) as job:
        with _lists(args) as lists:
            count = job.prepare(lists)
        if not count:
            raise BatchError("There are no pictures or documents in there.", cure="Name files, folders or patterns.")
        # A service of our own, which nobody else uses, needs no limits a minute.
        own = replace(settings, rate_requests=0, rate_vision_tokens=0, rate_text_tokens=0)
        ask.asked(args, own, job, putting)
    return _told(plan.out, outcomes[0])


def _report(name: str | None) -> Path | None:
    if name is None:
        return None
    path = Path(name)
    if path.suffix.lower() != ".html":
        raise BatchError(f"--report {name}: the ending is not known.", cure="Use .html.")
    if not path.parent.is_dir():
        raise BatchError(f"--report {name}: there is no folder {path.parent}.", cure="Make it, or choose another.")
    return path


def _passwords(name: str | None) -> tuple[str, ...]:
    if not name:
        return ()
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise BatchError(f"The passwords in {name} cannot be read: {why}.", cure="Check the file.") from error
    return tuple(dict.fromkeys(filter(None, lines)))


@contextlib.contextmanager
def _lists(args: argparse.Namespace) -> Iterator[list[BinaryIO]]:
    with contextlib.ExitStack() as stack:
        lists: list[BinaryIO] = [sys.stdin.buffer] if STDIN in (*args.words, *args.list) else []
        for name in filter(STDIN.__ne__, args.list):
            try:
                lists.append(stack.enter_context(Path(name).open("rb")))
            except OSError as error:
                raise BatchError(
                    f"The list {name} cannot be read: {error.strerror}.", cure="Check the path."
                ) from error
        yield lists


def _told(out: Path, outcome: Outcome) -> int:
    """Say how it went; the exit code comes from the same numbers."""
    from twinlens.batch.job import MOST_TOLD  # noqa: PLC0415

    for record in outcome.failures:
        sys.stderr.write(f"failed: {_line(record.path)}{_page(record.page)}: {_why(record.error)}\n")
    if outcome.failed > MOST_TOLD:
        sys.stderr.write(f"... and {outcome.failed - MOST_TOLD} more; {out} has them all.\n")
    if outcome.torn:
        sys.stderr.write("The journal had a torn end, which was cut off; what it was about was asked again.\n")
    if outcome.skipped:
        counts = ", ".join(f"{count} {why}" for why, count in sorted(outcome.skipped.items()))
        sys.stderr.write(f"passed over: {counts}\n")
    good = outcome.finished - outcome.failed
    parts = [f"{outcome.finished} of {outcome.total} done: {good} answered, {outcome.failed} failed"]
    parts += [f"{outcome.kept} were done before"] if outcome.kept else []
    parts += [f"{outcome.copied} copied from identical files"] if outcome.copied else []
    sys.stderr.write(f"{out}: {'; '.join(parts)}\n")
    if outcome.stopped:
        sys.stderr.write(f"Stopped. {outcome.stopped} {outcome.pending} left; --resume goes on.\n")
    if outcome.signalled:
        return 128 + outcome.signalled
    return 1 if outcome.failed or outcome.pending or outcome.stopped else 0


def _why(error: Any) -> str:
    return _line(f"{error.code}: {error.message}") if error else ""


def _page(page: int) -> str:
    return f" page {page}" if page > 1 else ""


def _line(text: str) -> str:
    """On one line of a terminal, whatever a file is called."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
