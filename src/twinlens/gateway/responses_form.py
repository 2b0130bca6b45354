"""From OpenAI's newer form of a question to the older: the rest of the way is the same.

Every error names its field by its place in the newer form: `input[0].content[1]`.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from twinlens.errors import InvalidField, NotHere, TwinlensError, UnsupportedField
from twinlens.gateway.parse import MAX_FIELDS, MAX_NAMES, converted, strange
from twinlens.gateway.wire import ChatBody, JsonSchemaBody, MessageBody, ResponseFormat
from twinlens.gateway.wire_responses import (
    FormatBody,
    InputFile,
    InputImage,
    InputMessage,
    InputText,
    OutputText,
    ResponsesBody,
    TextBody,
)
from twinlens.media.fetch import is_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinlens.core import Request

ITEM = frozenset(InputMessage.__struct_fields__)
PARTS = {
    "input_text": frozenset(InputText.__struct_fields__),
    "output_text": frozenset(OutputText.__struct_fields__) | {"annotations", "logprobs"},
    "input_image": frozenset(InputImage.__struct_fields__),
    "input_file": frozenset(InputFile.__struct_fields__),
    "refusal": frozenset({"refusal"}),
}
_TURN = re.compile(r"messages\[(\d+)\]((?:\.content(?:\[\d+\])?)?)(\.image_url\.url|\.image_url|\.file\b)?")
_NAMES = {
    "response_format.json_schema.schema": "text.format.schema",
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "max_completion_tokens": "max_output_tokens",
}
_OURS = re.compile("|".join(map(re.escape, _NAMES)))


def refuse(body: ResponsesBody) -> None:
    """Raise for what cannot be done here and would change the answer."""
    for name in ("previous_response_id", "conversation"):
        if getattr(body, name):
            raise UnsupportedField(
                f"“{name}”: no answer is kept here.", param=name, cure="Send the turns before as items of “input”."
            )
    if body.background:
        raise UnsupportedField("“background”: no answer is kept here.", param="background", cure="Leave the field out.")
    if body.prompt:
        raise UnsupportedField(
            "“prompt”: no prompts are kept here.", param="prompt", cure="Write a task and ask “model”: “task:NAME”."
        )
    if body.tools or body.tool_choice not in (None, "none", "auto"):
        raise UnsupportedField(
            "Tools are not served in this form.",
            param="tools" if body.tools else "tool_choice",
            cure="Use /v1/chat/completions with an engine that calls tools.",
        )
    if body.top_logprobs:
        raise UnsupportedField(
            "Log probabilities are not served in this form.", param="top_logprobs", cure="Use /v1/chat/completions."
        )


def unread(data: ResponsesBody) -> list[str]:
    """Names, with their places, of fields inside `input` and `text` that nothing here reads."""
    found = ["store"] if data.store else []
    found += ["truncation"] if data.truncation == "auto" else []
    for index, item in enumerate(data.input if isinstance(data.input, list) else ()):
        where = f"input[{index}]"
        _bound(item, where)
        found += strange(item, ITEM, where)
        content = item.get("content")
        for at, part in enumerate(content if isinstance(content, list) else ()):
            _bound(part, f"{where}.content[{at}]")
            known = PARTS.get(part["type"]) if isinstance(part, dict) and isinstance(part.get("type"), str) else None
            found += (
                strange(part, known | {"type", "prompt_cache_breakpoint"}, f"{where}.content[{at}]") if known else []
            )
        if len(found) > MAX_NAMES:
            break
    return [name[:64] for name in found[:MAX_NAMES]]


def chat_of(body: ResponsesBody) -> ChatBody:
    """The same question as a chat. Raises InvalidField, NotHere."""
    turns = [MessageBody(role="system", content=body.instructions)] if body.instructions else []
    if isinstance(body.input, str):
        turns.append(MessageBody(role="user", content=body.input))
    else:
        turns += [_turn(item, f"input[{index}]") for index, item in enumerate(body.input)]
    return ChatBody(
        model=body.model,
        messages=turns,
        stream=body.stream,
        max_completion_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        seed=body.seed,
        response_format=_format((body.text or TextBody()).format),
    )


class Places:
    """Where the parts of the chat stood in the newer form."""

    def __init__(self, body: ResponsesBody) -> None:
        self._first = 1 if body.instructions else 0
        self._one = isinstance(body.input, str)

    def of(self, text: str) -> str:
        """`text` with the newer names of places and fields."""
        return _OURS.sub(lambda match: _NAMES[match[0]], _TURN.sub(self._turn, text))

    def _turn(self, match: re.Match[str]) -> str:
        number = int(match[1]) - self._first
        if number < 0:
            return "instructions"
        field = ".image_url" if match[3] == ".image_url.url" else ""
        return "input" if self._one else f"input[{number}]{match[2]}{field}"

    def renamed(self, error: TwinlensError) -> TwinlensError:
        """The error in the words of the newer form."""
        error.message, error.cure = self.of(error.message), self.of(error.cure)
        error.param = "input" if error.param == "messages" else self.of(error.param) if error.param else None
        return error

    def moved(self, request: Request) -> Request:
        """The request with its pictures at their places in the newer form."""
        images = tuple(replace(image, where=self.of(image.where)) for image in request.images)
        return replace(request, images=images)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Errors leave in the words of the newer form."""
        try:
            yield
        except TwinlensError as error:
            raise self.renamed(error) from error.__cause__


