"""`twinlens ask PICTURE... PROMPT`: one question, to a running service, or to one that is started just for it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import msgspec

from twinlens.cli import flags
from twinlens.errors import OperatorError, TwinlensError
from twinlens.orders import read_card
from twinlens.settings import run_dir

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine, Sequence

    from twinlens.cli.question import Answer, Paging, Question
    from twinlens.settings import Settings

Putting: TypeAlias = "Callable[[str, bool, str, Any, float], Coroutine[Any, Any, None]]"

OURS = "twinlens"
LOOPBACK = "127.0.0.1"
HERE = frozenset((LOOPBACK, "localhost", "::1", "0.0.0.0", "::"))  # noqa: S104 - compared, not bound


def add(commands: Any) -> None:
    """The command's flags."""
    parser = commands.add_parser(
        "ask",
        help="ask about pictures",
        usage="twinlens ask [PICTURE ...] (PROMPT | --task NAME) [--schema FILE] [--stream] [...]",
        epilog="On a terminal the answer is shown without control characters; elsewhere it is passed on as it is.",
    )
    parser.add_argument("words", metavar="PICTURE ... PROMPT", nargs="*", help="picture files, and the prompt last")
    parser.add_argument("--task", metavar="NAME", help="ask this task of the service instead of a prompt")
    parser.add_argument("--var", metavar="NAME=VALUE", action="append", default=[], help="a variable of the task")
    paging(parser)
    parser.add_argument("--schema", metavar="FILE", help="JSON schema that the answer has to satisfy")
    parser.add_argument("--stream", action="store_true", help="show the answer as it comes")
    parser.add_argument("--max-tokens", metavar="N", type=int, help="longest answer, in tokens")
    parser.add_argument("--url", help="service to ask; default: the one at the configured host and port")
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        help="file with the API key for the service; without it a configured key (api_keys) goes to the configured "
        "service only, never to another address",
    )
    parser.add_argument(
        "--wait", metavar="S", type=float, default=120.0, help="longest wait for the service to be ready (default: 120)"
    )
    flags.add(parser)
    parser.set_defaults(run=run, refuse=parser.error)


def run(args: argparse.Namespace) -> int:
    """Ask and print."""
    from twinlens.cli.question import Question  # noqa: PLC0415 - the other commands need no HTTP client

    settings = flags.loaded(args).settings
    if not args.task and (not args.words or args.var):
        args.refuse("there is no PROMPT (and --var goes with --task)")
    *pictures, prompt = (*args.words, "") if args.task else args.words
    if args.task and args.schema:
        raise OperatorError("--schema is for prompts.", cure="A task has its own schema.")
    for picture in pictures:
        if "://" not in picture and not picture.startswith("data:") and not Path(picture).is_file():
            raise OperatorError(f"There is no picture {picture}.", cure="Give picture files first and the prompt last.")
    question = Question(
        tuple(pictures),
        prompt,
        _schema(args.schema),
        args.max_tokens,
        args.stream,
        args.task or "",
        variables_of(args.var),
        paged(args, pictures),
    )
    return asked(args, settings, question, put)


def paging(parser: argparse.ArgumentParser) -> None:
    """The flags that say how documents are used."""
    parser.add_argument("--pages", metavar="CHOICE", default="", help="pages of a PDF or TIFF, such as 1-3,7 or 5-")
    parser.add_argument("--password-file", metavar="FILE", help="file with the password of a PDF")


def paged(args: argparse.Namespace, pictures: Sequence[str]) -> Paging:
    """What they say. Raises OperatorError for a password that cannot be read, and for pages that nothing has."""
    from twinlens.cli.question import Paging, is_document  # noqa: PLC0415

    if (args.pages or args.password_file) and not any(map(is_document, pictures)):
        raise OperatorError(
            "--pages and --password-file are for PDF and TIFF files, and none is given.", cure="Leave them out."
        )
    return Paging(args.pages, _password_in(args.password_file) if args.password_file else "")


