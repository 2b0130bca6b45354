"""What clients send and get, as typed structures. The OpenAPI document is made from these.

Requests name every field that Twinlens honours; fields that OpenAI's clients send and that change nothing here are
listed in `HARMLESS`; fields that would change the answer and that we refuse are in `REFUSED`. Anything else is
accepted and named in the answer's `x-twinlens-ignored` header.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
Count = Annotated[int, Meta(ge=1, le=10_000_000)]
StopText = Annotated[str, Meta(min_length=1, max_length=256)]

PagesText = Annotated[
    str, Meta(min_length=1, max_length=200, description="pages of a document, such as 1-3,7 or 5-; all by default")
]
Password = Annotated[str, Meta(max_length=256, description="of a PDF")]

FileData = Annotated[str, Meta(description="data:image/...;base64,... or the bare base64 of a picture file")]

# OpenAI fields that are bookkeeping or hints: taken and without effect.
HARMLESS = frozenset(
    {
        "audio",  # null; anything else is refused
        "metadata",
        "modalities",  # ["text"]; anything else is refused
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning_effort",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
        "verbosity",
    }
)

# Fields that change what the engine does and that clients must not set, or that no engine here honours.
REFUSED = frozenset(
    {
        "allowed_token_ids",
        "bad_words",
        "best_of",
        "chat_template",
        "chat_template_kwargs",
        "function_call",
        "functions",
        "grammar",
        "guided_choice",
        "guided_grammar",
        "guided_json",
        "guided_regex",
        "image_embeds",
        "logit_bias",
        "mm_processor_kwargs",
        "prompt_embeds",
        "structured_outputs",
        "use_beam_search",
        "web_search_options",
    }
)


class ImageUrl(msgspec.Struct, kw_only=True):
    """A picture: a data URI, bare base64, or the https URL of a host that the operator allows."""

    url: Annotated[
        str, Meta(description="data:image/...;base64,..., the bare base64 of a picture file, or an https URL")
    ]
    detail: Literal["auto", "low", "high"] | None = None
    min_pixels: Count | None = None
    max_pixels: Count | None = None


class TextPartBody(msgspec.Struct, kw_only=True, tag_field="type", tag="text"):
    """Text inside a message."""

    text: str


class PageFields(msgspec.Struct, kw_only=True):
    """What says how a document is used. `page_text`: whether the text of PDF pages goes into the prompt too."""

    pages: PagesText | None = None
    password: Password | None = None
    page_text: bool | None = None


class ImagePartBody(PageFields, kw_only=True, tag_field="type", tag="image_url"):
    """A picture or document inside a message; the bounds may stand here or inside `image_url`."""

    image_url: ImageUrl | str
    min_pixels: Count | None = None
    max_pixels: Count | None = None


class FileRef(msgspec.Struct, kw_only=True):
    """A picture or document as a file: one uploaded before, or the file's bytes. Exactly one of the two."""

    file_id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    file_data: FileData | None = None
    filename: str | None = None


class FilePartBody(PageFields, kw_only=True, tag_field="type", tag="file"):
    """A picture or document inside a message, as a file; the bounds as for `image_url`."""

    file: FileRef
    detail: Literal["auto", "low", "high"] | None = None
    min_pixels: Count | None = None
    max_pixels: Count | None = None


class MessageBody(msgspec.Struct, kw_only=True):
    """One turn. Parts are checked one by one so that an error names the part."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class JsonSchemaBody(msgspec.Struct, kw_only=True):
    """The schema that an answer must satisfy."""

    schema: Any
    name: Annotated[str, Meta(max_length=256)] = "answer"
    description: Annotated[str, Meta(max_length=65_536)] | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, kw_only=True):
    """Kind of answer."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchemaBody | None = None


class StreamOptions(msgspec.Struct, kw_only=True):
    """Extras of a stream."""

    include_usage: bool | None = None


class ChatBody(msgspec.Struct, kw_only=True):
    """Body of POST /v1/chat/completions."""

    model: str
    messages: Annotated[list[MessageBody], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=1_000_000)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: StopText | Annotated[list[StopText], Meta(max_length=16)] | None = None
    ignore_eos: bool | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=10.0)] | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=128)] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None