def _bound(value: Any, where: str) -> None:
    if isinstance(value, dict) and len(value) > MAX_FIELDS:
        raise InvalidField(f"{len(value)} fields given, limit {MAX_FIELDS}.", param=where)


def _turn(item: dict[str, Any], where: str) -> MessageBody:
    kind = item.get("type", "message")
    if kind != "message":
        named = f"“{kind[:40]}”" if isinstance(kind, str) else "This type"
        raise NotHere(
            f"“{where}”: {named} is no item that is served here.",
            param=f"{where}.type",
            cure="Send items of the type “message”; an answer that is sent back is one.",
        )
    turn = converted(item, InputMessage, where)
    if isinstance(turn.content, str):
        return MessageBody(role=turn.role, content=turn.content)
    parts = [_part(part, f"{where}.content[{at}]", turn.role) for at, part in enumerate(turn.content)]
    return MessageBody(role=turn.role, content=parts)


def _part(part: dict[str, Any], where: str, role: str) -> dict[str, Any]:
    kind = part.get("type")
    if kind == "input_text":
        return {"type": "text", "text": converted(part, InputText, where).text}
    if kind == "output_text" and role == "assistant":
        return {"type": "text", "text": converted(part, OutputText, where).text}
    if kind == "refusal" and role == "assistant" and isinstance(part.get("refusal"), str):
        return {"type": "text", "text": part["refusal"]}
    if kind == "input_image":
        return _image(converted(part, InputImage, where), where)
    if kind == "input_file":
        return _file(converted(part, InputFile, where), where)
    if kind == "input_audio":
        raise NotHere(f"“{where}”: Audio is not served here.", param=where)
    raise InvalidField(
        f"“{where}.type” must be “input_text”, “input_image” or “input_file”, or of an assistant “output_text”.",
        param=f"{where}.type",
    )


def _image(body: InputImage, where: str) -> dict[str, Any]:
    _one_of(where, image_url=body.image_url, file_id=body.file_id)
    if body.file_id is not None:
        return {"type": "file", "file": {"file_id": body.file_id}, "detail": body.detail, **_paged(body)}
    return {"type": "image_url", "image_url": {"url": body.image_url, "detail": body.detail}, **_paged(body)}


def _file(body: InputFile, where: str) -> dict[str, Any]:
    _one_of(where, file_data=body.file_data, file_id=body.file_id, file_url=body.file_url)
    if body.file_url is not None:
        if not is_url(body.file_url):
            raise InvalidField(f"“{where}.file_url” is no URL.", param=f"{where}.file_url")
        return {"type": "image_url", "image_url": {"url": body.file_url}, **_paged(body)}
    return {"type": "file", "file": {"file_id": body.file_id, "file_data": body.file_data}, **_paged(body)}


def _one_of(where: str, **given: str | None) -> None:
    if sum(value is not None for value in given.values()) != 1:
        names = " and ".join(f"“{name}”" for name in given)
        raise InvalidField(f"“{where}” needs exactly one of {names}.", param=where)


def _paged(body: InputImage | InputFile) -> dict[str, Any]:
    names = ("pages", "password", "page_text", "min_pixels", "max_pixels")
    return {name: getattr(body, name) for name in names}


def _format(body: FormatBody | None) -> ResponseFormat | None:
    if body is None or body.type == "text":
        return None
    if body.type == "json_object":
        return ResponseFormat(type="json_object")
    schema = JsonSchemaBody(schema=body.schema, name=body.name or "answer", strict=body.strict)
    return ResponseFormat(type="json_schema", json_schema=schema)
