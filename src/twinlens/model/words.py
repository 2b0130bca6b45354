"""Prompt text and its tokens: what the model reads around the pictures.

Three documented rules make any conversation fit a template, and none loses a word:

- *System turns.* All of them are merged, in their order and parted by an empty line, into one first turn: Qwen's
  templates take a system turn only there.
- *Neutral text.* Where text of a client spells a special token of the tokenizer or one of Qwen's role markers, an
  invisible zero-width space goes in behind its first character. It then reads as plain characters: it can take no
  picture's place and open no turn. In tool turns and calls the tags that would end them are treated likewise.
- *Tools.* A template that knows no tools gets calls and results as text, in the tags that Qwen models use.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
from tokenizers import Tokenizer

from twinlens.core import ImagePart, Message, TextPart
from twinlens.errors import InvalidField, ModelError, UnsupportedField
from twinlens.model.files import read_json
from twinlens.model.template import ChatTemplate, read_template

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from twinlens.core import Part

IMAGE_PLACE = "<|vision_start|><|image_pad|><|vision_end|>"
BREAK = "\u200b"  # zero-width space
_MARKERS = frozenset(
    f"<|{name}|>"
    for name in (
        "im_start",
        "im_end",
        "endoftext",
        "vision_start",
        "vision_end",
        "vision_pad",
        "image_pad",
        "video_pad",
    )
)
_TOOL_TAGS = frozenset(("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"))


class Words:
    """Tokenizer and chat template of one model. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._tokenizer = tokenizer
        self._template = template
        added = tokenizer.get_added_tokens_decoder().values()
        self.special_tokens = frozenset(token.content for token in added if token.special)
        self._spelled = _either(self.special_tokens | _MARKERS)
        self._tagged = _either(self.special_tokens | _MARKERS | _TOOL_TAGS)

    @classmethod
    def read(cls, folder: Path) -> Words:
        """The words of a model folder. Raises ModelError when a file is missing or unreadable."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelError(f"{path} is missing.", cure="Download the model again, or save its fast tokenizer there.")
        read_json(path)  # the tokenizer's own complaint about a broken file is no text for people
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower than Exception
            raise ModelError(
                f"{path} is not a tokenizer that this version reads.", cure="Download it again."
            ) from error
        return cls(tokenizer, read_template(folder))

    def tidy(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The same conversation by the rules above, for an engine that applies the template itself.

        Raises InvalidField when a system turn holds a picture.
        """
        system = [message for message in messages if message.role == "system"]
        turns = [self._neutral(message) for message in messages if message.role != "system"]
        if not system:
            return tuple(turns)
        if any(isinstance(part, ImagePart) for message in system for part in message.parts):
            raise InvalidField("Pictures stand in user messages only, not in system messages.", param="messages")
        text = "\n\n".join(filter(None, map(_text, system)))
        return self._neutral(replace(system[0], parts=(TextPart(text),))), *turns

    def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> str:
        """The prompt: one picture place for each ImagePart, ending where the answer begins.

        Raises InvalidRequest when the template refuses the turns, UnsupportedField for tools it does not know.
        """
        if tools and not self._template.takes_tools:
            raise UnsupportedField(
                "The model's chat template knows no tools, so the model would never read of them.",
                param="tools",
                cure="Leave the field out, or put a template with tools into the model's folder (chat_template.jinja).",
            )
        turns = [self._turn(message) for message in self.tidy(messages)]
        return self._template.render(turns, self._broken(list(tools)))

    def count(self, prompt: str) -> int:
        """Tokens of a rendered prompt; a picture's place counts as one token. Takes milliseconds for long texts."""
        # By the batch: for a single text the library keeps the interpreter to itself, a second for half a megabyte.
        return len(self._tokenizer.encode_batch_fast([prompt], add_special_tokens=False)[0])

    def neutral(self, text: str) -> str:
        """The text with special tokens and role markers broken up. Doing it again changes nothing."""
        return self._spelled.sub(_split, text)

    def _neutral(self, message: Message) -> Message:
        pattern = self._tagged if message.role == "tool" else self._spelled
        # Neighbouring texts are joined first: a marker may be cut in two between them.
        parts = tuple(
            TextPart(pattern.sub(_split, part.text)) if isinstance(part, TextPart) else part
            for part in _joined(message.parts)
        )
        return replace(message, parts=parts, tool_calls=tuple(self._broken(list(message.tool_calls))))

    def _broken(self, value: Any) -> Any:
        """Neutral form of everything inside a call or a tool, keys included."""
        if isinstance(value, str):
            return self._tagged.sub(_split, value)
        if isinstance(value, dict):
            return {self._broken(key): self._broken(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._broken(item) for item in value]
        return value

    def _turn(self, message: Message) -> dict[str, Any]:
        """A message as templates expect it."""
        if message.role == "tool" and not self._template.takes_tools:
            text = f"<tool_response>\n{_text(message)}\n</tool_response>"
            return {"role": "user", "content": text}
        turn: dict[str, Any] = {"role": message.role, "content": _content(message.parts)}
        calls = [_call(call) for call in message.tool_calls]
        if calls and self._template.takes_tools:
            turn["tool_calls"] = calls
        elif calls:
            turn["content"] = "\n".join(filter(None, (_text(message), *map(_call_text, calls))))
        return turn


def _content(parts: Sequence[Part]) -> str | list[dict[str, str]]:
    if not any(isinstance(part, ImagePart) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    return [{"type": "text", "text": p.text} if isinstance(p, TextPart) else {"type": "image"} for p in parts]


def _text(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))


def _joined(parts: Iterable[Part]) -> list[Part]:
    joined: list[Part] = []
    for is_text, run in itertools.groupby(parts, lambda part: isinstance(part, TextPart)):
        same = list(run)
        texts = [part.text for part in same if isinstance(part, TextPart)]
        joined += [TextPart("".join(texts))] if is_text else same
    return joined


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """An OpenAI tool call with its arguments as the object that templates write, where they are one."""
    function = call.get("function")
    if not isinstance(function, dict):
        return call
    return {**call, "function": {**function, "arguments": _arguments(function.get("arguments"))}}


def _arguments(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return value
    return decoded if isinstance(decoded, dict) else value


def _call_text(call: dict[str, Any]) -> str:
    function = call.get("function")
    shown = function if isinstance(function, dict) else call
    named = {"name": shown.get("name"), "arguments": shown.get("arguments")}
    return f"<tool_call>\n{msgspec.json.encode(named).decode()}\n</tool_call>"


def _either(texts: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)))


def _split(match: re.Match[str]) -> str:
    found = match[0]
    return found[0] + BREAK + found[1:]
