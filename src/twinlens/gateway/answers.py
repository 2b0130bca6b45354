"""From pieces to OpenAI's answers: one fold for the plain answer, one frame a piece for the stream."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from twinlens.errors import EngineUnavailable, TwinlensError
from twinlens.gateway.wire import (
    AnswerMessage,
    ChatAnswer,
    Choice,
    Chunk,
    ChunkChoice,
    Delta,
    Extras,
    LogprobBody,
    LogprobsBody,
    PromptDetails,
    SeenImage,
    StepBody,
    UsageBody,
)
from twinlens.pipeline import Begun, Failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinlens.core import FinishReason, Piece, StepReport, TokenLogprob, Usage
    from twinlens.pipeline import Item

DONE = b"data: [DONE]\n\n"
ALIVE = b": waiting\n\n"


def usage_body(usage: Usage) -> UsageBody:
    """Token counts in OpenAI's form."""
    return UsageBody(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=PromptDetails(image_tokens=usage.vision_tokens),
    )


def step_body(report: StepReport) -> StepBody:
    """A report as clients and the audit trail see it."""
    return StepBody(step=report.step, changed=report.changed, changes=dict(report.changes))


def extras(begun: Begun, reports: Sequence[StepReport] = ()) -> Extras:
    """What the client may want to know about its pictures, and about finishing steps."""
    seen = [
        SeenImage(
            width=sight.source_size[1],
            height=sight.source_size[0],
            seen_width=sight.size[1],
            seen_height=sight.size[0],
            tokens=sight.tokens,
            box_units=begun.units,
            page=sight.page.number if sight.page else msgspec.UNSET,
            pages=sight.page.total if sight.page else msgspec.UNSET,
            page_box=sight.page.box if sight.page and sight.page.box else msgspec.UNSET,
            page_rotate=sight.page.rotate if sight.page and sight.page.box else msgspec.UNSET,
        )
        for sight in begun.images
    ]
    steps = [step_body(report) for report in reports]
    return Extras(images=seen, warnings=list(begun.warnings), steps=steps or msgspec.UNSET)


class Whole:
    """The fold: collects pieces into whole answers."""

    def __init__(self, n: int) -> None:
        self.usage: Usage | None = None
        self.begun: Begun | None = None
        self._texts: list[list[str]] = [[] for _ in range(n)]
        self._logprobs: list[list[TokenLogprob]] = [[] for _ in range(n)]
        self._calls: list[list[dict[str, object]]] = [[] for _ in range(n)]
        self.reasons: list[FinishReason | None] = [None] * n
        self.reports: tuple[StepReport, ...] = ()

    def add(self, item: Begun | Piece) -> None:
        """Take one more piece."""
        if isinstance(item, Begun):
            self.begun = item
            return
        if item.usage is not None:
            self.usage = item.usage
            self.reports = item.reports
        if item.index < 0:
            return
        self._texts[item.index].append(item.text)
        self._logprobs[item.index].extend(item.logprobs)
        self._calls[item.index].extend(item.tool_calls)
        self.reasons[item.index] = item.finish_reason or self.reasons[item.index]

    def texts(self) -> list[str]:
        """The answers' texts."""
        return ["".join(text) for text in self._texts]

    def chat(self, answer_id: str, model: str, *, logprobs: bool) -> ChatAnswer:
        """The plain answer. Raises EngineUnavailable when the engine left it unfinished."""
        if self.usage is None or self.begun is None:
            raise EngineUnavailable("The engine ended without finishing its answer.", retry_after=2)
        return ChatAnswer(
            id=answer_id,
            created=int(time.time()),
            model=model,
            choices=[self._choice(index, logprobs=logprobs) for index in range(len(self._texts))],
            usage=usage_body(self.usage),
            twinlens=extras(self.begun, self.reports),
        )

    def _choice(self, index: int, *, logprobs: bool) -> Choice:
        reason = self.reasons[index]
        if reason is None:
            raise EngineUnavailable("The engine ended without finishing its answer.", retry_after=2)
        calls = self._calls[index]
        text = "".join(self._texts[index])
        return Choice(
            index=index,
            message=AnswerMessage(
                content=text if text or not calls else None,
                tool_calls=joined_calls(calls) if calls else msgspec.UNSET,
            ),
            logprobs=_logprobs(self._logprobs[index]) if logprobs else None,
            finish_reason=reason,
        )


def joined_calls(deltas: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Tool calls put together from their deltas, by OpenAI's rule: same index, arguments appended."""
    calls: dict[object, dict[str, object]] = {}
    for delta in deltas:
        index = delta.get("index", len(calls))
        call = calls.setdefault(index, {"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
        if delta.get("id"):
            call["id"] = delta["id"]
        part, function = delta.get("function"), call["function"]
        if isinstance(part, dict) and isinstance(function, dict):
            function["name"] = function["name"] or part.get("name") or ""
            function["arguments"] += part.get("arguments") or ""
    return list(calls.values())


class Frames:
    """Makes the frames of one stream. The first chunk of each choice carries the role."""

    done = DONE  # what every stream ends with

    def __init__(self, answer_id: str, model: str, *, logprobs: bool, include_usage: bool) -> None:
        self._base = {"id": answer_id, "created": int(time.time()), "model": model}
        self._logprobs = logprobs
        self._include_usage = include_usage
        self._seen: set[int] = set()
        self._extras: Extras | msgspec.UnsetType = msgspec.UNSET
        self._encoder = msgspec.json.Encoder()

    def of(self, item: Item) -> bytes:
        """The frame of one item; empty when it has none."""
        if isinstance(item, Failed):
            raise item.error
        if isinstance(item, Begun):
            self._extras = extras(item)
            return b""
        frames = b"" if item.index < 0 else self._frame(self._chunk(item))
        return frames + self._spent(item.usage) if item.usage is not None else frames

    def end(self) -> bytes:
        """The frames after the last item, ahead of `done`. May raise an error of the tree, as `of` may."""
        return b""

    def error(self, error: TwinlensError) -> bytes:
        """The frame of an error: the same body as outside a stream."""
        return self._frame(error.body())

    def _chunk(self, piece: Piece) -> Chunk:
        delta = Delta()
        if piece.index not in self._seen:
            self._seen.add(piece.index)
            delta.role = "assistant"
            delta.content = ""
        if piece.text:
            delta.content = piece.text
        if piece.tool_calls:
            delta.tool_calls = list(piece.tool_calls)
        choice = ChunkChoice(
            index=piece.index,
            delta=delta,
            finish_reason=piece.finish_reason,
            logprobs=_logprobs(piece.logprobs) if self._logprobs and piece.logprobs else None,
        )
        return self._chunk_of(choice)

    def _chunk_of(self, choice: ChunkChoice) -> Chunk:
        told, self._extras = self._extras, msgspec.UNSET
        return Chunk(
            choices=[choice],
            usage=None if self._include_usage else msgspec.UNSET,
            twinlens=told,
            **self._base,  # type: ignore[arg-type]
        )

    def _spent(self, usage: Usage) -> bytes:
        """The frame of the usage, where it is wanted."""
        if not self._include_usage:
            return b""
        return self._frame(Chunk(choices=[], usage=usage_body(usage), **self._base))  # type: ignore[arg-type]

    def _frame(self, value: object) -> bytes:
        return b"data: " + self._encoder.encode(value) + b"\n\n"


def _logprobs(tokens: Sequence[TokenLogprob]) -> LogprobsBody:
    return LogprobsBody(content=[LogprobBody(token=t.token, logprob=t.logprob, bytes=list(t.bytes)) for t in tokens])