def _password_in(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise OperatorError(f"The password in {name} cannot be read: {why}.", cure="Check the file.") from error


def asked(args: argparse.Namespace, settings: Settings, question: Any, putting: Putting) -> int:
    """Find or start the service that the arguments mean, and let `putting` ask it."""
    given = _key_in(args.key_file) if args.key_file else None
    key = _key(settings) if given is None else given
    named = None
    if args.url:  # what is configured is meant for the configured service only
        named = _Named(args.url, key if given is not None or _is_configured(settings, args.url) else "")
    return asyncio.run(_ask(settings, question, named or key, args.wait, putting))


def variables_of(given: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE pairs; a value that is JSON is taken as such, any other as a text. Raises OperatorError."""
    found: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise OperatorError(f"--var {pair}: there is no “=”.", cure="Write --var NAME=VALUE.")
        try:
            found[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[name] = value
    return found


@dataclass(frozen=True, slots=True)
class _Named:
    """A service that was named with --url, and the key that it may see."""

    url: str
    key: str


async def _ask(settings: Settings, question: Question, whom: _Named | str, wait_s: float, putting: Putting) -> int:
    """`whom`: a service by its name, or the key for the one that runs at the configured place."""
    if isinstance(whom, _Named):
        await putting(whom.url, False, whom.key, question, wait_s)
        return 0
    found = await _running(settings, whom)
    if found:
        await putting(*found, whom, question, wait_s)
        return 0
    sys.stderr.write("No service runs here: one is started for this question (“twinlens serve” keeps one running).\n")
    await _embedded(settings, question, wait_s, putting)
    return 0


async def _running(settings: Settings, key: str) -> tuple[str, bool] | None:
    """(URL, whether it has test weights) of the service at the configured place. Only ours: a picture is private."""
    from twinlens.cli.question import Service  # noqa: PLC0415

    card = read_card(run_dir(settings))
    if card:
        return card.url, card.test_weights
    if not settings.port:
        return None
    async with Service(_configured(settings), key) as service:
        with contextlib.suppress(TwinlensError):
            _, owner = await service.model()
            return (service.url, False) if owner == OURS else None
    return None


async def _embedded(settings: Settings, question: Question, wait_s: float, putting: Putting) -> None:
    from twinlens.cli.serve import log_to_stderr  # noqa: PLC0415
    from twinlens.supervisor.service import opened  # noqa: PLC0415

    if settings.log_level == "info":  # fit for a server's log, noise beside an answer
        settings = replace(settings, log_level="warning")
    log_to_stderr(settings)
    with opened(replace(settings, host="127.0.0.1", port=0)) as service:
        running = asyncio.create_task(service.run())
        plan = service.plan
        asking = asyncio.create_task(putting(service.url, plan.test_weights, plan.own_key, question, wait_s))
        try:
            await asyncio.wait([running, asking], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()  # raises why it could not start
            await asking
        finally:
            asking.cancel()
            service.stop()
            await asyncio.gather(running, asking, return_exceptions=True)


async def put(url: str, withheld: bool, key: str, question: Question, wait_s: float) -> None:
    """Ask the service at `url` and print the answer, or how long it is where it means nothing (`withheld`)."""
    from twinlens.cli.question import Service  # noqa: PLC0415

    show: Callable[[str], None] = _nothing if withheld else _show
    async with Service(url, key) as service:
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
    from twinlens.cli.question import harmless  # noqa: PLC0415

    print(harmless(text) if sys.stdout.isatty() else text, end="", flush=True)


def _nothing(text: str) -> None:
    """Test weights say nothing worth reading."""


def _key(settings: Settings) -> str:
    return settings.api_keys[0] if settings.api_keys else ""


def _key_in(key_file: str) -> str:
    """The key that a file holds. Raises OperatorError."""
    try:
        key = Path(key_file).read_text(encoding="ascii").strip()
    except OSError as error:
        raise OperatorError(f"The key in {key_file} cannot be read: {error.strerror}.", cure="Check it.") from error
    except UnicodeDecodeError as error:
        raise OperatorError(f"{key_file} holds no key.", cure="Give a file with the key and nothing else.") from error
    if not key.isprintable():
        raise OperatorError(f"{key_file} holds no key.", cure="Give a file with the key and nothing else.")
    return key


def _configured(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


def _is_configured(settings: Settings, url: str) -> bool:
    card = read_card(run_dir(settings))
    try:
        return _origin(url) in {_origin(ours) for ours in (_configured(settings), card.url if card else "") if ours}
    except ValueError:  # a port that is none
        return False


def _origin(url: str) -> tuple[str, str, int | None]:
    """(scheme, host, port). All names of loopback and of “every address of this machine” are one host."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme, LOOPBACK if host in HERE else host, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


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