class InferenceBody(msgspec.Struct, kw_only=True):
    """Body of the seed-style POST /v1/inference."""

    image: Annotated[str, Meta(description="base64 of a picture file, or a data URI")]
    prompt: str
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None


class PromptDetails(msgspec.Struct, kw_only=True):
    """Where the prompt's tokens come from."""

    image_tokens: int
    cached_tokens: int = 0


class UsageBody(msgspec.Struct, kw_only=True):
    """Exact token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class SeenImage(msgspec.Struct, kw_only=True):
    """One picture, upright, and as the model saw it, in pixels.

    `box_units`: what the model writes boxes in: “thousandths” of the picture, or pixels of what it has “seen”. `page`
    and `pages` (of how many) only where it is a page of a document. `page_box` and `page_rotate` only of a PDF's: what
    is shown of the page, (left, lower, right, upper) in points, and how it is turned for that, clockwise in degrees.
    """

    width: int
    height: int
    seen_width: int
    seen_height: int
    tokens: int
    box_units: Literal["thousandths", "seen"] = "thousandths"
    page: int | UnsetType = UNSET
    pages: int | UnsetType = UNSET
    page_box: tuple[float, float, float, float] | UnsetType = UNSET
    page_rotate: int | UnsetType = UNSET


class StepBody(msgspec.Struct, kw_only=True):
    """What a finishing step did: how often it changed which place. Never content."""

    step: str
    changed: int
    changes: dict[str, int] = {}


class ErrorDetail(msgspec.Struct, kw_only=True):
    """An error in OpenAI's shape."""

    message: str
    type: str
    param: str | None
    code: str | None


class PageBody(msgspec.Struct, kw_only=True):
    """What became of one page of a document, where a task asks its pages one by one: an answer, or an error."""

    page: int
    pages: int  # of the document
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"] | UnsetType = UNSET
    usage: UsageBody | UnsetType = UNSET
    steps: list[StepBody] = []
    result: Any = UNSET  # only where it stands nowhere else: in the frames of a stream, and beside an error
    error: ErrorDetail | UnsetType = UNSET
    raw_answer: str | UnsetType = UNSET  # of an answer that did not fit; cleaned by the task's redaction


class Extras(msgspec.Struct, kw_only=True):
    """What Twinlens says beyond OpenAI's fields.

    `steps` only where a task has finishing steps, `pages` only where it asks the pages of a document one by one,
    `raw_answer` only beside an error: what the model wrote, cleaned by the redaction.
    """

    images: list[SeenImage] = []
    warnings: list[str] = []
    steps: list[StepBody] | UnsetType = UNSET
    pages: list[PageBody] | UnsetType = UNSET
    raw_answer: str | UnsetType = UNSET


class LogprobBody(msgspec.Struct, kw_only=True):
    """Log probability of one token of the answer."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[Any] = []


class LogprobsBody(msgspec.Struct, kw_only=True):
    """Log probabilities of the answer's tokens, in order."""

    content: list[LogprobBody] | None
    refusal: None = None


class AnswerMessage(msgspec.Struct, kw_only=True):
    """The assistant's turn."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[Any] | UnsetType = UNSET


class Choice(msgspec.Struct, kw_only=True):
    """One answer."""

    index: int
    message: AnswerMessage
    logprobs: LogprobsBody | None = None
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]


class ChatAnswer(msgspec.Struct, kw_only=True):
    """Answer of POST /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: UsageBody
    twinlens: Extras


