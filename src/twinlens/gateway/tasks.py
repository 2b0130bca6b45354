"""POST /v1/tasks/{name} and GET /v1/tasks: a question that the operator has written down, with the client's pictures.

A task goes the same way as a chat request; `model: "task:<name>"` in chat completions is the same question in OpenAI's
form. With the setting `audit` no answer ends before its line is written.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from twinlens.core import AnswerFormat, Sampling, TextPart
from twinlens.errors import AuditError, InvalidField, TwinlensError, UnsupportedField
from twinlens.finish import pointers
from twinlens.gateway.answers import step_body
from twinlens.gateway.book import folded
from twinlens.gateway.front import exchange_of
from twinlens.gateway.http import STREAM_HEADERS, Stream, as_error, send_json
from twinlens.gateway.results import TaskFrames, answer_of, result_of
from twinlens.gateway.wire import ChatBody, MessageBody, TaskBody, TaskItem, TaskList
from twinlens.pipeline import Begun, Failed
from twinlens.tasks.shelf import PREFIX

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from starlette.types import Receive, Scope, Send

    from twinlens.core import Abilities, Request
    from twinlens.gateway.chat import Asking
    from twinlens.gateway.front import Exchange
    from twinlens.gateway.wire import TaskImage
    from twinlens.observe.audit import Audit
    from twinlens.pipeline import Item
    from twinlens.tasks.shelf import Shelf
    from twinlens.tasks.task import Task

log = logging.getLogger("twinlens.gateway")

_PART = re.compile(r"messages\[0\]\.content\[(\d+)\](?:\.image_url)?(?:\.url)?")


@dataclass(frozen=True, slots=True)
class Tasks:
    """What both entrances to tasks share. `weights` is the identity of the model's weights."""

    shelf: Shelf
    weights: str
    audit: Audit | None
    audit_content: bool = False

    def of_chat(self, body: ChatBody) -> Task | None:
        """The task that a chat request names as its model; None for one that names no task. Raises TaskNotFound."""
        if not body.model.startswith(PREFIX):
            return None
        task = self.shelf.get(body.model.removeprefix(PREFIX), "model")
        for name in ("response_format", "tools", "tool_choice", "logprobs", "stop"):
            if getattr(body, name):
                raise UnsupportedField(f"“{name}” is the task's to decide.", param=name)
        if body.n not in (None, 1):
            raise UnsupportedField("A task gives one answer.", param="n")
        return task

    def question(self, task: Task, request: Request, abilities: Abilities, variables: dict[str, Any] | None) -> Request:
        """The task's question with the pictures of `request`, which the parser made of what the client sent.

        Without `variables` they stand in the turn's text, as a JSON object; any other text follows the task's prompt.
        """
        if len(request.messages) != 1 or request.messages[0].role != "user":
            raise InvalidField("A task takes one user message.", param="messages")
        texts = [part.text for part in request.messages[0].parts if isinstance(part, TextPart)]
        more = "\n".join(filter(str.strip, texts)).strip()
        if variables is None:
            variables, more = _told(more)
        filled = task.filled(variables)
        pictures = task.pictures
        return replace(
            request,
            model=f"{PREFIX}{task.name}",
            messages=task.messages(filled, len(request.images), more),
            images=tuple(
                replace(
                    image,
                    first=task.pages.most,
                    detail=pictures.detail if image.detail == "auto" else image.detail,
                    min_pixels=image.min_pixels or pictures.min_pixels,
                    max_pixels=image.max_pixels or pictures.max_pixels,
                )
                for image in request.images
            ),
            sampling=_merged(request.sampling, task.sampling),
            # An engine without grammars is held to the schema by the step alone.
            answer=task.answer if abilities.json_schema else AnswerFormat(),
            finishing=task.steps,
            variables=filled,
            each_page=not task.pages.together,
        )

    async def audited(
        self, items: AsyncGenerator[Item, None], task: Task, exchange: Exchange
    ) -> AsyncGenerator[Item, None]:
        """The same items; a line is written before the last of each answer, and when it fails or nobody waits.

        Each page of a document that has an answer of its own has a line of its own.
        """
        texts: list[str] = []
        page: dict[str, Any] = {}  # that has begun and has no line yet
        try:
            async with aclosing(items):
                async for item in items:
                    if isinstance(item, Begun):
                        texts, page = [], {"page": item.page.number} if item.page else {}
                    elif isinstance(item, Failed):
                        await self._write(task, exchange, outcome=item.error.code, page=item.page.number)
                        page = {}
                    else:
                        texts.append(item.text)
                        if item.usage is not None:
                            content = {"content": "".join(texts)} if self.audit_content else {}
                            steps = [step_body(report) for report in item.reports]
                            await self._write(task, exchange, outcome="ok", steps=steps, **page, **content)
                            page = {}
                    yield item
        except (asyncio.CancelledError, GeneratorExit):
            try:
                await asyncio.shield(self._write(task, exchange, outcome="left", **page))
            except AuditError:
                log.exception("request %s: its client left, without an audit line", exchange.request_id)
            raise
        except Exception as error:
            await self._write(task, exchange, outcome=as_error(error).code, **page)
            raise

    async def _write(self, task: Task, exchange: Exchange, **said: Any) -> None:
        if self.audit is None:
            return
        record = {
            "request": exchange.request_id,
            "tenant": exchange.tenant,
            "key": exchange.key_id,
            "task": task.name,
            "version": task.version,
            "weights": self.weights,
            "steps": [],
            **said,
        }
        await asyncio.to_thread(self.audit.write, record)


