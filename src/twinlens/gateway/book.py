"""The fold of an answer: a single one, or one for each page of a document whose pages a task asks one by one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from twinlens.core import StepReport, Usage
from twinlens.errors import AnswerError, EngineUnavailable, TwinlensError
from twinlens.gateway.answers import Whole, extras, step_body, usage_body
from twinlens.gateway.wire import (
    AnswerMessage,
    ChatAnswer,
    Choice,
    ErrorDetail,
    Extras,
    PageBody,
)
from twinlens.pipeline import Begun, Failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from twinlens.core import FinishReason, PagePlace
    from twinlens.pipeline import Item


@dataclass(slots=True)
class Leaf:
    """What has come of one question; `place` is None for the only one."""

    place: PagePlace | None
    whole: Whole
    error: TwinlensError | None = None

    @property
    def is_done(self) -> bool:
        """Whether it has its answer."""
        return self.error is None and self.whole.usage is not None and self.whole.reasons[0] is not None


class Book:
    """Collects items. `read` makes the result of a finished text, and never raises."""

    def __init__(self, n: int, read: Callable[[str], Any]) -> None:
        self._n = n
        self._read = read
        self.leaves: list[Leaf] = []

    def add(self, item: Item) -> None:
        """Take one more item."""
        if isinstance(item, Failed):
            if not self.leaves or self.leaves[-1].place is not item.page:
                self.leaves.append(Leaf(item.page, Whole(self._n)))
            self.leaves[-1].error = item.error
            return
        if isinstance(item, Begun):
            self.leaves.append(Leaf(item.page, Whole(self._n)))
        self.leaves[-1].whole.add(item)

    @property
    def paged(self) -> bool:
        """Whether it is of pages, asked one by one."""
        return bool(self.leaves) and self.leaves[0].place is not None

    @property
    def whole(self) -> Whole:
        """The answer that is the only one, or the last."""
        return self.leaves[-1].whole if self.leaves else Whole(self._n)

    def check(self) -> None:
        """Raise what the first page without an answer failed with; what the others answered goes with it.

        Raises EngineUnavailable for an answer that ended without its end.
        """
        failed = [leaf for leaf in self.leaves if leaf.error]
        if failed:
            first = failed[0]
            error = self.told(first.error)  # type: ignore[arg-type]
            if first.place:
                more = f" So it was with {len(failed) - 1} more pages." if len(failed) > 1 else ""
                error.message = f"Page {first.place.number} of {first.place.total}: {error.message}{more}"
            raise error
        if not self.leaves or not all(leaf.is_done for leaf in self.leaves):
            raise EngineUnavailable("The engine ended without finishing its answer.", retry_after=2)

    def told(self, error: TwinlensError) -> TwinlensError:
        """The error, telling what became of the pages, so that nothing that was answered is lost with it."""
        pages = self.pages(results=True)
        if pages:
            error.more = {"pages": pages}
        if any(leaf.is_done for leaf in self.leaves if leaf.place):
            # OpenAI's clients send a request again by themselves after a 5xx, and would ask, and pay for, every page.
            error.headers = (*error.headers, (b"x-should-retry", b"false"))
        return error

    def pages(self, *, results: bool) -> list[PageBody]:
        """The pages that have an answer or an error."""
        return [self.page(leaf, results=results) for leaf in self.leaves if leaf.place and (leaf.is_done or leaf.error)]

    def page(self, leaf: Leaf, *, results: bool) -> PageBody:
        """One of them."""
        if leaf.place is None:
            raise TypeError("this is no page")
        body = PageBody(page=leaf.place.number, pages=leaf.place.total)
        if leaf.error is not None:
            body.error = ErrorDetail(**leaf.error.detail())
            if isinstance(leaf.error, AnswerError) and leaf.error.raw is not None:
                body.raw_answer = leaf.error.raw
        elif leaf.whole.usage and leaf.whole.reasons[0]:
            body.finish_reason = leaf.whole.reasons[0]
            body.usage = usage_body(leaf.whole.usage)
            body.steps = [step_body(report) for report in leaf.whole.reports]
            if results:
                body.result = self._read(leaf.whole.texts()[0])
        return body

    @property
    def result(self) -> Any:
        """The result, or the list of results."""
        results = [self._read(leaf.whole.texts()[0]) for leaf in self.leaves]
        return results if self.paged else results[0]

    @property
    def text(self) -> str:
        """The text of the answer; several results are a JSON list."""
        return msgspec.json.encode(self.result).decode() if self.paged else self.whole.texts()[0]

    @property
    def usage(self) -> Usage:
        """Of all together."""
        return reduce(Usage.plus, (leaf.whole.usage for leaf in self.leaves if leaf.whole.usage), Usage(0, 0, 0))

    @property
    def reason(self) -> FinishReason:
        """Why it ended: “length” as soon as one of them was cut."""
        reasons = [leaf.whole.reasons[0] or "stop" for leaf in self.leaves]
        return next((reason for reason in reasons if reason != "stop"), "stop")

    @property
    def reports(self) -> tuple[StepReport, ...]:
        """What the finishing steps did to all of them."""
        several = [leaf.whole.reports for leaf in self.leaves if leaf.whole.reports]
        return tuple(_summed(same) for same in zip(*several, strict=True))

    @property
    def extras(self) -> Extras:
        """What is said besides the answer. Only once it is checked."""
        told = [extras(leaf.whole.begun) for leaf in self.leaves if leaf.whole.begun]
        steps = [step_body(report) for report in self.reports]
        return Extras(
            images=[image for one in told for image in one.images],
            warnings=[warning for one in told for warning in one.warnings],
            steps=steps or UNSET,
            pages=self.pages(results=False) if self.paged else UNSET,
        )

    def chat(self, answer_id: str, model: str, *, logprobs: bool) -> ChatAnswer:
        """As a chat completion; several results are one text, a JSON list. Raises EngineUnavailable."""
        if not self.paged:
            return self.whole.chat(answer_id, model, logprobs=logprobs)
        message = AnswerMessage(content=self.text)
        return ChatAnswer(
            id=answer_id,
            created=int(time.time()),
            model=model,
            choices=[Choice(index=0, message=message, finish_reason=self.reason)],
            usage=usage_body(self.usage),
            twinlens=self.extras,
        )


async def folded(items: AsyncIterator[Item], n: int, read: Callable[[str], Any] = str) -> Book:
    """All items of a request. Raises what they raise, and what the first failed page raised."""
    book = Book(n, read)
    try:
        async for item in items:
            book.add(item)
    except TwinlensError as error:
        raise book.told(error) from error.__cause__
    book.check()
    return book


def _summed(same: Sequence[StepReport]) -> StepReport:
    changes: dict[str, int] = {}
    for report in same:
        for place, count in report.changes.items():
            changes[place] = changes.get(place, 0) + count
    return StepReport(same[0].step, changes)
