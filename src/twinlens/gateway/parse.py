"""From a body to a `Request`. Every error names its field by its path: `messages[0].content[1].image_url`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from twinlens.core import (
    AnswerFormat,
    ImagePart,
    ImageRef,
    Message,
    Request,
    Sampling,
    TextPart,
)
from twinlens.errors import (
    InvalidField,
    InvalidRequest,
    ModelNotFound,
    NotHere,
    TooManyImages,
    UnsupportedField,
)
from twinlens.finish.schema import check_schema
from twinlens.gateway.malformed import malformed
from twinlens.gateway.wire import (
    HARMLESS,
    REFUSED,
    ChatBody,
    FilePartBody,
    FileRef,
    ImagePartBody,
    ImageUrl,
    InferenceBody,
    MessageBody,
    PageFields,
    ResponseFormat,
    StreamOptions,
    TextPartBody,
)
from twinlens.media.fetch import is_url
from twinlens.media.pages import choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from twinlens.core import Abilities, Part
    from twinlens.settings import Settings

B = TypeVar("B", bound=msgspec.Struct)

MAX_CONTAINERS = 100_000
MAX_VALUES = 1_000_000
MAX_PARTS = 4096  # of one request
MAX_CALLS = 1024  # tool calls of one request
MAX_NAMES = 32  # unknown fields that are listed
MAX_FIELDS = 256  # of one object
MAX_ASIDE = 1 << 20  # bytes of a field that has no effect

# Besides the fields of the structures: what clients replay from answers, and markers that change nothing here.
MESSAGE = frozenset(MessageBody.__struct_fields__) | {
    "refusal",
    "annotations",
    "audio",
    "function_call",
    "reasoning_content",
}
TEXT_PART = frozenset({"type", "text", "cache_control"})
IMAGE_PART = frozenset({"type", "cache_control", *ImagePartBody.__struct_fields__})
IMAGE_URL = frozenset(ImageUrl.__struct_fields__)
FILE_PART = frozenset({"type", "cache_control", *FilePartBody.__struct_fields__})
FILE = frozenset(FileRef.__struct_fields__)
PICTURES = ("image_url", "file")  # kinds of parts
_NESTED = {
    "stream_options": frozenset({*StreamOptions.__struct_fields__, "include_obfuscation"}),
    "response_format": frozenset(ResponseFormat.__struct_fields__),
}

_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`")
_ELSEWHERE = {
    "input_audio": "Audio",
    "video": "Video",
    "video_url": "Video",
    "image_embeds": "A tensor made by the client",
    "audio_url": "Audio",
}


def body_of(raw: bytes, kind: type[B]) -> tuple[B, tuple[str, ...]]:
    """The body as `kind`, and the names of its fields that are not known here. Raises InvalidRequest, InvalidField."""
    if len(raw) > MAX_CONTAINERS and _crowded(raw):
        raise InvalidRequest(f"The body has more than {MAX_CONTAINERS} lists and objects, or {MAX_VALUES} values.")
    try:
        data = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(raw, error) from error
    if not isinstance(data, dict):
        raise InvalidRequest("The body must be a JSON object.")
    for name in REFUSED:
        if data.get(name):
            raise UnsupportedField(f"The field “{name}” is not supported.", param=name)
    _refuse_audio(data)
    _bound(data, kind)
    unknown = _unknown(data, kind)  # first, because it refuses what would take long to convert
    return converted(data, kind, ""), tuple(sorted(unknown))


def _crowded(raw: bytes) -> bool:
    """Millions of tiny values would hold up everybody for seconds; base64 has none of these characters."""
    found = np.frombuffer(raw, np.uint8)  # compared in bulk: bytes.count takes ten times as long
    containers, values = (sum(int(np.count_nonzero(found == ord(sign))) for sign in signs) for signs in ("[{", ","))
    return containers > MAX_CONTAINERS or values > MAX_VALUES


def _bound(data: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    """Limits of what nobody here reads: it is decoded and kept all the same."""
    _bound_fields(data, "")
    for name, value in data.items():
        if name in kind.__struct_fields__:
            continue
        _bound_fields(value, name[:64])
        if len(msgspec.json.encode(value)) > MAX_ASIDE:
            raise InvalidField(f"The field has more than {MAX_ASIDE} bytes.", param=name[:64])


def _bound_fields(value: Any, where: str) -> None:
    if isinstance(value, dict) and len(value) > MAX_FIELDS:
        raise InvalidField(f"{len(value)} fields given, limit {MAX_FIELDS}.", param=where or None)


def _refuse_audio(data: dict[str, Any]) -> None:
    if data.get("audio") or data.get("modalities") not in (None, [], ["text"]):
        raise NotHere("Audio is not served here.", param="audio" if data.get("audio") else "modalities")


def _unknown(data: dict[str, Any], kind: type[msgspec.Struct]) -> list[str]:
    """Names, with their places, of fields that nothing here reads. Runs before the types are checked."""
    found = [name for name in data if name not in kind.__struct_fields__ and name not in HARMLESS | REFUSED]
    for name, inner in _NESTED.items():
        found += strange(data.get(name), inner, name)
    messages = data.get("messages")
    for index, turn in enumerate(messages if isinstance(messages, list) else ()):
        _bound_fields(turn, f"messages[{index}]")
        found += strange(turn, MESSAGE, f"messages[{index}]")
        content = turn.get("content") if isinstance(turn, dict) else None
        for at, part in enumerate(content if isinstance(content, list) else ()):
            found += _unknown_of_part(part, f"messages[{index}].content[{at}]")
        if len(found) > MAX_NAMES:
            break
    return [name[:64] for name in found[:MAX_NAMES]]


def _unknown_of_part(part: Any, where: str) -> list[str]:
    if not isinstance(part, dict):
        return []
    _bound_fields(part, where)
    if part.get("type") == "image_url":
        return [*strange(part, IMAGE_PART, where), *strange(part.get("image_url"), IMAGE_URL, f"{where}.image_url")]
    if part.get("type") == "file":
        return [*strange(part, FILE_PART, where), *strange(part.get("file"), FILE, f"{where}.file")]
    return strange(part, TEXT_PART, where) if part.get("type") == "text" else []


def strange(value: Any, known: frozenset[str], where: str) -> list[str]:
    """Names, with their place, of the fields of an object that are not known."""
    return [f"{where}.{name}" for name in value if name not in known] if isinstance(value, dict) else []


def converted(data: Any, kind: type[B], where: str) -> B:
    """`data` as `kind`; an error names the field below `where`."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        match = _PATH.search(text)
        path = match["path"] if match else ""
        missing = _MISSING.search(text)
        param = ".".join(filter(None, (where, path, missing["name"] if missing else "")))
        said = _PATH.sub("", text)
        if said.startswith(_NOT_AMONG) and (allowed := _allowed(kind, path)):
            said = f"{said[:80]}; allowed are {allowed}"
        raise InvalidField(f"“{param or 'body'}”: {said}.", param=param or None) from None


