"""What crosses the seam between gateway and engine: OpenAI's chat completions as structs, nothing loose.

Types are strict: a wrong one is an InvalidField naming the field. Fields that we do not know are ignored, because an
engine may be asked by other clients too; *what* is honoured and what is refused is decided by each engine.
Numbers are bounded here, so that no engine has to do it again.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from twinlens.core import Abilities
from twinlens.errors import InvalidField

REFERENCE_PREFIX = "twinlens:"
DONE = b"data: [DONE]\n\n"
# What an engine can do that does not say so: OpenAI's API, as far as an answer of it is passed on.
FOREIGN = Abilities(references=False, json_schema=True, logprobs=True, top_logprobs=0, tools=True, max_n=128)

Penalty = Annotated[float, Meta(ge=-2, le=2)]
Index = Annotated[int, Meta(ge=0)]


class ImageUrl(Struct, frozen=True):
    """Where the pixels are: a reference to the store, or a data URI for engines that take one."""

    url: str


class TextPart(Struct, frozen=True, tag_field="type", tag="text"):
    """Text of a message."""

    text: str


class ImagePart(Struct, frozen=True, tag_field="type", tag="image_url"):
    """The place of a picture in a message."""

    image_url: ImageUrl


class Message(Struct, frozen=True, omit_defaults=True):
    """One turn. The order of the parts is the order in the prompt."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[TextPart | ImagePart] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class JsonSchema(Struct, frozen=True, omit_defaults=True):
    """The schema of an answer, as OpenAI wraps it. `schema` is a JSON schema: an object or a boolean."""

    name: str = "answer"
    schema: dict[str, Any] | bool | None = None


class ResponseFormat(Struct, frozen=True, omit_defaults=True):
    """What the answer has to look like."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None


class StreamOptions(Struct, frozen=True):
    """Whether the stream ends with the usage."""

    include_usage: bool = False


class Chat(Struct, frozen=True, omit_defaults=True):
    """A request for an answer. None means the engine's own default."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    model: str = ""
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None  # 0 and -1: no limit
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool = False
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None
    n: Annotated[int, Meta(ge=1)] = 1
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0)] | None = None
    response_format: ResponseFormat | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings, whichever way they were written; empty ones stop nothing."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in given if text)

    @property
    def wants_usage(self) -> bool:
        """A plain answer always carries usage, a stream when asked."""
        return not self.stream or (self.stream_options is not None and self.stream_options.include_usage)


class PromptDetails(Struct, frozen=True):
    """How many of the prompt's tokens are vision tokens."""

    image_tokens: int = 0


class Usage(Struct, frozen=True):
    """Exact token counts. `prompt_tokens` holds text and vision tokens together."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None


class TokenLogprob(Struct, frozen=True):
    """Log-probability of one token of the answer."""

    token: str
    logprob: float
    bytes: list[int] | None = None
    top_logprobs: list[dict[str, Any]] = []


class Logprobs(Struct, frozen=True):
    """Log-probabilities of the tokens of a chunk."""

    content: list[TokenLogprob] | None = None


class Delta(Struct, frozen=True, omit_defaults=True):
    """What a chunk adds to a choice."""

    role: str | None = None
    content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class ChunkChoice(Struct, frozen=True):
    """One choice of a chunk."""

    index: Index
    delta: Delta
    finish_reason: str | None = None
    logprobs: Logprobs | None = None


class ErrorDetail(Struct, frozen=True):
    """An error in OpenAI's shape. Foreign engines put numbers into `code`."""

    message: str = ""
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


class ErrorBody(Struct, frozen=True):
    """The body of a refusal."""

    error: ErrorDetail


class Chunk(Struct, frozen=True, omit_defaults=True):
    """One event of a stream; with `error` set, the last before the end."""

    id: str = ""
    object: str = ""
    created: int = 0
    model: str = ""
    choices: list[ChunkChoice] | UnsetType = UNSET
    usage: Usage | None = None
    error: ErrorDetail | None = None


class Answer(Struct, frozen=True):
    """The message of a plain answer."""

    role: str
    content: str


class Choice(Struct, frozen=True):
    """One choice of a plain answer."""

    index: int
    message: Answer
    finish_reason: str
    logprobs: Logprobs | None = None


class Completion(Struct, frozen=True):
    """A plain answer: the fold of a stream."""

    id: str
    object: str
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


class ModelEntry(Struct, frozen=True):
    """One model of a list."""

    id: str


class ModelList(Struct, frozen=True):
    """What GET /v1/models says, as far as it matters here."""

    data: list[ModelEntry]


class Health(Struct, frozen=True):
    """How an engine is, answered by its event loop and so always quick.

    `progress` counts every step and every picture encoded: a watcher sees life by it. `running` and `waiting` are
    requests; `cache_usage` is a share of the KV cache in percent; `capacity` how many requests it takes at once;
    `context` the longest prompt and answer together, in tokens; `room` the tokens that the whole KV cache holds, 0
    where nobody knows.
    """

    status: str = "ok"
    progress: int = 0
    running: int = 0
    waiting: int = 0
    cache_usage: float = 0.0
    abilities: Abilities = FOREIGN
    capacity: int = 0
    context: int = 0
    room: int = 0
    weights_id: str = ""
    model: str = ""
    fake: bool = False


_chat = msgspec.json.Decoder(Chat)
_PATH = re.compile(r" - at `\$(?:\.)?(?P<path>[^`]*)`$")


def read_chat(body: bytes | bytearray) -> Chat:
    """Decode and check a request. Raises InvalidField naming the field."""
    try:
        return _chat.decode(body)
    except msgspec.ValidationError as error:
        text = str(error)
        found = _PATH.search(text)
        if not found:
            raise InvalidField(f"{text}.") from error
        path = found["path"]
        raise InvalidField(f"{path}: {text[: found.start()]}.", param=path) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidField("The request body is not valid JSON.") from error
