"""What POST /v1/responses takes and gives: OpenAI's newer form of a question, as typed structures.

Nothing is kept between two requests, so whatever names an earlier one is refused; fields that are hints or bookkeeping
are taken without effect, as in `wire`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from twinlens.gateway.wire import Count, Extras, FileData, PageFields

Label = Annotated[str, Meta(max_length=512)]


class FormatBody(msgspec.Struct, kw_only=True):
    """Kind of answer; `schema` and `name` for json_schema only."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: Annotated[str, Meta(max_length=256)] | None = None
    schema: Any = None
    description: Annotated[str, Meta(max_length=65_536)] | None = None
    strict: bool | None = None


class TextBody(msgspec.Struct, kw_only=True):
    """How the text of the answer is made. `verbosity` is taken and without effect."""

    format: FormatBody | None = None
    verbosity: str | None = None


class ResponsesBody(msgspec.Struct, kw_only=True):
    """Body of POST /v1/responses. `store` may be true; nothing is kept all the same, as the answer says."""

    model: str
    input: str | Annotated[list[dict[str, Any]], Meta(min_length=1)]
    instructions: str | None = None
    stream: bool | None = None
    text: TextBody | None = None
    max_output_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    metadata: Annotated[dict[Annotated[str, Meta(max_length=64)], Label], Meta(max_length=16)] | None = None
    store: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    previous_response_id: str | None = None
    conversation: Any = None
    background: bool | None = None
    prompt: Any = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    truncation: Literal["auto", "disabled"] | None = None


class InputText(msgspec.Struct, kw_only=True, tag_field="type", tag="input_text"):
    """Text of a message."""

    text: str


class OutputText(msgspec.Struct, kw_only=True, tag_field="type", tag="output_text"):
    """Text of an earlier answer, in a turn of the assistant."""

    text: str


class InputImage(PageFields, kw_only=True, tag_field="type", tag="input_image"):
    """A picture or document: exactly one of `image_url` (data URI, bare base64, allowed https URL) and `file_id`."""

    image_url: str | None = None
    file_id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    detail: Literal["auto", "low", "high"] | None = None
    min_pixels: Count | None = None
    max_pixels: Count | None = None


class InputFile(PageFields, kw_only=True, tag_field="type", tag="input_file"):
    """A document or picture as a file: exactly one of `file_data`, `file_id` and `file_url`."""

    file_data: FileData | None = None
    file_id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    file_url: str | None = None
    filename: str | None = None
    min_pixels: Count | None = None
    max_pixels: Count | None = None


class InputMessage(msgspec.Struct, kw_only=True):
    """One turn. `id`, `status` and `phase` come with turns that are sent back; they have no effect."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[dict[str, Any]]
    type: Literal["message"] = "message"
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class OutputPart(msgspec.Struct, kw_only=True):
    """Text of the answer."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = []
    logprobs: list[Any] = []


class OutputMessage(msgspec.Struct, kw_only=True):
    """The assistant's turn."""

    id: str
    type: Literal["message"] = "message"
    status: Literal["in_progress", "completed", "incomplete"]
    role: Literal["assistant"] = "assistant"
    content: list[OutputPart]


class InputDetails(msgspec.Struct, kw_only=True):
    """What the input tokens are: those of pictures are vision tokens."""

    cached_tokens: int = 0
    image_tokens: int = 0


class OutputDetails(msgspec.Struct, kw_only=True):
    """What the output tokens are."""

    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct, kw_only=True):
    """Exact token counts."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseFault(msgspec.Struct, kw_only=True):
    """Why a response failed; the codes are those of docs/errors.md."""

    code: str
    message: str
    param: str | None = None
    type: str | None = None


class Incomplete(msgspec.Struct, kw_only=True):
    """Why a response is not whole."""

    reason: Literal["max_output_tokens", "content_filter"]


class ResponseObject(msgspec.Struct, kw_only=True):
    """Answer of POST /v1/responses, and what the first and last events of its stream carry."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    background: Literal[False] = False
    error: ResponseFault | None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: None = None
    model: str
    output: list[OutputMessage] = []
    parallel_tool_calls: bool = True
    previous_response_id: None = None
    reasoning: dict[str, Any] = {}
    service_tier: Literal["default"] = "default"
    store: Literal[False] = False
    temperature: float | None = None
    text: TextBody
    tool_choice: Literal["auto"] = "auto"
    tools: list[Any] = []
    top_logprobs: int = 0
    top_p: float | None = None
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    metadata: dict[str, str] = {}
    twinlens: Extras | UnsetType = UNSET


class ResponseEvent(msgspec.Struct, kw_only=True):
    """An event of a stream; which fields it has hangs on its type, as in OpenAI's reference."""

    type: str
    sequence_number: int
    response: ResponseObject | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    item: OutputMessage | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    part: OutputPart | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    logprobs: list[Any] | UnsetType = UNSET