_NOT_AMONG = "Invalid enum value"


def _allowed(kind: Any, path: str) -> str:
    """The values that the field at this path of a structure may have, where it takes only some."""
    for name in _INDEX.sub("", path).split("."):
        kinds = [kind, *get_args(kind), *(inner for one in get_args(kind) for inner in get_args(one))]
        kind = next((get_type_hints(one)[name] for one in kinds if name in getattr(one, "__struct_fields__", ())), None)
    kinds = [kind, *get_args(kind)]
    values = next((get_args(one) for one in kinds if get_origin(one) is Literal), ())
    return ", ".join(f"“{value}”" for value in values)


_INDEX = re.compile(r"\[[^\]]*\]")


class Parser:
    """Makes requests by the limits of the settings, the served name, and what the engine can do."""

    def __init__(self, settings: Settings, served_name: str) -> None:
        self._settings = settings
        self._served_name = served_name

    @property
    def served_name(self) -> str:
        """The model's name, as clients use it."""
        return self._served_name

    def chat(self, body: ChatBody, request_id: str, abilities: Abilities) -> Request:
        """The request of a chat body. Raises errors of the 4xx kinds."""
        if body.model != self._served_name:
            raise ModelNotFound(f"The model “{body.model[:100]}” is not served here.", param="model")
        if len(body.messages) > self._settings.max_messages:
            raise InvalidField(
                f"{len(body.messages)} messages given, limit {self._settings.max_messages}.", param="messages"
            )
        parts, pictures = _count_parts(body.messages)
        self._check_images(pictures)
        if parts > MAX_PARTS:
            raise InvalidField(f"{parts} content parts given, limit {MAX_PARTS}.", param="messages")
        tools = _tools(body, abilities)
        self._check_chars(_written(tools), "tools")
        self._check_chars(_written([body.tool_choice]) if body.tool_choice else 0, "tool_choice")
        images: list[ImageRef] = []
        messages = tuple(self._message(turn, index, images) for index, turn in enumerate(body.messages))
        self._check_size(messages, images)
        answer = _answer_format(body.response_format, abilities)
        if body.stop and answer.kind != "text":
            raise InvalidField("“stop” would cut the JSON that “response_format” asks for.", param="stop")
        return Request(
            id=request_id,
            model=self._served_name,
            messages=messages,
            images=tuple(images),
            sampling=_sampling(body, abilities),
            answer=answer,
            stream=bool(body.stream),
            tools=tools,
            tool_choice=body.tool_choice,
            parallel_tool_calls=body.parallel_tool_calls if tools else None,
        )

    def inference(self, body: InferenceBody, request_id: str) -> Request:
        """The request of a seed-style body: one picture, then the prompt."""
        parts = (ImagePart(0), TextPart(body.prompt))
        messages = (Message("user", parts),)
        self._check_size(messages, ())
        return Request(
            id=request_id,
            model=self._served_name,
            messages=messages,
            images=(ImageRef("image", body.image),),
            sampling=Sampling(max_tokens=body.max_tokens, temperature=body.temperature, seed=body.seed),
        )

    def _message(self, body: MessageBody, index: int, images: list[ImageRef]) -> Message:
        where = f"messages[{index}]"
        content = body.content
        if content is None and body.role in ("user", "system", "developer"):
            raise InvalidField(f"“{where}.content” is missing.", param=f"{where}.content")
        if isinstance(content, list):
            if body.role == "assistant":
                content = [_replayed(part) for part in content]
            parts = tuple(_part(part, f"{where}.content[{at}]", images) for at, part in enumerate(content))
        else:
            parts = (TextPart(content or ""),)
        if body.role != "user" and any(isinstance(part, ImagePart) for part in parts):
            raise InvalidField(f"“{where}”: pictures stand in user messages only.", param=f"{where}.content")
        return Message(
            role="system" if body.role == "developer" else body.role,
            parts=parts,
            tool_calls=tuple(body.tool_calls or ()),
            tool_call_id=body.tool_call_id,
            name=body.name,
        )

    def _check_size(self, messages: Iterable[Message], images: Sequence[ImageRef]) -> None:
        self._check_images(len(images))
        chars = calls = 0
        for turn in messages:
            chars += sum(len(part.text) for part in turn.parts if isinstance(part, TextPart))
            chars += len(turn.name or "") + len(turn.tool_call_id or "") + _written(turn.tool_calls)
            calls += len(turn.tool_calls)
        if calls > MAX_CALLS:
            raise InvalidField(f"{calls} tool calls given, limit {MAX_CALLS}.", param="messages")
        self._check_chars(chars, "messages")

    def _check_images(self, given: int) -> None:
        limit = self._settings.max_images
        if given > limit:
            raise TooManyImages(
                f"{given} images given, limit {limit}, counted over the whole conversation.", param="messages"
            )

    def _check_chars(self, chars: int, param: str) -> None:
        if chars > self._settings.max_text_chars:
            raise InvalidField(f"The text has {chars} characters, limit {self._settings.max_text_chars}.", param=param)


