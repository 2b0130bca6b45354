"""From a request on the wire to what the pipeline takes: a prompt, the pixels of its pictures, counted tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinlens.core import ImagePart, Message, TextPart
from twinlens.engines import wire
from twinlens.errors import ContextLengthExceeded, ServerError
from twinlens.model.words import BREAK
from twinlens.store import resolve

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from twinlens.model.pictures import PictureRule
    from twinlens.model.words import Words

# The pipeline has tags of its own that stand for pictures, besides the model's. Only a client's text can hold them.
_TAG = re.compile(r"<(?=ov_genai_(?:image|video)_\d)")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt. `pixels` are (height, width, 3) arrays of uint8 in the order of their places."""

    text: str
    pixels: tuple[NDArray[Any], ...]
    tokens: int  # text and vision tokens together
    vision_tokens: int


class Prompter:
    """Makes prompts for one model. Safe to use from several threads."""

    def __init__(self, words: Words, rule: PictureRule, store: Path) -> None:
        self._words = words
        self._rule = rule
        self._store = store

    def make(self, chat: wire.Chat) -> Prompt:
        """Render, fetch the pixels and count.

        Raises what the store and the template raise; ServerError when pixels have a size the model would change.
        """
        messages, urls = _messages(chat)
        text = _TAG.sub(f"<{BREAK}", self._words.render(messages))
        pixels = tuple(resolve(self._store, url) for url in urls)
        vision = sum(self._tokens(array) for array in pixels)
        return Prompt(text, pixels, self._words.count(text) - len(pixels) + vision, vision)

    def _tokens(self, pixels: NDArray[Any]) -> int:
        height, width = pixels.shape[:2]
        if pixels.shape != (height, width, 3) or self._rule.target(height, width) != (height, width):
            raise ServerError("A picture in the store is not at the size that the model sees.")
        return self._rule.tokens(height, width)


def most_tokens(prompt: Prompt, asked: int | None, *, context: int, default: int) -> int:
    """Tokens that the answer may have. Raises ContextLengthExceeded when prompt and answer do not fit."""
    left = context - prompt.tokens
    if left < 1 or (asked is not None and asked > left):
        wanted = f" and {asked} for the answer" if asked is not None else ""
        raise ContextLengthExceeded(
            f"The model's context is {context} tokens; {prompt.tokens - prompt.vision_tokens} of text, "
            f"{prompt.vision_tokens} of pictures{wanted} were asked for."
        )
    return min(default, left) if asked is None else asked


def _messages(chat: wire.Chat) -> tuple[list[Message], list[str]]:
    urls: list[str] = []
    messages = [_message(message, urls) for message in chat.messages]
    return messages, urls


def _message(message: wire.Message, urls: list[str]) -> Message:
    parts: list[TextPart | ImagePart] = []
    content = [wire.TextPart(message.content)] if isinstance(message.content, str) else message.content or []
    for part in content:
        if isinstance(part, wire.TextPart):
            parts.append(TextPart(part.text))
        else:
            parts.append(ImagePart(len(urls)))
            urls.append(part.image_url.url)
    calls = tuple(message.tool_calls or ())
    return Message(message.role, tuple(parts), calls, message.tool_call_id, message.name)