def _told(text: str) -> tuple[dict[str, Any], str]:
    """(variables, further words) of the text of a chat turn."""
    if text.startswith("{"):
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            found = None
        if isinstance(found, dict):
            return found, ""
    return {}, text


def _merged(asked: Sampling, own: Sampling) -> Sampling:
    """What the client asks for, and the task's own where it asks for nothing."""
    plain = Sampling()
    given = {field.name: getattr(asked, field.name) for field in fields(Sampling)}
    return replace(own, **{name: value for name, value in given.items() if value != getattr(plain, name)})


class TaskRoute:
    """ASGI endpoint of POST /v1/tasks/{name}."""

    def __init__(self, asking: Asking, name: str) -> None:
        self._asking = asking
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one question of a task, plain or as a stream."""
        exchange = exchange_of(scope)
        asking = self._asking
        body, health = await asking.read(scope, receive, TaskBody)
        task = asking.tasks.shelf.get(self._name)
        with _images_named():
            request = asking.parser.chat(_chat(body, asking.parser.served_name), exchange.request_id, health.abilities)
        images = tuple(replace(image, where=f"images[{at}]") for at, image in enumerate(request.images))
        request = replace(request, images=images, caller=exchange.caller)
        request = asking.private.request(
            asking.tasks.question(task, request, health.abilities, dict(body.variables or {}))
        )
        del body  # megabytes that nobody needs while the answer is made
        await asking.run(scope, receive, self._respond(task, request, exchange, send))

    async def _respond(self, task: Task, request: Request, exchange: Exchange, send: Send) -> None:
        items = self._asking.answer(request, exchange, task)
        if request.stream:
            frames = TaskFrames(task, self._asking.parser.served_name, deltas=request.answer.kind == "text")
            await Stream(send, frames, STREAM_HEADERS).run(items)
            return
        async with aclosing(items):
            book = await folded(items, 1, partial(result_of, task))
        await send_json(send, answer_of(task, self._asking.parser.served_name, f"task-{uuid.uuid4().hex}", book))


def _chat(body: TaskBody, model: str) -> ChatBody:
    content = [_picture(image, f"images[{at}]") for at, image in enumerate(body.images)]
    return ChatBody(
        model=model,
        messages=[MessageBody(role="user", content=content)],
        stream=body.stream,
        max_completion_tokens=body.max_tokens,
        temperature=body.temperature,
        seed=body.seed,
    )


def _picture(image: str | TaskImage, where: str) -> dict[str, Any]:
    """The part of a chat that says the same."""
    if isinstance(image, str):
        return {"type": "image_url", "image_url": image}
    if (image.url is None) == (image.file_id is None):
        raise InvalidField(f"“{where}” needs one of “url” and “file_id”.", param=where)
    bounds: dict[str, Any] = {
        "min_pixels": image.min_pixels,
        "max_pixels": image.max_pixels,
        "pages": image.pages,
        "password": image.password,
        "page_text": image.page_text,
    }
    if image.file_id is not None:
        return {"type": "file", "file": {"file_id": image.file_id}, "detail": image.detail, **bounds}
    return {"type": "image_url", "image_url": {"url": image.url, "detail": image.detail}, **bounds}


@contextmanager
def _images_named() -> Iterator[None]:
    """Errors of the chat parser name the picture as this route's clients sent it."""
    try:
        yield
    except TwinlensError as error:
        error.param = _PART.sub(r"images[\1]", error.param) if error.param else error.param
        error.message = _PART.sub(r"images[\1]", error.message)
        raise


class TaskCatalogue:
    """ASGI endpoint of GET /v1/tasks."""

    def __init__(self, shelf: Shelf, *, private: bool, page_text: bool) -> None:
        """`private`: the service hides something in every answer. `page_text`: it reads the text of PDF pages."""
        tasks = shelf.tasks.values()
        self._list = TaskList(data=[_item(task, private=private, page_text=page_text) for task in tasks])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with all tasks."""
        await send_json(send, self._list)


def _item(task: Task, *, private: bool, page_text: bool) -> TaskItem:
    # A picture of a page has neither its text nor its points.
    document = page_text or task.of_documents
    return TaskItem(
        id=task.name,
        version=task.version,
        description=task.description,
        variables={name: msgspec.to_builtins(variable) for name, variable in task.variables.items()},
        schema=task.answer.schema,
        columns=[column.name for column in task.columns],
        paths=[pointers.written(column.steps) for column in task.columns],
        pages={"together": task.pages.together, "most": task.pages.most, "document": document},
        boxes=[{"path": path, "units": units} for path, units in task.drawable()],
        private=private or any(step.private for step in task.steps),
    )


class UnknownTask:
    """ASGI endpoint of POST /v1/tasks/{name} for names that are not there."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raise TaskNotFound with the nearest name."""
        self._shelf.get(str(scope["path_params"].get("name", "")))