def _written(values: Sequence[Any]) -> int:
    """Length of what a template may write of tool calls or tools."""
    return len(msgspec.json.encode(values)) if values else 0


def _count_parts(messages: Sequence[MessageBody]) -> tuple[int, int]:
    """All parts, and those that are pictures: counted before anything is made of them."""
    lists = [turn.content for turn in messages if isinstance(turn.content, list)]
    pictures = sum(part.get("type") in PICTURES for parts in lists for part in parts)
    return sum(map(len, lists)), pictures


def _replayed(part: dict[str, Any]) -> dict[str, Any]:
    """A part of an earlier answer: a refusal is what the assistant said."""
    return {"type": "text", "text": part.get("refusal")} if part.get("type") == "refusal" else part


def _part(part: dict[str, Any], where: str, images: list[ImageRef]) -> Part:
    kind = part.get("type")
    if kind == "text":
        return TextPart(converted(part, TextPartBody, where).text)
    if kind == "image_url":
        images.append(_image(converted(part, ImagePartBody, where), where))
        return ImagePart(len(images) - 1)
    if kind == "file":
        images.append(_file(converted(part, FilePartBody, where), where))
        return ImagePart(len(images) - 1)
    if isinstance(kind, str) and kind in _ELSEWHERE:
        raise NotHere(f"“{where}”: {_ELSEWHERE[kind]} is not served here.", param=where)
    raise InvalidField(f"“{where}.type” must be “text”, “image_url” or “file”.", param=f"{where}.type")


