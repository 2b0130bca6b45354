"""What POST /v1/tasks/{name} answers with: the result, plain or as the frames of a stream."""

from __future__ import annotations

import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from twinlens.gateway.answers import Frames, usage_body
from twinlens.gateway.book import Book
from twinlens.gateway.wire import TaskAnswer, TaskDelta, TaskPage
from twinlens.pipeline import Begun, Failed

if TYPE_CHECKING:
    from twinlens.errors import TwinlensError
    from twinlens.pipeline import Item
    from twinlens.tasks.task import Task


def result_of(task: Task, text: str) -> Any:
    """The result of a finished answer: JSON where the task makes some, else its text."""
    if task.answer.kind == "text":
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text  # a template that writes text


def answer_of(task: Task, model: str, answer_id: str, book: Book) -> TaskAnswer:
    """The answer. Raises what the first failed page failed with, and EngineUnavailable for an unfinished answer."""
    book.check()
    said = book.extras
    warnings = list(said.warnings)
    for leaf in book.leaves:
        if leaf.whole.reasons[0] == "length":
            page = f"Page {leaf.place.number}: the" if leaf.place else "The"
            warnings.append(f"{page} answer was cut at the token limit.")
    return TaskAnswer(
        id=answer_id,
        created=int(time.time()),
        task=task.name,
        version=task.version,
        model=model,
        result=book.result,
        finish_reason=book.reason,
        usage=usage_body(book.usage),
        warnings=warnings,
        images=said.images,
        steps=said.steps or [],
        pages=said.pages,
    )


class TaskFrames(Frames):
    """Makes the frames of one stream: text as it comes where that can be, each page, then the whole result."""

    def __init__(self, task: Task, model: str, *, deltas: bool) -> None:
        self._id = f"task-{uuid.uuid4().hex}"
        super().__init__(self._id, model, logprobs=False, include_usage=False)
        self._task = task
        self._model = model
        self._deltas = deltas
        self._book = Book(1, partial(result_of, task))
        self._held = b""  # failures, until a page has an answer: where none has, the status is theirs to say

    def of(self, item: Item) -> bytes:
        """See `Frames.of`."""
        book = self._book
        book.add(item)
        if isinstance(item, Begun):
            return b""
        if isinstance(item, Failed):
            self._held += self._page()
            return self._flushed() if any(leaf.is_done for leaf in book.leaves) else b""
        if item.usage is not None:
            return self._flushed() + self._page() if book.paged else b""
        if not self._deltas or not item.text:
            return b""
        place = book.leaves[-1].place
        delta = TaskDelta(id=self._id, text=item.text, page=place.number if place else UNSET)
        return self._flushed() + self._frame(delta)

    def end(self) -> bytes:
        """See `Frames.end`. Raises as `answer_of`."""
        return self._frame(answer_of(self._task, self._model, self._id, self._book))

    def error(self, error: TwinlensError) -> bytes:
        """See `Frames.error`; what was finished goes with it."""
        return super().error(self._book.told(error))

    def _page(self) -> bytes:
        said = self._book.page(self._book.leaves[-1], results=True)
        fields = {name: getattr(said, name) for name in said.__struct_fields__}
        return self._frame(TaskPage(id=self._id, **fields))

    def _flushed(self) -> bytes:
        held, self._held = self._held, b""
        return held
