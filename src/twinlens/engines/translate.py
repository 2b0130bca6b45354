"""Our nouns as the engine's wire, and the wire as our nouns: the translation behind `client`, without a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from twinlens.core import ImagePart, Piece, TextPart, TokenLogprob, Usage
from twinlens.engines import wire
from twinlens.engines.wire import Health
from twinlens.errors import (
    AnswerError,
    DeadlineExceeded,
    EngineUnavailable,
    InvalidRequest,
    ServerError,
    TwinlensError,
    tree,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinlens.core import FinishReason, Message, Part, Request

RETRY_AFTER_S = 2.0
CURE = "Look at the engine's log."
REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
ENDED_EARLY = frozenset(("abort", "error", "cancelled"))  # engines' words for an answer that is not whole

_KINDS = {kind.code: kind for kind in reversed(tree()) if issubclass(kind, InvalidRequest)}
_encode = msgspec.json.Encoder().encode
_chunk = msgspec.json.Decoder(wire.Chunk)
_error = msgspec.json.Decoder(wire.ErrorBody)
_health = msgspec.json.Decoder(Health)
_models = msgspec.json.Decoder(wire.ModelList)


def question(request: Request, urls: Sequence[str], model: str) -> bytes:
    """The body to send. `urls`: where the engine finds the pixels of each picture, in order."""
    if len(urls) != len(request.images):
        raise ServerError("The pictures of a request are not those that were loaded.")
    sampling = request.sampling
    chat = wire.Chat(
        messages=[_message(message, urls) for message in request.messages],
        model=model,
        stream=True,
        stream_options=wire.StreamOptions(include_usage=True),
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=sampling.seed,
        stop=list(sampling.stop) or None,
        ignore_eos=sampling.ignore_eos,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        n=sampling.n,
        logprobs=sampling.logprobs,
        top_logprobs=sampling.top_logprobs or None,
        response_format=_format(request),
        tools=list(request.tools) or None,
        tool_choice=request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls,
    )
    return _encode(chat)


class Hearing:
    """What has been heard of one answer, and whether it is whole."""

    def __init__(self, n: int, *, ours: bool) -> None:
        """`n` choices; `ours` if the engine is one of ours, so that the texts of its errors may be shown."""
        self.n = n
        self.ours = ours
        self.finished: set[int] = set()
        self.usage: wire.Usage | None = None
        self.done = False

    def take(self, line: bytes) -> list[Piece]:
        """The pieces of one line of server-sent events; engines write one `data:` line an event."""
        if not line.startswith(b"data:") or self.done:
            return []
        data = line[5:].strip()
        if data == b"[DONE]":
            self.done = True
            return []
        try:
            chunk = _chunk.decode(data)
        except msgspec.DecodeError as error:
            raise AnswerError("The engine sent something that is not a part of an answer.") from error
        if chunk.error is not None:
            raise translated(chunk.error, status=_status(chunk.error), ours=self.ours)
        self.usage = chunk.usage or self.usage
        return [self._piece(choice) for choice in chunk.choices] if chunk.choices else []

    def end(self) -> Piece:
        """The usage. Raises EngineUnavailable if the answer is not whole."""
        if not self.done or len(self.finished) < self.n:
            raise lost()
        usage = self.usage or wire.Usage()
        vision = usage.prompt_tokens_details.image_tokens if usage.prompt_tokens_details else 0
        return Piece(-1, usage=Usage(usage.prompt_tokens, usage.completion_tokens, vision))

    def _piece(self, choice: wire.ChunkChoice) -> Piece:
        if choice.index >= self.n:
            raise AnswerError("The engine sent a choice that nobody asked for.", cure=CURE)
        delta = choice.delta
        reason = _reason(choice.finish_reason)
        if reason is not None:
            self.finished.add(choice.index)
        logprobs: tuple[TokenLogprob, ...] = ()
        if choice.logprobs is not None and choice.logprobs.content:
            logprobs = tuple(TokenLogprob(t.token, t.logprob, tuple(t.bytes or ())) for t in choice.logprobs.content)
        return Piece(choice.index, delta.content or "", reason, logprobs, tuple(delta.tool_calls or ()))


def _reason(said: str | None) -> FinishReason | None:
    """Some engines say nothing with an empty text."""
    if not said:
        return None
    if said in ENDED_EARLY:
        raise lost()
    if said not in REASONS:
        raise AnswerError("The engine ended its answer for a reason that is not known here.", cure=CURE)
    return REASONS[said]


def _status(detail: wire.ErrorDetail) -> int | None:
    """The HTTP status that foreign engines put into the code of an error inside a stream."""
    return detail.code if isinstance(detail.code, int) and 400 <= detail.code < 600 else None


def read_health(body: bytes, model: str) -> Health:
    try:
        return _health.decode(body)
    except msgspec.DecodeError:
        return Health(model=model)


def read_names(body: bytes) -> tuple[str, ...]:
    """The ids of a list of models; none if it is no such list."""
    try:
        return tuple(entry.id for entry in _models.decode(body).data)
    except msgspec.DecodeError:
        return ()


def _message(message: Message, urls: Sequence[str]) -> wire.Message:
    parts = message.parts
    content: str | list[wire.TextPart | wire.ImagePart]
    if not parts:
        content = ""
    elif len(parts) == 1 and isinstance(parts[0], TextPart):
        content = parts[0].text
    else:
        content = [_part(part, urls) for part in parts]
    calls = list(message.tool_calls) or None
    return wire.Message(message.role, content, calls, message.tool_call_id, message.name)


def _part(part: Part, urls: Sequence[str]) -> wire.TextPart | wire.ImagePart:
    if isinstance(part, ImagePart):
        return wire.ImagePart(wire.ImageUrl(urls[part.index]))
    return wire.TextPart(part.text)


def _format(request: Request) -> wire.ResponseFormat | None:
    answer = request.answer
    if answer.kind == "text":
        return None
    schema = wire.JsonSchema(answer.name, answer.schema) if answer.kind == "json_schema" else None
    return wire.ResponseFormat(answer.kind, schema)


def translated(
    detail: wire.ErrorDetail, *, status: int | None, ours: bool, retry_after: float | None = None
) -> TwinlensError:
    """The engine's refusal as an error of our tree. Text of engines that are not ours may hold paths and addresses."""
    kind = _KINDS.get(str(detail.code)) if ours else None
    if kind is not None and status in (None, kind.status):
        return kind(detail.message, param=detail.param, cure="")
    if detail.code == DeadlineExceeded.code or status == 504:
        return DeadlineExceeded("The engine took too long.")
    if status in (401, 403):
        return EngineUnavailable("The engine does not take the service's key.", retry_after=RETRY_AFTER_S)
    if status is not None and 400 <= status < 500 and status != 429:
        return InvalidRequest("The engine refused the request.")
    if detail.code == ServerError.code and ours:
        return ServerError("The engine failed at this request.")
    return EngineUnavailable("The engine cannot answer now.", retry_after=retry_after or RETRY_AFTER_S)


def lost() -> EngineUnavailable:
    return EngineUnavailable("The engine was lost before the answer was complete.", retry_after=RETRY_AFTER_S)


def refusal(status: int, body: bytes, *, ours: bool, retry_after: str) -> TwinlensError:
    """The error that a status other than 200 means."""
    try:
        detail = _error.decode(body).error
    except msgspec.DecodeError:
        detail = wire.ErrorDetail()
    seconds = float(retry_after) if retry_after.isdigit() else None
    return translated(detail, status=status, ours=ours, retry_after=seconds)