def _image(body: ImagePartBody, where: str) -> ImageRef:
    image = ImageUrl(url=body.image_url) if isinstance(body.image_url, str) else body.image_url
    if not image.url.strip():
        raise InvalidField(f"“{where}.image_url.url” is empty.", param=f"{where}.image_url.url")
    return ImageRef(
        where=where,
        url=image.url,
        detail=image.detail or "auto",
        min_pixels=body.min_pixels or image.min_pixels,
        max_pixels=body.max_pixels or image.max_pixels,
        **_paged(body, where),
    )


def _paged(body: PageFields, where: str) -> dict[str, Any]:
    """The fields of an ImageRef that say how a document is used."""
    return {
        "pages": choice(body.pages, f"{where}.pages") if body.pages is not None else (),
        "password": body.password or "",
        "text": body.page_text,
    }


def _file(body: FilePartBody, where: str) -> ImageRef:
    file = body.file
    if (file.file_id is None) == (file.file_data is None):
        raise InvalidField(f"“{where}.file” needs one of “file_id” and “file_data”.", param=f"{where}.file")
    data = (file.file_data or "").strip()
    if file.file_data is not None and not data:
        raise InvalidField(f"“{where}.file.file_data” is empty.", param=f"{where}.file.file_data")
    if is_url(data):
        raise InvalidField(
            f"“{where}.file.file_data” is a URL; it takes the file's bytes.",
            param=f"{where}.file.file_data",
            cure="Put the URL into a part of the type “image_url”.",
        )
    return ImageRef(
        where=where,
        url=data,
        file_id=file.file_id or "",
        detail=body.detail or "auto",
        min_pixels=body.min_pixels,
        max_pixels=body.max_pixels,
        **_paged(body, where),
    )


def _sampling(body: ChatBody, abilities: Abilities) -> Sampling:
    n = body.n or 1
    if n > abilities.max_n:
        raise UnsupportedField(f"“n” is {n}; this engine gives at most {abilities.max_n}.", param="n")
    if body.logprobs and not abilities.logprobs:
        raise UnsupportedField("This engine gives no log probabilities.", param="logprobs")
    top = body.top_logprobs or 0
    if top and not body.logprobs:
        raise InvalidField("“top_logprobs” needs “logprobs”: true.", param="top_logprobs")
    if top > abilities.top_logprobs:
        raise UnsupportedField(
            f"This engine gives at most {abilities.top_logprobs} top_logprobs.", param="top_logprobs"
        )
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    return Sampling(
        # The newer name wins where both are given, as at OpenAI.
        max_tokens=body.max_completion_tokens or body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k if body.top_k and body.top_k > 0 else None,
        seed=body.seed,
        stop=stop,
        ignore_eos=bool(body.ignore_eos),
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        repetition_penalty=body.repetition_penalty,
        n=n,
        logprobs=bool(body.logprobs),
        top_logprobs=top,
    )


def _answer_format(body: ResponseFormat | None, abilities: Abilities) -> AnswerFormat:
    if body is None or body.type == "text":
        return AnswerFormat()
    if not abilities.json_schema:
        raise UnsupportedField("This engine cannot hold an answer to JSON.", param="response_format")
    if body.type == "json_object":
        return AnswerFormat("json_object")
    if body.json_schema is None:
        raise InvalidField("“response_format.json_schema” is missing.", param="response_format.json_schema")
    check_schema(body.json_schema.schema, "response_format.json_schema.schema")
    return AnswerFormat("json_schema", body.json_schema.schema, body.json_schema.name)


def _check_choice(choice: Any) -> None:
    """Raises InvalidField for what is neither a word of OpenAI's nor a tool by its name."""
    if choice in (None, "none", "auto", "required"):
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    function = choice.get("function") if kind == "function" else None
    named = isinstance(function, dict) and isinstance(function.get("name"), str)
    if not isinstance(kind, str) or (kind == "function" and not named):  # newer kinds are the engine's to judge
        raise InvalidField(
            '“tool_choice” is “none”, “auto”, “required” or {"type": "function", "function": {"name": ...}}.',
            param="tool_choice",
        )


def _tools(body: ChatBody, abilities: Abilities) -> tuple[dict[str, Any], ...]:
    _check_choice(body.tool_choice)
    if abilities.tools:
        return tuple(body.tools or ())
    if body.tools:
        raise UnsupportedField("This engine cannot call tools.", param="tools")
    if body.tool_choice not in (None, "none", "auto"):
        raise UnsupportedField("This engine cannot call tools.", param="tool_choice")
    return ()