class Delta(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is new in a chunk."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: list[Any] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, kw_only=True):
    """One choice's part of a chunk."""

    index: int
    delta: Delta
    logprobs: LogprobsBody | None = None
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"] | None = None


class Chunk(msgspec.Struct, kw_only=True):
    """One frame of a stream."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: UsageBody | UnsetType | None = UNSET
    twinlens: Extras | UnsetType = UNSET


class InferenceAnswer(msgspec.Struct, kw_only=True):
    """Answer of POST /v1/inference."""

    text: str
    usage: UsageBody


class TaskImage(PageFields, kw_only=True):
    """A picture or document of a task: exactly one of `url`, as in a chat, and `file_id`, of a file uploaded before."""

    url: str | None = None
    file_id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    detail: Literal["auto", "low", "high"] | None = None
    min_pixels: Count | None = None
    max_pixels: Count | None = None


class TaskBody(msgspec.Struct, kw_only=True):
    """Body of POST /v1/tasks/{name}."""

    images: Annotated[
        list[str | TaskImage],
        Meta(max_length=1024, description="data URIs, bare base64, https URLs or uploaded files, in their order"),
    ] = []
    variables: dict[str, Any] | None = None
    stream: bool | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None


class TaskAnswer(msgspec.Struct, kw_only=True):
    """Answer of POST /v1/tasks/{name}; also the last frame of its stream. `version` is the digest of the task file.

    Where the pages of a document were asked one by one, `result` is the list of their results, and `pages` says more.
    """

    id: str
    object: Literal["task.result"] = "task.result"
    created: int
    task: str
    version: str
    model: str
    result: Any
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]
    usage: UsageBody
    warnings: list[str] = []
    images: list[SeenImage] = []
    steps: list[StepBody] = []
    pages: list[PageBody] | UnsetType = UNSET


class TaskDelta(msgspec.Struct, kw_only=True):
    """A frame of a stream of a task that answers with text; of which page, where pages are asked one by one."""

    id: str
    object: Literal["task.delta"] = "task.delta"
    text: str
    page: int | UnsetType = UNSET


class TaskPage(PageBody, kw_only=True):
    """A frame of a stream: one page of a document is done."""

    id: str
    object: Literal["task.page"] = "task.page"


class TaskItem(msgspec.Struct, kw_only=True):
    """A task of this service."""

    id: str
    object: Literal["task"] = "task"
    version: str
    description: str
    variables: dict[str, Any]
    schema: Any
    columns: list[str]
    paths: list[str] = []  # JSON pointers of the columns into the result
    # together: all pages of a document in one question; most: only the first so many; document: no pictures of pages
    pages: dict[str, Any] = {}
    boxes: list[dict[str, str]] = []  # where boxes in pixels or fractions of the upright picture stand in the result
    private: bool = False  # something is hidden in its answers


class TaskList(msgspec.Struct, kw_only=True):
    """Answer of GET /v1/tasks."""

    object: Literal["list"] = "list"
    data: list[TaskItem]


class ModelBody(msgspec.Struct, kw_only=True):
    """A served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "twinlens"
    max_model_len: int | None = None
    weights: str | None = None


class ModelList(msgspec.Struct, kw_only=True):
    """Answer of GET /v1/models."""

    object: Literal["list"] = "list"
    data: list[ModelBody]


class FileObject(msgspec.Struct, kw_only=True):
    """An uploaded file. Times in Unix seconds."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: Literal["vision", "user_data"]
    status: Literal["processed"] = "processed"
    status_details: None = None


class FileList(msgspec.Struct, kw_only=True):
    """Answer of GET /v1/files."""

    object: Literal["list"] = "list"
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileDeleted(msgspec.Struct, kw_only=True):
    """Answer of DELETE /v1/files/{file_id}."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class ErrorBody(msgspec.Struct, kw_only=True):
    """Body of every answer that is not a success."""

    error: ErrorDetail


class ReadinessDetails(msgspec.Struct, kw_only=True):
    """What operators see of a service: places and queue of all gateway processes together, limits, breakers."""

    running: int
    waiting: int
    places: int
    wait_s: float
    booked_tokens: int
    room_tokens: int
    engine_breaker: Literal["closed", "open", "probing"]
    long_prompts: Literal["taken", "refused"]
    long_prompts_share: float
    shared_limits: Literal["none", "up", "down"]
    keys: int
    keys_file: str


class Readiness(msgspec.Struct, kw_only=True):
    """Answer of GET /readyz."""

    ready: bool
    engine: str
    reason: str = ""
    draining: bool = False
    details: ReadinessDetails | UnsetType = UNSET
