"""`twinlens serve [MODEL]`: the service, until a signal ends it.

SIGTERM, SIGINT (Ctrl-C) and SIGHUP drain; the second one ends at once. Exit code 0 after SIGTERM, 130 after Ctrl-C,
129 after SIGHUP, and 128 + the signal's number when the second ended it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shlex
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from twinlens import __version__
from twinlens.cli import flags
from twinlens.errors import TwinlensError
from twinlens.settings import without_userinfo

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from twinlens.orders import EngineState
    from twinlens.settings import Settings
    from twinlens.supervisor.service import Service

FIRST_TOKENS = 200  # of the answer to --ask: enough to see it work
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def add(commands: Any) -> None:
    """The command's flags."""
    parser = commands.add_parser("serve", help="start the service")
    parser.add_argument("model_", metavar="MODEL", nargs="?", help="folder or hub id; default: the setting “model”")
    parser.add_argument(
        "--ask", nargs=2, metavar=("PICTURE", "PROMPT"), help="ask this when the service is ready, print, and serve on"
    )
    flags.add(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    from twinlens.supervisor.service import opened  # noqa: PLC0415 - the other commands need none of it

    if args.model_:
        args.model = args.model_
    settings = flags.loaded(args).settings
    log_to_stderr(settings)
    with opened(settings) as service:
        _say(greeting(service))
        return asyncio.run(_until_signalled(service, args.ask))


def log_to_stderr(settings: Settings) -> None:
    """The supervisor's log lines, in the form of the workers'."""
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s supervisor %(message)s", stream=sys.stderr
    )


def greeting(service: Service, picture: str = "PICTURE", prompt: str = "What is this?") -> str:
    """What is served, where, and one line to try it."""
    plan = service.plan
    engine = without_userinfo(plan.engine.url) if plan.attached else plan.settings.engine
    key = ' -H "authorization: Bearer $KEY"' if plan.keyed else ""
    return (
        f"Twinlens {__version__}\n"
        f"  address  {service.url}\n"
        f"  model    {plan.model.name}\n"
        f"  engine   {engine}\n"
        f"  try      {curl(service.url, key, picture, prompt)}"
    )


def curl(url: str, key: str, picture: str, prompt: str) -> str:
    """One line that asks about a picture. The picture goes through a pipe: arguments are too short for one."""
    words = shlex.quote(f'{{"prompt": {msgspec.json.encode(prompt).decode()}, "image": "')
    return (
        f"(printf %s {words}; base64 < {shlex.quote(picture)} | tr -d '\\n'; printf '\"}}') | "
        f"curl -s {url}/v1/inference -H 'content-type: application/json'{key} -d @-"
    )


async def _until_signalled(service: Service, question: Sequence[str] | None) -> int:
    loop = asyncio.get_running_loop()
    codes: list[int] = []

    def stop(number: signal.Signals) -> None:
        codes.append(0 if number == signal.SIGTERM and not codes else 128 + number)
        limit = service.plan.settings.drain_timeout_s
        _say("Ending at once." if len(codes) > 1 else f"Draining for up to {limit:g} s; once more to end at once.")
        service.stop()

    def tell(state: EngineState) -> None:
        if not service.ready.is_set() and state.state != "ready":
            _say(f"Waiting for the engine: {state.state}. {state.reason}".rstrip())

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:  # “nohup” wants it ignored
            loop.add_signal_handler(number, stop, number)
    service.on_change = tell
    _say(f"Waiting for the engine{'.' if service.plan.attached else ': it loads the model.'}")
    coming = asyncio.create_task(_come_up(service, question))
    try:
        await service.run()
    finally:
        coming.cancel()
    return codes[-1] if codes else 0


async def _come_up(service: Service, question: Sequence[str] | None) -> None:
    began = time.monotonic()
    await service.ready.wait()
    _say(f"Ready after {time.monotonic() - began:.1f} s.")
    if question:
        await _first_question(service, *question)
        _say(greeting(service, *question))


async def _first_question(service: Service, picture: str, prompt: str) -> None:
    from twinlens.cli.ask import put  # noqa: PLC0415
    from twinlens.cli.question import Question  # noqa: PLC0415

    _say(f"\n{picture}\n{prompt}")
    try:
        await put(
            service.url,
            service.plan.test_weights,
            service.plan.own_key,
            Question((picture,), prompt, max_tokens=FIRST_TOKENS),
            60,
        )
    except TwinlensError as error:
        _say(f"No answer: {error.message} {error.cure}".rstrip())
    _say("")


def _say(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody listens any more: no reason to stop serving
        print(text, flush=True)
