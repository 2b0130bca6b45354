"""`twinlens ask PICTURE... PROMPT`: one question, to a running service, or to one that is started just for it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from twinlens.cli import flags
from twinlens.errors import OperatorError, TwinlensError
from twinlens.orders import read_card
from twinlens.settings import run_dir

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from twinlens.cli.question import Answer, Question
    from twinlens.settings import Settings

OURS = "twinlens"


def add(commands: Any) -> None:
    """The command's flags."""
    parser = commands.add_parser(
        "ask", help="ask about pictures", usage="twinlens ask [PICTURE ...] PROMPT [--schema FILE] [--stream] [...]"
    )
    parser.add_argument("words", metavar="PICTURE ... PROMPT", nargs="+", help="picture files, and the prompt last")
    parser.add_argument("--schema", metavar="FILE", help="JSON schema that the answer has to satisfy")
    parser.add_argument("--stream", action="store_true", help="show the answer as it comes")
    parser.add_argument("--max-tokens", metavar="N", type=int, help="longest answer, in tokens")
    parser.add_argument("--url", help="service to ask; default: the one at the configured host and port")
    parser.add_argument(
        "--wait", metavar="S", type=float, default=120.0, help="longest wait for the service to be ready (default: 120)"
    )
    flags.add(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask and print."""
    from twinlens.cli.question import Question  # noqa: PLC0415 - the other commands need no HTTP client

    settings = flags.loaded(args).settings
    *pictures, prompt = args.words
    for picture in pictures:
        if "://" not in picture and not picture.startswith("data:") and not Path(picture).is_file():
            raise OperatorError(f"There is no picture {picture}.", cure="Give picture files first and the prompt last.")
    question = Question(tuple(pictures), prompt, _schema(args.schema), args.max_tokens, args.stream)
    return asyncio.run(_ask(settings, question, args.url, args.wait))


async def _ask(settings: Settings, question: Question, url: str | None, wait_s: float) -> int:
    found = (url, False) if url else await _running(settings)
    if found:
        await put(*found, settings, question, wait_s)
        return 0
    sys.stderr.write("No service runs here: one is started for this question (“twinlens serve” keeps one running).\n")
    await _embedded(settings, question, wait_s)
    return 0


async def _running(settings: Settings) -> tuple[str, bool] | None:
    """(URL, whether it has test weights) of the service at the configured place. Only ours: a picture is private."""
    from twinlens.cli.question import Service  # noqa: PLC0415

    card = read_card(run_dir(settings))
    if card:
        return card.url, card.test_weights
    if not settings.port:
        return None
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    async with Service(f"http://{host}:{settings.port}", _key(settings)) as service:
        with contextlib.suppress(TwinlensError):
            _, owner = await service.model()
            return (service.url, False) if owner == OURS else None
    return None


async def _embedded(settings: Settings, question: Question, wait_s: float) -> None:
    from twinlens.cli.serve import log_to_stderr  # noqa: PLC0415
    from twinlens.supervisor.service import opened  # noqa: PLC0415

    if settings.log_level == "info":  # fit for a server's log, noise beside an answer
        settings = replace(settings, log_level="warning")
    log_to_stderr(settings)
    with opened(replace(settings, host="127.0.0.1", port=0)) as service:
        running = asyncio.create_task(service.run())
        asking = asyncio.create_task(put(service.url, service.plan.test_weights, settings, question, wait_s))
        try:
            await asyncio.wait([running, asking], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()  # raises why it could not start
            await asking
        finally:
            asking.cancel()
            service.stop()
            await asyncio.gather(running, asking, return_exceptions=True)


async def put(url: str, withheld: bool, settings: Settings, question: Question, wait_s: float) -> None:
    """Ask the service at `url` and print the answer, or how long it is where it means nothing (`withheld`)."""
    from twinlens.cli.question import Service  # noqa: PLC0415

    show: Callable[[str], None] = _nothing if withheld else _show
    async with Service(url, _key(settings)) as service:
        await service.model()
        await service.until_ready(wait_s)
        _end(await service.ask(question, show), withheld=withheld)


def _end(answer: Answer, *, withheld: bool) -> None:
    if withheld:
        print(f"test weights: text withheld, {answer.completion_tokens} tokens")
        return
    print()
    if answer.finish_reason == "length":
        sys.stderr.write("The answer was cut at its longest length: --max-tokens allows more.\n")


def _show(text: str) -> None:
    print(text, end="", flush=True)


def _nothing(text: str) -> None:
    """Test weights say nothing worth reading."""


def _key(settings: Settings) -> str:
    return settings.api_keys[0] if settings.api_keys else ""


def _schema(path: str | None) -> dict[str, Any] | bool | None:
    if path is None:
        return None
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any] | bool)
    except OSError as error:
        raise OperatorError(f"The schema {path} cannot be read: {error.strerror}.", cure="Check the path.") from error
    except msgspec.DecodeError as error:
        raise OperatorError(
            f"The schema {path} is not JSON: {error}.", cure="Give a file with a JSON schema."
        ) from error
