"""`twinlens COMMAND …`: finds the command, runs it, and turns what goes wrong into words and an exit code.

0 done · 1 the request failed, or a bug (with a report that can be pasted) · 2 something that the operator has to mend,
with its cure · 130 Ctrl-C
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from twinlens import __version__
from twinlens.cli import ask, batch, config, keys, report, serve, store, task
from twinlens.errors import OperatorError, StoreError, TwinlensError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (serve, ask, task, batch, config, keys, store)
FAILED, OPERATOR, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(
        prog="twinlens",
        description="Serve your own vision-language model: pictures and a prompt in, text or JSON out.",
        epilog="“twinlens COMMAND --help” tells more.",
    )
    top.add_argument("--version", action="version", version=f"twinlens {__version__}")
    commands = top.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return top


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line as a value; argparse exits by itself with 2 for one that is wrong."""
    top = parser()
    args, more = top.parse_known_args(argv)
    # argparse takes words of one list only where they stand together: “ask a.jpg --stream PROMPT” has them apart.
    if more and (not hasattr(args, "words") or any(word.startswith("-") for word in more)):
        top.error(f"unrecognized arguments: {' '.join(more)}")
    if more:
        args.words = [*args.words, *more]
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    args = parsed(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except TwinlensError as error:
        sys.stderr.write(f"twinlens: {error.message} {error.cure}".rstrip() + "\n")
        return OPERATOR if isinstance(error, OperatorError | StoreError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output left (“| head”). Nothing more can be said there, not even at the interpreter's end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - the last border: whatever comes here is a bug, and is reported as one
        sys.stderr.write(report.written(error, sys.argv[1:] if argv is None else argv))
        return FAILED
    return code


if __name__ == "__main__":
    sys.exit(main())
