"""`twinlens task list|show|check|try`: look at tasks, check files, see what each finishing step does to an answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from twinlens.cli import ask, flags
from twinlens.errors import AnswerError, OperatorError, ServerError
from twinlens.tasks import reading, shelf
from twinlens.tasks.task import Task, read

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from twinlens.cli.question import Answer
    from twinlens.finish.seam import Draft, Frame, Plan, Seen
    from twinlens.media.pages import Numbers
    from twinlens.settings import Settings


def add(commands: Any) -> None:
    """The command's flags."""
    parser = commands.add_parser(
        "task",
        help="look at tasks, check and try them",
        usage="twinlens task list | show NAME | check FILE ... | try (FILE | NAME) [PICTURE ...] [--var NAME=VALUE]",
    )
    parser.add_argument("action", choices=("list", "show", "check", "try"), help="what to do")
    parser.add_argument("words", metavar="NAME | FILE | PICTURE", nargs="*", help="what to do it with")
    parser.add_argument("--var", metavar="NAME=VALUE", action="append", default=[], help="try: a variable of the task")
    ask.paging(parser)
    parser.add_argument("--url", help="try: service to ask; default: the one at the configured host and port")
    parser.add_argument("--key-file", metavar="FILE", help="try: file with the API key for the service")
    parser.add_argument("--wait", metavar="S", type=float, default=120.0, help="try: longest wait for the service")
    flags.add(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do it."""
    settings = flags.loaded(args).settings
    if args.action == "list":
        return _list(settings)
    if not args.words:
        raise OperatorError(f"“task {args.action}” needs to know which.", cure="Name a task, or a task file.")
    if args.action == "show":
        return _show(_named(args.words[0], settings))
    if args.action == "check":
        for word in args.words:
            task = read(Path(word), secret=settings.redact_key)
            print(f"{word}: good; {len(task.steps)} steps, version {task.version[:12]}")
        return 0
    return _try(args, settings)


def _list(settings: Settings) -> int:
    tasks = shelf.load(settings).tasks.values()
    width = max(len(task.name) for task in tasks)
    for task in tasks:
        print(f"{task.name:{width}}  {task.version[:12]}  {task.description}")
    return 0


def _named(word: str, settings: Settings) -> Task:
    """A task by its file, or by its name."""
    if Path(word).suffix in reading.ENDINGS:
        return read(Path(word), secret=settings.redact_key)
    return shelf.load(settings).get(word)


def _show(task: Task) -> int:
    print(f"{task.name}: {task.description}\nversion {task.version}")
    for name, variable in task.variables.items():
        rule = msgspec.json.encode(variable).decode()
        print(f"variable {name}: {rule}")
    pages = "together" if task.pages.together else "each"
    pages += f", the first {task.pages.most}" if task.pages.most else ""
    print(f"pictures {task.pictures.least} to {task.pictures.most}; pages {pages}")
    print(f"steps: {', '.join(plan.name for plan in task.steps) or 'none'}")
    print(f"columns: {', '.join(column.name for column in task.columns) or 'the keys of the answer'}")
    if task.answer.schema is not None:
        print(msgspec.json.format(msgspec.json.encode(task.answer.schema), indent=2).decode())
    return 0


@dataclass(frozen=True, slots=True)
class _Picture:
    """A picture file, or the pages of one that are asked about (none: it is no document)."""

    path: str
    pages: Numbers = ()
    password: str = field(default="", repr=False)

    def part(self, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """As a part of a chat."""
        from twinlens.cli.question import data_uri  # noqa: PLC0415 - the other actions need no HTTP client
        from twinlens.media.pages import written  # noqa: PLC0415

        said = {"type": "image_url", "image_url": {"url": data_uri(self.path), **sizes}}
        if self.pages:
            said |= {"pages": written(self.pages)}
        return said | ({"password": self.password} if self.pages and self.password else {})


@dataclass(frozen=True, slots=True)
class _Trial:
    """A task's question as a plain chat completion, which any service answers raw."""

    task: Task
    variables: Mapping[str, Any]
    pictures: tuple[_Picture, ...]
    stream: bool = False
    path: str = "/v1/chat/completions"

    def body(self, model: str) -> dict[str, Any]:
        """See `Question.body`."""
        from twinlens.core import ImagePart  # noqa: PLC0415

        rule = self.task.pictures
        bounds = {"min_pixels": rule.min_pixels, "max_pixels": rule.max_pixels, "detail": rule.detail}
        sizes = {name: value for name, value in bounds.items() if value is not None}
        turns = []
        for turn in self.task.messages(self.variables, len(self.pictures)):
            parts = [
                self.pictures[part.index].part(sizes)
                if isinstance(part, ImagePart)
                else {"type": "text", "text": part.text}
                for part in turn.parts
            ]
            turns.append({"role": turn.role, "content": parts})
        asked: dict[str, Any] = {"model": model, "messages": turns}
        own = self.task.sampling
        wanted = {
            name: getattr(own, name)
            for name in ("max_tokens", "temperature", "top_p", "top_k", "seed", "repetition_penalty")
        }
        asked |= {name: value for name, value in wanted.items() if value is not None}
        if self.task.answer.schema is not None:
            schema = {"name": "answer", "schema": self.task.answer.schema}
            asked["response_format"] = {"type": "json_schema", "json_schema": schema}
        return asked


def _try(args: argparse.Namespace, settings: Settings) -> int:
    first, *pictures = args.words
    task = _named(first, settings)
    for picture in pictures:
        if not Path(picture).is_file():
            raise OperatorError(f"There is no picture {picture}.", cure="Check the path.")
    trial = _Trial(task, task.filled(ask.variables_of(args.var)), tuple(_pictures(args, settings, task, pictures)))
    return ask.asked(args, settings, trial, _put)


def _pictures(args: argparse.Namespace, settings: Settings, task: Task, paths: Sequence[str]) -> Iterator[_Picture]:
    """The pictures with the pages that the task would ask about; of pages that are asked one by one, the first."""
    from twinlens.cli.question import is_document  # noqa: PLC0415
    from twinlens.media import pages  # noqa: PLC0415
    from twinlens.media.documents import Documents  # noqa: PLC0415

    paging = ask.paged(args, paths)
    chosen = pages.choice(paging.pages, "--pages") if paging.pages else ()
    with Documents(settings) as documents:
        for path in paths:
            if not is_document(path):
                yield _Picture(path)
                continue
            count = documents.count(Path(path).read_bytes(), path, paging.password)
            meant = pages.numbers(chosen, count, path, settings.max_pages, task.pages.most)
            if not task.pages.together and len(paths) == 1 and count > 1:
                print(f"page {meant[0]} of {count}; each is asked by itself, and --pages N tries another")
                meant = meant[:1]
            yield _Picture(path, meant, paging.password)


async def _put(url: str, withheld: bool, key: str, trial: _Trial, wait_s: float) -> None:
    """Ask raw and show every step."""
    from twinlens.cli.question import Service  # noqa: PLC0415

    _head(f"task {trial.task.name}, version {trial.task.version[:12]}; prompt")
    print(trial.task.prompt(trial.variables))
    async with Service(url, key) as service:
        await service.model()
        await service.until_ready(wait_s)
        answer = await service.ask(trial, _unseen)
    if withheld:
        print(f"test weights: text withheld, {answer.completion_tokens} tokens")
        return
    _head(f"raw answer: {answer.completion_tokens} tokens, ended by {answer.finish_reason}")
    print(_safe(answer.text))
    _work(trial, answer)


def _work(trial: _Trial, answer: Answer) -> None:
    from twinlens.finish.line import work  # noqa: PLC0415
    from twinlens.finish.seam import Draft  # noqa: PLC0415

    reason: Any = answer.finish_reason

    def trace(plan: Plan, before: Draft, after: Draft) -> None:
        _head(f"step {plan.name}{'' if after.text != before.text else ': leaves it as it is'}")
        if after.text != before.text:
            print(_safe(after.text))

    try:
        draft, reports = work(trial.task.steps, Draft(answer.text, reason=reason), _seen(trial, answer), trace)
    except AnswerError as error:
        again = " A service would tell the model, and ask once more." if error.told else ""
        raise ServerError(f"A step refuses the answer: {error.message}{again}", cure=error.cure) from error
    _head("changes")
    for report in reports:
        print(f"{report.step}: {', '.join(f'{place} x{count}' for place, count in report.changes.items()) or 'none'}")
    if draft.value is not msgspec.UNSET:
        _head("columns")
        for name, value in trial.task.row(draft.value).items():
            print(_safe(f"{name}: {msgspec.json.encode(value).decode()}"))


def _seen(trial: _Trial, answer: Answer) -> Seen:
    """The frames as the service tells them; how a file is turned is read here."""
    from twinlens.finish.seam import Seen  # noqa: PLC0415

    said = iter(answer.images)
    frames = [
        _frame(picture, page, told)
        for picture in trial.pictures
        for page, told in zip(picture.pages or (0,), said, strict=False)
    ]
    units: Any = answer.images[0].get("box_units", "thousandths") if answer.images else "thousandths"
    return Seen(tuple(frames), units, trial.variables)


def _frame(picture: _Picture, page: int, said: Mapping[str, Any]) -> Frame:
    from twinlens.finish.boxes import Page  # noqa: PLC0415
    from twinlens.finish.seam import Frame  # noqa: PLC0415
    from twinlens.media import signature  # noqa: PLC0415
    from twinlens.media.documents import frame_of  # noqa: PLC0415
    from twinlens.media.orientation import of_file  # noqa: PLC0415

    data = Path(picture.path).read_bytes()
    name = signature.sniff(data)
    turn = 1 if name == "PDF" else of_file(data, name, frame_of(data, page) if page else 0)
    sheet = Page(tuple(said["page_box"]), said["page_rotate"]) if "page_box" in said else None
    return Frame((said["height"], said["width"]), (said["seen_height"], said["seen_width"]), turn, sheet)


def _unseen(text: str) -> None:
    """The raw answer is shown when it is whole."""


def _head(text: str) -> None:
    print(f"--- {text}")


def _safe(text: str) -> str:
    from twinlens.cli.question import harmless  # noqa: PLC0415

    return harmless(text)
